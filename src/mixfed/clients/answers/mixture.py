"""What clients say of candidates for the maximum of the likelihood."""

import dataclasses
from functools import partial
from types import ModuleType

import numpy as np

from ...core.arrays import Floats
from ...exchange.local_update import ModelSum
from ...exchange.mixture import Candidates, LocalStep, MixtureNumbers, MixtureSums, SplitMoments
from ...exchange.moments import PairSum
from ...exchange.units import StandardUnits
from ...families.base import SQUARED
from ...families.gaussian import GAUSSIAN
from ...families.registry import family_named
from ..blocks import summed
from ..packed import Clients
from ..store import ClientData
from .dispatch import answer_all
from .local_update import model_sum, update_arguments
from .units import in_few_columns, kernel_models, kernel_rows


def _memberships(
    block: Clients, units: StandardUnits, candidates: Candidates, hard: bool, kernels: ModuleType
) -> Floats:
    """Give the memberships of a block's clients under each candidate, (m, L)."""
    return _said(block, MixtureSums(units, candidates, hard=hard, curvature=False), kernels)[-1]


def _said(block: Clients, query: MixtureSums, kernels: ModuleType) -> tuple[Floats, Floats, Floats]:
    """Give what the kernel says of the candidates of a query to a block, whose rows are looked at in its units."""
    candidates, since = query.candidates, query.since
    models, nobody = kernel_models(candidates, query.units, block.phi.dtype), np.empty((0, candidates.log_weight.size))
    family = family_named(query.units.family)
    kernel = kernels.mixture_sums
    if family is not GAUSSIAN or block.weight is not None:
        kernel = partial(kernels.generic_sums, family, shift=block.offset, row_weight=block.weight)
    sums: tuple[Floats, Floats, Floats] = kernel(
        *kernel_rows(block, query.units),
        models,
        candidates.log_variance,
        candidates.log_weight,
        query.hard,
        query.curvature,
        np.array(query.informed, np.int64),
        nobody if since is None else _memberships(block, query.units, since, query.hard, kernels),
    )
    return sums


@answer_all.register
def _split_moments(query: SplitMoments, clients: ClientData, kernels: ModuleType) -> PairSum:
    """Pair moments at each kind's own model, weighted by membership."""
    mixture = query.mixture
    units, taken = in_few_columns(query.units)

    def one(block: Clients) -> PairSum:
        block = taken(block)
        rows, models = kernel_rows(block, units), kernel_models(mixture, units, block.phi.dtype)
        membership = _memberships(block, units, mixture, False, kernels)
        extras = family_named(units.family), block.offset, block.weight
        pairs = kernels.pair_moments(*rows, models, membership, *extras)
        return PairSum(pairs, block.n_rows)

    return summed(one, clients)


@answer_all.register
def _local_step(query: LocalStep, clients: ClientData, kernels: ModuleType) -> ModelSum:
    mixture, family = query.mixture, family_named(query.units.family)
    arguments = (
        np.ascontiguousarray(mixture.theta[0].T),
        mixture.log_weight[0],
        np.exp(0.5 * mixture.log_variance[0]),
        query.hard,
        SQUARED.code,
        *update_arguments(query.update),
    )

    def one(block: Clients) -> ModelSum:
        if family is not GAUSSIAN:
            x, _ = query.units.scaled(block.design, block.y)
            base = x @ query.units.slope + (0.0 if block.offset is None else block.offset)
            rows = x @ query.units.whiten, block.y, base, block.offsets
            update = update_arguments(query.update)
            return model_sum(block, kernels.generic_updates(family, *rows, *arguments[:2], *update))
        z, residual = query.units.standardise(block.design, block.y)
        return model_sum(block, kernels.local_updates(z, residual, block.offsets, *arguments))

    return summed(one, clients)


@answer_all.register
def _mixture_sums(query: MixtureSums, clients: ClientData, kernels: ModuleType) -> MixtureNumbers:
    units, taken = in_few_columns(query.units)
    query = query if units is query.units else dataclasses.replace(query, units=units)

    def one(block: Clients) -> MixtureNumbers:
        numbers, missing, _ = _said(taken(block), query, kernels)
        return MixtureNumbers(numbers, missing)

    return summed(one, clients)
