"""Shards of clients on the workers of a dask cluster: how they come there, and what they answer."""

from __future__ import annotations

import ctypes
import dataclasses
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np
from distributed import Client, Future

from ..core.arrays import Array, Ints
from ..core.errors import DataError
from ..core.threads import one_blas_thread
from ..exchange.base import S, names_of
from ..exchange.pool import Sample
from ..kernels import named
from .answers import answer, answer_each
from .packed import Clients
from .store import ClientData

Holder: TypeAlias = Callable[[Client, Sequence[int], Sequence[str]], Iterator[Future]]
"""Gives shards to the cluster's workers, one after the other."""


class FromMemory:
    """Shards cut from clients in the memory of the caller."""

    def __init__(self, clients: ClientData, edges: Ints) -> None:
        self.clients, self.edges = clients, edges
        self.sizes = np.diff(clients.offsets[edges]).tolist()
        self.homes: dict[int, str] = {}

    def hold(self, client: Client, shards: Sequence[int], workers: Sequence[str]) -> Iterator[Future]:
        """Scatter shards, each to the worker with the fewest rows so far."""
        load = dict.fromkeys(workers, 0)
        for shard, home in self.homes.items():
            if home in load and shard not in shards:
                load[home] += self.sizes[shard]
        for shard in shards:
            worker = self.homes[shard] = min(load, key=lambda name: load[name])
            load[worker] += self.sizes[shard]
            rows = self.clients.block(*self.edges[shard : shard + 2].tolist())
            try:
                # One by one, or the scheduler, through which they may pass, would have to hold them all at once.
                yield client.scatter(_Shard.of(rows), workers=[worker], hash=False)
            except KeyError as error:  # what the scheduler says of a worker that it knows no more
                raise OSError(f"worker {worker} has left") from error


@dataclasses.dataclass(frozen=True, eq=False)
class ShardTitle:
    """What the pool must know of a shard that it has not seen."""

    features: tuple[str, ...]
    keys: Array
    rows: Ints
    numbers: bool
    """Whether ids are numbers."""


def cut_evenly(clients: ClientData, count: int) -> Ints:
    """Cut clients into at most ``count`` shards of about equal rows. -> (shards + 1,): their edges."""
    edges = np.array([0, *(end for _, end in clients.blocks)])
    if len(edges) <= 2 * count:  # too few blocks for shards that are about equal
        edges = np.arange(clients.n_clients + 1)
    goals = np.linspace(0, clients.n_rows, count + 1)[1:-1]
    cuts = edges[np.searchsorted(clients.offsets[edges], goals)]
    return np.unique(np.concatenate([[0], cuts, [clients.n_clients]])).astype(np.int64)


def compare_titles(first: str, expected: ShardTitle, name: str, title: ShardTitle) -> None:
    """Refuse files that do not go together."""
    if title.features != expected.features:
        raise DataError(
            f"{name}: the features are {', '.join(title.features)}, but {', '.join(expected.features)} in {first}: "
            "name the columns to use"
        )
    if title.numbers != expected.numbers:
        kinds = {True: "numbers", False: "text"}
        raise DataError(
            f"{name}: client ids are {kinds[title.numbers]}, but {kinds[expected.numbers]} in {first}: "
            "write them in one way"
        )


class _Shard(Clients):
    """Clients that arrive in memory of their own.

    Dask leaves arrays where they lie in a message: at odd addresses and perhaps not to be written. Kernels would be
    compiled once more for such arrays and be slower on them.
    """

    @classmethod
    def of(cls, clients: Clients) -> _Shard:
        """Take over clients as they are."""
        return cls(*(getattr(clients, name) for name in names_of(Clients)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, tuple(getattr(self, name) for name in names_of(Clients))


def _unpack(phi: Array, y: Array, offsets: Array, ids: Array, features: tuple[str, ...], *extras: Any) -> _Shard:
    phi, y, offsets = (np.require(part, requirements=("C", "A", "W")) for part in (phi, y, offsets))
    more = (None if part is None else np.require(part, requirements=("C", "A", "W")) for part in extras)
    return _Shard(phi, y, offsets, ids, features, *more)


def answer_shard(query: bytes, kernels: str, shard: Clients, places: Array | None = None) -> Any:
    """Answer a query for a shard, or for some of its clients, by their places, by the kernels of a name."""
    _keep_freed_memory()
    with one_blas_thread():
        return answer(pickle.loads(query), shard if places is None else shard.subset(places), named(kernels))


def answer_each_shard(query: bytes, kernels: str, shard: Clients, places: Array) -> Any:
    """Answer a query for each of some clients of a shard."""
    _keep_freed_memory()
    with one_blas_thread():
        return answer_each(pickle.loads(query), shard.subset(places), named(kernels))


@cache
def _keep_freed_memory() -> None:
    """Let this process keep up to 32 MB of freed memory, as the C library of Linux does unless it is told otherwise.

    Dask's nanny tells it to give every page back at once, and what kernels need for a block of clients would be
    asked for anew each time: exchanges took up to twice as long.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            mallopt(option, 32 * 2**20)


def add_replies(*parts: S) -> S:
    """Add replies, in order."""
    return reduce(add, parts)


def sample_shard(shard: Clients, sample: Sample) -> Clients:
    """Keep the clients of a shard that are in a sample."""
    return _Shard.of(shard.subset(sample.places(shard.keys)))


def shard_ids(shard: Clients, places: Array) -> Array:
    """Give the ids of some clients of a shard."""
    ids: Array = shard.ids[places]
    return ids


def read_shard(path: str, client: str, target: str, features: tuple[str, ...] | None, intercept: bool) -> Clients:
    """Read the shard that is a file."""
    try:
        read = Clients.from_file(path, client, target, features, intercept=intercept)
    except OSError as error:  # which the pool would take for a lost worker
        raise DataError(f"{path}: {error.strerror or error}") from error
    return _unpack(read.phi, read.y, read.offsets, read.ids, read.features)


def shard_title(shard: Clients) -> ShardTitle:
    """Say what is known of a shard."""
    return ShardTitle(shard.features, shard.keys, shard.rows, shard.ids.dtype.kind in "iuf")
