"""EM on the anchors' statistics: many candidates at once, all in two products a step.

An anchor's squared residual is linear in its statistics: |y|^2 - 2 theta^T X^T y + theta^T X^T X theta.

Shapes: a anchors, r columns of the basis, C candidates, k kinds, L = k C models, those of a kind one behind another.
"""

import numpy as np

from ...core.arrays import Floats, Ints
from ...core.symmetric import doubled, triangle, unpacked
from .memberships import softmax


def quadratic_form(theta: Floats) -> Floats:
    """Write |y - z theta|^2 as a product with an anchor's row of statistics. theta (L, r) -> (columns, L).

    A row has the number of rows, the sum of squares, the cross products (r) and the packed second moments.
    """
    rows, columns = triangle(theta.shape[1])
    squares = theta[:, rows] * theta[:, columns] * doubled(theta.shape[1])
    return np.vstack([np.zeros(len(theta)), np.ones(len(theta)), -2.0 * theta.T, squares.T])


def drawn(upto: Floats, chance: Floats) -> Ints:
    """Draw places by their sums of weights up to each of them (a, S). chance (S, t): uniform numbers -> (S, t)."""
    return np.array(
        [np.searchsorted(sums[:-1], own * sums[-1], "right") for sums, own in zip(upto.T, chance, strict=True)]
    )


def em_steps(
    table: Floats,
    weighted: Floats,
    weight: Floats,
    theta: Floats,
    log_variance: Floats,
    log_weight: Floats,
    shared_noise: bool,
    prior_rows: float,
    prior_variance: float,
    ridge: float,
    has_dispersion: bool,
    smallest: float,
    steps: int,
    tolerance: float,
) -> Floats:
    """Take EM steps on all candidates at once, in place; stop early when none gains more than a tolerance above 0.

    table (a, columns): statistics; weighted: each times its weight (a,). theta (C, k, r), the others (C, k). Gives the
    candidates' values (C,) at the last step but one, penalised as in `recipes.updates`. Without a dispersion the log
    variance stays as it is.
    """
    (count, k, width), rows = theta.shape, table[:, 0]
    last, added = np.full(count, -np.inf), prior_rows * prior_variance
    for _ in range(steps):
        form = quadratic_form(theta.transpose(1, 0, 2).reshape(-1, width))
        logs = (form.T @ table.T).reshape(k, count, -1)  # squared residuals
        np.maximum(logs, 0.0, out=logs)  # which rounding may have made negative
        logs *= -0.5 * np.exp(-log_variance).T[:, :, None]
        logs -= 0.5 * (np.log(2.0 * np.pi) + log_variance).T[:, :, None] * rows
        logs += log_weight.T[:, :, None]
        membership, likelihood = softmax(logs, axis=0)
        value = likelihood @ weight
        if has_dispersion:
            value -= 0.5 * prior_rows * (prior_variance * np.exp(-log_variance) + log_variance).sum(axis=1)
        else:
            value -= 0.5 * ridge * (theta**2).sum(axis=(1, 2))
        if tolerance > 0 and (value - last).max() < tolerance:
            break
        last = value
        sums = (membership.reshape(k * count, -1) @ weighted).reshape(k, count, -1).transpose(1, 0, 2)
        cross, gram = sums[:, :, 2 : 2 + width], unpacked(sums[:, :, 2 + width :], width)
        theta[:] = np.linalg.solve(gram + ridge * np.eye(width), cross[..., None])[..., 0]
        if has_dispersion:
            left = np.maximum(sums[:, :, 1] - (theta * (cross + ridge * theta)).sum(axis=2), 0.0)
            of_rows = sums[:, :, 0]
            if shared_noise:
                left, of_rows = (np.repeat(part.mean(axis=1, keepdims=True), k, axis=1) for part in (left, of_rows))
            log_variance[:] = np.log((left + added) / (of_rows + prior_rows))
        people = (membership @ weight).T
        share = np.maximum(people / people.sum(axis=1, keepdims=True), smallest)
        log_weight[:] = np.log(share / share.sum(axis=1, keepdims=True))
    return last
