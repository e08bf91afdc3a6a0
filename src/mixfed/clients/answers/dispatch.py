"""Which answer belongs to which query: each file of this room registers its own."""

from functools import singledispatch
from types import ModuleType
from typing import Any

from ...core.errors import SettingsError
from ...exchange.anchors import ApplyMoment
from ...exchange.base import Batch, BatchReply
from ...exchange.local_update import LocalUpdate
from ...exchange.mixture import LocalStep
from ...exchange.random_effects import LeaveOut, RandomEffectsSums
from ...families.base import Family
from ...families.gaussian import GAUSSIAN
from ...families.registry import family_named
from ..packed import Clients
from ..store import ClientData

_UNWEIGHTED = ApplyMoment, LeaveOut, LocalStep, LocalUpdate, RandomEffectsSums
"""Queries to which rows with weights have no answer."""


def answer(query: Any, clients: ClientData, kernels: ModuleType) -> Any:
    """Answer for all clients held here, summed, by some kernels."""
    if isinstance(query, _UNWEIGHTED) and isinstance(clients, Clients) and clients.weight is not None:
        raise SettingsError("weights go with the recipe 'auto', with update = 'exact' and without personal models")
    own = clients if isinstance(query, Batch) else clients.of_family(_family_of(query))  # or its parts say it each
    return answer_all(query, own, kernels)


def answer_each(query: Any, clients: Clients, kernels: ModuleType) -> Any:
    """Answer for each of the clients, one by one."""
    return answer_one_by_one(query, clients.of_family(_family_of(query)), kernels)


def _family_of(query: Any) -> Family:
    """Say what the target is taken for: units say it, or the query itself; else it is a number."""
    about = getattr(query, "units", query)
    return family_named(getattr(about, "family", GAUSSIAN.name))


@singledispatch
def answer_all(query: Any, clients: ClientData, kernels: ModuleType) -> Any:
    """Answer for all: each query has its own."""
    raise TypeError(f"no client can answer a {type(query).__name__}")


@singledispatch
def answer_one_by_one(query: Any, clients: Clients, kernels: ModuleType) -> Any:
    """Answer for each: each query has its own."""
    raise TypeError(f"no single client can answer a {type(query).__name__}")


@answer_all.register
def _together(query: Batch, clients: ClientData, kernels: ModuleType) -> BatchReply:
    return BatchReply(tuple(answer(part, clients, kernels) for part in query.parts))
