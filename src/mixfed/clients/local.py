"""The pool whose clients are all in this process."""

from functools import cached_property
from typing import Any, cast

import numpy as np

from ..core.arrays import Array
from ..core.threads import one_blas_thread, side_by_side
from ..exchange.base import PerClient, Query, R, S, T, Traffic
from ..exchange.pool import Roster, Sample, Who, joined
from ..kernels import chosen
from .answers import answer, answer_each
from .packed import Clients, cut, offsets_of
from .store import ClientData


class LocalPool:
    """All clients in this process."""

    def __init__(self, clients: ClientData) -> None:
        self.clients = clients
        self.kernels = chosen(clients.n_rows * clients.dim)
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

    def ask_each(self, query: PerClient[R], who: Array) -> R:
        """Answer for each of the clients at places ``who``."""
        replies = self.answer_each(query, who)
        self.traffic.count(query, replies, speakers=len(who))
        return replies

    def answer(self, query: Query[S, Any], who: Who = None) -> S:
        """Give the sum as in an exchange, which is not counted as one."""
        with one_blas_thread():
            return cast(S, answer(query, self.asked(who), self.kernels))

    def answer_each(self, query: PerClient[R], who: Array) -> R:
        """Answer for single clients, a block of them at a time: they may be large."""

        def some(edges: tuple[int, int]) -> R:
            which = np.arange(*edges)
            return cast(R, answer_each(query.part(which), self.clients.subset(who[which]), self.kernels))

        blocks = cut(offsets_of(self.clients.rows[who]), self.dim)
        with one_blas_thread():
            return joined(list(side_by_side(some, blocks)))

    def asked(self, who: Who) -> ClientData:
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
