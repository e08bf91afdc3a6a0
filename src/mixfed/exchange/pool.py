"""Where clients live.

The algorithm talks to a `Pool` and does not know whether the clients are in this process, on a cluster or
behind the walls of a federation. All pools give the same answers up to rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from ..core import draws
from ..core.arrays import Array, Floats, Ints, Keys
from .base import PerClient, Query, R, T, Traffic


@dataclass(frozen=True, eq=False)
class Roster:
    """Who can be asked. The server knows clients by a key and by how many rows they have."""

    keys: Keys
    """(n_clients,)"""
    rows: Ints
    """(n_clients,)"""


@dataclass(frozen=True)
class Sample:
    """A share of the clients, drawn by their keys: every place where clients live finds its own part of it."""

    seed: int
    share: float

    def places(self, keys: Keys) -> Array:
        """Give the places of the clients in the sample. keys (c,) -> (at most c,)."""
        return np.flatnonzero(self.draws(keys) < self.share)

    def draws(self, keys: Keys) -> Floats:
        """Give what each client draws: it is in the sample if that is below the share. keys (c,) -> (c,)."""
        return draws.uniform(self.seed, "sample", 0, keys)[:, 0]


Who: TypeAlias = Array | Sample | None
"""Clients by their places in the roster, a share of them, or all."""


class Pool(Protocol):
    """A place where clients live."""

    @property
    def traffic(self) -> Traffic:
        """What has been exchanged so far."""

    @property
    def dim(self) -> int:
        """Number of features."""

    @property
    def n_clients(self) -> int:
        """Number of clients."""

    @property
    def roster(self) -> Roster:
        """The clients that may be asked by their places; a client's place in it is its address."""

    def ask(self, query: Query[Any, T], who: Who = None) -> T:
        """Broadcast a query to some or all clients and add up their answers."""

    def ask_each(self, query: PerClient[R], who: Array) -> R:
        """Ask the clients at places ``who`` one by one."""


def joined(parts: Sequence[T], order: Array | None = None) -> T:
    """Put replies of single clients one behind another, or in order (c,); all that they hold has a row for each."""
    if len(parts) == 1 and order is None:
        return parts[0]
    kind: Any = type(parts[0])
    columns = (np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(kind))
    return cast(T, kind(*(column if order is None else column[order] for column in columns)))
