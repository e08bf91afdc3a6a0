"""Personal models within a kind: the step of the tuning-free recipe that follows, or guides, the choice of kinds.

    plain mixtures -> for each k, full and diagonal Psi: Newton steps on a sample -> BIC -> Newton steps on all clients

Deviations and kinds compete: what looks like many kinds to a plain mixture may be two kinds whose clients differ. So
where the number of kinds is to be found, it is the BIC with deviations that says which is best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import Array, Floats
from .candidates import Candidates, ExpectSum, Frame
from .deviations import unpacked
from .frame import from_stretched
from .mixtures import Rules
from .pool import Sample
from .refine import Refined
from .run import Stop
from .spreads import CONVERGED, NEAR, Fitted, free_parameters, improve, last_step, polish, started

if TYPE_CHECKING:
    from .auto import Search

_FIRST_LOOK, _PATIENCE = 3, 2
"""Numbers of kinds tried at once to begin with; so many beyond the best must be worse before the search ends."""
_MOST_FULL = 24
"""With more features than that, a full Psi has too many numbers for what clients of a few rows can tell."""
_ROWS_PER_NUMBER = 60
"""Rows of a sample for each parameter of the smallest kind."""
_CLOSE = 0.02
"""A sample's maximum is met as soon as Newton promises less than this for each parameter: all others will move it."""
_EMPTY = 1e-9
"""Directions in which clients deviate by less than this, as a share of the most or of the noise, are left out."""


@dataclass(frozen=True, eq=False)
class Tried:
    """A number of kinds, and a form of Psi, that was tried."""

    found: Fitted
    who: Sample | None
    """Who was asked."""
    rows: float
    """Their rows."""
    bic: float
    """As it would be with all clients."""

    @property
    def k(self) -> int:
        """Number of kinds."""
        return self.found.mixture.theta.shape[1]


def fit_personal(
    search: Search, n_clusters: int | None, most: int, start: Floats | None
) -> tuple[Fitted, list[Tried]]:
    """Find kinds with deviations. Gives the fit and what was tried."""
    if n_clusters is None:
        tried = _choose(search, search.supported(most))
        best = max(filter(lambda one: _sound(search, one), tried), key=lambda one: one.bic)
    else:
        tried = _try(search, [search.finish(n_clusters, start)])
        best = max(tried, key=lambda one: one.bic)
    return _finish(search, best.found, best.who), tried


def _choose(search: Search, most: int) -> list[Tried]:
    """Fit ever more kinds, several numbers in the same exchanges, until more of them are worse."""
    tried: list[Tried] = []
    done, wanted = 0, _FIRST_LOOK
    while done < most and wanted > 0:
        ks = range(done + 1, min(done + wanted, most) + 1)
        search.scan([k for k in ks if k not in search.scanned])
        tried += _try(search, [search.scanned[k] for k in ks])
        done = ks[-1]
        best = max((one for one in tried if _sound(search, one)), key=lambda one: one.bic).k
        wanted = _PATIENCE - (done - best)
    return tried


def _try(search: Search, plain: Sequence[Refined]) -> list[Tried]:
    """Fit deviations of both forms to plain mixtures, near enough to compare them."""
    frame = search.ground.frame
    forms = [True, False] if 1 < frame.dim <= _MOST_FULL else [frame.dim == 1]
    who = _sample(search, plain, forms[0])
    near = NEAR if who is None else _CLOSE * _numbers(frame, forms[0])
    conversations = [
        improve(frame, started(frame, one.mixture, full), full, one.rules, near=near)
        for one in plain
        for full in forms
    ]
    found: list[Fitted] = search.converse("personal", list(conversations), who)
    return [_judged(search, one, who) for one in found]


def _sample(search: Search, plain: Sequence[Refined], full: bool) -> Sample | None:
    """Draw as many clients as tell the parameters of the smallest kind."""
    numbers = _numbers(search.ground.frame, full)
    smallest = min(float(np.exp(one.mixture.log_weight[0].min())) for one in plain)
    return search.ground.crowd.draw(_ROWS_PER_NUMBER * numbers / max(smallest, 0.02))


def _numbers(frame: Frame, full: bool) -> int:
    """Count the parameters of a kind."""
    return frame.dim + 2 + (frame.dim * (frame.dim + 1) // 2 if full else len(frame.stretch))


def _judged(search: Search, found: Fitted, who: Sample | None) -> Tried:
    """Work out the BIC that all clients would give: a sample's likelihood is too good by half of the parameters."""
    rows, everyone = float(found.reply.rows[0].sum()), search.ground.census.n_rows
    free = free_parameters(found)
    likelihood = search.in_units(found.likelihood, found.reply)
    expected = everyone / rows * (likelihood - 0.5 * free) + 0.5 * free
    return Tried(found, who, rows, float(2.0 * expected - free * np.log(everyone)))


def _sound(search: Search, tried: Tried) -> bool:
    return tried.k == 1 or search.is_sound(tried.found.reply)


def _finish(search: Search, found: Fitted, who: Sample | None) -> Fitted:
    """Go on with all clients to the maximum; the rules follow from the noise that was found.

    If a sample found it, the sample's curvature serves first.
    """
    frame, rows = search.ground.frame, found.reply.rows[0]
    rules = found.rules.fitting(float(rows @ np.exp(found.mixture.log_variance[0]) / rows.sum()))
    if who is not None:
        found = search.one("personal", polish(frame, found, rules))
    if who is None or found.stop is not Stop.MAXIMUM:
        found = search.one("personal", improve(frame, found.mixture, found.full, rules, near=CONVERGED, alone=True))
    return last_step(found)


# ---------------------------------------------------------------- what the model is made of


def as_refined(found: Fitted) -> Refined:
    """Look at the fit as at one without deviations, for all that is said of kinds and rows."""
    reply, mixture = found.reply, found.mixture.plain
    dim = mixture.theta.shape[2]
    sums = ExpectSum(
        reply.likelihood,
        reply.clients,
        reply.rows,
        np.zeros_like(reply.rows),
        reply.score[..., :dim],
        reply.gram,
        reply.overlap,
        np.empty((0, *reply.missing.shape[1:])),
    )
    return Refined(mixture, found.value, found.likelihood, sums, found.rules, found.decrement, found.stop)


def factors_to_user(frame: Frame, found: Fitted) -> Floats:
    """Give F with Psi = F F^T of each kind, in the units of the table, by falling size. -> (k, D, r)."""
    spread = found.mixture.spread[0]
    if found.full:
        values, axes = np.linalg.eigh(unpacked(spread, frame.dim))
        columns = frame.whiten @ axes
    else:
        values, columns = spread, np.broadcast_to(np.eye(spread.shape[1]), (len(spread), *[spread.shape[1]] * 2))
    noise = np.exp(found.mixture.log_variance[0])[:, None]
    least = _EMPTY * np.maximum(values.max(axis=1, keepdims=True), noise)
    values = np.where(values > least, values, 0.0)
    order = np.argsort(-values, axis=1, kind="stable")
    width = max(int((values > 0).sum(axis=1).max()), 1)
    root = np.take_along_axis(columns * np.sqrt(values)[:, None, :], order[:, None, :], axis=2)
    return from_stretched(frame, root[:, :, :width])


def about(search: Search, tried: Sequence[Tried]) -> list[dict[str, Any]]:
    """Say what was tried, for the model's details."""
    return [
        {
            "n_clusters": one.k,
            "deviations": "full" if one.found.full else "diagonal",
            "likelihood": search.in_units(one.found.likelihood, one.found.reply),
            "bic": one.bic,
            "rows": round(one.rows),
            "sound": _sound(search, one),
        }
        for one in sorted(tried, key=lambda one: (one.k, not one.found.full))
    ]
