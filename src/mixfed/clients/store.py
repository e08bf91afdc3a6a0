"""Packed clients on disk: what `Clients` are, for tables that are larger than memory.

A store is a folder. ``phi.npy`` (n_rows, d), ``y.npy`` (n_rows,) and ``offsets.npy`` (n_clients + 1,) are the arrays of
`Clients`, ``ids.parquet`` has the ids, and ``store.json``, which is written last, the names; `packing.pack` makes one.
It gives the same blocks of clients as `Clients` of the same rows, so a fit on it is the same to the last bit.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core.arrays import Array, Floats, Ints
from ..core.errors import DataError, SettingsError
from ..families.base import Family
from ..tables.roles import NO_EXTRAS, Extras
from ..tables.rows import with_intercept
from ..tables.sources import open_source
from .packed import Clients, Packing, offsets_of, ranges
from .row_files import RowFile

FORMAT = "mixfed-store/1"
FILES = ("phi.npy", "y.npy", "offsets.npy", "ids.parquet", "store.json")
_GAP = 1 << 15
"""Bytes that are sooner read than skipped."""


@dataclass(frozen=True, eq=False)
class Store(Packing):
    """All clients' rows, packed by client, on disk. Open one with `open`."""

    path: Path
    features: tuple[str, ...]
    """The names of the columns of phi, and the intercept, if any, as the last."""
    client_column: str
    target_column: str
    offsets: Ints
    """(n_clients + 1,)"""
    ids: Array
    """(n_clients,), sorted."""
    digest: str
    """The same as that of `Clients` of the same rows."""
    phi: RowFile
    """(n_rows, d), float32 or float64, without the intercept."""
    y: RowFile
    """(n_rows,)"""

    @classmethod
    def open(cls, path: str | Path, *, intercept: bool = True) -> Store:
        """Open a folder that ``mixfed pack`` wrote; rows stay on disk."""
        path = Path(path)
        about = _read_about(path)
        try:
            offsets = np.load(path / "offsets.npy")
            ids = pq.ParquetFile(path / "ids.parquet").read()["id"].combine_chunks().to_numpy(zero_copy_only=False)
            phi, y = RowFile(path / "phi.npy"), RowFile(path / "y.npy")
            names = tuple(str(name) for name in about["features"])
            client, target, digest = (str(about[name]) for name in ("client", "target", "digest"))
            expected = (about["n_rows"], len(names)), (about["n_rows"],), (about["n_clients"],), about["dtype"]
        except DataError:
            raise
        except (KeyError, TypeError, ValueError, OSError, EOFError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())
            raise DataError(f"{path}: the packed folder is damaged ({reason}): pack the table again") from error
        pa.default_memory_pool().release_unused()  # which Arrow would keep for its next table
        found = phi.shape, y.shape, ids.shape, phi.dtype.name
        if found != expected or len(offsets) != len(ids) + 1 or offsets[-1] != len(y):
            raise DataError(f"{path}: the files do not belong together: pack the table again")
        return cls(path, with_intercept(names, intercept), client, target, offsets, ids, digest, phi, y)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum((self.path / name).stat().st_size for name in FILES)

    def of_family(self, family: Family) -> Store:
        """Give it as it is: no offset is packed."""
        return self

    def block(self, begin: int, end: int) -> Clients:
        """Read the clients ``begin:end``."""
        first, last = int(self.offsets[begin]), int(self.offsets[end])
        offsets = self.offsets[begin : end + 1] - first
        return Clients(
            self.phi.read(first, last), self.y.read(first, last), offsets, self.ids[begin:end], self.features
        )

    def subset(self, who: Array) -> Clients:
        """Read the clients at the places ``who`` (c,), in that order."""
        who = np.asarray(who)
        offsets = offsets_of(self.rows[who])
        phi = np.empty((offsets[-1], *self.phi.shape[1:]), self.phi.dtype)
        y: Floats = np.empty(offsets[-1])
        order = np.argsort(who, kind="stable")
        places = who[order]
        for begin, end in self._spans(places):
            chosen = places[begin:end]
            first, last = int(self.offsets[chosen[0]]), int(self.offsets[chosen[-1] + 1])
            there = ranges(self.offsets[chosen] - first, self.rows[chosen])
            here = ranges(offsets[order[begin:end]], self.rows[chosen])
            phi[here] = self.phi.read(first, last)[there]
            y[here] = self.y.read(first, last)[there]
        return Clients(phi, y, offsets, self.ids[who], self.features)

    def _spans(self, places: Array) -> list[tuple[int, int]]:
        """Cut places (c,), sorted, into spans that are read at once: within a block, and without large gaps."""
        if len(places) == 0:
            return []
        gaps = (self.offsets[places[1:]] - self.offsets[places[:-1] + 1]) * self.phi.row_bytes > _GAP
        ends = np.array([end for _, end in self.blocks])
        home = np.searchsorted(ends, places, side="right")
        cuts = np.flatnonzero(gaps | (np.diff(home) > 0)) + 1
        edges = [0, *cuts.tolist(), len(places)]
        return list(itertools.pairwise(edges))


ClientData: TypeAlias = Clients | Store
"""Clients in memory or on disk."""


def is_store(path: Path) -> bool:
    """Whether this is a folder that ``mixfed pack`` wrote."""
    return (path / "store.json").is_file()


def open_clients(
    path: str | Path,
    client: str | None = None,
    target: str | None = None,
    features: Sequence[str] | None = None,
    *,
    intercept: bool = True,
    extras: Extras = NO_EXTRAS,
) -> ClientData:
    """Open a packed folder, whose columns are known and need not be named, or read a file into memory."""
    path = Path(path)
    if not is_store(path):
        if path.is_dir():
            raise DataError(f"{path}: this folder has no packed table in it: make one with mixfed pack")
        if client is None or target is None:
            columns = ", ".join(open_source(path).schema.names)
            raise SettingsError(f"{path.name}: give --client and --target; the columns are {columns}")
        return Clients.from_file(path, client, target, features, intercept=intercept, extras=extras)
    if extras.names:
        raise SettingsError(f"{path}: a packed folder has no {', '.join(extras.names)}: fit the file it was made of")
    store = Store.open(path, intercept=intercept)
    for what, wanted, there in (("client", client, store.client_column), ("target", target, store.target_column)):
        if wanted not in (None, there):
            raise SettingsError(f"{path}: it was packed with the {what} '{there}', not '{wanted}': pack it again")
    packed = store.features[: len(store.features) - store.intercept]
    if features is not None and tuple(features) != packed:
        raise SettingsError(
            f"{path}: it was packed with the features {', '.join(packed)}, not {', '.join(features)}: "
            "pack it again with --features"
        )
    return store


def _read_about(path: Path) -> dict[str, Any]:
    try:
        about = json.loads((path / "store.json").read_text(encoding="utf-8"))
        found = about["format"]
    except OSError as error:
        raise DataError(f"{path}: no packed table here ({(error.strerror or 'unreadable').lower()})") from error
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path}: store.json is not one of mixfed: pack the table again") from error
    if found != FORMAT:
        raise DataError(f"{path}: the format is '{found}', this version of mixfed reads '{FORMAT}'")
    content: dict[str, Any] = about
    return content
