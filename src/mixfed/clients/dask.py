"""Clients on a cluster: shards of them live on the workers of dask.distributed.

A worker that dies costs time, not the result. Dask runs a lost task again, but what was scattered is gone with its
worker, and to hand whole shards over as arguments of tasks would keep all rows in the scheduler's memory for ever. So

* shards of clients in memory are scattered, and the pool, which has the source anyway, scatters a lost one again;
* shards that are files are tasks that read them, and dask itself reads a lost one again;
* an exchange that lost something on its way is asked again as a whole. Answers depend on the query and the shard
  alone and are added in a tree whose shape depends on the number of shards alone, so the total is the same to the
  bit, whoever answered.

This module and `dask_shards` are the only ones that know of dask.
"""

from __future__ import annotations

import logging
import pickle
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import distributed
import numpy as np
from dask import delayed
from distributed import Client, Future, KilledWorker

from .. import __version__
from ..core.arrays import Array, Ints
from ..core.errors import DataError, PoolError, SettingsError
from ..exchange.base import PerClient, Query, R, T, Traffic
from ..exchange.pool import Roster, Sample, Who, joined
from ..kernels import name_for
from .dask_shards import (
    FromMemory,
    Holder,
    add_replies,
    answer_each_shard,
    answer_shard,
    compare_titles,
    cut_evenly,
    read_shard,
    sample_shard,
    shard_ids,
    shard_title,
)
from .packed import Clients
from .store import ClientData

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


T_co = TypeVar("T_co", covariant=True)


class Assigns(Protocol[T_co]):
    """A model: what finds the kinds of clients."""

    def assign(self, clients: Clients, /) -> T_co:
        """Find their kinds."""


class DaskPool:
    """Clients in shards on the workers of a cluster.

    Shards are contiguous clients with about equal rows, four to a worker unless ``shards`` says how many; runs
    with as many shards agree to the bit, others to rounding. If no worker is there for ``patience`` seconds, the pool
    gives up with a `PoolError`.
    """

    _hold: Holder

    def __init__(
        self, client: Client, clients: ClientData, shards: int | None = None, *, patience: float = 60.0
    ) -> None:
        if shards is not None and shards < 1:
            raise SettingsError(f"shards={shards}: give 1 or more")
        self._begin(client, patience)
        count = shards if shards is not None else _SHARDS_PER_WORKER * len(self._workers())
        edges = cut_evenly(clients, count)
        self._hold = FromMemory(clients, edges).hold
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
        columns = client_column, target_column, wanted, intercept
        pool._hold = lambda client, shards, _: (  # dask finds a worker to read each
            client.submit(read_shard, str(places[shard]), *columns, pure=False) for shard in shards
        )
        pool._shards = [None] * len(places)
        titles = pool.each_shard(shard_title, "reading files")
        names = [str(path) for path in paths]
        for name, title in zip(names, titles, strict=True):
            compare_titles(names[0], titles[0], name, title)
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
            parts = [delayed(answer_shard, pure=False)(told, self._kernels, *asked) for asked in self._asked(who)]
            while len(parts) > 1:
                parts = [delayed(add_replies, pure=False)(*parts[at : at + _FAN]) for at in range(0, len(parts), _FAN)]
            return parts

        (reply,) = self._collect(total, f"the exchange {type(query).__name__}")
        self.traffic.count(query, reply)
        return query.finish(reply)

    def ask_each(self, query: PerClient[R], who: Array) -> R:
        """Ask the clients at places ``who`` one by one; replies come in that order."""
        parts = list(self._split(who))
        order = np.concatenate([which for _, which, _ in parts])

        def replies() -> list[Any]:
            shards = self._held()
            return [
                delayed(answer_each_shard, pure=False)(
                    self._told(query.part(which)), self._kernels, shards[shard], places
                )
                for shard, which, places in parts
            ]

        reply = joined(self._collect(replies, f"the exchange {type(query).__name__}"), np.argsort(order))
        self.traffic.count(query, reply, speakers=len(who))
        return cast(R, reply)

    def each_shard(self, function: Callable[[Clients], T], what: str) -> list[T]:
        """Give what a function says of each shard, where it is, in the order of the roster."""
        return self._collect(lambda: [delayed(function, pure=False)(shard) for shard in self._held()], what)

    def assign(self, model: Assigns[T]) -> T:
        """Find the kinds of all clients, in the order of the roster; their rows stay where they are."""
        return joined(self.each_shard(model.assign, "the assignment"))

    # ---------------------------------------------------------------- who is where

    def _begin(self, client: Client, patience: float) -> None:
        self.client, self.patience, self.traffic = client, patience, Traffic()
        self._shards: list[Future | None] = []
        self._samples: dict[Sample, dict[int, Future | None]] = {}

    def _describe(self, features: tuple[str, ...], roster: Roster, edges: Ints) -> None:
        """Keep what is known of the shards; shard i has the clients at places edges[i]:edges[i + 1]."""
        self.features, self.roster, self._edges = features, roster, edges
        self._shards = self._shards or [None] * self.n_shards
        self._kernels = name_for(int(roster.rows.sum()) * len(features))  # by the whole, not by a shard

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
                    kept[shard] = self.client.submit(sample_shard, shards[shard], who, pure=False)
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
            ids = self._ids_at(homes)
            if len(homes) == 2 and ids[0] == ids[1]:  # else two ids that share a key
                files = " and in ".join(names[shard] for shard, _ in homes)
                raise DataError(f"client {ids[0]!r} has rows in {files}: put all rows of a client into one file")

    def _ids_at(self, places: Sequence[tuple[int, Array]]) -> list[Any]:
        """Give the ids of clients by shard and place."""
        found = self._collect(
            lambda: [delayed(shard_ids, pure=False)(self._held()[shard], place) for shard, place in places],
            "reading files",
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
        for shard, future in zip(missing, self._hold(self.client, missing, self._workers()), strict=True):
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
