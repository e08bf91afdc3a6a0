"""The way to the sites: what an engine has to offer, and the one for sites in this process."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..core.threads import one_blas_thread, side_by_side
from .site import Site

_TRIED, _TOGETHER, _ROOM = 32, 128, 1 << 26
"""Sites in one process whose answers are ready before one is read, while it is tried how to ask them and then, and
bytes that these may have. What is done many times in a row stays in a core's caches. And Python runs one thread at a
time, only compiled sums are done side by side: who packs or reads while others work waits for them at every step."""


class Transport(Protocol):
    """A way to the sites: what an engine has to offer."""

    @property
    def names(self) -> Sequence[str]:
        """The sites that there are."""

    def send(self, messages: Mapping[str, bytes], timeout: float) -> Iterator[tuple[str, bytes | Exception]]:
        """Send each site its message, and give the sites' answers, or what went wrong, as they come in.

        A site that has not answered after ``timeout`` seconds is not waited for.
        """


@dataclass
class _Pace:
    """How long sites take to work out answers of some length: one after the other (False), or side by side (True)."""

    batches: int = 0
    best: dict[bool, float] = field(default_factory=lambda: {False: math.inf, True: math.inf})
    """Seconds for each site, at best: what else the machine does only makes it longer."""

    @property
    def at_once(self) -> bool:
        """Whether the next are to work side by side. Threads are slow at first, so that they are tried twice."""
        return self.batches in (1, 2) or self.best[True] < self.best[False]

    def learn(self, at_once: bool, seconds: float) -> None:
        """Take note of a batch."""
        self.batches += 1
        self.best[at_once] = min(self.best[at_once], seconds)


class InProcess:
    """Sites in this process: for simulations and tests."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self.sites = sites
        self._paces: dict[int, _Pace] = {}
        """By the length of answers."""

    @property
    def names(self) -> Sequence[str]:
        """The sites that there are."""
        return list(self.sites)

    def send(self, messages: Mapping[str, bytes], timeout: float) -> Iterator[tuple[str, bytes | Exception]]:
        """Ask some sites one after the other, some side by side, and the rest as it went faster.

        Few may be large, with threads of their own. Answers of many may be so short that threads would only wait for
        each other, or so long that they must not wait.
        """
        names = list(messages)

        def work(some: Sequence[str]) -> list[Iterator[bytes]]:
            sites = [self.sites[name].stages(messages[name]) for name in some]
            for site in sites:
                next(site)
            return sites

        with one_blas_thread():  # once for all of them
            answer = b""
            for name in names[:1]:  # which shows how long answers are
                answer = self.sites[name].answer(messages[name])
                yield name, answer
            pace, room = self._paces.setdefault(len(answer), _Pace()), max(1, _ROOM // max(len(answer), 1))
            first = 1
            while first < len(names):
                batch = names[first : first + min(_TOGETHER if pace.batches > 2 else _TRIED, room)]
                at_once, begun = pace.at_once, time.perf_counter()
                step = math.ceil(len(batch) / 4) if at_once else len(batch)
                parts = [batch[begin : begin + step] for begin in range(0, len(batch), step)]
                worked = list(side_by_side(work, parts, level=1))
                pace.learn(at_once, (time.perf_counter() - begun) / len(batch))
                yield from zip(batch, [next(site) for some in worked for site in some], strict=True)
                first += len(batch)
