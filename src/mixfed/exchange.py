"""The exchanges: what the server asks, and what it gets back.

A query is frozen and says all that a client needs. The reply is a sum over clients: ``reply_a + reply_b`` is the
reply of both together, and only the server divides. What single anchors reply is another type,
`AnchorReplies`, which does not add: the one exception of the algorithm shows in its type.

Arrays are written with their shapes, by which messages from outside are checked (`messages.check`): D columns of the
table, k kinds, h anchors, r columns of a basis, d whitened features; "?" is any size.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, Self, TypeVar, cast

import numpy as np

from .arrays import Array, Bools, Floats, Ints
from .losses import SQUARED, Loss


class Sum(Protocol):
    """A reply that adds."""

    def __add__(self, other: Self, /) -> Self: ...


S = TypeVar("S", bound=Sum)
T = TypeVar("T")


class Query(Generic[S, T]):
    """A question whose answer, of type T, is made of a sum of type S over clients."""

    def finish(self, total: S) -> T:
        """Turn the sum over all clients into what was asked for: what is linear in it is not left to every site."""
        return cast(T, total)


R = TypeVar("R")


class Each(Generic[R]):
    """A question to single clients, answered one by one: R holds a row for each of them."""

    def part(self, which: Array) -> Self:
        """Give the question as it is put to some of those asked, by their places (c,) among them."""
        return self


# ---------------------------------------------------------------- census


@dataclass(frozen=True, eq=False)
class CensusSum:
    """Who is there, and the range of what they hold."""

    sizes: Annotated[Ints, "m"]
    """The numbers of rows that clients have, ascending, each once."""
    counts: Annotated[Ints, "m"]
    """How many clients have each."""
    low: Annotated[Floats, "D"]
    """No value of a feature is below: a round number, and so nobody's value."""
    high: Annotated[Floats, "D"]
    """Nor above."""
    steady: Annotated[Bools, "D"]
    """Whether a feature has the same value in all rows."""
    value: Annotated[Floats, "D"]
    """That value; else 0."""
    total: Annotated[Floats, "D"]
    """The sum of each feature."""
    target: float
    """The sum of the targets."""
    target_low: float
    target_high: float
    single: bool
    """Whether some rows are in single precision."""

    def __add__(self, other: CensusSum) -> CensusSum:
        sizes, place = np.unique(np.concatenate([self.sizes, other.sizes]), return_inverse=True)
        counts = np.zeros_like(sizes)
        np.add.at(counts, place, np.concatenate([self.counts, other.counts]))
        steady = self.steady & other.steady & (self.value == other.value)
        return CensusSum(
            sizes,
            counts,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            steady,
            np.where(steady, self.value, 0.0),
            self.total + other.total,
            self.target + other.target,
            min(self.target_low, other.target_low),
            max(self.target_high, other.target_high),
            self.single or other.single,
        )

    @property
    def n_clients(self) -> int:
        """Number of clients (M)."""
        return int(self.counts.sum())

    @property
    def n_rows(self) -> int:
        """Number of rows of all clients (N)."""
        return int(self.sizes @ self.counts)


@dataclass(frozen=True)
class Census(Query[CensusSum, CensusSum]):
    """Count clients and rows."""


@dataclass(frozen=True, eq=False)
class PeakSum:
    """What no client's |X_i|^2 / n_i is above: a round number, and so nobody's; of two replies, the larger."""

    peak: float

    def __add__(self, other: PeakSum) -> PeakSum:
        return PeakSum(max(self.peak, other.peak))


@dataclass(frozen=True)
class Peak(Query[PeakSum, PeakSum]):
    """Ask for the largest |X_i|^2 / n_i, which the paper's gamma is made of."""


# ---------------------------------------------------------------- Phase 1


@dataclass(frozen=True, eq=False)
class BlockSum:
    """A sum over clients of d x r blocks, one per anchor."""

    block: Annotated[Floats, "h D r"]
    clients: int

    def __add__(self, other: BlockSum) -> BlockSum:
        return BlockSum(self.block + other.block, self.clients + other.clients)

    def mean(self) -> Floats:
        """(h, d, r): the mean over clients."""
        return self.block / self.clients


@dataclass(frozen=True, eq=False)
class ApplyMoment(Query[BlockSum, BlockSum]):
    """Apply Y (or its transpose) of every anchor to a block, where Y = sum of a b^T.

    a and b are the residual moments of a client's first and second row at the anchor's model.
    """

    theta: Annotated[Floats, "h D"]
    """The anchors' models."""
    block: Annotated[Floats, "h D r"]
    transpose: bool


@dataclass(frozen=True, eq=False)
class AnchorReplies:
    """What each anchor says for itself: its next model and the size of its residual. These do not add."""

    theta: Annotated[Floats, "h D"]
    size: Annotated[Floats, "h"]


@dataclass(frozen=True, eq=False)
class Descend(Each[AnchorReplies]):
    """Ask each anchor to take one step of moment descent within its basis."""

    theta: Annotated[Floats, "h D"]
    basis: Annotated[Floats, "h D r"]
    round: int
    pairs: int
    power_rounds: int
    threshold: float
    """An anchor whose residual is no larger stays where it is (the paper's epsilon Delta)."""
    rate: float
    """Step as a share of the residual's size (the paper's alpha / (2 beta^2))."""
    seed: int

    def part(self, which: Array) -> Self:
        """Give each anchor its own model and basis only."""
        return dataclasses.replace(self, theta=self.theta[which], basis=self.basis[which])


# ---------------------------------------------------------------- Phase 2


@dataclass(frozen=True)
class FedAvg:
    """Local steps of gradient descent."""

    step: float
    local_steps: int


@dataclass(frozen=True)
class FedProx:
    """One local proximal step, solved exactly."""

    step: float
    local_steps: int = dataclasses.field(default=1, init=False)


Update = FedAvg | FedProx


@dataclass(frozen=True, eq=False)
class Mixture:
    """The models of all kinds and how they share the clients."""

    theta: Annotated[Floats, "k D"]
    weights: Annotated[Floats, "k"]
    """Shares of clients, adding to one."""
    noise: Annotated[Floats, "k"]
    """Standard deviations."""


@dataclass(frozen=True, eq=False)
class ModelSum:
    """A sum over clients of what they learned about each kind."""

    shift: Annotated[Floats, "k d | k D"]
    """How far each client moved its copy of the model, times its rows."""
    rows: int
    """All rows of the clients asked, whatever their kind."""
    mass: Annotated[Floats, "k"]
    """Memberships times rows."""
    clients: Annotated[Floats, "k"]
    """Memberships."""
    loss: Annotated[Floats, "k"]
    """Membership times loss."""
    likelihood: float
    """Log likelihood of the clients, up to a constant that does not depend on the mixture."""

    def __add__(self, other: ModelSum) -> ModelSum:
        return ModelSum(
            self.shift + other.shift,
            self.rows + other.rows,
            self.mass + other.mass,
            self.clients + other.clients,
            self.loss + other.loss,
            self.likelihood + other.likelihood,
        )

    def mean_shift(self) -> Floats:
        """(k, d): the shift of the global models with the paper's weights n_i / N."""
        return self.shift / self.rows

    def shares_or(self, old: Floats) -> Floats:
        """(k,): the share of clients of each kind."""
        total = self.clients.sum()
        return self.clients / total if total > 0 else old

    def noise_or(self, old: Floats) -> Floats:
        """(k,): the standard deviation within each kind; a kind without clients keeps its own."""
        variance = np.divide(2.0 * self.loss, self.mass, out=old**2, where=self.mass > 0)
        return np.sqrt(variance)

    def shared_noise(self) -> float:
        """Give the standard deviation over all kinds."""
        return float(np.sqrt(2.0 * self.loss.sum() / self.mass.sum()))


@dataclass(frozen=True, eq=False)
class Refine(Query[ModelSum, ModelSum]):
    """Estimate memberships, then move the models locally. Without an update, only count."""

    mixture: Mixture
    hard: bool
    update: Update | None = None
    loss: Loss = SQUARED


# ---------------------------------------------------------------- several at once


@dataclass(frozen=True, eq=False)
class Replies:
    """The replies to several queries that shared one exchange."""

    parts: tuple[Any, ...]

    def __add__(self, other: Replies) -> Replies:
        return Replies(tuple(a + b for a, b in zip(self.parts, other.parts, strict=True)))


ASKED_AT_ONCE = 16
"""Queries of an exchange for which it is kept what follows from them: blocks of clients, and sites in one process, are
asked the same."""


@dataclass(frozen=True, eq=False)
class Together(Query[Replies, Replies]):
    """Ask several queries in one exchange."""

    parts: tuple[Query[Any, Any], ...]

    def finish(self, total: Replies) -> Replies:
        """Finish the sum of each."""
        pairs = zip(self.parts, total.parts, strict=True)
        return Replies(tuple(query.finish(reply) for query, reply in pairs))


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
