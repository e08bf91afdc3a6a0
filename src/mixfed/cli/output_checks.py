"""Where results go: looked at before any work is done, so that nothing is lost and nothing is half-written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from ..core.errors import SettingsError


def check_folder(out: Path, *inputs: Path | None) -> None:
    """Refuse a folder for results that cannot be made, or that holds what is to be read."""
    if out.exists() and not out.is_dir():
        raise SettingsError(f"--out {out}: {os.strerror(errno.EEXIST)}, and it is not a folder: choose another name")
    _check_parents(out)
    if _is_one_of(out, inputs):
        raise SettingsError(f"--out {out}: this is the folder that is read: choose another")


def check_table(out: Path, *inputs: Path | None) -> None:
    """Refuse a name for a table of results that does not say what it is, or that cannot be written."""
    if out.suffix not in (".parquet", ".csv"):
        raise SettingsError(f"--out {out}: the name must end in .parquet or .csv")
    check_file("--out", out, *inputs)


def check_file(option: str, path: Path | None, *inputs: Path | None) -> None:
    """Refuse a name for a result that has no folder, or is that of a folder or of a file that is read."""
    if path is None:
        return
    if path.is_dir():
        raise SettingsError(f"{option} {path}: this is a folder: give the name of a file")
    _check_parents(path, option)
    if not path.parent.exists():
        raise SettingsError(f"{option} {path}: there is no folder {path.parent}: make it, or choose another")
    if _is_one_of(path, inputs):
        raise SettingsError(f"{option} {path}: this file is to be read: choose another name")


def _is_one_of(path: Path, inputs: Iterable[Path | None]) -> bool:
    return path.exists() and any(other is not None and other.exists() and path.samefile(other) for other in inputs)


def _check_parents(out: Path, option: str = "--out") -> None:
    for parent in out.absolute().parents:
        if parent.exists():
            if not parent.is_dir():
                raise SettingsError(f"{option} {out}: {os.strerror(errno.ENOTDIR)}: {parent} is a file: choose another")
            return
