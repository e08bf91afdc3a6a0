"""What clients say of candidates for the maximum of the likelihood."""

from __future__ import annotations

import dataclasses

import numpy as np

from ...core.arrays import Floats
from ...exchange.local_update import ModelSum
from ...exchange.mixture import Candidates, LocalStep, MixtureNumbers, MixtureSums, SplitMoments
from ...exchange.moments import PairSum
from ...exchange.units import StandardUnits
from ...families.base import SQUARED
from ...kernels import gaussian as posterior
from ...kernels import moments
from ...kernels import tiles as kernels
from ..blocks import summed
from ..packed import Clients
from ..store import ClientData
from .dispatch import answer as answer
from .dispatch import answer_each as answer_each
from .local_update import model_sum, update_arguments
from .units import in_few_columns, kernel_models, kernel_rows


def _memberships(block: Clients, units: StandardUnits, candidates: Candidates, hard: bool) -> Floats:
    """Give the memberships of a block's clients under each candidate, (m, L)."""
    return _said(block, MixtureSums(units, candidates, hard=hard, curvature=False))[-1]


def _said(block: Clients, query: MixtureSums) -> tuple[Floats, Floats, Floats]:
    """Give what the kernel says of the candidates of a query to a block, whose rows are looked at in its frame."""
    candidates, since = query.candidates, query.since
    models, nobody = kernel_models(candidates, query.units, block.phi.dtype), np.empty((0, candidates.log_weight.size))
    return posterior.expect(
        *kernel_rows(block, query.units),
        models,
        candidates.log_variance,
        candidates.log_weight,
        query.hard,
        query.curvature,
        np.array(query.informed, np.int64),
        nobody if since is None else _memberships(block, query.units, since, query.hard),
    )


@answer.register
def _split_moments(query: SplitMoments, clients: ClientData) -> PairSum:
    """Pair moments at each kind's own model, weighted by membership."""
    mixture = query.mixture
    units, taken = in_few_columns(query.units)

    def one(block: Clients) -> PairSum:
        block = taken(block)
        rows, models = kernel_rows(block, units), kernel_models(mixture, units, block.phi.dtype)
        membership = _memberships(block, units, mixture, hard=False)
        return PairSum(moments.pair_moments(*rows, models, membership), block.n_rows)

    return summed(one, clients)


@answer.register
def _local_step(query: LocalStep, clients: ClientData) -> ModelSum:
    mixture = query.mixture
    arguments = (
        np.ascontiguousarray(mixture.theta[0].T),
        mixture.log_weight[0],
        np.exp(0.5 * mixture.log_variance[0]),
        query.hard,
        SQUARED.code,
        *update_arguments(query.update),
    )

    def one(block: Clients) -> ModelSum:
        z, residual = query.units.standardise(block.design, block.y)
        return model_sum(block, kernels.refine(z, residual, block.offsets, *arguments))

    return summed(one, clients)


@answer.register
def _expect(query: MixtureSums, clients: ClientData) -> MixtureNumbers:
    units, taken = in_few_columns(query.units)
    query = query if units is query.units else dataclasses.replace(query, units=units)

    def one(block: Clients) -> MixtureNumbers:
        numbers, missing, _ = _said(taken(block), query)
        return MixtureNumbers(numbers, missing)

    return summed(one, clients)
