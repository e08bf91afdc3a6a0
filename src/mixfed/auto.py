"""The tuning-free recipe: a survey, candidates from the anchors, refinement on all clients, k from the data.

    survey (4 exchanges) -> for each k: propose -> refine -> BIC -> for the best k: refine, look again -> Model

The result is the maximum of the likelihood, so it depends neither on a start nor on the units of the table.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np

from .arrays import Floats
from .coarse import SURVEY_EXCHANGES, Ground, survey
from .compiled import one_blas_thread
from .data import INTERCEPT
from .doubts import doubts
from .errors import SettingsError
from .exchange import Mixture
from .frame import errors_to_user, to_user
from .mixtures import Rules, covariance
from .model import Model, kind_order
from .pool import Pool
from .refine import Refined
from .run import Fit, Run, Watcher, check_clusters
from .search import Info, Search
from .settings import AutoSettings


def fit_auto(
    pool: Pool,
    features: tuple[str, ...],
    n_clusters: int | None = None,
    settings: AutoSettings | None = None,
    *,
    seed: int = 0,
    watch: Watcher | None = None,
) -> Fit:
    """Fit without anything to tune; ``n_clusters=None`` finds the number of kinds.

    ``features`` names the pool's features.
    """
    with one_blas_thread():
        return _fit(pool, features, n_clusters, settings or AutoSettings(), seed, watch)


def _fit(
    pool: Pool,
    features: tuple[str, ...],
    n_clusters: int | None,
    settings: AutoSettings,
    seed: int,
    watch: Watcher | None,
) -> Fit:
    n_clients = pool.n_clients
    if n_clusters is not None:
        check_clusters(n_clusters, n_clients)
    most = n_clusters or min(settings.max_clusters, n_clients)
    run = Run(pool, watch)
    start = _start(settings, features, n_clusters)
    with run.timing("survey"):
        single = settings.anchors == "single"
        rules = Rules(settings.shared_noise)
        ground = _survey(run, features[-1] == INTERCEPT, most, start, rules, seed, single=single)
    if ground.target_spread == 0:
        most = 1  # there is nothing to tell kinds by
    search = Search(run, ground, settings, seed, n_clusters)
    if settings.personal:
        return _fit_personal(search, features, n_clusters, most, start)
    with run.timing("kinds"):
        if n_clusters is None:
            search.choose(most)
        k = n_clusters or search.best()
    with run.timing("refine"):
        found = search.finish(k, start)
        if n_clusters is None:
            found = search.more_kinds(found, most, start)
    errors = None
    if len(found.reply.missing):
        errors = covariance(found.mixture, found.reply, 0, found.reply.missing[0], found.rules)
    model = _model(found, search, features, errors, search.bic(found), search.tried())
    return Fit(model, run.trace, pool.traffic, run.seconds, found.stop.value)


def _fit_personal(
    search: Search, features: tuple[str, ...], n_clusters: int | None, most: int, start: Floats | None
) -> Fit:
    """Fit kinds whose clients deviate."""
    from . import personal  # which a plain fit can do without
    from .spreads import free_parameters, model_covariance

    run, frame = search.run, search.ground.frame
    with run.timing("personal"):
        found, tried = personal.fit_personal(search, n_clusters, most, start)
    plain, factor = personal.as_refined(found), personal.factors_to_user(frame, found)
    bic = float(free_parameters(found) * np.log(search.ground.census.n_rows) - 2.0 * search.likelihood(plain))
    model = _model(plain, search, features, model_covariance(found), bic, personal.about(search, tried), factor)
    return Fit(model, run.trace, run.pool.traffic, run.seconds, found.stop.value)


def _survey(run: Run, *about: Any, single: bool) -> Ground:
    steps, round_ = survey(run.pool, *about, single=single), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(Ground, end.value)
        round_ += 1
        run.report("survey", round_, SURVEY_EXCHANGES if single else SURVEY_EXCHANGES - 1, Info())


def _start(settings: AutoSettings, features: tuple[str, ...], n_clusters: int | None) -> Floats | None:
    """Give the caller's start (D,) or (k, D); models of the features alone get the intercept 0."""
    if settings.start is None:
        return None
    try:
        start = np.array(settings.start, dtype=np.float64)
    except ValueError:
        raise SettingsError("start must hold as many numbers for each model") from None
    if features[-1] == INTERCEPT and start.shape[-1] == len(features) - 1:
        start = np.concatenate([start, np.zeros((*start.shape[:-1], 1))], axis=-1)
    if start.ndim > 2 or start.shape[-1] != len(features) or not np.isfinite(start).all():
        raise SettingsError(f"start must hold {len(features)} finite numbers for each model, one per feature")
    if n_clusters is not None and start.ndim == 2 and len(start) != n_clusters:
        raise SettingsError(f"start has {len(start)} models, but there are to be {n_clusters} kinds")
    return start


def _model(
    found: Refined,
    search: Search,
    features: tuple[str, ...],
    covariances: Floats | None,
    bic: float,
    choice: list[dict[str, Any]],
    factor: Floats | None = None,
) -> Model:
    """Make the model: in the units of the table, the largest kind first.

    covariances (k, d, d) are those of the kinds' theta, in standard units; factor (k, D, r) that of deviations.
    """
    ground, frame, mixture, reply = search.ground, search.ground.frame, found.mixture, found.reply
    theta = to_user(frame, mixture.theta[0])
    order = kind_order(np.exp(mixture.log_weight[0]), theta)
    final = Mixture(
        theta[order],
        np.exp(mixture.log_weight[0][order]),
        frame.scale * np.exp(0.5 * mixture.log_variance[0][order]),
    )
    errors = None if covariances is None else errors_to_user(frame, covariances[order])
    said = doubts(found, ground, features, order, errors is not None, search.scanned, search.settings)
    own = len(features) - (features[-1] == INTERCEPT)
    return Model.from_mixture(
        final,
        features,
        errors=errors,
        factor=None if factor is None else factor[order],
        loss="squared",
        recipe="auto",
        seed=search.seed,
        warnings=tuple(said),
        details={
            "settings": dataclasses.asdict(search.settings),
            "likelihood": search.likelihood(found),
            "bic": bic,
            "searched_clients": search.searched_clients,
            "spread": ground.spread[:own].tolist(),
            "means": (ground.census.total / ground.census.n_rows)[:own].tolist(),
            "target_spread": ground.target_spread,
            "pooled_noise": frame.scale,
            "kind_rows": reply.rows[0][order].tolist(),
            "sizes": np.column_stack([ground.census.sizes, ground.census.counts]).tolist(),
            "choice": choice,
        },
    )
