"""The exchanges: what the server asks, and what it gets back.

A query is frozen and says all that a client needs. The reply is a sum over clients: ``reply_a + reply_b`` is the
reply of both together, and only the server divides. What single anchors reply is another type,
`AnchorReplies`, which does not add: the one exception of the algorithm shows in its type.

Arrays are written with their shapes, by which messages from outside are checked (`shapes.check`): D columns of the
table, k kinds, h anchors, r columns of a basis, d whitened features; "?" is any size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

import numpy as np

from ..core.arrays import Array


class Sum(Protocol):
    """A reply that adds."""

    def __add__(self, other: Self, /) -> Self: ...


class Parts:
    """A sum that is a dataclass: two are added part by part."""

    def __add__(self, other: Self) -> Self:
        both = ((getattr(self, name), getattr(other, name)) for name in names_of(cast(Any, type(self))))
        return type(self)(*(a + b for a, b in both))


S = TypeVar("S", bound=Sum)
T = TypeVar("T")


class Query(Generic[S, T]):
    """A question whose answer, of type T, is made of a sum of type S over clients."""

    def finish(self, total: S) -> T:
        """Turn the sum over all clients into what was asked for: what is linear in it is not left to every site."""
        return cast(T, total)


R = TypeVar("R")


class PerClient(Generic[R]):
    """A question to single clients, answered one by one: R holds a row for each of them."""

    def part(self, which: Array) -> Self:
        """Give the question as it is put to some of those asked, by their places (c,) among them."""
        return self


class AboutCandidates:
    """A dataclass of arrays with a row for each of some candidates, but for what only the informed ones have."""

    INFORMATION: ClassVar[tuple[str, ...]] = ()

    def pick(self, which: Any, informed: Sequence[int] = ()) -> Self:
        """Keep candidates at places ``which``; their information is at places ``informed``."""
        which = np.atleast_1d(np.asarray(which, dtype=np.int64))
        places = {
            name: list(informed) if name in self.INFORMATION else which for name in names_of(cast(Any, type(self)))
        }
        return type(self)(*(getattr(self, name)[rows] for name, rows in places.items()))

    @classmethod
    def stack(cls, parts: Sequence[Self]) -> Self:
        """Put several batches into one."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names_of(cast(Any, cls))))


@cache
def names_of(kind: Any) -> tuple[str, ...]:
    """Give the names of what a dataclass is made of; the rest follows from it."""
    return tuple(item.name for item in dataclasses.fields(kind) if item.init)


# ---------------------------------------------------------------- several at once


@dataclass(frozen=True, eq=False)
class BatchReply:
    """The replies to several queries that shared one exchange."""

    parts: tuple[Any, ...]

    def __add__(self, other: BatchReply) -> BatchReply:
        return BatchReply(tuple(a + b for a, b in zip(self.parts, other.parts, strict=True)))


ASKED_AT_ONCE = 16
"""Queries of an exchange for which it is kept what follows from them: blocks of clients, and sites in one process, are
asked the same."""


@dataclass(frozen=True, eq=False)
class Batch(Query[BatchReply, BatchReply]):
    """Ask several queries in one exchange."""

    parts: tuple[Query[Any, Any], ...]

    def finish(self, total: BatchReply) -> BatchReply:
        """Finish the sum of each."""
        pairs = zip(self.parts, total.parts, strict=True)
        return BatchReply(tuple(query.finish(reply) for query, reply in pairs))


# ---------------------------------------------------------------- traffic


def payload(message: Any) -> int:
    """Bytes of the arrays and numbers in a query or reply."""
    if dataclasses.is_dataclass(message):
        return sum(payload(getattr(message, field.name)) for field in dataclasses.fields(message))
    if isinstance(message, np.ndarray):
        return message.nbytes
    if isinstance(message, tuple):
        return sum(map(payload, message))
    return 8 if isinstance(message, bool | int | float) else 0


@dataclass
class Traffic:
    """What has been exchanged so far."""

    exchanges: int = 0
    bytes_down: int = 0
    """Broadcast by the server, once per exchange."""
    bytes_up: int = 0
    """Replied by one client (or by each anchor asked), once per exchange."""

    def count(self, query: object, reply: object, speakers: int = 1) -> None:
        """Count one exchange in which ``speakers`` parties share the reply counted."""
        self.add(Traffic(1, payload(query), payload(reply) // speakers))

    def add(self, other: Traffic) -> None:
        """Count what was counted elsewhere."""
        self.exchanges += other.exchanges
        self.bytes_down += other.bytes_down
        self.bytes_up += other.bytes_up

    def since(self, earlier: Traffic) -> Traffic:
        """Give what has come since."""
        return Traffic(
            self.exchanges - earlier.exchanges, self.bytes_down - earlier.bytes_down, self.bytes_up - earlier.bytes_up
        )
