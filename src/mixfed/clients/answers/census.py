"""Who is there: counts, ranges and totals."""

from types import ModuleType
from typing import Any

import numpy as np

from ...exchange.census import Census, CensusSum, LargestNorm, LargestNormSum
from ..blocks import over_blocks, summed
from ..packed import Clients
from ..store import ClientData
from .dispatch import answer


@answer.register
def _census(query: Census, clients: ClientData, kernels: ModuleType) -> CensusSum:
    def one(block: Clients) -> CensusSum:
        sizes, counts = np.unique(block.rows, return_counts=True)
        looked: tuple[Any, ...] = kernels.census(block.phi, block.y, block.dim)
        return CensusSum(*(sizes, counts, *looked, bool(block.phi.dtype == np.float32)))

    return summed(one, clients)


@answer.register
def _largest_norm(query: LargestNorm, clients: ClientData, kernels: ModuleType) -> LargestNormSum:
    largest = max(over_blocks(lambda block: kernels.largest_norm(block.design, block.offsets), clients))
    return LargestNormSum(float(kernels.round_up(largest)))  # one client's own is not to be told
