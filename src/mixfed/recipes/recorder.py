"""What surrounds the steps of a recipe: clock, trace, and whoever watches."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from ..core.errors import SettingsError
from ..exchange.pool import Pool
from ..model.fit import Progress, Watcher


class Recorder:
    """What surrounds the steps: clock, trace, and whoever watches."""

    def __init__(self, pool: Pool, watch: Watcher | None) -> None:
        self.pool = pool
        self.watch = watch
        self.trace: list[dict[str, Any]] = []
        self.seconds: dict[str, float] = {}

    def timing(self, phase: str) -> _Timing:
        """Time a phase."""
        return _Timing(self.seconds, phase)

    def report(self, phase: str, round_: int, rounds: int, info: Any) -> None:
        """End a round: record it, and tell whoever watches."""
        traffic = dataclasses.asdict(self.pool.traffic)
        self.trace.append({"phase": phase, "round": round_, **traffic, **dataclasses.asdict(info)})
        if self.watch is not None:
            self.watch(Progress(phase, round_, rounds, info))


class _Timing:
    def __init__(self, seconds: dict[str, float], phase: str) -> None:
        self.seconds, self.phase = seconds, phase

    def __enter__(self) -> None:
        self.begun = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds[self.phase] = time.perf_counter() - self.begun


def check_clusters(n_clusters: int, n_clients: int) -> None:
    """Refuse a number of kinds that cannot be."""
    if n_clusters < 1:
        raise SettingsError(f"n_clusters = {n_clusters} must be 1 or more")
    if n_clusters > n_clients:
        raise SettingsError(
            f"n_clusters = {n_clusters}, but the table has no more than {n_clients} clients: ask for fewer kinds"
        )
