"""Which answer belongs to which query: each file of this room registers its own."""

from functools import singledispatch
from types import ModuleType
from typing import Any

from ...exchange.base import Batch, BatchReply
from ..packed import Clients
from ..store import ClientData


@singledispatch
def answer(query: Any, clients: ClientData, kernels: ModuleType) -> Any:
    """Answer for all clients held here, summed, by some kernels."""
    raise TypeError(f"no client can answer a {type(query).__name__}")


@singledispatch
def answer_each(query: Any, clients: Clients, kernels: ModuleType) -> Any:
    """Answer for each of the clients, one by one."""
    raise TypeError(f"no single client can answer a {type(query).__name__}")


@answer.register
def _together(query: Batch, clients: ClientData, kernels: ModuleType) -> BatchReply:
    return BatchReply(tuple(answer(part, clients, kernels) for part in query.parts))
