"""Files and folders that are written whole or not at all."""

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any


def write_all(files: dict[Path, Callable[[Path], object]]) -> None:
    """Write files that belong together; old ones are replaced when all new ones are whole, and not before.

    The last of several is gone while the others are replaced, so that where there is one the others belong to it.
    """
    partials = {path: path.with_name(path.name + ".partial") for path in files}
    try:
        for path, write in files.items():
            try:
                write(partials[path])
                with partials[path].open("rb") as file:
                    os.fsync(file.fileno())
            except OSError as error:
                error.filename = str(path)  # a full disk does not say which
                raise
        *others, last = files
        if others:
            last.unlink(missing_ok=True)
        for path, partial in partials.items():
            partial.replace(path)
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file beside ``path``, then put it in place in one step."""
    write_all({path: write})


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def append_json(path: Path, value: Any) -> None:
    """Add a value to a file that has one in each line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


@contextlib.contextmanager
def whole_folder(path: Path, names: Collection[str]) -> Iterator[Path]:
    """Give a folder to write files of these names in, which takes the place of ``path`` in the end, or not at all.

    What others have put into such a folder stays, and is an error.
    """
    whole = path.resolve()
    partial, old = (whole.with_name(whole.name + ending) for ending in (".partial", ".old"))
    _remove(partial, names)
    partial.mkdir(parents=True)
    try:
        yield partial
        if whole.exists():
            _remove(old, names)
            whole.rename(old)
        partial.rename(whole)
        _remove(old, names)
    finally:
        _remove(partial, names)


def _remove(folder: Path, names: Collection[str]) -> None:
    if not folder.is_dir():
        return
    for name in (*names, *(f"{name}.partial" for name in names)):
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Keep others away from a folder, or raise BlockingIOError; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # on Windows, where there is no engine, and so nobody else
        yield
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)
