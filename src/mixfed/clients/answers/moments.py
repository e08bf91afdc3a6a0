"""Second moments: of columns and target, and of pairs of rows of a client."""

from types import ModuleType

import numpy as np

from ...core.symmetric import packed
from ...exchange.moments import Gram, GramSum, PairMoments, PairSum
from ...families.registry import family_named
from ...kernels import plain
from ..blocks import summed
from ..packed import Clients
from ..store import ClientData
from .dispatch import answer_all
from .units import in_few_columns, kernel_rows, packed_identity, pooled_model


@answer_all.register
def _gram(query: Gram, clients: ClientData, kernels: ModuleType) -> GramSum:
    def one(block: Clients) -> GramSum:
        kind = block.phi.dtype
        shift, inverse_sd = query.centre.astype(kind), (1.0 / query.unit).astype(kind)
        arguments = (shift, inverse_sd, query.target_centre, query.target_unit)
        if block.weight is not None:
            return GramSum(*plain.weighted_second_moments(block.phi, block.y, *arguments, block.weight))
        return GramSum(*kernels.second_moments(block.phi, block.y, *arguments))

    return summed(one, clients)


@answer_all.register
def _pair_moments(query: PairMoments, clients: ClientData, kernels: ModuleType) -> PairSum:
    """sum_i [(sum e)(sum e)^T - sum e e^T] / (n_i - 1), where e = residual x: all pairs of different rows."""
    units, taken = in_few_columns(query.units)

    def one(block: Clients) -> PairSum:
        block = taken(block)
        ones = np.ones((block.n_clients, 1))
        family = family_named(units.family)
        models, extras = pooled_model(units, block.phi.dtype), (block.offset, block.weight)
        pairs = kernels.pair_moments(*kernel_rows(block, units), models, ones, family, *extras)
        if not query.lone:
            return PairSum(pairs, int(block.rows[block.rows > 1].sum()))
        alone = block.subset(np.flatnonzero(block.rows == 1))
        x, residual = units.scaled(alone.design, alone.y)
        e = x * residual[:, None]
        return PairSum(pairs + packed(e.T @ e) - residual @ residual * packed_identity(units), block.n_rows)

    return summed(one, clients)
