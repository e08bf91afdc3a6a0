"""The tuning-free recipe: a survey, candidates from the anchors, refinement on all clients, k from the data.

    survey (4 exchanges) -> for each k: propose -> refine -> BIC -> for the best k: refine, look again -> Model

The result is the maximum of the likelihood, so it depends neither on a start nor on the units of the table.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.arrays import Floats
from ...core.errors import SettingsError
from ...core.names import INTERCEPT
from ...core.threads import one_blas_thread
from ...exchange.local_update import Mixture
from ...exchange.pool import Pool
from ...families.gaussian import GAUSSIAN
from ...model.fit import Fit, Watcher
from ...model.model import Model, kind_order
from ..bic import bic
from ..recorder import Recorder, check_clusters
from ..settings import AutoSettings, given_start
from ..standardise import errors_to_user, to_user
from ..updates import covariance
from .refine import Maximum
from .select import Selection
from .survey import make_survey
from .warnings import find_warnings

if TYPE_CHECKING:
    from ..personal.fitted import Fitted


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
    n_clients, settings = pool.n_clients, settings or AutoSettings()
    if n_clusters is not None:
        check_clusters(n_clusters, n_clients)
    most = n_clusters or min(settings.max_clusters, n_clients)
    run = Recorder(pool, watch)
    start = given_start(settings.start, features)
    if n_clusters is not None and start is not None and start.ndim == 2 and len(start) != n_clusters:
        raise SettingsError(f"start has {len(start)} models, but there are to be {n_clusters} kinds")
    with one_blas_thread():
        with run.timing("survey"):
            survey = make_survey(run, features[-1] == INTERCEPT, most, start, settings, seed)
        if survey.target_spread == 0:
            most = 1  # there is nothing to tell kinds by
        search = Selection(run, survey, settings, seed, n_clusters)
        if settings.personal:
            return _fit_personal(search, features, most, start)
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
        return _fit(found, search, features, errors, search.bic(found), search.tried())


def _fit_personal(search: Selection, features: tuple[str, ...], most: int, start: Floats | None) -> Fit:
    """Fit kinds whose clients deviate."""
    from .. import personal  # which a plain fit can do without
    from ..personal.updates import count_parameters, model_covariance

    with search.run.timing("personal"):
        found, tried = personal.fit_personal(search, most, start)
    judged = bic(search.likelihood(found), count_parameters(found), search.survey.census.n_rows)
    factor = personal.factors_to_user(search.survey.units, found)
    return _fit(found, search, features, model_covariance(found), judged, personal.about(search, tried), factor)


def _fit(
    found: Maximum | Fitted,
    search: Selection,
    features: tuple[str, ...],
    covariances: Floats | None,
    judged: float,
    choice: list[dict[str, Any]],
    factor: Floats | None = None,
) -> Fit:
    """Make the model and say how it came about: in the units of the table, the largest kind first.

    covariances (k, d, d) are those of the kinds' theta, in standard units; factor (k, D, r) that of deviations.
    """
    survey, units, mixture, reply = search.survey, search.survey.units, found.mixture, found.reply
    theta = to_user(units, mixture.theta[0])
    order = kind_order(np.exp(mixture.log_weight[0]), theta)
    final = Mixture(
        theta[order],
        np.exp(mixture.log_weight[0][order]),
        units.scale * np.exp(0.5 * mixture.log_variance[0][order]),
    )
    errors = None if covariances is None else errors_to_user(units, covariances[order])
    said = find_warnings(found, search, features, order, errors is not None)
    own = len(features) - (features[-1] == INTERCEPT)
    model = Model.from_mixture(
        final,
        features,
        errors=errors,
        factor=None if factor is None else factor[order],
        family=found.rules.family if isinstance(found, Maximum) else GAUSSIAN,
        recipe="auto",
        seed=search.seed,
        warnings=tuple(said),
        details={
            "settings": dataclasses.asdict(search.settings),
            "likelihood": search.likelihood(found),
            "bic": judged,
            "searched_clients": search.searched_clients,
            "spread": survey.spread[:own].tolist(),
            "means": (survey.census.total / survey.census.mass)[:own].tolist(),
            "target_spread": survey.target_spread,
            "pooled_noise": units.scale if survey.rules.family.has_dispersion else None,
            "kind_rows": reply.rows[0][order].tolist(),
            "sizes": np.column_stack([survey.census.sizes, survey.census.counts]).tolist(),
            "choice": choice,
        },
    )
    return Fit(model, search.run.trace, search.run.pool.traffic, search.run.seconds, found.stop.value)
