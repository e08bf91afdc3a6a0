"""The way to the sites: what an engine has to offer, and the one for sites in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..compiled import one_blas_thread, side_by_side
from .site import Site

_IN_TURN, _TOGETHER = 32, 128
"""Sites in one process that a thread asks one after the other, and sites whose answers are ready before one is read.
Python runs one thread at a time, and only compiled sums are done side by side: who reads while others answer waits for
them at every step."""


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
        each other.
        """
        names = list(messages)

        def answers(begin: int) -> list[tuple[str, bytes | Exception]]:
            return [(name, self.sites[name].answer(messages[name])) for name in names[begin : begin + _IN_TURN]]

        seconds: dict[bool, float] = {}
        with one_blas_thread():  # once for all of them
            for batch, first in enumerate(range(0, len(names), _TOGETHER)):
                begins = range(first, min(first + _TOGETHER, len(names)), _IN_TURN)
                # Threads are slow at first: their second batch tells.
                at_once = batch in (1, 2) or (batch > 2 and seconds[True] < seconds[False])
                begun = time.perf_counter()
                found = list(side_by_side(answers, begins, level=1) if at_once else map(answers, begins))
                seconds[at_once] = time.perf_counter() - begun
                for some in found:
                    yield from some
