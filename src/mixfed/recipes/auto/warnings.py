"""What cannot be known from the data: warnings that name the cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...core.arrays import Array
from ...model.fit import Stop
from .refine import Maximum
from .select import Selection
from .survey import Survey

if TYPE_CHECKING:
    from ..personal.fitted import Fitted

_WILD, _ROWS_FOR_OUTLIERS = 0.7, 50
"""A value so far from the mean, as a share of the farthest that any can be (the root of the rows, in standard
deviations), is one that all others are small beside."""
_BLUR = 4.0
"""A number of three bits is off by a quarter of itself at most."""
_HELD = 5.0
"""A direction of which the rows tell less than so many ridges is said to be held by it."""
_OVERLAP = 0.25
"""From this chance of belonging to the other kind on, two kinds are said to overlap."""


def find_warnings(
    found: Maximum | Fitted, search: Selection, features: tuple[str, ...], order: Array, has_errors: bool
) -> list[str]:
    """Say what makes a fit doubtful. ``order`` (k,) is the order in which the kinds are shown."""
    survey, scanned, settings = search.survey, search.scanned, search.settings
    if survey.target_spread == 0:
        return ["the target has the same value in all rows: there is nothing to explain"]
    said = [*_columns(survey, features), *_outliers(survey, features), *_clients(survey), *_kinds(found, survey, order)]
    k = len(order)
    if isinstance(found, Maximum) and survey.is_exact(found.reply):
        return [*said, "the models explain the target to the last digits: what is left is rounding, and tells nothing"]
    if scanned and k == max(scanned) and k == settings.max_clusters:
        said.append(
            f"{k} kinds are the most that were tried and also the best: raise max_clusters (in [auto] of a file for "
            "--config, or in AutoSettings)"
        )
    elif scanned and max(scanned) == 1 and settings.max_clusters > 1 and survey.census.n_clients > 1:
        said.append("too few clients or rows to look for more than one kind: to try two, ask for them (--clusters 2)")
    if isinstance(found, Maximum):
        said += _ridge(found, order)
    if settings.update == "exact" and not settings.hard:
        if found.stop is not Stop.MAXIMUM:
            said.append("the likelihood did not reach its maximum: some kinds may not be supported by the data")
        if not has_errors:
            said.append("the standard errors cannot be computed: the likelihood is flat in some direction")
    return said


def _columns(survey: Survey, features: tuple[str, ...]) -> list[str]:
    said = [f"column '{features[place]}' is constant: its coefficient is 0" for place in survey.constant]
    if len(survey.tied):
        names = ", ".join(f"'{features[place]}'" for place in survey.tied)
        said.append(f"columns {names} are combinations of each other: of all equal fits the smallest is given")
    return said


def _outliers(survey: Survey, features: tuple[str, ...]) -> list[str]:
    """Look for columns in which a single value makes up most of the variation."""
    census = survey.census
    if census.n_rows < _ROWS_FOR_OUTLIERS:
        return []
    names = [*(f"column '{name}'" for name in features), "the target"]
    mean = np.append(census.total, census.target) / census.mass
    low, high = np.append(census.low, census.target_low), np.append(census.high, census.target_high)
    spread = np.append(survey.spread, survey.target_spread)
    # A column reaches so far from its mean at least: its range is told in numbers of three bits.
    farthest = np.maximum(high - np.abs(high) / _BLUR - mean, mean - (low + np.abs(low) / _BLUR))
    wild = np.flatnonzero((farthest > _WILD * np.sqrt(census.n_rows) * spread) & (spread > 0))
    return [f"a single value makes up most of the variation of {names[place]}: is it a mistake?" for place in wild]


def _clients(survey: Survey) -> list[str]:
    if survey.census.n_clients == 1:
        return ["all rows belong to one client, so there is one kind: is the column of clients the right one?"]
    if survey.census.sizes[-1] < 2:
        return ["every client has one row: kinds can only be told apart if features are normal and rows are many"]
    return []


def _kinds(found: Maximum | Fitted, survey: Survey, order: Array) -> list[str]:
    """Look for kinds that are too small, that overlap, or that no anchor stands for."""
    rows, clients = found.reply.rows[0][order], found.reply.clients[0][order]
    overlap = found.reply.overlap[0][np.ix_(order, order)]
    dim, k = survey.units.dim, len(order)
    said = []
    thin = np.flatnonzero(rows < 3 * dim)
    if len(thin):
        said.append(f"{_named(thin)} with fewer than 3 rows for each of {dim} coefficients: do not trust them")
    for j in range(k):
        for other in range(j + 1, k):
            chance = overlap[j, other] / max(min(clients[j], clients[other]), 1e-12)
            if chance > _OVERLAP and min(clients[j], clients[other]) >= 1:
                said.append(
                    f"kinds {j} and {other} are closer than the rows of a client can tell: one of the smaller kind "
                    f"has a chance of {chance:.0%} to be of the other"
                )
    share = np.exp(found.mixture.log_weight[0][order])
    rare = np.flatnonzero((share * len(survey.anchor_weights) < 5) & (share < 0.5))
    if len(rare) and survey.anchors is not None and len(survey.anchor_weights) < survey.census.n_clients:
        said.append(
            f"{_named(rare)} with fewer than 5 of the {len(survey.anchor_weights)} anchors: others like it "
            "may be missed"
        )
    return said


def _ridge(found: Maximum, order: Array) -> list[str]:
    """Look for kinds that tell less of some direction than the ridge does: without it they would run off."""
    ridge = found.rules.ridge
    if ridge == 0 or len(found.reply.gram) == 0:
        return []
    least = np.linalg.eigvalsh(found.reply.matrices[0][order])[:, 0]
    held = np.flatnonzero(least < _HELD * ridge)
    if len(held) == 0:
        return []
    return [
        f"{_named(held)}: some coefficients are held by the ridge towards the pooled model as much as by the rows, "
        "which may all be of one class, or 0; without it (ridge = 0) they may run off"
    ]


def _named(kinds: Array) -> str:
    names = [str(kind) for kind in kinds[:4]] + (["..."] if len(kinds) > 4 else [])
    return f"kinds {', '.join(names)}" if len(kinds) > 1 else f"kind {names[0]}"
