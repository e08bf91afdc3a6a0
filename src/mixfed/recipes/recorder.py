"""What surrounds the steps of a recipe: clock, trace, and whoever watches."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

from ..core.errors import SettingsError
from ..exchange.pool import Pool
from ..model.fit import Progress, Watcher


class Recorder:
    """Keeps the seconds of each phase and a record of each round."""

    def __init__(self, pool: Pool, watch: Watcher | None) -> None:
        self.pool = pool
        self.watch = watch
        self.trace: list[dict[str, Any]] = []
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def timing(self, phase: str) -> Iterator[None]:
        """Time a phase."""
        begun = time.perf_counter()
        yield
        self.seconds[phase] = time.perf_counter() - begun

    def report(self, phase: str, round_: int, rounds: int, info: Any) -> None:
        """End a round: record it, and tell whoever watches."""
        traffic = dataclasses.asdict(self.pool.traffic)
        self.trace.append({"phase": phase, "round": round_, **traffic, **dataclasses.asdict(info)})
        if self.watch is not None:
            self.watch(Progress(phase, round_, rounds, info))


def check_clusters(n_clusters: int, n_clients: int) -> None:
    """Refuse a number of kinds that cannot be."""
    if n_clusters < 1:
        raise SettingsError(f"n_clusters = {n_clusters} must be 1 or more")
    if n_clusters > n_clients:
        raise SettingsError(
            f"n_clusters = {n_clusters}, but the table has no more than {n_clients} clients: ask for fewer kinds"
        )
