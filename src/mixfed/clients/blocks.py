"""Blocks of clients, on all cores: what is said of each, in order, and the sum of it."""

from collections.abc import Callable, Iterator
from functools import reduce
from operator import add

from ..core.threads import side_by_side
from ..exchange.base import S, T
from .packed import Clients
from .store import ClientData


def over_blocks(one: Callable[[Clients], T], clients: ClientData) -> Iterator[T]:
    """Say what ``one`` says of each block of the clients, on all cores, in order."""
    return side_by_side(lambda edges: one(clients.block(*edges)), clients.blocks)


def summed(one: Callable[[Clients], S], clients: ClientData) -> S:
    """Add up what ``one`` says of each block of the clients, in order."""
    return reduce(add, over_blocks(one, clients))
