"""Recipes: from a pool of clients to a model.

`fit_paper` runs the paper's two phases one after the other. Each round is a pure step from state to state; this
module owns the loop around them: progress, trace, and the model in the end.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import fedmd, fedx
from .arrays import Floats
from .data import INTERCEPT
from .errors import DataError, SettingsError
from .exchange import Census, CensusSum, FedAvg, Mixture, ModelSum, Peak, Refine, Traffic
from .losses import SQUARED, Loss
from .model import Model
from .pool import Pool
from .settings import PaperSettings


@dataclass(frozen=True)
class Progress:
    """One round has ended."""

    phase: str
    round: int
    rounds: int
    info: Any


Watcher = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class Fit:
    """A model and how it came about."""

    model: Model
    trace: list[dict[str, Any]]
    """One record per round."""
    traffic: Traffic
    seconds: dict[str, float]
    """Time spent in each phase since the run was started or resumed."""
    stop: str


def fit_paper(
    pool: Pool,
    features: tuple[str, ...],
    n_clusters: int,
    settings: PaperSettings,
    *,
    seed: int = 0,
    loss: Loss = SQUARED,
    watch: Watcher | None = None,
) -> Fit:
    """Run the paper's recipe: Phase 1 from one start for all anchors, then Phase 2 on all clients.

    ``features`` names the pool's features.
    """
    run = _Run(pool, watch)
    with run.timing("census"):
        _check_clusters(n_clusters, len(pool.roster.rows))
        census, peak = pool.ask(Census()), pool.ask(Peak()).peak
        _check_columns(census, features)
        settings = settings.completed(n_clusters, census.n_rows, pool.dim)
        start = _start(settings, features)
    with run.timing("fedmd"):
        cast = fedmd.cast(pool, settings, seed)
        coarse = fedmd.init(cast, start)
        while coarse.round < settings.rounds:
            coarse, progress = fedmd.step(coarse, pool, cast, n_clusters, settings, seed)
            run.report("fedmd", coarse.round, settings.rounds, progress)
        groups = fedmd.finish(coarse, n_clusters, settings)
    with run.timing("fedx"):
        state, info = fedx.init(groups.theta, pool, loss), None
        while (stop := fedx.stopped(state, info, settings)) is None:
            state, info = fedx.step(state, pool, settings, loss)
            run.report("fedx", state.round, settings.refine_rounds, info)
    with run.timing("describe"):
        # Weights and noise of the models as they are in the end; the rounds' own are one step behind.
        reply = pool.ask(Refine(state.mixture, settings.hard, loss=loss))
        model = _model(state.mixture, reply, census, peak, features, settings, seed, loss)
    return Fit(model, run.trace, pool.traffic, run.seconds, stop.value)


class _Run:
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


def _model(
    mixture: Mixture,
    reply: ModelSum,
    census: CensusSum,
    peak: float,
    features: tuple[str, ...],
    settings: PaperSettings,
    seed: int,
    loss: Loss,
) -> Model:
    order = np.argsort(-reply.clients, kind="stable")
    final = fedx.described(mixture, reply, shared=False)
    sorted_ = Mixture(final.theta[order], final.weights[order], final.noise[order])
    return Model.from_mixture(
        sorted_,
        features,
        loss=loss.name,
        recipe="paper",
        seed=seed,
        warnings=tuple(_warnings(reply, peak, settings)),
        details={
            "settings": dataclasses.asdict(settings),
            "kind_rows": reply.mass[order].tolist(),
            "sizes": [[int(n), int(census.sizes[n])] for n in np.flatnonzero(census.sizes)],
            "peak": peak,
        },
    )


def _warnings(reply: ModelSum, peak: float, settings: PaperSettings) -> list[str]:
    found = []
    gamma = settings.step * peak
    if isinstance(settings.local_update, FedAvg) and gamma >= 1:
        found.append(
            f"gamma = step * max |phi_i|^2 / n_i = {gamma:.3g} is not below 1, so the theorems do not apply and local "
            f"steps may overshoot: take step below {1 / peak:.3g}"
        )
    empty = int(np.sum(reply.mass == 0))
    if empty:
        found.append(f"{empty} of {len(reply.mass)} kinds have no client: their models are where Phase 1 left them")
    return found


def _start(settings: PaperSettings, features: tuple[str, ...]) -> Floats:
    """Give theta_0 (d,). A start for the features alone gets the intercept 0."""
    start = np.zeros(len(features))
    if settings.start is not None:
        given = len(settings.start)
        allowed = {len(features), len(features) - (features[-1] == INTERCEPT)}
        if given not in allowed:
            counts = " or ".join(str(count) for count in sorted(allowed))
            raise SettingsError(f"start has {given} numbers, the model has {counts} features")
        start[:given] = settings.start
    return start


def _check_clusters(n_clusters: int, n_clients: int) -> None:
    if n_clusters < 1:
        raise SettingsError(f"n_clusters = {n_clusters} must be 1 or more")
    if n_clusters > n_clients:
        raise SettingsError(f"n_clusters = {n_clusters} is more than the {n_clients} clients there are")


def _check_columns(census: CensusSum, features: tuple[str, ...]) -> None:
    """Refuse columns that no model could tell from the intercept or from nothing at all."""
    intercept = features[-1] == INTERCEPT
    for name, low, high in zip(features, census.low, census.high, strict=True):
        if low == high and name != INTERCEPT and (intercept or low == 0):
            raise DataError(
                f"column '{name}' is constant (always {low:g}) and cannot be told from "
                f"{'the intercept' if intercept else 'nothing at all'}: leave it out of the features"
            )
