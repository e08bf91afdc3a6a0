"""Second moments: of columns and target, and of pairs of rows of a client."""

from __future__ import annotations

import numpy as np

from ...core.symmetric import packed
from ...exchange.moments import Gram, GramSum, PairMoments, PairSum
from ...kernels import moments
from ..blocks import summed
from ..packed import Clients
from ..store import Held
from .dispatch import answer as answer
from .units import in_few_columns, kernel_rows, packed_identity, pooled_model


@answer.register
def _gram(query: Gram, clients: Held) -> GramSum:
    def one(block: Clients) -> GramSum:
        kind = block.phi.dtype
        shift, stretch = query.centre.astype(kind), (1.0 / query.unit).astype(kind)
        units = (shift, stretch, query.target_centre, query.target_unit)
        return GramSum(*moments.second_moments(block.phi, block.y, *units))

    return summed(one, clients)


@answer.register
def _pair_moments(query: PairMoments, clients: Held) -> PairSum:
    """sum_i [(sum e)(sum e)^T - sum e e^T] / (n_i - 1), where e = residual x: all pairs of different rows."""
    frame, taken = in_few_columns(query.frame)

    def one(block: Clients) -> PairSum:
        block = taken(block)
        ones = np.ones((block.n_clients, 1))
        pairs = moments.pair_moments(*kernel_rows(block, frame), pooled_model(frame, block.phi.dtype), ones)
        if not query.lone:
            return PairSum(pairs, int(block.rows[block.rows > 1].sum()))
        alone = block.subset(np.flatnonzero(block.rows == 1))
        x, residual = frame.stretched(alone.design, alone.y)
        e = x * residual[:, None]
        return PairSum(pairs + packed(e.T @ e) - residual @ residual * packed_identity(frame), block.n_rows)

    return summed(one, clients)
