"""Start-up kits: a folder for each party of a federation, with its certificate and its orders.

Whoever sets a federation up runs `provision` once and hands each party its folder. A kit can be unpacked anywhere. What
a site lets others do is written in its own kit, and the site itself sees to it: it runs the two classes that answer
questions of mixfed and no others, takes no code from anyone, accepts only jobs that the administrator has signed, and
lets nobody read its files or logs.
"""

import contextlib
import io
import json
import logging
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...core.errors import SettingsError
from ...core.files import write_json
from .jobs import ANSWERER, CONDUCTOR, CONTROLLER, EXECUTOR

SETTINGS = "mixfed.toml"
"""A site's own settings, in its kit."""
_FEDERATION = "federation.json"
"""Who the members of the federation are, in the administrator's kit."""
AUTHORITY = "authority"
"""The certificate authority, beside the kits: whoever has it can make members."""
DAYS = 360
"""How long certificates last, at most and by default."""
PORT = 8002
ORGANISATION = "mixfed"
_ADMIN = "admin@mixfed.local"
_ROLE = "lead"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
NAME_RULE = "a name has 1 to 63 letters, digits, - or _, and begins with a letter or a digit"
_HOST = re.compile(r"([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?")
_RIGHTS = {
    "submit_job", "clone_job", "manage_job", "download_job", "view", "operate", "shell_commands", "byoc", "app_command"
}  # fmt: skip
_LOST_AFTER = 30
"""Seconds without a heartbeat, of which there is one in ten, after which the server counts a site as gone."""


class Role(StrEnum):
    """What a party does."""

    SERVER = "server"
    SITE = "site"
    ADMIN = "admin"


@dataclass(frozen=True)
class Kit:
    """A party's folder."""

    path: Path
    role: Role
    name: str
    """A site's name, the administrator's user name, or ``server``."""

    @property
    def settings(self) -> Path:
        """The settings of a site."""
        return self.path / SETTINGS

    @property
    def log(self) -> Path:
        """What the party's processes say."""
        return self.path / "console.log"

    def startup(self) -> dict[str, Any]:
        """Read what the kit was provisioned with."""
        return _read(self.path / "startup" / _STARTUP[self.role])

    def sites(self) -> tuple[str, ...]:
        """Name all sites of the federation, as the administrator's kit has them."""
        return tuple(_read(self.path / _FEDERATION)["sites"])

    @property
    def address(self) -> str:
        """The server, as host:port."""
        start = self.startup()
        if self.role is Role.ADMIN:
            return f"{start['admin']['host']}:{start['admin']['port']}"
        return str(start["servers"][0]["service"]["target"])


_STARTUP = {Role.SERVER: "fed_server.json", Role.SITE: "fed_client.json", Role.ADMIN: "fed_admin.json"}


def open_kit(path: Path, *roles: Role) -> Kit:
    """Find out whose kit a folder is, and refuse one of another role than asked for."""
    path = path.resolve()
    for role, file in _STARTUP.items():
        if (path / "startup" / file).is_file():
            if roles and role not in roles:
                wanted = " or ".join(map(_a, roles))
                raise SettingsError(f"{path}: this is the kit of {_a(role)}: give that of {wanted}")
            start = _read(path / "startup" / file)
            names = {Role.SITE: ("client", "fqsn"), Role.ADMIN: ("admin", "username")}
            return Kit(path, role, start[names[role][0]][names[role][1]] if role in names else "server")
    raise SettingsError(f"{path}: this is not a kit of `mixfed federate init`")


def open_kits(path: Path) -> list[Kit]:
    """Open one kit, or all kits in a folder."""
    if path.is_dir() and not (path / "startup").is_dir():
        kits = [open_kit(child) for child in sorted(path.iterdir()) if (child / "startup").is_dir()]
        if kits:
            return kits
    return [open_kit(path)]


def provision(
    folder: Path, sites: Sequence[str], host: str = "localhost", port: int = PORT, days: int = DAYS
) -> list[Kit]:
    """Make the kits of a server, of sites and of an administrator, each in a folder of its own.

    The folder is new or empty. ``host`` is the name or address under which the sites reach the server, on its one
    ``port``: with one of this machine's own (localhost) the server listens on the loopback interface only. The
    certificates last so many ``days``.
    """
    _check(folder, sites, host, port, days)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as scratch:
        made, state = _provisioned(Path(scratch), _project(sites, host, port, days))
        parties = {"server": "server", **{name: name for name in sites}, _ADMIN: "admin"}
        for source, place in parties.items():
            (made / source).rename(folder / place)
        # The authority can make members; the keys of those there are belong to them alone.
        kept = {name: value for name, value in _read(state / "cert.json").items() if name.startswith("root_")}
        authority = folder / AUTHORITY
        authority.mkdir(mode=0o700)
        write_json(authority / "cert.json", kept)
        (authority / "cert.json").chmod(0o600)
    kits = [open_kit(folder / place) for place in parties.values()]
    for kit in kits:
        kit.path.chmod(0o700)
        _adapt(kit, host, port)
        settle(kit)
        _describe(kit, host, port, days, len(sites))
        if kit.role is Role.ADMIN:
            write_json(kit.path / _FEDERATION, {"sites": list(sites)})
    return kits


def settle(kit: Kit) -> None:
    """Tell a server's kit where it is: the engine wants whole paths, and a kit may have been moved."""
    if kit.role is not Role.SERVER:
        return
    path = kit.path / "local" / "resources.json"
    resources = _read(path)
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit.path / "state" / "snapshots")
    manager = next(part for part in resources["components"] if part["id"] == "job_manager")
    manager["args"]["uri_root"] = str(kit.path / "state" / "jobs")
    write_json(path, resources)


def _check(folder: Path, sites: Sequence[str], host: str, port: int, days: int) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(f"{folder}: there is something already: give a new or empty folder")
    if not sites:
        raise SettingsError("no site is named: a federation has one or more")
    for name in sites:
        if not NAME.fullmatch(name):
            raise SettingsError(f"site {name!r}: {NAME_RULE}")
        if name.lower() in {"server", "admin", AUTHORITY}:
            raise SettingsError(f"site {name!r}: this name is taken: use another")
    twice = {name for name in sites if [other.lower() for other in sites].count(name.lower()) > 1}
    if twice:
        raise SettingsError(f"site {min(twice)!r} is named twice")
    if len(host) > 253 or not _HOST.fullmatch(host):
        raise SettingsError(f"server {host!r}: give a host name or an IPv4 address")
    if not 0 < port < 65536:
        raise SettingsError(f"port {port}: give one from 1 to 65535")
    if not 1 <= days <= DAYS:
        raise SettingsError(f"days {days}: certificates last from 1 to {DAYS} days")


def _project(sites: Sequence[str], host: str, port: int, days: int) -> dict[str, Any]:
    """Describe the federation as the engine's provisioning wants it."""
    party = {"org": ORGANISATION}
    server = {"name": "server", "type": "server", "default_host": host, "fed_learn_port": port, "admin_port": port}
    return {
        "api_version": 3,
        "name": ORGANISATION,
        "description": "a mixfed federation",
        "participants": [
            server | party,
            *({"name": name, "type": "client", **party} for name in sites),
            {"name": _ADMIN, "type": "admin", "role": _ROLE, **party},
        ],
        "builders": [
            {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder"},
            {
                "path": "nvflare.lighter.impl.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "require_signed_jobs": True},
            },
            {"path": "nvflare.lighter.impl.cert.CertBuilder", "args": {"root_valid_days": days}},
        ],
    }


def _provisioned(scratch: Path, project: dict[str, Any]) -> tuple[Path, Path]:
    """Run the engine's provisioning; give the folders of the kits and of the certificate authority."""
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        builders = prepare_builders(project)
        context = Provisioner(str(scratch), builders).provision(
            prepare_project(project), logger=logging.getLogger(__name__)
        )
    if context.get(CtxKey.BUILD_ERROR):
        raise SettingsError(f"the certificates could not be made: {said.getvalue()}")
    return Path(context.get_result_location()), Path(context.get_state_dir())


def _adapt(kit: Kit, host: str, port: int) -> None:
    """Narrow down what a party allows to what a federation of ours needs."""
    for name in ("readme.txt", "startup/readme.txt", "startup/system_info.ipynb", "local/privacy.json.sample"):
        (kit.path / name).unlink(missing_ok=True)
    if kit.role is Role.ADMIN:
        return
    local = kit.path / "local"
    resources = _read(local / "resources.json.default")
    server = kit.role is Role.SERVER
    resources["class_allow_list"] = [CONTROLLER, CONDUCTOR] if server else [EXECUTOR, ANSWERER]
    if server:
        resources["servers"][0]["heart_beat_timeout"] = _LOST_AFTER
        # By this address, too, the engine decides whether to listen on the loopback interface only.
        start = kit.startup()
        start["servers"][0]["service"]["target"] = f"{host}:{port}"
        start["servers"][0]["admin_server"] = host
        write_json(kit.path / "startup" / _STARTUP[kit.role], start)
    else:
        resources["allow_log_streaming"] = False
    dropped = {"log_receiver", "site_log_streamer"}
    resources["components"] = [part for part in resources["components"] if part["id"] not in dropped]
    write_json(local / "resources.json", resources)
    allowed = _RIGHTS - {"clone_job", "shell_commands", "byoc"} if server else {"submit_job"}
    policy = {right: "any" if right in allowed else "none" for right in sorted(_RIGHTS)}
    write_json(local / "authorization.json", {"format_version": "1.0", "permissions": {_ROLE: policy}})


def _describe(kit: Kit, host: str, port: int, days: int, count: int) -> None:
    """Write what the party has to do."""
    until = (datetime.now(UTC) + timedelta(days=days)).date()
    listening = f"It listens on all interfaces of its machine: open port {port} for the sites and the administrator."
    if host == "localhost" or host.startswith("127."):
        listening = "It listens on this machine only, for it was set up for localhost."
    text = _text(f"{kit.role}.md").format(
        name=kit.name, host=host, port=port, days=days, until=until, count=count, listening=listening
    )
    (kit.path / "README.md").write_text(text)
    if kit.role is Role.SITE:
        kit.settings.write_text(_text(SETTINGS).format(name=kit.name))


def _text(name: str) -> str:
    """Read what is written for people into a kit."""
    return (files(__package__) / "kit_texts" / name).read_text(encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: it cannot be read: {error}") from None
    return content


def _a(role: Role) -> str:
    return "an administrator" if role is Role.ADMIN else f"a {role}"
