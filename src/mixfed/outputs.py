"""Where results go: looked at before any work is done, so that nothing is lost and nothing is half-written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from .errors import SettingsError


def check_folder(out: Path, *inputs: Path | None) -> None:
    """Refuse a folder for results that cannot be made, or that holds what is to be read."""
    if out.exists() and not out.is_dir():
        raise SettingsError(f"--out {out}: {os.strerror(errno.EEXIST)}, and it is not a folder: choose another name")
    _check_parents(out)
    for path in inputs:
        if path is not None and out.exists() and path.exists() and out.samefile(path):
            raise SettingsError(f"--out {out}: this is the folder that is read: choose another")


def check_file(out: Path, *inputs: Path | None) -> None:
    """Refuse a name for a result that is no parquet file, has no folder, or is that of a file that is read."""
    if out.suffix != ".parquet":
        raise SettingsError(f"--out {out}: the name must end in .parquet")
    if out.is_dir():
        raise SettingsError(f"--out {out}: this is a folder: give the name of a file")
    _check_parents(out)
    if not out.parent.exists():
        raise SettingsError(f"--out {out}: there is no folder {out.parent}: make it, or choose another")
    for path in inputs:
        if path is not None and out.exists() and path.exists() and out.samefile(path):
            raise SettingsError(f"--out {out}: this file is to be read: choose another name")


def write_all(files: dict[Path, Callable[[Path], object]]) -> None:
    """Write files that belong together; old ones are replaced when all new ones are whole, and not before.

    The last file is gone while the others are replaced, so that where there is one the others belong to it.
    """
    partials = {path: path.with_name(path.name + ".partial") for path in files}
    try:
        for path, write in files.items():
            write(partials[path])
            with partials[path].open("rb") as file:
                os.fsync(file.fileno())
        *_, last = files
        last.unlink(missing_ok=True)
        for path, partial in partials.items():
            partial.replace(path)
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)


def _check_parents(out: Path) -> None:
    for parent in out.absolute().parents:
        if parent.exists():
            if not parent.is_dir():
                raise SettingsError(f"--out {out}: {os.strerror(errno.ENOTDIR)}: {parent} is a file: choose another")
            return
