"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


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
