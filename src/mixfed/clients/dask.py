"""Clients on a cluster: shards of them live on the workers of dask.distributed.

A worker that dies costs time, not the result. Dask runs a lost task again, but what was scattered is gone with its
worker, and to hand whole shards over as arguments of tasks would keep all rows in the scheduler's memory for ever. So

* shards of clients in memory are scattered, and the pool, which has the source anyway, scatters a lost one again;
* shards that are files are tasks that read them, and dask itself reads a lost one again;
* an exchange that lost something on its way is asked again as a whole. Answers depend on the query and the shard
  alone and are added in a tree whose shape depends on the number of shards alone, so the total is the same to the
  bit, whoever answered.

This is the only module that knows of dask.
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import pickle
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from functools import cache, cached_property, reduce
from operator import add
from pathlib import Path
from typing import Any, Protocol, cast

import distributed
import numpy as np
from dask import delayed
from distributed import Client, Future, KilledWorker

from .. import __version__
from ..core.arrays import Array, Ints
from ..core.errors import DataError, PoolError, SettingsError
from ..core.threads import one_blas_thread
from ..exchange.base import Each, Query, R, S, T, Traffic
from ..exchange.pool import Roster, Sample, Who, joined
from ..model.assignment import Assignment
from ..model.model import Model
from .answers import answer, answer_each
from .packed import Clients
from .store import Held

_SHARDS_PER_WORKER = 4
"""So that the shards of a worker that died can be spread over the others."""
_FAN = 8
"""Replies that are added by one task."""
_BY_ARGUMENT = 1_000_000
"""Bytes of a query that may travel with every task; a larger one is scattered and passed on from worker to worker."""
_TRIES = 5
_BEAT = 1.0
"""Seconds after which the pool looks whether there are workers to wait for."""
_LOST = ("cancelled", "lost", "error")
_LOSSES = (CancelledError, KilledWorker, OSError)
"""What dask raises if a worker is lost: OSError stands for closed connections and for timeouts too."""


class DaskPool:
    """Clients in shards on the workers of a cluster.

    Shards are contiguous clients with about equal rows, four to a worker unless ``shards`` says how many; runs
    with as many shards agree to the bit, others to rounding. If no worker is there for ``patience`` seconds, the pool
    gives up with a `PoolError`.
    """

    _source: _Source

    def __init__(self, client: Client, clients: Held, shards: int | None = None, *, patience: float = 60.0) -> None:
        if shards is not None and shards < 1:
            raise SettingsError(f"shards={shards}: give 1 or more")
        self._begin(client, patience)
        count = shards if shards is not None else _SHARDS_PER_WORKER * len(self._workers())
        edges = _cut(clients, count)
        self._source = _Memory(clients, edges)
        self._describe(clients.features, Roster(clients.keys, clients.rows), edges)

    @classmethod
    def from_files(
        cls,
        client: Client,
        paths: Sequence[str | Path],
        client_column: str,
        target_column: str,
        features: Sequence[str] | None = None,
        intercept: bool = True,
        *,
        patience: float = 60.0,
    ) -> DaskPool:
        """Let workers read their shards themselves: one for each ``.parquet``, ``.csv`` or ``.csv.gz`` file.

        Workers must find the files under the same paths. All rows of a client must be in one file. No rows come
        here, only a key and the number of rows of each client.
        """
        if not paths:
            raise DataError("no files were given")
        places = [Path(path).absolute() for path in paths]
        wanted = tuple(features) if features is not None else None
        pool = cls.__new__(cls)
        pool._begin(client, patience)
        pool._source = _Files(places, (client_column, target_column, wanted, intercept))
        pool._shards = [None] * len(places)
        titles = pool._collect(lambda: [delayed(_title, pure=False)(shard) for shard in pool._held()], "reading files")
        names = [str(path) for path in paths]
        for name, title in zip(names, titles, strict=True):
            _compare(names[0], titles[0], name, title)
        edges = np.concatenate([[0], np.cumsum([len(title.keys) for title in titles])]).astype(np.int64)
        keys, rows = (np.concatenate([getattr(title, part) for title in titles]) for part in ("keys", "rows"))
        pool._describe(titles[0].features, Roster(keys, rows), edges)
        pool._refuse_split_clients(names)
        return pool

    @property
    def dim(self) -> int:
        """Number of features."""
        return len(self.features)

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.roster.keys)

    @cached_property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self._edges) - 1

    def ask(self, query: Query[Any, T], who: Who = None) -> T:
        """Let every shard answer for those of its clients who are asked, and add the answers on the workers."""

        def total() -> list[Any]:
            told = self._told(query)
            parts = [delayed(_answer, pure=False)(told, *asked) for asked in self._asked(who)]
            while len(parts) > 1:
                parts = [delayed(_add, pure=False)(*parts[at : at + _FAN]) for at in range(0, len(parts), _FAN)]
            return parts

        (reply,) = self._collect(total, f"the exchange {type(query).__name__}")
        self.traffic.count(query, reply)
        return query.finish(reply)

    def ask_each(self, query: Each[R], who: Array) -> R:
        """Ask the clients at places ``who`` one by one; replies come in that order."""
        parts = list(self._split(who))
        order = np.concatenate([which for _, which, _ in parts])

        def replies() -> list[Any]:
            shards = self._held()
            return [
                delayed(_answer_each, pure=False)(self._told(query.part(which)), shards[shard], places)
                for shard, which, places in parts
            ]

        reply = joined(self._collect(replies, f"the exchange {type(query).__name__}"), np.argsort(order))
        self.traffic.count(query, reply, speakers=len(who))
        return cast(R, reply)

    def assign(self, model: Model) -> Assignment:
        """Find the kinds of all clients, in the order of the roster; their rows stay where they are."""
        parts = self._collect(
            lambda: [delayed(_assign, pure=False)(model, shard) for shard in self._held()], "the assignment"
        )
        return cast(Assignment, joined(parts))

    # ---------------------------------------------------------------- who is where

    def _begin(self, client: Client, patience: float) -> None:
        self.client, self.patience, self.traffic = client, patience, Traffic()
        self._shards: list[Future | None] = []
        self._samples: dict[Sample, dict[int, Future | None]] = {}

    def _describe(self, features: tuple[str, ...], roster: Roster, edges: Ints) -> None:
        """Keep what is known of the shards; shard i has the clients at places edges[i]:edges[i + 1]."""
        self.features, self.roster, self._edges = features, roster, edges
        self._shards = self._shards or [None] * self.n_shards

    def _split(self, who: Array) -> Iterator[tuple[int, Array, Array]]:
        """Say for each shard with anybody of ``who`` (c,) in it which of them these are, and at which of its places."""
        who = np.asarray(who)
        home = np.searchsorted(self._edges, who, side="right") - 1
        # If nobody is asked, the first shard says what nobody says.
        for shard in np.unique(home).tolist() or [0]:
            which = np.flatnonzero(home == shard)
            yield shard, which, who[which] - self._edges[shard]

    def _asked(self, who: Who) -> Iterator[tuple[Any, ...]]:
        """Give the shards that are asked: each alone or with the places of those who are."""
        shards = self._held()
        if who is None:
            yield from ((shard,) for shard in shards)
        elif isinstance(who, Sample):
            # A sample is asked many times, so its rows are kept at hand, as tasks that dask can run again.
            if who not in self._samples:
                homes = (shard for shard, _, _ in self._split(who.places(self.roster.keys)))
                self._samples[who] = dict.fromkeys(homes)
            kept = self._samples[who]
            for shard, future in kept.items():
                if future is None or future.status in _LOST:
                    kept[shard] = self.client.submit(_sample, shards[shard], who, pure=False)
            yield from ((future,) for future in kept.values())
        else:
            yield from ((shards[shard], places) for shard, _, places in self._split(who))

    def _told(self, query: Any) -> Any:
        """Give the query as tasks take it: as bytes, or where they are."""
        # The older protocol copies arrays into memory of their own, which is how the kernels are compiled for them.
        told = pickle.dumps(query, protocol=4)
        return told if len(told) <= _BY_ARGUMENT else self.client.scatter(told, hash=False)

    def _refuse_split_clients(self, names: list[str]) -> None:
        order = np.argsort(self.roster.keys, kind="stable")
        keys = self.roster.keys[order]
        for at in np.flatnonzero(keys[1:] == keys[:-1]).tolist():
            homes = [(shard, place) for shard, _, place in self._split(order[at : at + 2])]
            ids = self._ids(homes)
            if len(homes) == 2 and ids[0] == ids[1]:  # else two ids that share a key
                files = " and in ".join(names[shard] for shard, _ in homes)
                raise DataError(f"client {ids[0]!r} has rows in {files}: put all rows of a client into one file")

    def _ids(self, places: Sequence[tuple[int, Array]]) -> list[Any]:
        """Give the ids of clients by shard and place."""
        found = self._collect(
            lambda: [delayed(_ids, pure=False)(self._held()[shard], place) for shard, place in places], "reading files"
        )
        return cast(list[Any], np.concatenate(found).tolist())

    # ---------------------------------------------------------------- what may be lost

    def _collect(self, build: Callable[[], list[Any]], what: str) -> list[Any]:
        """Run the tasks that ``build`` makes, again if a worker was lost on the way."""
        for attempt in range(_TRIES):
            try:
                time.sleep(0.2 * attempt)  # the scheduler may not have heard of the loss yet
                self._mend()
                tasks = build()  # kept to the end, for it holds what was scattered for this exchange alone
                futures = self.client.compute(tasks, optimize_graph=False)
                self._wait(futures)
                return cast(list[Any], self.client.gather(futures))
            except _LOSSES as error:
                loss = error
            except ModuleNotFoundError as error:
                raise PoolError(
                    f"the cluster has no module '{error.name}': install mixfed {__version__} on scheduler and workers"
                ) from error
        reason = " ".join(str(loss).split()) or type(loss).__name__
        raise PoolError(
            f"{what} failed {_TRIES} times because workers were lost: give them more memory, or make more shards "
            f"(the last reason: {reason[:200]})"
        ) from loss

    def _mend(self) -> None:
        """Give the cluster every shard that it has not or no longer has."""
        missing = [at for at, future in enumerate(self._shards) if future is None or future.status in _LOST]
        if not missing:
            return
        for kept in self._samples.values():
            kept.update(dict.fromkeys(set(missing) & kept.keys()))
        for shard, future in zip(missing, self._source.hold(self.client, missing, self._workers()), strict=True):
            self._shards[shard] = future

    def _held(self) -> list[Future]:
        return cast(list[Future], self._shards)

    def _wait(self, futures: list[Future]) -> None:
        while True:
            try:
                with self.client.as_current():  # or dask would take the caller's default client, if any
                    distributed.wait(futures, timeout=_BEAT)
                return
            except TimeoutError:
                self._workers()

    def _workers(self) -> list[str]:
        """Give the addresses of the workers, as soon as there are any."""
        deadline = time.monotonic() + self.patience
        while True:
            if self.client.status in ("closing", "closed"):
                raise PoolError("the connection to the scheduler of the cluster is lost: start it and try again")
            try:
                found = sorted(self.client.nthreads())
            except (OSError, RuntimeError, ValueError, AttributeError):  # a client that is just losing its scheduler
                found = []
            if found:
                return found
            if time.monotonic() > deadline:
                raise PoolError(f"the cluster has had no worker for {self.patience:.0f} s: start workers and try again")
            time.sleep(0.1)


class _Source(Protocol):
    """Where shards come from."""

    def hold(self, client: Client, shards: Sequence[int], workers: Sequence[str]) -> Iterator[Future]:
        """Give shards to the cluster, one after the other."""


class _Memory:
    """Shards cut from clients in the memory of the caller."""

    def __init__(self, clients: Held, edges: Ints) -> None:
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


class _Files:
    """Shards read from files by the workers."""

    def __init__(self, paths: list[Path], how: tuple[Any, ...]) -> None:
        self.paths, self.how = paths, how

    def hold(self, client: Client, shards: Sequence[int], workers: Sequence[str]) -> Iterator[Future]:
        """Let dask find a worker to read each."""
        for shard in shards:
            yield client.submit(_read, str(self.paths[shard]), *self.how, pure=False)


@dataclasses.dataclass(frozen=True, eq=False)
class _Title:
    """What the pool must know of a shard that it has not seen."""

    features: tuple[str, ...]
    keys: Array
    rows: Ints
    numbers: bool
    """Whether ids are numbers."""


def connect(address: str, timeout: float = 5.0) -> Client:
    """Connect to the scheduler at an address, for the command line: quietly, and with one line if it cannot be."""
    if not re.fullmatch(r"[a-z]+://.+:\d+", address):
        raise SettingsError(f"--dask {address}: give the address of a scheduler, such as tcp://localhost:8786")
    # Dask logs every connection that it loses; what matters of that is raised.
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError) as error:
        raise PoolError(f"no dask scheduler answers at {address} within {timeout:.0f} s: is it running?") from error


def _cut(clients: Held, count: int) -> Ints:
    """Cut clients into at most ``count`` shards of about equal rows. -> (shards + 1,): their edges."""
    edges = np.array([0, *(end for _, end in clients.blocks)])
    if len(edges) <= 2 * count:  # too few blocks for shards that are about equal
        edges = np.arange(clients.n_clients + 1)
    goals = np.linspace(0, clients.n_rows, count + 1)[1:-1]
    cuts = edges[np.searchsorted(clients.offsets[edges], goals)]
    return np.unique(np.concatenate([[0], cuts, [clients.n_clients]])).astype(np.int64)


def _compare(first: str, expected: _Title, name: str, title: _Title) -> None:
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


# ---------------------------------------------------------------- on the workers


class _Shard(Clients):
    """Clients that arrive in memory of their own.

    Dask leaves arrays where they lie in a message: at odd addresses and perhaps not to be written. Kernels would be
    compiled once more for such arrays and be slower on them.
    """

    @classmethod
    def of(cls, clients: Clients) -> _Shard:
        """Take over clients as they are."""
        return cls(clients.phi, clients.y, clients.offsets, clients.ids, clients.features)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, (self.phi, self.y, self.offsets, self.ids, self.features)


def _unpack(phi: Array, y: Array, offsets: Array, ids: Array, features: tuple[str, ...]) -> _Shard:
    phi, y, offsets = (np.require(part, requirements=("C", "A", "W")) for part in (phi, y, offsets))
    return _Shard(phi, y, offsets, ids, features)


def _answer(query: bytes, shard: Clients, places: Array | None = None) -> Any:
    _keep_freed_memory()
    with one_blas_thread():
        return answer(pickle.loads(query), shard if places is None else shard.subset(places))


def _answer_each(query: bytes, shard: Clients, places: Array) -> Any:
    _keep_freed_memory()
    with one_blas_thread():
        return answer_each(pickle.loads(query), shard.subset(places))


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


def _add(*parts: S) -> S:
    return reduce(add, parts)


def _sample(shard: Clients, sample: Sample) -> Clients:
    return _Shard.of(shard.subset(sample.places(shard.keys)))


def _assign(model: Model, shard: Clients) -> Assignment:
    return model.assign(shard)


def _ids(shard: Clients, places: Array) -> Array:
    ids: Array = shard.ids[places]
    return ids


def _read(path: str, client: str, target: str, features: tuple[str, ...] | None, intercept: bool) -> Clients:
    try:
        read = Clients.from_file(path, client, target, features, intercept=intercept)
    except OSError as error:  # which the pool would take for a lost worker
        raise DataError(f"{path}: {error.strerror or error}") from error
    return _unpack(read.phi, read.y, read.offsets, read.ids, read.features)


def _title(shard: Clients) -> _Title:
    return _Title(shard.features, shard.keys, shard.rows, shard.ids.dtype.kind in "iuf")
