"""The paper's recipe: Phase 1, then Phase 2, then a model.

Each round is a pure step from state to state; this module owns the loop around them:

    Phase 1  `moment_descent` with `orthogonal_iteration`, then `grouping`
    Phase 2  `fedx`, whose local steps are in `kernels/plain/local_updates`
    theorems `theory`
"""

import dataclasses

import numpy as np

from ...core.errors import DataError
from ...core.names import INTERCEPT
from ...exchange.census import Census, CensusSum, LargestNorm
from ...exchange.local_update import FedAvg, LocalUpdate, Mixture, ModelSum
from ...exchange.pool import Pool
from ...families.base import SQUARED, Loss
from ...model.fit import Fit, Watcher
from ...model.model import Model, kind_order
from ..recorder import Recorder, check_clusters
from ..settings import PaperSettings, given_start
from . import fedx, moment_descent
from .grouping import group_anchors


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
    run = Recorder(pool, watch)
    with run.timing("census"):
        check_clusters(n_clusters, pool.n_clients)
        census, peak = pool.ask(Census()), pool.ask(LargestNorm()).peak
        _check_columns(census, features)
        settings = settings.completed(n_clusters, census.n_rows, pool.dim)
        start = given_start(settings.start, features)
    with run.timing("fedmd"):
        roles = moment_descent.assign_roles(pool, settings, seed)
        coarse = moment_descent.init(roles, np.zeros(pool.dim) if start is None else start)
        while coarse.round < settings.rounds:
            coarse, progress = moment_descent.step(coarse, pool, roles, n_clusters, settings, seed)
            run.report("fedmd", coarse.round, settings.rounds, progress)
        theta = group_anchors(coarse.theta, n_clusters, settings)
    with run.timing("fedx"):
        state, info = fedx.init(theta, pool, loss), None
        while (stop := fedx.stopped(state, info, settings)) is None:
            state, info = fedx.step(state, pool, settings, loss)
            run.report("fedx", state.round, settings.refine_rounds, info)
    with run.timing("describe"):
        # Weights and noise of the models as they are in the end; the rounds' own are one step behind.
        reply = pool.ask(LocalUpdate(state.mixture, settings.hard, loss=loss))
    final = fedx.described(state.mixture, reply, shared=False)
    order = kind_order(reply.clients / reply.clients.sum(), final.theta)
    model = Model.from_mixture(
        Mixture(final.theta[order], final.weights[order], final.noise[order]),
        features,
        loss=loss.name,
        recipe="paper",
        seed=seed,
        warnings=tuple(_warnings(reply, peak, settings)),
        details={
            "settings": dataclasses.asdict(settings),
            "kind_rows": reply.mass[order].tolist(),
            "sizes": np.column_stack([census.sizes, census.counts]).tolist(),
            "peak": peak,
        },
    )
    return Fit(model, run.trace, pool.traffic, run.seconds, stop.value)


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


def _check_columns(census: CensusSum, features: tuple[str, ...]) -> None:
    """Refuse columns that no model could tell from the intercept or from nothing at all."""
    intercept = features[-1] == INTERCEPT
    for name, constant_columns, value in zip(features, census.constant_columns, census.value, strict=True):
        if constant_columns and name != INTERCEPT and (intercept or value == 0):
            raise DataError(
                f"column '{name}' is constant (always {value:g}) and cannot be told from "
                f"{'the intercept' if intercept else 'nothing at all'}: leave it out of the features"
            )
