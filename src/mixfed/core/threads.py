"""Threads: blocks of clients side by side, and BLAS on one thread, for its products here are small."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from threading import Barrier, Lock, Thread
from typing import TypeVar

from threadpoolctl import ThreadpoolController

A = TypeVar("A")
T = TypeVar("T")


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
