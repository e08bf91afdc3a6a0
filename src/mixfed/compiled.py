"""How we use the machine: numba's compiler, threads over blocks of clients, BLAS kept to one thread."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from threading import Barrier, Lock, Thread
from typing import Any, TypeVar, cast

import numba
from numba.core import event
from threadpoolctl import ThreadpoolController

F = TypeVar("F", bound=Callable[..., Any])
A = TypeVar("A")
T = TypeVar("T")

# Sums may be reordered within a row so that they use the whole width of the processor; NaN and infinity stay.
_MATH = {"reassoc", "contract", "arcp", "nsz"}
_PARTS = (
    "bends",
    "compiled",
    "fewrows",
    "kernels",
    "local",
    "losses",
    "moments",
    "posterior",
    "products",
)
"""Modules that what is compiled in others depends on."""


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
    compiler = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_MATH, forceinline=inline)
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
    files = (Path(__file__).with_name(f"{part}.py") for part in _PARTS)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files if file.exists())).hexdigest()[:16]


@contextmanager
def told_of_compiling(tell: Callable[[], None]) -> Iterator[None]:
    """Tell somebody, once, if anything must be compiled inside: that takes seconds."""
    told = Lock()

    class Telling(event.Listener):
        def on_start(self, _event: object) -> None:
            if told.acquire(blocking=False):
                tell()

        def on_end(self, _event: object) -> None: ...

    with event.install_listener("numba:compile", Telling()):
        yield


def side_by_side(function: Callable[[A], T], items: Iterable[A], level: int = 0) -> Iterator[T]:
    """Call a function on every item, on all cores, and give the results in order, each as soon as it is its turn.

    What it calls may come back here at a lower level only: a thread that waits for others of its own may wait for ever.
    """
    items = list(items)
    if len(items) == 1:
        return map(function, items)
    with _starting:
        threads = _threads(level)
    return threads.map(function, items)


class _OneBlasThread:
    """Keeps BLAS to one thread for as long as anybody is inside."""

    def __init__(self) -> None:
        self._inside, self._limit = 0, ExitStack()
        self._lock = Lock()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit.enter_context(_controller().limit(limits=1, user_api="blas"))
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.close()


_inside = _OneBlasThread()
_starting = Lock()


def one_blas_thread() -> AbstractContextManager[None]:
    """Keep BLAS to one thread for a while.

    Its products are small here: more threads would wait for each other longer than they work, fight with
    ours for the cores, and make the last digits depend on how many there are.
    """
    return _inside


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _threads(level: int) -> ThreadPoolExecutor:
    """Start as many threads as the environment variable MIXFED_THREADS says, or else as there are cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("MIXFED_THREADS", "")
    count = int(wanted) if wanted.isdigit() and int(wanted) else cores
    pool = ThreadPoolExecutor(count, thread_name_prefix=f"mixfed-{level}")
    # Ctrl-C is raised in the main thread, and if the pool is just starting a thread there, the pool forgets that
    # thread and the program waits for it at its end, for ever. So another thread starts them all.
    starter = Thread(target=_start, args=(pool, count))
    starter.start()
    starter.join()
    return pool


def _start(pool: ThreadPoolExecutor, count: int) -> None:
    """Start all threads of a pool, by tasks that wait for each other."""
    together = Barrier(count)
    try:
        list(pool.map(lambda _: together.wait(), range(count)))
    except RuntimeError:  # no room for so many: the pool does with fewer
        together.abort()
