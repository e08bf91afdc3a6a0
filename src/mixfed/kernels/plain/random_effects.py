"""What one block of clients says about kinds whose clients deviate (`exchange.random_effects`).

A client with more rows than features is first turned into as many rows as features, by an orthogonal matrix, which
leaves out nothing. Then, for each kind, with V = s^2 I + X Psi X^T = K K^T and r the residual,

    log N(r | 0, V) = -1/2 (log det V + r^T V^-1 r + n log 2 pi),
    A = X^T V^-1 X,  u = X^T V^-1 r,  B = X^T V^-2 X,  w = X^T V^-2 r,

from which its derivatives by theta, log s^2 and Psi are made:

    u,   1/2 s^2 (r^T V^-2 r - tr V^-1),   u u^T - A (half of it on the diagonal).

Traces follow from the sums: s^2 tr V^-1 = n - tr Psi A, and s^4 tr V^-2 is less than that by s^2 tr Psi B.

Shapes: n rows, m clients, C candidates, k kinds, L = C k models, w features, t = w (w + 1) / 2, q numbers of a kind.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...core.symmetric import doubled, packed, places, triangle
from .memberships import softmax
from .rows import AT_ONCE, alike, scaled

NEGLIGIBLE, CURVED, WAVERING = 1e-10, 1e-6, 1e-5
"""Memberships below the first do not count, below the second not in the information. A client with p_j (1 - p_j) below
the third misses no information about kind j worth the name."""


@dataclass(frozen=True, eq=False)
class Solved:
    """c clients of as many rows under L models."""

    inverse: Floats
    """K^-1, (L, c, n, n)."""
    x: Floats
    """K^-1 X, (L, c, n, w)."""
    error: Floats
    """K^-1 r, (L, c, n)."""
    log_density: Floats
    """(L, c)"""


def random_effects_sums(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Floats,
    inverse_sd: Floats,
    slope: Floats,
    target: Floats,
    whiten: Floats,
    theta: Floats,
    psi: Floats,
    full: bool,
    log_variance: Floats,
    log_weight: Floats,
    informed: Ints,
    fisher: bool,
) -> tuple[Floats, ...]:
    """Find memberships under every candidate and sum what they weigh.

    phi (n, D or one less), y (n,), centre to whiten as in `StandardUnits`, target (2,) being its centre and scale,
    theta (L, w), psi (L, w, w) if full, else (L, 1, w), informed (C,): place of a candidate among the informed,
    or -1. Gives the sums over clients of log likelihood (C,), memberships (L,), n_i times memberships (L,), A (L, t),
    scores (L, w + 2 + v), products of memberships (C, k, k); for each kind of an informed candidate (I) products (I,
    t + w + t, t) of u u^T - A / 2, u and (if ``fisher``) A with A if full, else (I, 2 + w, t): A_ab^2, u_a u_b A_ab and
    A_ab u_b; sides (I, 3, t): B, u w^T made symmetric, and w; (I, 2): s^4 tr V^-2 and r^T V^-3 r; and the missing
    information for each pair of kinds, (i, k (k + 1) / 2, q, q).
    """
    (count, k), (total, width) = log_weight.shape, theta.shape
    asked = np.argsort(informed)[np.count_nonzero(informed < 0) :]
    some = (asked[:, None] * k + np.arange(k)).ravel()  # models of informed candidates, (I,)
    t, variance = width * (width + 1) // 2, np.exp(log_variance).ravel()
    likelihood, overlap = np.zeros(count), np.zeros((count, k, k))
    sums, squares = np.zeros((total, 3 + width)), np.zeros((total, 4, width, width))
    products, missing = np.zeros(()), np.zeros(())
    leaning, cubes = np.zeros((len(some), width)), np.zeros(len(some))
    raw = scaled(phi, centre, inverse_sd)
    left = (y - target[0] - raw @ slope) / target[1]
    for x, own_y, rest, size in _gathered(
        raw @ whiten if full else raw, left, offsets, total * width + 3 * len(some) * t
    ):
        one = solve(x, own_y - np.moveaxis(x @ theta.T, 2, 0), rest, size, psi, full, variance)
        logs = one.log_density.reshape(count, k, -1) + log_weight[:, :, None]
        share, told = softmax(logs, axis=1)
        likelihood += told.sum(axis=1)
        overlap += share @ share.swapaxes(1, 2)
        shares = share.reshape(total, -1)
        counts = np.where(shares < NEGLIGIBLE, 0.0, shares)
        u = (one.error[:, :, None] @ one.x)[:, :, 0]
        back = (one.error[:, :, None] @ one.inverse)[:, :, 0]  # V^-1 r
        square = (back**2).sum(axis=2) + rest / variance[:, None] ** 2
        own = shares.sum(axis=1), shares @ size, (counts * square).sum(axis=1)
        sums += np.column_stack([*own, (counts[:, None] @ u)[:, 0]])
        squares[:, 0] += _weighed(one.x, one.x, counts)
        squares[:, 1] += _weighed(u, u, counts)
        if not len(some):
            continue
        v, own_x, own_u, inverse, back = variance[some, None], one.x[some], u[some], one.inverse[some], back[some]
        curved = np.where(shares[some] < CURVED, 0.0, shares[some])
        twice = inverse.swapaxes(2, 3) @ own_x  # V^-1 X
        w = (back[:, :, None] @ twice)[:, :, 0]
        again = (inverse @ back[..., None])[..., 0]
        own_a = packed(own_x.swapaxes(2, 3) @ own_x)
        squares[some, 2] += _weighed(twice, twice, curved)
        squares[some, 3] += _weighed(own_u, w, curved)
        leaning += (curved[:, None] @ w)[:, 0]
        cubes += (curved * ((again**2).sum(axis=2) + rest / v**3)).sum(axis=1)
        products = products + _products(own_a, own_u, curved, full, fisher)
        trace = (inverse**2).sum(axis=(2, 3)) + (size - x.shape[1]) / v
        parts = own_u, 0.5 * v * (square[some] - trace), np.ones_like(curved), _psi_score(own_a, own_u, full)
        scores = np.concatenate([part if part.ndim == 3 else part[..., None] for part in parts], axis=2)
        missing = missing + _missing_information(scores.reshape(len(asked), k, *scores.shape[1:]), share[asked])
    gram, score, sides, traces = slopes(sums, squares, psi, full, variance, some, leaning, cubes)
    if not len(some):
        tall, q = (t + width + (t if fisher else 0)) if full else 2 + width, score.shape[1]
        products, missing = np.zeros((0, tall, t)), np.zeros((0, k * (k + 1) // 2, q, q))
    return likelihood, sums[:, 0], sums[:, 1], gram, score, overlap, products, sides, traces, missing


def slopes(
    sums: Floats,
    squares: Floats,
    psi: Floats,
    full: bool,
    variance: Floats,
    some: Ints,
    leaning: Floats,
    cubes: Floats,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Turn sums over clients into A (L, t), scores, sides and traces, as `random_effects_sums` gives them.

    sums (L, 3 + w): memberships, n_i times them, r^T V^-2 r, u; squares (L, 4, w, w): A, u u^T and, of the informed
    models (I,), B and u w^T; of these, too, w (I, w) and r^T V^-3 r (I,). variance (L,).
    """
    (clients, rows, square), pulls = sums[:, :3].T, sums[:, 3:]
    a, outer, b, across = squares.swapaxes(0, 1)
    width = a.shape[-1]
    explained, twice = (np.einsum("jab,jab->j" if full else "jxa,jaa->j", psi, part) for part in (a, b))
    halves = 0.5 * (outer - a)
    curve = doubled(width) * packed(halves) if full else np.diagonal(halves, 0, 1, 2)
    score = np.column_stack([pulls, 0.5 * (variance * square - (rows - explained)), clients, curve])
    sides = np.zeros((len(some), 3, width * (width + 1) // 2))
    sides[:, 0], sides[:, 1] = packed(b[some]), packed(0.5 * (across + across.swapaxes(1, 2))[some])
    sides[:, 2, :width] = leaning
    traces = np.column_stack([(rows - explained - variance * twice)[some], cubes])
    return packed(a), score, sides, traces


def _gathered(x: Floats, y: Floats, offsets: Ints, numbers: int) -> Iterator[tuple[Floats, Floats, Floats, Ints]]:
    """Give clients that have as many rows once they are reduced: x (c, n, w), y (c, n), what is left and sizes (c,).

    ``numbers`` is how many each of them takes in what follows for every row.
    """
    width = x.shape[1]
    groups: dict[int, list[tuple[Array, ...]]] = {}
    for those, rows in alike(offsets, width * width):
        size = rows.shape[1]
        groups.setdefault(min(size, width), []).append((*reduced(x[rows], y[rows]), np.full(len(those), size)))
    for n, parts in groups.items():
        own_x, own_y, rest, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
        step = max(1, AT_ONCE // (numbers * n))
        for first in range(0, len(sizes), step):
            some = slice(first, first + step)
            yield own_x[some], own_y[some], rest[some], sizes[some]


def reduced(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Turn rows x (..., n, w), y (..., n), if n is above w, into w rows, and the squares that are left (...)."""
    *some, n, width = x.shape
    if n <= width:
        return x, y, np.zeros(some)
    triangles: Floats = np.asarray(np.linalg.qr(np.concatenate([x, y[..., None]], axis=-1), mode="r"))
    return triangles[..., :width, :width], triangles[..., :width, width], triangles[..., width, width] ** 2


def solve(x: Floats, residual: Floats, rest: Floats, size: Ints, psi: Floats, full: bool, variance: Floats) -> Solved:
    """Solve for clients of ``size`` rows (c,), as `reduced` left them, under L models.

    x (c, n, w) or (L, c, n, w), residual (L, c, n), rest (c,) or (L, c), psi as in `random_effects_sums`.
    """
    n, v = x.shape[-2], variance[:, None]
    mixed = x @ psi[:, None] if full else x * psi[:, None]
    inverse, log_det = inverse_root(mixed @ x.swapaxes(-1, -2) + v[:, :, None, None] * np.eye(n), v)
    error = (inverse @ residual[..., None])[..., 0]
    value = log_det + (size - n) * np.log(v) + (error**2).sum(axis=2) + rest / v + size * np.log(2.0 * np.pi)
    return Solved(inverse, inverse @ x, error, -0.5 * value)


def inverse_root(matrices: Floats, least: Floats) -> tuple[Floats, Floats]:
    """Give K^-1 of matrices K K^T (L, c, n, n), and log determinants (L, c).

    No eigenvalue is below ``least`` (L, 1), but for rounding, or where Psi is no covariance.
    """
    try:
        root = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrices)
        values = np.maximum(values, least[..., None])
        return vectors.swapaxes(-1, -2) / np.sqrt(values)[..., None], np.log(values).sum(axis=-1)
    return np.linalg.inv(root), 2.0 * np.log(np.diagonal(root, 0, -2, -1)).sum(axis=-1)


def _weighed(one: Floats, other: Floats, share: Floats) -> Floats:
    """Sum share X^T Z over clients. one and other (L, c, w) or (L, c, n, w), share (L, c) -> (L, w, w)."""
    models, width = len(one), one.shape[-1]
    weighed = one * share.reshape(*share.shape, *[1] * (one.ndim - 2))
    return weighed.reshape(models, -1, width).swapaxes(1, 2) @ other.reshape(models, -1, width)


def _products(a: Floats, u: Floats, share: Floats, full: bool, fisher: bool) -> Floats:
    """Sum the products that the information is made of (see `random_effects_sums`). a (I, c, t), u (I, c, w)."""
    width, own = u.shape[2], share[:, :, None]
    if full:
        parts = [packed(u[..., :, None] * u[..., None, :]) - 0.5 * a, u, *([a] if fisher else [])]
        return np.concatenate(parts, axis=2).swapaxes(1, 2) @ (own * a)
    rows, columns = triangle(width)
    found = np.zeros((len(a), 2 + width, a.shape[2]))
    found[:, 0] = (own * a**2).sum(axis=1)
    found[:, 1] = (own * a * u[..., rows] * u[..., columns]).sum(axis=1)
    found[:, 2 + rows, columns] = (own * a * u[..., columns]).sum(axis=1)
    found[:, 2 + columns, rows] = (own * a * u[..., rows]).sum(axis=1)
    return found


def _psi_score(a: Floats, u: Floats, full: bool) -> Floats:
    """Give the derivatives of log N by the numbers of Psi. a (I, c, t), u (I, c, w) -> (I, c, v)."""
    if full:
        return 0.5 * doubled(u.shape[2]) * (packed(u[..., :, None] * u[..., None, :]) - a)
    return 0.5 * (u**2 - a[..., np.diag(places(u.shape[2]))])


def _missing_information(score: Floats, share: Floats) -> Floats:
    """Sum the covariances of clients' scores (i, k, c, q) over the kinds, by pairs. share (i, k, c)."""
    unsure = score * (share * (1.0 - share) > WAVERING)[..., None]
    pairs = []
    for j, other in combinations_with_replacement(range(share.shape[1]), 2):
        weight = share[:, j] * ((1.0 - share[:, j]) if j == other else -share[:, other])
        pairs.append((unsure[:, j] * weight[..., None]).swapaxes(1, 2) @ unsure[:, other])
    return np.stack(pairs, axis=1)
