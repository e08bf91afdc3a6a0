"""Who is there: counts, ranges and totals."""

from __future__ import annotations

import numpy as np

from ...exchange.census import Census, CensusSum, LargestNorm, LargestNormSum
from ...kernels import moments
from ...kernels import tiles as kernels
from ..blocks import over_blocks, summed
from ..packed import Clients
from ..store import ClientData
from .dispatch import answer


@answer.register
def _census(query: Census, clients: ClientData) -> CensusSum:
    def one(block: Clients) -> CensusSum:
        sizes, counts = np.unique(block.rows, return_counts=True)
        looked = moments.census(block.phi, block.y, block.dim)
        return CensusSum(sizes, counts, *looked, single=block.phi.dtype == np.float32)

    return summed(one, clients)


@answer.register
def _peak(query: LargestNorm, clients: ClientData) -> LargestNormSum:
    largest = max(over_blocks(lambda block: kernels.peak(block.design, block.offsets), clients))
    return LargestNormSum(moments.round_up(largest))  # one client's own is not to be told
