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

from . import draws
from .arrays import Floats
from .candidates import Candidates, ExpectSum, Frame
from .contest import contest, drawn
from .frame import from_stretched
from .mixtures import Rules
from .pool import Sample
from .refine import Refined
from .run import Stop
from .spreads import CONVERGED, NEAR, Fitted, free_parameters, improve, last_step, polish, spread_roots, started

if TYPE_CHECKING:
    from .auto import Search

_PATIENCE = 2
"""So many numbers of kinds, which are tried at once, beyond the best must be worse before the search ends."""
_MOST_FULL = 24
"""With more features than that, a full Psi has too many numbers for what clients of a few rows can tell."""
_ROWS_PER_NUMBER = 60
"""Rows of a sample for each parameter of a kind."""
_UNEQUAL = 1.5
"""A small kind has so many times fewer clients than all have on average."""
_WORK, _MOST_STARTS = 2e7, 6
"""Starts that are drawn from the mixed model of one kind: as many as keep rows x kinds x features^2 below this."""
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
    else:
        plain = search.finish(n_clusters, start)
        single = _single(search) if n_clusters > 1 and _starts(search, n_clusters) else []
        tried = _try(search, [plain], single)
    best = max((one for one in tried if _sound(search, one) or n_clusters), key=lambda one: one.bic)
    return _finish(search, best.found, best.who), tried


def _choose(search: Search, most: int) -> list[Tried]:
    """Fit ever more kinds, several numbers in the same exchanges, until more of them are worse."""
    single = tried = _single(search)
    done, best = 1, 1
    while done < min(most, best + _PATIENCE):
        ks = range(done + 1, min(done + _PATIENCE, most) + 1)
        search.scan([k for k in ks if k not in search.scanned])
        tried = tried + _try(search, [search.scanned[k] for k in ks], single)
        best = max((one for one in tried if _sound(search, one)), key=lambda one: one.bic).k
        done = ks[-1]
    return tried


def _single(search: Search) -> list[Tried]:
    """Fit one kind, the classical mixed model."""
    rules = Rules(search.settings.shared_noise)
    pooled = Candidates(np.zeros((1, 1, search.ground.frame.dim)), np.zeros((1, 1)), np.zeros((1, 1)))
    return _improved(search, [(pooled, rules)], [])


def _try(search: Search, plain: Sequence[Refined], single: Sequence[Tried]) -> list[Tried]:
    """Fit deviations to plain mixtures, near enough to compare them."""
    return _improved(search, [(one.mixture, one.rules) for one in plain], single)


def _improved(search: Search, plain: Sequence[tuple[Candidates, Rules]], single: Sequence[Tried]) -> list[Tried]:
    """Fit deviations of both forms, from plain mixtures and from what the mixed model of one kind suggests."""
    frame = search.ground.frame
    forms = [True, False] if 1 < frame.dim <= _MOST_FULL else [frame.dim == 1]
    ks = [mixture.theta.shape[1] for mixture, _ in plain]
    who = _sample(search, max(ks), forms[0])
    near = NEAR if who is None else _CLOSE * _numbers(frame, forms[0])
    conversations = []
    for k, (mixture, rules) in zip(ks, plain, strict=True):
        for full in forms:
            starts = [started(frame, mixture, full)]
            for one in single:
                if one.found.full == full and one.bic == max(other.bic for other in single):
                    rules = one.found.rules.fitting(float(np.exp(one.found.mixture.log_variance[0, 0])))
                    rng = draws.generator(search.seed, "deviations", k)
                    starts += drawn(frame, one.found, k, _starts(search, k), rng)
            conversations.append(contest(frame, starts, full, rules, near))
    found: list[Fitted] = search.converse("personal", list(conversations), who)
    return [_judged(search, one, who) for one in found]


def _sample(search: Search, k: int, full: bool) -> Sample | None:
    """Draw as many clients as tell the parameters of a small kind."""
    return search.ground.crowd.draw(_ROWS_PER_NUMBER * _numbers(search.ground.frame, full) * _UNEQUAL * k)


def _starts(search: Search, k: int) -> int:
    """Say how many starts to draw: fewer where each takes more work."""
    dim, census = search.ground.frame.dim, search.ground.census
    who = _sample(search, k, dim <= _MOST_FULL)
    rows = census.n_rows * (1.0 if who is None else who.share)
    return int(np.clip(_WORK / (rows * k * dim**2), 0, _MOST_STARTS))


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
    roots = spread_roots(frame, found)
    # The columns of a root are as long as the deviations that they stand for.
    size = (roots**2).sum(axis=1)
    noise = np.exp(found.mixture.log_variance[0])[:, None]
    size = np.where(size > _EMPTY * np.maximum(size.max(axis=1, keepdims=True), noise), size, 0.0)
    order = np.argsort(-size, axis=1, kind="stable")
    width = max(int((size > 0).sum(axis=1).max()), 1)
    roots = np.take_along_axis(roots * (size > 0)[:, None, :], order[:, None, :width], axis=2)
    return from_stretched(frame, frame.whiten @ roots)


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
