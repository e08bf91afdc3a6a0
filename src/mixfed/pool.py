"""Where clients live.

The algorithm talks to a `Pool` and does not know whether the clients are in this process, on a cluster or
behind the walls of a federation. All pools give the same answers up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast

from .answers import answer, answer_each
from .arrays import Array, Ints, Keys
from .compiled import one_blas_thread
from .data import Clients
from .exchange import Each, Query, R, S, Traffic


@dataclass(frozen=True, eq=False)
class Roster:
    """Who can be asked. The server knows clients by a key and by how many rows they have."""

    keys: Keys
    """(n_clients,)"""
    rows: Ints
    """(n_clients,)"""


class Pool(Protocol):
    """A place where clients live."""

    @property
    def traffic(self) -> Traffic:
        """What has been exchanged so far."""

    @property
    def dim(self) -> int:
        """Number of features."""

    @property
    def roster(self) -> Roster:
        """The clients in the pool; a client's place in it is its address."""

    def ask(self, query: Query[S], who: Array | None = None) -> S:
        """Broadcast a query to the clients at places ``who`` and add up their answers."""

    def ask_each(self, query: Each[R], who: Array) -> R:
        """Ask the clients at places ``who`` one by one."""


class LocalPool:
    """All clients in this process."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.traffic = Traffic()

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.clients.dim

    @cached_property
    def roster(self) -> Roster:
        """The clients in the pool."""
        return Roster(self.clients.keys, self.clients.rows)

    def ask(self, query: Query[S], who: Array | None = None) -> S:
        """Answer for the clients at places ``who``, or for all."""
        asked = self.clients if who is None else self.clients.subset(who)
        with one_blas_thread():
            reply = cast(S, answer(query, asked))
        self.traffic.count(query, reply)
        return reply

    def ask_each(self, query: Each[R], who: Array) -> R:
        """Answer for each of the clients at places ``who``."""
        with one_blas_thread():
            replies = cast(R, answer_each(query, self.clients.subset(who)))
        self.traffic.count(query, replies, speakers=len(who))
        return replies
