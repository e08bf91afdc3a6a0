"""Who is there: counts, ranges and totals."""

from types import ModuleType

import numpy as np

from ...exchange.census import Census, CensusSum, LargestNorm, LargestNormSum
from ...kernels import plain
from ..blocks import over_blocks, summed
from ..packed import Clients
from ..store import ClientData
from .dispatch import answer_all


@answer_all.register
def _census(query: Census, clients: ClientData, kernels: ModuleType) -> CensusSum:
    def one(block: Clients) -> CensusSum:
        sizes, counts = np.unique(block.rows, return_counts=True)
        low, high, constant, value, total, target, *bounds = kernels.census(block.phi, block.y, block.dim)
        mass, offset, weight = float(block.n_rows), 0.0, block.weight
        if weight is not None:
            mass, target = float(weight.sum()), float(weight @ block.y)
            total = plain.weighted_totals(block.phi, block.dim, weight)
        if block.offset is not None:
            offset = float(block.offset.sum() if weight is None else weight @ block.offset)
        found = low, high, constant, value, mass, offset, total, target, *bounds
        return CensusSum(*(sizes, counts, *found, bool(block.phi.dtype == np.float32)))

    return summed(one, clients)


@answer_all.register
def _largest_norm(query: LargestNorm, clients: ClientData, kernels: ModuleType) -> LargestNormSum:
    largest = max(over_blocks(lambda block: kernels.largest_norm(block.design, block.offsets), clients))
    return LargestNormSum(float(kernels.round_up(largest)))  # one client's own is not to be told
