"""Where clients live.

The algorithm talks to a `Pool` and does not know whether the clients are in this process, on a cluster or
behind the walls of a federation. All pools give the same answers up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from ..clients.answers.mixture import answer, answer_each
from ..clients.packed import Clients, cut, offsets_of
from ..clients.store import Held
from ..core import draws
from ..core.arrays import Array, Floats, Ints, Keys
from ..core.compile import one_blas_thread, side_by_side
from .base import Each, Query, R, S, T, Traffic


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

    def ask_each(self, query: Each[R], who: Array) -> R:
        """Ask the clients at places ``who`` one by one."""


class LocalPool:
    """All clients in this process."""

    def __init__(self, clients: Held) -> None:
        self.clients = clients
        self.traffic = Traffic()
        self._sample: tuple[Sample, Clients] | None = None

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.clients.dim

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return self.clients.n_clients

    @cached_property
    def roster(self) -> Roster:
        """The clients in the pool."""
        return Roster(self.clients.keys, self.clients.rows)

    def ask(self, query: Query[Any, T], who: Who = None) -> T:
        """Answer for some clients, or for all."""
        reply = self.answer(query, who)
        self.traffic.count(query, reply)
        return query.finish(reply)

    def ask_each(self, query: Each[R], who: Array) -> R:
        """Answer for each of the clients at places ``who``."""
        replies = self.answer_each(query, who)
        self.traffic.count(query, replies, speakers=len(who))
        return replies

    def answer(self, query: Query[S, Any], who: Who = None) -> S:
        """Give the sum as in an exchange, which is not counted as one."""
        with one_blas_thread():
            return cast(S, answer(query, self.asked(who)))

    def answer_each(self, query: Each[R], who: Array) -> R:
        """Answer for single clients, a block of them at a time: they may be large."""

        def some(edges: tuple[int, int]) -> R:
            which = np.arange(*edges)
            return cast(R, answer_each(query.part(which), self.clients.subset(who[which])))

        blocks = cut(offsets_of(self.clients.rows[who]), self.dim)
        with one_blas_thread():
            return joined(list(side_by_side(some, blocks)))

    def asked(self, who: Who) -> Held:
        """Find the clients asked. A sample is asked several times in a row: the rows of the last are kept at hand."""
        if who is None:
            self._sample = None  # once all are asked, it has served
            return self.clients
        if not isinstance(who, Sample):
            return self.clients.subset(who)
        if self._sample is None or self._sample[0] != who:
            self._sample = None  # before the next is drawn: there is room for one
            self._sample = who, self.clients.subset(who.places(self.clients.keys))
        return self._sample[1]


def joined(parts: Sequence[T], order: Array | None = None) -> T:
    """Put replies of single clients one behind another, or in order (c,); all that they hold has a row for each."""
    if len(parts) == 1 and order is None:
        return parts[0]
    kind: Any = type(parts[0])
    columns = (np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(kind))
    return cast(T, kind(*(column if order is None else column[order] for column in columns)))
