"""What one block of clients says about candidates, whatever the family of the target is.

The sums are those of `mixture`, whose words are used here, with u for the residual, t for its square, and w before the
second moments: see `families.base.Terms`. For a normal target they are the same numbers.

Shapes: n rows, m clients, C candidates, k kinds, L = C k models, D columns with the intercept.
"""

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...families.base import Family, weighted
from .memberships import hardest, softmax
from .mixture import NEGLIGIBLE, NEGLIGIBLE_SINGLE, in_rows, missing_information
from .rows import by_client, pieces, scaled


def generic_sums(
    family: Family,
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Array,
    inverse_sd: Array,
    target_centre: float,
    target_unit: float,
    models: Array,
    log_variance: Floats,
    log_weight: Floats,
    hard: bool,
    curvature: bool,
    informed: Ints,
    before: Floats,
    shift: Floats | None = None,
    row_weight: Floats | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Find memberships under every candidate, and sum what they weigh. models (D, L), log_variance (C, k): log phi.

    If memberships ``before`` (m, L) are given, second moments are summed as differences from those with them, which
    takes w that does not depend on the model; else ``before`` is (0, L). Gives what `mixture_sums` gives. A shift (n,)
    is added to every linear predictor, and a row counts as often as its weight (n,) says.
    """
    (count, k), (width, total) = log_weight.shape, models.shape
    negligible = NEGLIGIBLE if phi.dtype == np.float64 else NEGLIGIBLE_SINGLE
    likelihood, score = np.zeros(count), np.zeros((total, width))
    gram = np.zeros((total if curvature else 0, width * (width + 1) // 2))
    missing = np.zeros((len(informed), k * (k + 1) // 2, width + 2, width + 2))
    membership, statistic = np.empty((len(offsets) - 1, total)), np.zeros((len(offsets) - 1, total))
    precision, first = np.exp(-log_variance), 0
    for rows, edges in pieces(offsets):
        own, sizes = slice(first, first + len(edges) - 1), np.diff(edges)
        first = own.stop
        x = scaled(phi[rows], centre, inverse_sd)
        target = ((y[rows] - target_centre) / target_unit)[:, None]
        eta = x @ models
        if shift is not None:
            eta += shift[rows, None]
        terms, mass = family.terms(target, eta, log_variance.ravel()), sizes
        if row_weight is not None:
            terms = weighted(terms, row_weight[rows, None])
            mass = by_client(row_weight[rows], edges)
        logs = by_client(terms.likelihood, edges).reshape(-1, count, k) + log_weight
        share, of_clients = hardest(logs) if hard else softmax(logs)
        likelihood += of_clients.sum(axis=0)
        membership[own] = share.reshape(-1, total)
        if terms.statistic is not None:
            statistic[own] = by_client(terms.statistic, edges)
        score += (np.repeat(membership[own], sizes, axis=0) * terms.score).T @ x
        moved = membership[own] - before[own] if len(before) else membership[own]
        if curvature:
            counting = np.where(np.abs(moved) > negligible, moved, 0.0)
            gram += (np.repeat(counting, sizes, axis=0) * terms.weight).T @ _products(x)
        for i, c in enumerate(informed):
            of_c = slice(c * k, (c + 1) * k)
            scores = np.stack([by_client(column[:, None] * x, edges) for column in terms.score[:, of_c].T])
            half = 0.5 * statistic[own, of_c]
            missing[i] += missing_information(scores, half, mass, precision[c], share[:, c])
    sums = (score, gram) if curvature else (score,)
    masses = np.diff(offsets) if row_weight is None else by_client(row_weight, offsets)
    return in_rows(likelihood, membership, 0.5 * statistic, masses, *sums), missing, membership


def _products(x: Floats) -> Floats:
    """Multiply columns (n, D) with each other. -> x x^T of each row, packed (n, D (D + 1) / 2)."""
    width = x.shape[1]
    found = np.empty((len(x), width * (width + 1) // 2))
    for a in range(width):
        begin = a * (a + 1) // 2
        np.multiply(x[:, : a + 1], x[:, a : a + 1], out=found[:, begin : begin + a + 1])
    return found
