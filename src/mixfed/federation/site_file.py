"""A site's own file, ``mixfed.toml``, which its owner writes."""

import contextlib
import dataclasses
import os
import re
import secrets
import tempfile
import tomllib
from functools import partial
from pathlib import Path
from typing import get_args

from ..clients.store import Store, open_clients
from ..core.errors import SettingsError
from ..core.files import append_json
from ..recipes.settings import AnchorsName, check_keys
from .site import Site


@dataclasses.dataclass(frozen=True)
class SiteFile:
    """What the owner of a site writes in ``mixfed.toml``."""

    data: str
    client: str | None = None
    target: str | None = None
    features: list[str] | None = None
    min_clients: int = 10
    anchors: AnchorsName = "single"
    pseudonyms: bool = True
    out: str = "result"


def open_site(path: Path) -> Site:
    """Read a site's ``mixfed.toml`` and the table that it names; relative paths begin where the file is."""
    about = read_site_file(path)
    folder = path.absolute().parent
    out = folder / about.out
    clients = open_clients(folder / about.data, about.client, about.target, about.features)
    columns = (
        (clients.client_column, clients.target_column) if isinstance(clients, Store) else (about.client, about.target)
    )
    out.mkdir(parents=True, exist_ok=True)
    secret = _secret(out / "secret") if about.pseudonyms else None
    return Site(
        clients,
        min_clients=about.min_clients,
        anchors=about.anchors,
        secret=secret,
        out=out,
        columns=columns,
        log=partial(append_json, out / "questions.jsonl"),
    )


def read_site_file(path: Path) -> SiteFile:
    """Read and check a ``mixfed.toml``."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML ({error})") from error
    check_keys(table, [item.name for item in dataclasses.fields(SiteFile)], f"{path}: unknown key")
    wanted: dict[str, tuple[type, str]] = {
        **dict.fromkeys(("data", "client", "target", "anchors", "out"), (str, "text")),
        "features": (list, "a list of columns"),
        "min_clients": (int, "a whole number"),
        "pseudonyms": (bool, "true or false"),
    }
    for name, value in table.items():
        kind, what = wanted[name]
        if type(value) is not kind:
            raise SettingsError(f"{path}: {name} = {value!r} must be {what}")
    if not table.get("data"):
        raise SettingsError(f"{path}: data is missing: name the table of this site's clients")
    if table.get("anchors", "single") not in get_args(AnchorsName):
        raise SettingsError(f"{path}: anchors = {table['anchors']!r} must be 'single' or 'summed'")
    if table.get("min_clients", 1) < 1:
        raise SettingsError(f"{path}: min_clients = {table['min_clients']} must be 1 or more")
    return SiteFile(**table)


def _secret(path: Path) -> bytes:
    """Read the secret behind the site's pseudonyms, or make one: whole, and by one of those who try, or not at all."""
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix="secret-", encoding="utf-8") as new:
            new.write(secrets.token_hex(32))
            new.flush()
            with contextlib.suppress(FileExistsError):
                os.link(new.name, path)
    text = path.read_text(encoding="utf-8")
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise SettingsError(f"{path}: the secret is damaged: delete it, and clients get new pseudonyms")
    return bytes.fromhex(text)
