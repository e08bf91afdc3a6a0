"""Held-out error of kinds with personal models, and of what else one might do with such a table.

Some rows of every client are held out, at random or the latest; every rival is fitted to the others and predicts them.

Rivals with one model per client are ridge regressions, and mixed models, whose penalties are ratios of variances: all
of them take those with the largest marginal likelihood, so nobody is helped or hindered by tuning. In standardised
columns client i has the model m + b_i, b_i ~ N(0, diag(a, ..., a, c)), c being for the intercept.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ..clients.local import LocalPool
from ..clients.packed import Clients
from ..core import draws
from ..core.arrays import Array, Bools, Floats, Ints
from ..core.errors import DataError, SettingsError
from ..core.symmetric import unpacked
from ..exchange.census import Census
from ..exchange.local_update import Mixture
from ..exchange.random_effects import RandomEffects, RandomEffectsSums
from ..exchange.units import StandardUnits
from ..families.base import Family
from ..families.gaussian import GAUSSIAN
from ..families.registry import family_named
from ..model.assignment import Assignment
from ..model.model import Model
from ..recipes.auto import fit_auto
from ..recipes.settings import AutoSettings
from ..recipes.standardise import from_scaled, from_user, gram_query, inspect, make_units, to_user
from ..tables.rows import Rows

SMALL = 5
"""A client with so many training rows, at most, is a small one."""
_GLS_ROUNDS = 6
_LEAST_LOG = -18.0
"""Logarithm of the smallest variance that is tried, as a share of the pooled residual's."""

Fitted = tuple[Model, Assignment | None]
"""What a rival has learned: a model, and what it knows of clients."""


@dataclass(frozen=True)
class Outcome:
    """How a rival did."""

    rival: str
    rmse: float
    """Root of the mean squared error of held-out rows, its mean over splits."""
    rmse_small: float
    """The same for clients with few training rows; not a number if there are none."""
    seconds: float
    """For fitting and predicting, the mean over splits."""
    by_split: tuple[tuple[float, float], ...]
    """Both errors in each split."""
    n_clusters: tuple[int, ...]
    """Number of kinds in each split."""
    deviance: float | None = None
    """Twice the log likelihood that a held-out row loses by its prediction, on average; None for the family gaussian,
    where that is the squared error. Of classes, the squared error is the Brier score."""


@dataclass(frozen=True)
class Comparison:
    """How all rivals did."""

    outcomes: tuple[Outcome, ...]
    n_clients: int
    n_rows: int
    held_out: int
    """Rows held out in the first split."""
    held_out_small: int
    """Of these, rows of small clients."""

    def to_dict(self) -> dict[str, Any]:
        """Give what ``--json`` says; what is not a number becomes None."""
        content = dataclasses.asdict(self)
        for one in content["outcomes"]:
            one["rmse_small"] = _or_none(one["rmse_small"])
            one["by_split"] = [[_or_none(error) for error in errors] for errors in one["by_split"]]
        return content


def compare(
    rows: Rows,
    n_clusters: int | None = None,
    settings: AutoSettings | None = None,
    *,
    splits: int = 5,
    share: float = 0.3,
    when: Floats | None = None,
    rivals: Iterable[str] | None = None,
    seed: int = 0,
    watch: Callable[[str, int], None] | None = None,
) -> Comparison:
    """Compare rivals, by default all (`RIVALS`), on rows with targets.

    ``share`` of the rows of each client is held out, at random and anew in each of the ``splits``; or, if ``when`` (n,)
    is given, the latest rows of each client, once. ``watch`` is told each rival and split before it begins.
    """
    settings = dataclasses.replace(settings or AutoSettings(), personal=False)
    family = family_named(settings.family)
    choice = list(RIVALS) if family is GAUSSIAN else list(_OF_ANY_FAMILY)
    chosen = choice if rivals is None else list(rivals)
    for name in chosen:
        if name not in RIVALS:
            raise SettingsError(f"unknown rival '{name}'; choose from {', '.join(choice)}")
        if name not in choice:
            raise SettingsError(f"the rival '{name}' is for the family gaussian; choose from {', '.join(choice)}")
    if rows.y is None:
        raise DataError("these rows have no target")
    if not 0 < share < 1 or splits < 1:
        raise SettingsError(f"share = {share:g} must be between 0 and 1, and splits = {splits} at least 1")
    scores: dict[str, list[tuple[float, float, float, int, float]]] = {name: [] for name in chosen}
    held_out = []
    for split in range(1 if when is not None else splits):
        held = hold_out(rows.owner, share, draws.generator(seed, "hold out", split), when)
        if not held.any():
            raise DataError("every client has one row: there is nothing to hold out")
        train, test = _part(rows, ~held), _part(rows, held)
        clients = Clients.from_rows(train)
        small = _is_small(clients, test)
        task = _Task(clients, n_clusters, settings, seed)
        held_out.append((int(held.sum()), int(small.sum())))
        for name in chosen:
            if watch is not None:
                watch(name, split)
            scores[name].append(_score(name, task, test, small))
    outcomes = tuple(_outcome(name, scores[name], family) for name in chosen)
    return Comparison(outcomes, len(rows.ids), len(rows.owner), *held_out[0])


def hold_out(owner: Ints, share: float, rng: np.random.Generator, when: Floats | None = None) -> Bools:
    """Choose rows (n,) to hold out: of a client with n_i >= 2 rows one at least, and one stays at least."""
    chance = rng.random(len(owner))
    order = np.lexsort((chance, owner) if when is None else (chance, -np.asarray(when, dtype=np.float64), owner))
    sizes = np.bincount(owner)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    place = np.arange(len(owner)) - np.repeat(first, sizes)
    most = np.where(sizes > 1, np.clip(np.round(share * sizes), 1, np.maximum(sizes - 1, 1)), 0)
    held: Bools = np.zeros(len(owner), dtype=np.bool_)
    held[order] = place < np.repeat(most, sizes)
    return held


# ---------------------------------------------------------------- rivals


@dataclass(frozen=True, eq=False)
class _Task:
    """What rivals are fitted to."""

    clients: Clients
    n_clusters: int | None
    settings: AutoSettings
    seed: int

    def kinds(self, n_clusters: int | None, personal: bool) -> Fitted:
        """Fit kinds by the tuning-free recipe."""
        settings = dataclasses.replace(self.settings, personal=personal)
        pool = LocalPool(self.clients)
        model = fit_auto(pool, self.clients.features, n_clusters, settings, seed=self.seed).model
        return model, model.assign(self.clients, uncertainty=False)


def _kinds_hard(task: _Task) -> Fitted:
    """Fit as soft kinds are, and predict by the most probable one."""
    model, known = task.kinds(task.n_clusters, personal=False)
    assert known is not None
    return model, dataclasses.replace(known, probabilities=np.eye(model.n_clusters)[known.cluster])


def _own_ridge(task: _Task) -> Fitted:
    """One ridge per client: slopes shrink to 0, the intercept to the mean of all targets."""
    common = np.zeros(task.clients.dim)
    if task.clients.intercept:
        common[-1] = task.clients.y.mean()
    return _ridge(task.clients, common, slopes=True)


RIVALS: dict[str, Callable[[_Task], Fitted]] = {
    "one model": lambda task: (task.kinds(1, personal=False)[0], None),
    "one ridge per client": _own_ridge,
    # Each client's model shrinks to the pooled one.
    "ridge to the common model": lambda task: _ridge(task.clients, None, slopes=True),
    # One slope for all, by generalised least squares, and an intercept for each client.
    "random intercept": lambda task: _ridge(task.clients, None, slopes=False),
    "mixed model": lambda task: task.kinds(1, personal=True),
    "kinds, hard": _kinds_hard,
    "kinds, soft": lambda task: task.kinds(task.n_clusters, personal=False),
    "kinds + personal": lambda task: task.kinds(task.n_clusters, personal=True),
}
"""All rivals, in the order of the table."""
_OF_ANY_FAMILY = ("one model", "kinds, hard", "kinds, soft")


def _ridge(clients: Clients, common: Floats | None, slopes: bool) -> Fitted:
    """Fit client models around a common one, (D,) or, if None, the best; without ``slopes`` only intercepts differ."""
    pool = LocalPool(clients)
    census = pool.ask(Census())
    columns = inspect(census, clients.intercept)
    units, _ = make_units(columns, pool.ask(gram_query(columns)), census.mass)
    ties = _ties(units, slopes)
    theta = np.zeros(units.dim) if common is None else from_user(units, common)
    logs = np.full(1 + ties.shape[1], -1.0)
    for _ in range(1 if common is not None else _GLS_ROUNDS):
        found = minimize(_misfit, logs, (pool, units, theta, ties), jac=True, bounds=[(_LEAST_LOG, 8.0)] * len(logs))
        logs = found.x
        if common is None:
            reply = pool.ask(_question(units, theta, logs, ties))
            gram = unpacked(reply.gram[0, 0], units.dim) + 1e-9 * np.eye(units.dim)
            theta = theta + np.linalg.solve(gram, reply.score[0, 0, : units.dim])
    mixture = Mixture(to_user(units, theta[None]), np.ones(1), np.array([units.scale * np.exp(0.5 * logs[0])]))
    factor = from_scaled(units, np.diag(np.sqrt(ties @ np.exp(logs[1:]))))[None]
    model = Model.from_mixture(mixture, clients.features, factor=factor, loss="squared", recipe="auto", seed=0)
    return model, model.assign(clients, uncertainty=False)


def _ties(units: StandardUnits, slopes: bool) -> Floats:
    """Say which columns share a variance: all slopes, and the intercept. -> (D, 1 or 2)."""
    live = units.inverse_sd > 0
    constant = np.arange(len(live)) == units.constant
    parts = [part for part in ((live & ~constant) if slopes else constant & False, live & constant) if part.any()]
    # Without an intercept there is nothing else that could differ.
    return np.column_stack(parts or [live]).astype(np.float64)


def _question(units: StandardUnits, theta: Floats, logs: Floats, ties: Floats) -> RandomEffectsSums:
    spread = ties @ np.exp(logs[1:])
    return RandomEffectsSums(
        units, RandomEffects(theta[None, None], logs[None, :1], np.zeros((1, 1)), spread[None, None]), full=False
    )


def _misfit(logs: Floats, pool: LocalPool, units: StandardUnits, theta: Floats, ties: Floats) -> tuple[float, Floats]:
    """Give minus the marginal log likelihood for each row, and its slope, by the logarithms of the variances."""
    reply = pool.ask(_question(units, theta, logs, ties))
    score, rows = reply.score[0, 0], reply.rows.sum()
    slope = np.concatenate([score[units.dim : units.dim + 1], (score[units.dim + 2 :] @ ties) * np.exp(logs[1:])])
    return float(-reply.likelihood[0] / rows), -slope / rows


# ---------------------------------------------------------------- helpers


def _part(rows: Rows, which: Bools) -> Rows:
    """Keep some rows, and the clients that have any."""
    assert rows.y is not None
    present, owner = np.unique(rows.owner[which], return_inverse=True)
    return Rows(rows.phi[which], rows.y[which], rows.ids[present], owner, rows.features)


def _is_small(clients: Clients, test: Rows) -> Array:
    """Say which rows are of clients with few training rows. -> (n,)."""
    places = Assignment(clients.ids, clients.rows, np.ones((clients.n_clients, 1))).places(test.ids)
    few: Array = np.where(places >= 0, clients.rows[places], 0) <= SMALL
    return few[test.owner]


def _score(name: str, task: _Task, test: Rows, small: Array) -> tuple[float, float, float, int, float]:
    """Fit one rival, and let it predict. -> both errors, seconds, number of kinds, deviance."""
    assert test.y is not None
    begun = time.perf_counter()
    model, known = RIVALS[name](task)
    predictions = model.predict(test, known)
    errors = (predictions - test.y) ** 2
    seconds = time.perf_counter() - begun
    deviance = float(model.target_family.deviance(test.y, predictions).mean())
    rmse_small = float(np.sqrt(errors[small].mean())) if small.any() else np.nan
    return float(np.sqrt(errors.mean())), rmse_small, seconds, model.n_clusters, deviance


def _outcome(name: str, scores: Sequence[tuple[float, float, float, int, float]], family: Family) -> Outcome:
    """Take the means over splits."""
    rmse, rmse_small, seconds, n_clusters, deviances = zip(*scores, strict=True)
    deviance = None if family is GAUSSIAN else float(np.mean(deviances))
    small = [error for error in rmse_small if np.isfinite(error)]
    means = float(np.mean(rmse)), float(np.mean(small)) if small else np.nan, float(np.mean(seconds))
    return Outcome(name, *means, tuple(zip(rmse, rmse_small, strict=True)), n_clusters, deviance)


def _or_none(number: float) -> float | None:
    return number if np.isfinite(number) else None
