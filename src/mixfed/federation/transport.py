"""The way to the sites: what an engine has to offer, and the one for sites in this process."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..compiled import one_blas_thread, side_by_side
from .site import Site

_TRIED, _TOGETHER, _ROOM = 32, 128, 1 << 26
"""Sites in one process whose answers are ready before one is read, while it is tried how to ask them and then, and
bytes that these may have. What is done many times in a row stays in a core's caches. And Python runs one thread at a
time, only compiled sums are done side by side: who reads while others answer waits for them at every step."""


class Transport(Protocol):
    """A way to the sites: what an engine has to offer."""

    @property
    def names(self) -> Sequence[str]:
        """The sites that there are."""

    def send(self, messages: Mapping[str, bytes], timeout: float) -> Iterator[tuple[str, bytes | Exception]]:
        """Send each site its message, and give the sites' answers, or what went wrong, as they come in.

        A site that has not answered after ``timeout`` seconds is not waited for.
        """


class InProcess:
    """Sites in this process: for simulations and tests."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self.sites = sites

    @property
    def names(self) -> Sequence[str]:
        """The sites that there are."""
        return list(self.sites)

    def send(self, messages: Mapping[str, bytes], timeout: float) -> Iterator[tuple[str, bytes | Exception]]:
        """Ask some sites one after the other, some side by side, and the rest as it went faster.

        Few may be large, with threads of their own. Answers of many may be so short that threads would only wait for
        each other, or so long that they must not wait.
        """
        names, step, longest = list(messages), 1, 0

        def work(begin: int) -> list[Iterator[bytes]]:
            some = [self.sites[name].stages(messages[name]) for name in names[begin : begin + step]]
            for site in some:
                next(site)
            return some

        pace = {True: math.inf, False: math.inf}
        batch = first = 0
        with one_blas_thread():  # once for all of them
            while first < len(names):
                count = _TRIED if batch < 4 else _TOGETHER
                # Threads are slow at first: their second batch tells.
                at_once = batch in (2, 3) or pace[True] < pace[False]
                if batch == 0 or longest * count > _ROOM:  # the first answer shows how long they are
                    count, at_once = 1, False
                begun, step = time.perf_counter(), count // 4 if at_once else count
                begins = range(first, min(first + count, len(names)), step)
                found = list(side_by_side(work, begins, level=1)) if at_once else [work(first)]
                pace[at_once] = (time.perf_counter() - begun) / count
                answers = [next(site) for some in found for site in some]
                longest = max(longest, *map(len, answers))
                yield from zip(names[first : first + count], answers, strict=True)
                batch, first = batch + 1, first + count
