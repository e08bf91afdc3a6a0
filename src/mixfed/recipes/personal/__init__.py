"""Personal models within a kind: the step of the tuning-free recipe that follows, or guides, the choice of kinds.

    plain mixtures -> for each k, full and diagonal Psi: Newton steps on a sample -> BIC -> Newton steps on all clients

Deviations and kinds compete: what looks like many kinds to a plain mixture may be two kinds whose clients differ. So
where the number of kinds is to be found, it is the BIC with deviations that says which is best.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...core import draws
from ...core.arrays import Floats
from ...exchange.base import Query, T
from ...exchange.mixture import Candidates
from ...exchange.pool import Sample
from ...exchange.random_effects import LeaveOut, LeftOutSum, RandomEffects, roots
from ...exchange.units import StandardUnits
from ...model.fit import TOO_FEW, Stop
from ..auto.refine import CONVERGED, NEAR, Maximum
from ..auto.select import PATIENCE, Selection
from ..bic import bic
from ..standardise import from_scaled
from ..updates import Penalty
from .climb import following, last_step, newton_rounds, next_sample, polish_random_effects, started
from .fitted import Fitted
from .starts import drawn, multi_start
from .updates import cost_of_diagonal, count_parameters

_MOST_FULL = 24
"""With more features than that, a full Psi has too many numbers for what clients of a few rows can tell."""
_ROWS_PER_NUMBER = 60
"""Rows of a sample for each parameter of a kind: with fewer, larger samples have to mend more than that saves."""
_STRIDE, _MOST_SHARE, _WORTH = 5.0, 0.25, 1.5
"""From a sample, the next step asks so many times as many clients, and at most this share of all; unless that is less
than so many times as many."""
_UNEQUAL = 1.5
"""A small kind has so many times fewer clients than all have on average."""
_SCAN_KINDS = 6
"""While the number of kinds is unknown, samples are made for so many."""
_WORK, _MOST_STARTS = 5e8, 10
"""Starts that are drawn from the mixed model of one kind: as many as keep rows x kinds x features^4 below the
first, the second at most."""
_CLOSE, _CLOSER = 0.02, 0.01
"""A sample's maximum is met as soon as Newton promises less than this for each parameter: all others will move it. The
second is for the last sample, whose curvature serves for all."""
_CERTAIN = 4.0
"""A full Psi that gains so many times what its numbers must be worth, by a rough estimate, is the better one."""
_NO_WORSE = 1.001
"""Errors of left-out rows, as multiples of those with one kind, up to which more kinds count as no worse."""
_SMALL = 6
"""A client with so many rows, at most, is a small one when rows are predicted from the others."""
_EMPTY = 1e-9
"""Directions in which clients deviate by less than this, as a share of the most or of the noise, are left out."""


@dataclass(frozen=True, eq=False)
class Tried:
    """A number of kinds, and a form of Psi, that was tried."""

    found: Fitted
    rows: float
    """Of the clients asked."""
    bic: float
    """As it would be with all clients."""
    left_out: Floats | None
    """(2,): root mean squared error of rows that are predicted from others of their client, and for small clients; None
    if the number of kinds is given."""

    @property
    def k(self) -> int:
        """Number of kinds."""
        return int(self.found.mixture.theta.shape[1])


_Task: TypeAlias = tuple[Sequence[RandomEffects], bool]
"""A mixture to be fitted: where from, and whether Psi is full."""


def fit_personal(search: Selection, most: int, start: Floats | None) -> tuple[Fitted, list[Tried]]:
    """Find kinds with deviations. Gives the fit and what was tried."""
    if (n_clusters := search.n_clusters) is None:
        tried = _choose(search, search.supported(most))
        best = _best(search, tried)
    else:
        plain = search.finish(n_clusters, start, everyone=False)
        single = _single(search) if n_clusters > 1 and _starts(search, n_clusters) else []
        tried = _improved(search, [plain], _forms(search), single)
        best = min(tried, key=lambda one: one.bic)
    return _finish(search, best.found), tried


def _choose(search: Selection, most: int) -> list[Tried]:
    """Fit ever more kinds, several numbers in the same exchanges, until more of them are worse."""
    forms = _forms(search)
    tried = single = _single(search)
    done, best = 1, single[0]
    while done < min(most, best.k + PATIENCE):
        ks = range(done + 1, min(done + PATIENCE, most) + 1)
        search.scan([k for k in ks if k not in search.scanned])
        tried = tried + _improved(search, [search.scanned[k] for k in ks], forms, single)
        best, done = _best(search, tried), ks[-1]
        # More kinds leave less to deviate by: a full covariance that does not pay now will not later, a diagonal may.
        forms = [full for full in forms if best.found.full or not full]
    return tried


def _best(search: Selection, tried: Sequence[Tried]) -> Tried:
    """Take the best BIC of those whose every kind is one, and who predict left-out rows no worse than one kind does.

    Where no mixture of normal distributions is true, kinds may tell the shape of a distribution rather than clients
    apart; the likelihood welcomes them, and predictions suffer.
    """
    fair = [one for one in tried if not _objection(search, one, tried)]
    return min(fair, key=lambda one: one.bic)


def _forms(search: Selection) -> list[bool]:
    """Say which Psi to try: full, diagonal or both."""
    dim, wanted = search.survey.units.dim, search.settings.deviations
    if wanted != "auto":
        return [wanted == "full"]
    return [True, False] if 1 < dim <= _MOST_FULL else [dim == 1]


def _single(search: Selection) -> list[Tried]:
    """Fit one kind, the classical mixed model."""
    dim, rules = search.survey.units.dim, Penalty(search.settings.shared_noise)
    pooled = Candidates(np.zeros((1, 1, dim)), np.zeros((1, 1)), np.zeros((1, 1)))
    tasks = [([started(search.survey.units, pooled, full)], full) for full in _forms(search)]
    return _tried(search, tasks, rules)


def _improved(
    search: Selection, plain: Sequence[Maximum], forms: Sequence[bool], single: Sequence[Tried]
) -> list[Tried]:
    """Fit deviations of some forms, from plain mixtures and from what the mixed model of one kind suggests."""
    units = search.survey.units
    likely = min(single, key=lambda one: one.bic, default=None)
    rules, tasks = plain[0].rules, list[_Task]()
    if likely is not None:
        rules = rules.fitting(float(np.exp(likely.found.mixture.log_variance[0, 0])))
    for one in plain:
        k = one.mixture.theta.shape[1]
        for form in forms:
            own = [started(units, one.mixture, form)]
            if likely is not None and likely.found.full == form and k > 1:
                rng = draws.generator(search.seed, "deviations", k)
                own += drawn(units, likely.found, k, _starts(search, k), rng)
            tasks.append((own, form))
    return _tried(search, tasks, rules)


def _tried(search: Selection, tasks: Sequence[_Task], rules: Penalty) -> list[Tried]:
    """Fit mixtures from their starts, several in the same exchanges.

    Of many clients, a sample is asked about full covariances first, and about diagonal ones only where these may do.
    """
    if _sample(search) is None or len({full for _, full in tasks}) == 1:
        return _compared(search, tasks, rules)
    tried = _compared(search, [task for task in tasks if task[1]], rules)
    settled = {one.k for one in tried if _needs_full(search, one)}
    rest = [(starts, full) for starts, full in tasks if not full and starts[0].theta.shape[1] not in settled]
    return tried + (_compared(search, rest, rules) if rest else [])


def _needs_full(search: Selection, one: Tried) -> bool:
    """Say whether a diagonal Psi would have the larger BIC for certain, by what the information at a full one tells."""
    units, everyone = search.survey.units, search.survey.census.n_rows
    fewer = one.k * (_numbers(units, full=True) - _numbers(units, full=False))
    cost = cost_of_diagonal(units, one.found) * everyone / one.rows
    return bool(2.0 * cost > _CERTAIN * fewer * np.log(everyone))


def _compared(search: Selection, tasks: Sequence[_Task], rules: Penalty) -> list[Tried]:
    """Improve the best of several starts of each mixture, near enough to compare them, on a sample."""
    units, who = search.survey.units, _sample(search)
    most = max(starts[0].theta.shape[1] * _numbers(units, full) for starts, full in tasks)
    near = NEAR if who is None else _CLOSE * most
    conversations = [multi_start(units, *task, rules, near, hurry=who is not None) for task in tasks]
    found: list[Fitted] = search.converse("personal", list(conversations), who)
    errors: list[LeftOutSum | None] = [None] * len(found)
    if search.n_clusters is None:
        asked = [LeaveOut(units, one.mixture, one.full, _SMALL) for one in found]
        errors = search.converse("personal", [_asked(query) for query in asked], who)
    return [_judged(search, *about) for about in zip(found, errors, strict=True)]


def _asked(query: Query[Any, T]) -> Generator[Query[Any, T], T, T]:
    """Ask one question: a short conversation."""
    return (yield query)


def _sample(search: Selection) -> Sample | None:
    """Draw as many clients as tell the parameters of a small kind: the same for all numbers of kinds."""
    units, kinds = search.survey.units, search.n_clusters or _SCAN_KINDS
    return search.survey.design.draw(_ROWS_PER_NUMBER * _numbers(units, units.dim <= _MOST_FULL) * _UNEQUAL * kinds)


def _starts(search: Selection, k: int) -> int:
    """Say how many starts to draw: fewer where each takes more work."""
    dim, census = search.survey.units.dim, search.survey.census
    who = _sample(search)
    rows = census.n_rows * (1.0 if who is None else who.share)
    return int(np.clip(_WORK / (rows * k * dim**4), 0, _MOST_STARTS))


def _numbers(units: StandardUnits, full: bool) -> int:
    """Count the parameters of a kind."""
    return units.dim + 2 + (units.dim * (units.dim + 1) // 2 if full else len(units.inverse_sd))


def _judged(search: Selection, found: Fitted, error: LeftOutSum | None) -> Tried:
    """Work out the BIC that all clients would give: a sample's likelihood is too good by half of the parameters."""
    rows, everyone = float(found.reply.rows[0].sum()), search.survey.census.n_rows
    free = count_parameters(found)
    expected = everyone / rows * (search.likelihood(found) - 0.5 * free) + 0.5 * free
    left_out = None
    if error is not None:
        left_out = search.survey.units.scale * np.sqrt(error.squares[0] / np.maximum(error.rows, 1))
    return Tried(found, rows, bic(expected, free, everyone), left_out)


def _finish(search: Selection, found: Fitted) -> Fitted:
    """Go on with all clients to the maximum; the rules follow from the noise that was found.

    If a sample found it, a larger one comes next, the curvature of which serves for all.
    """
    units, design, rules = search.survey.units, search.survey.design, following(found, found.mixture).rules
    who = _sample(search)
    if who is not None:
        share = min(_STRIDE * who.share, _MOST_SHARE)
        if share > _WORTH * who.share:
            found = search.one(
                "personal", next_sample(units, found, rules, _CLOSER), design.draw(share * design.n_rows)
            )
        found = search.one("personal", polish_random_effects(units, found, rules))
    if who is None or found.stop is not Stop.MAXIMUM:
        found = search.one(
            "personal", newton_rounds(units, found.mixture, found.full, rules, near=CONVERGED, alone=True)
        )
    return last_step(found)


# ---------------------------------------------------------------- what the model is made of


def factors_to_user(units: StandardUnits, found: Fitted) -> Floats:
    """Give F with Psi = F F^T of each kind, in the units of the table, by falling size. -> (k, D, r)."""
    columns = roots(units, found.mixture.covariance[0], found.full)
    # The columns of a root are as long as the deviations that they stand for.
    size = (columns**2).sum(axis=1)
    noise = np.exp(found.mixture.log_variance[0])[:, None]
    size = np.where(size > _EMPTY * np.maximum(size.max(axis=1, keepdims=True), noise), size, 0.0)
    order = np.argsort(-size, axis=1, kind="stable")
    width = max(int((size > 0).sum(axis=1).max()), 1)
    columns = np.take_along_axis(columns * (size > 0)[:, None, :], order[:, None, :width], axis=2)
    return from_scaled(units, units.whiten @ columns)


def about(search: Selection, tried: Sequence[Tried]) -> list[dict[str, Any]]:
    """Say which numbers of kinds were tried, each in the form of Psi that suits it best; nothing if it was given."""
    if search.n_clusters is not None:
        return []
    best = {one.k: one for one in sorted(tried, key=lambda one: -one.bic)}
    return [
        {
            "n_clusters": k,
            "deviations": "full" if one.found.full else "diagonal",
            "likelihood": search.likelihood(one.found),
            "bic": one.bic,
            "left_out": None if one.left_out is None else one.left_out.tolist(),
            "rows": round(one.rows),
            "reason": (reason := _objection(search, one, tried)),
            "sound": not reason,
        }
        for k, one in sorted(best.items())
    ]


def _objection(search: Selection, one: Tried, tried: Sequence[Tried]) -> str:
    """Say why a number of kinds does not count, if it does not."""
    single = min((other for other in tried if other.k == 1), key=lambda other: other.bic)
    if one.k == 1:
        return ""
    if not search.has_enough_data(one.found.reply):
        return TOO_FEW
    assert one.left_out is not None
    assert single.left_out is not None
    no_worse = (one.left_out <= _NO_WORSE * single.left_out).all()
    return "" if no_worse else "predicts rows that are left out worse than one kind does"
