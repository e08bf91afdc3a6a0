"""Numba's compiler: what it makes is kept on disk, and used again only while it would be made the same way."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])

# Sums may be reordered within a row so that they use the whole width of the processor; NaN and infinity stay.
_MATH = {"reassoc", "contract", "arcp", "nsz"}
PARTS = ("core/compile.py", "families", "kernels")
"""Files and folders of the package that what is compiled in others depends on."""


def compiled(function: F) -> F:
    """Compile, and keep the result on disk so that the next start pays nothing.

    The interpreter's lock is released, so blocks of clients run on threads side by side.
    """
    return _compile(function, inline=False)


def inlined(function: F) -> F:
    """Compile as a part of whatever compiled function calls it.

    For what is called for every client: each array is eight numbers to hand over, and a call with some of them takes as
    long as the work on a small client.
    """
    return _compile(function, inline=True)


def _compile(function: F, inline: bool) -> F:
    # What C code would call is not made: nobody but Python and compiled functions calls these.
    options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    compiler = numba.njit(fastmath=_MATH, forceinline=inline, **options)
    name = function.__qualname__
    function.__qualname__ = f"{name}-{_sources()}"  # numba calls its file on disk by this name, and looks for it now
    dispatcher = compiler(function)
    function.__qualname__ = name
    return cast(F, dispatcher)


@cache
def _sources() -> str:
    """Say which sources compiled code is made of.

    Numba takes a function from disk if the file that it stands in is the same. What it calls may stand in another, and
    be another after an upgrade.
    """
    files = sources(Path(__file__).parents[1], PARTS)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def sources(home: Path, parts: Iterable[str]) -> list[Path]:
    """Find the Python files that are, or are below, parts of a folder, in the order of their paths there."""
    found: set[Path] = set()
    for part in parts:
        here = [home / part] if (home / part).is_file() else list((home / part).rglob("*.py"))
        if not here:
            raise FileNotFoundError(f"{home / part}: no Python files, so nobody knows what compiled code is made of")
        found.update(here)
    return sorted(found, key=lambda file: file.relative_to(home).parts)


@contextmanager
def telling(tell: Callable[[], None]) -> Iterator[None]:
    """Tell somebody, once, if anything must be compiled inside: that takes seconds."""
    told = Lock()

    class Telling(event.Listener):
        def on_start(self, _event: object) -> None:
            if told.acquire(blocking=False):
                tell()

        def on_end(self, _event: object) -> None: ...

    with event.install_listener("numba:compile", Telling()):
        yield
