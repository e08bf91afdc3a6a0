"""Clients: the rows of all clients, packed.

Rows of one client are neighbours: client i owns rows ``offsets[i]:offsets[i + 1]`` of ``phi`` and ``y``.
Clients are in the order of their ids, rows of a client in the order they came in. The intercept is a feature by name
only: its column of ones is never stored with the others.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..core import draws
from ..core.arrays import Array, Floats, Ints, Keys
from ..core.errors import DataError
from ..core.names import INTERCEPT
from ..families.base import Family
from ..tables.reading import Put, planned, write_rows
from ..tables.roles import NO_EXTRAS, Extras, Plan, find_clients_and_columns
from ..tables.rows import Rows, rows_from_arrays, with_intercept
from ..tables.sources import FrameSource, Source

_BLOCK_ROWS, _BLOCK_NUMBERS = 65_536, 4_000_000
"""Rows and numbers of a block of clients, at most, unless one client alone has more."""
_LEAST_BLOCK, _BLOCKS = 4096, 16
"""Smaller blocks than that are not worth a thread; more of them than that are not needed to keep all threads busy."""


class Packing:
    """What follows from the order of packed clients, wherever their rows are."""

    offsets: Ints
    ids: Array
    features: tuple[str, ...]

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.ids)

    @property
    def n_rows(self) -> int:
        """Number of rows of all clients."""
        return int(self.offsets[-1])

    @property
    def dim(self) -> int:
        """Number of features, the intercept included."""
        return len(self.features)

    @property
    def intercept(self) -> bool:
        """Whether the last feature is the intercept."""
        return self.features[-1:] == (INTERCEPT,)

    @cached_property
    def rows(self) -> Ints:
        """Rows of each client, (n_clients,)."""
        return self.offsets[1:] - self.offsets[:-1]

    @cached_property
    def keys(self) -> Keys:
        """The clients' keys for random draws, (n_clients,)."""
        return draws.client_keys(self.ids)

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """Cut the clients into blocks, (begin, end) of each."""
        return cut(self.offsets, self.dim)


@dataclass(frozen=True, eq=False)
class Clients(Packing):
    """All clients' rows, packed by client.

    Make one with `from_arrays`, `from_frame` or `from_file`.
    """

    phi: Array
    """(n_rows, d), float32 or float64, rows in C order, without the intercept."""
    y: Floats
    """(n_rows,)"""
    offsets: Ints
    """(n_clients + 1,)"""
    ids: Array
    """(n_clients,), sorted."""
    features: tuple[str, ...]
    """The names of the columns of phi, and the intercept, if any, as the last."""
    offset: Floats | None = None
    """(n_rows,): what is added to every linear predictor."""
    weight: Floats | None = None
    """(n_rows,): how often each row counts, above 0."""

    def __post_init__(self) -> None:
        """Put rows in C order: compiled code reads several numbers of a row at once."""
        object.__setattr__(self, "phi", np.ascontiguousarray(self.phi))

    @classmethod
    def from_rows(cls, rows: Rows) -> Clients:
        """Pack rows that have targets."""
        if rows.y is None:
            raise DataError("these rows have no target")
        offsets = offsets_of(np.bincount(rows.owner, minlength=len(rows.ids)))
        phi, y, offset, weight = rows.phi, rows.y, rows.offset, rows.weight
        if np.any(np.diff(rows.owner) < 0):
            order = np.argsort(rows.owner, kind="stable")
            phi, y, offset, weight = phi[order], y[order], _some(offset, order), _some(weight, order)
        return cls(phi, y, offsets, rows.ids, rows.features, offset, weight)

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any,
        groups: Any = None,
        *,
        intercept: bool = False,
        features: Sequence[str] | None = None,
        offset: Any = None,
        weight: Any = None,
    ) -> Clients:
        """Pack arrays X (n_rows, d), y (n_rows,) and one client id per row (n_rows,).

        Without ``groups`` every row is a client of its own. An ``offset`` (n_rows,) is added to the linear predictors;
        a row of ``weight`` 2 counts as two rows, and one of weight 0 is left out.
        """
        more = {"intercept": intercept, "features": features, "offset": offset, "weight": weight}
        return cls.from_rows(rows_from_arrays(X, y, groups, **more))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        client: str,
        target: str,
        features: Sequence[str] | None = None,
        *,
        intercept: bool = True,
        extras: Extras = NO_EXTRAS,
    ) -> Clients:
        """Pack a pandas, polars or pyarrow table. By default every other numeric column is a feature."""
        source = FrameSource(frame, [client, target, *(features or ())])
        wanted = None if features is None else [*features, *extras.names]
        return cls._from_source(source, find_clients_and_columns(source, client, target, wanted), intercept, extras)

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        client: str,
        target: str,
        features: Sequence[str] | None = None,
        *,
        intercept: bool = True,
        extras: Extras = NO_EXTRAS,
    ) -> Clients:
        """Pack a ``.parquet`` file, or a ``.csv``, ``.tsv`` or ``.txt`` file, compressed (``.csv.gz``) or not."""
        wanted = None if features is None else [*features, *extras.names]
        return cls._from_source(*planned(Path(path), client, target, wanted), intercept, extras)

    @classmethod
    def _from_source(cls, source: Source, plan: Plan, intercept: bool, extras: Extras) -> Clients:
        """Pack a table in memory, with little more than the packed rows in it."""
        plan = extras.planned(plan, source.name)
        own = plan.features[: len(plan.features) - len(extras.names)]
        names, offsets = with_intercept(own, intercept), offsets_of(plan.counts)
        phi, y = np.empty((plan.n_rows, len(plan.features)), plan.precision), np.empty(plan.n_rows)

        def write(places: Ints, some: Array, targets: Floats) -> None:
            phi[places], y[places] = some, targets

        write_rows(source, plan, rows_by_client(offsets, write))
        pa.default_memory_pool().release_unused()  # which Arrow would keep for its next table
        phi, *more = extras.taken_apart(phi, source.name)
        return cls(phi, y, offsets, plan.ids.to_numpy(zero_copy_only=False), names, *more)

    @property
    def design(self) -> Array:
        """The features with the intercept's column of ones, (n_rows, dim)."""
        if not self.intercept:
            return self.phi
        return np.column_stack([self.phi, np.ones(self.n_rows, self.phi.dtype)])

    @cached_property
    def digest(self) -> str:
        """A digest of rows, owners and ids, for which the same clients on disk have the same."""
        columns = [part.astype(self.phi.dtype) for part in (self.offset, self.weight) if part is not None]
        phi = np.column_stack([self.phi, *columns]) if columns else self.phi
        return content_digest(hashed(phi).digest(), hashed(self.y).digest(), self.offsets, self.keys)

    def block(self, begin: int, end: int) -> Clients:
        """Give the clients ``begin:end``, without a copy of their rows."""
        if end - begin == self.n_clients:
            return self
        part = slice(self.offsets[begin], self.offsets[end])
        offsets = self.offsets[begin : end + 1] - self.offsets[begin]
        extras = _some(self.offset, part), _some(self.weight, part)
        return Clients(self.phi[part], self.y[part], offsets, self.ids[begin:end], self.features, *extras)

    def subset(self, who: Array) -> Clients:
        """Keep the clients at the places ``who`` (c,), in that order."""
        sizes = self.rows[who]
        rows = ranges(self.offsets[who], sizes)
        extras = _some(self.offset, rows), _some(self.weight, rows)
        phi = self.phi.take(rows, axis=0)
        return Clients(phi, self.y[rows], offsets_of(sizes), self.ids[who], self.features, *extras)

    def of_family(self, family: Family) -> Clients:
        """Subtract the offset from a target that may be shifted; else it stays with the rows."""
        if self.offset is None or not family.rescales:
            return self
        return dataclasses.replace(self, y=self.y - self.offset, offset=None)


def _some(values: Floats | None, rows: Any) -> Floats | None:
    return None if values is None else values[rows]


def offsets_of(sizes: Ints) -> Ints:
    """Say where the rows of clients begin, and where the last end. sizes (c,) -> (c + 1,)."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    sizes.cumsum(out=offsets[1:])
    return offsets


def ranges(begins: Ints, sizes: Ints) -> Ints:
    """Put the ranges ``begin:begin + size`` (c of each) one behind another."""
    offsets = offsets_of(sizes)
    rows: Ints = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], sizes)
    return rows


def rows_by_client(offsets: Ints, write: Callable[[Ints, Array, Floats], None]) -> Put:
    """Give each row its place: rows of a client one behind another, in the order in which they come.

    ``write`` is given places (n,), ascending, with phi (n, d) and y (n,).
    """
    free = offsets[:-1].copy()

    def put(first: int, owner: Ints, phi: Array, y: Floats) -> None:
        if first == 0:
            free[:] = offsets[:-1]
        if np.any(np.diff(owner) < 0):
            order = np.argsort(owner, kind="stable")
            owner, phi, y = owner[order], phi[order], y[order]
        begins = np.flatnonzero(np.diff(owner, prepend=-1))
        here, counts = owner[begins], np.diff(begins, append=len(owner))
        write(ranges(free[here], counts), phi, y)
        free[here] += counts

    return put


def cut(offsets: Ints, dim: int) -> list[tuple[int, int]]:
    """Cut clients into blocks of about equal rows. offsets (c + 1,) -> (begin, end) of each block.

    The cuts depend on the data alone, so sums over blocks, added in order, do not depend on the number of threads.
    """
    n_rows, n_clients = int(offsets[-1]), len(offsets) - 1
    least = n_rows / max(1, min(_BLOCK_ROWS, _BLOCK_NUMBERS // dim))
    count = min(n_clients, math.ceil(max(least, min(n_rows / _LEAST_BLOCK, _BLOCKS))))
    if count == 1:  # as with most sites, and single clients
        return [(0, n_clients)]
    cuts = np.unique(np.searchsorted(offsets, np.linspace(0, n_rows, count + 1)[1:-1])).tolist()
    edges = [0, *(edge for edge in cuts if 0 < edge < n_clients), n_clients]
    return list(itertools.pairwise(edges))


def hashed(values: Array) -> hashlib.blake2b:
    """Hash the bytes of an array."""
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16)


def content_digest(phi: bytes, y: bytes, offsets: Ints, keys: Keys) -> str:
    """Summarise clients by the digests of their rows' arrays, offsets (c + 1,) and keys (c,)."""
    parts = (phi, y, hashed(offsets).digest(), hashed(keys).digest())
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()
