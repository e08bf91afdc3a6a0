"""Who is there: counts, ranges and totals."""

from types import ModuleType

import numpy as np

from ...exchange.census import Census, CensusSum, LargestNorm, LargestNormSum
from ..blocks import over_blocks, summed
from ..packed import Clients
from ..store import ClientData
from .dispatch import answer_all


@answer_all.register
def _census(query: Census, clients: ClientData, kernels: ModuleType) -> CensusSum:
    def one(block: Clients) -> CensusSum:
        sizes, counts = np.unique(block.rows, return_counts=True)
        low, high, constant, value, *rest = kernels.census(block.phi, block.y, block.dim, block.weight)
        weight = np.ones(block.n_rows) if block.weight is None else block.weight
        offset = 0.0 if block.offset is None else float(weight @ block.offset)
        about = low, high, constant, value, float(weight.sum()), offset, *rest
        return CensusSum(*(sizes, counts, *about, bool(block.phi.dtype == np.float32)))

    return summed(one, clients)


@answer_all.register
def _largest_norm(query: LargestNorm, clients: ClientData, kernels: ModuleType) -> LargestNormSum:
    largest = max(over_blocks(lambda block: kernels.largest_norm(block.design, block.offsets), clients))
    return LargestNormSum(float(kernels.round_up(largest)))  # one client's own is not to be told
