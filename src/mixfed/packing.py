"""Packing: a table's rows put in the order of their clients, in two passes over batches.

The first pass reads the ids alone and finds every client's place, the second puts each row where it belongs, in memory
(`load`) or on disk (`pack`). What is held besides grows with the number of clients, not of rows.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from . import draws, tables, values
from .arrays import Array, Floats, Ints
from .data import Clients, content_digest, offsets_of, with_intercept
from .errors import ColumnError, DataError, NotUtf8Error
from .gaps import Gaps
from .ids import encode_clients, find_clients, plain
from .rowfile import RowWriter
from .store import FILES, FORMAT, Store, is_store
from .streams import Source, open_source

Watch: TypeAlias = Callable[[str, int, int | None], None]
"""Told the name of the pass, the rows that it has done, and of how many if that is known."""
_MERGE = 100_000
"""Ids of batches are put together when there are this many more than clients known before."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Which columns are taken and where each client's rows go: what the first pass finds."""

    client: str
    target: str
    features: tuple[str, ...]
    """Names of the d features, without the intercept."""
    precision: Any
    ids: pa.Array
    """(n_clients,), sorted."""
    offsets: Ints
    """(n_clients + 1,)"""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.offsets[-1])


class Sink(Protocol):
    """Where packed rows go."""

    def put(self, rows: Ints, phi: Array, y: Floats) -> None:
        """Take phi (n, d) and y (n,), whose places are ``rows`` (n,), ascending."""


def load(
    path: Path, client: str, target: str, features: Sequence[str] | None = None, *, intercept: bool = True
) -> Clients:
    """Pack a file in memory, with little more than the packed rows in it."""
    source, plan = _open(path, client, target, features)
    names = with_intercept(plan.features, intercept)
    sink = _Memory(np.empty((plan.n_rows, len(plan.features)), plan.precision), np.empty(plan.n_rows))
    pour(source, plan, sink)
    pa.default_memory_pool().release_unused()  # which Arrow would keep for its next table
    return Clients(sink.phi, sink.y, plan.offsets, plan.ids.to_numpy(zero_copy_only=False), names)


def pack(
    source: str | Path,
    out: str | Path,
    client: str,
    target: str,
    features: Sequence[str] | None = None,
    *,
    watch: Watch | None = None,
) -> Store:
    """Pack a file in a folder, which is there when it is whole and not before.

    A packed folder that is there already is replaced; anything else there is an error.
    """
    _check_free(Path(out))
    table, plan = _open(Path(source), client, target, features, watch)
    whole = Path(out).resolve()
    partial, old = (whole.with_name(whole.name + ending) for ending in (".partial", ".old"))
    _remove(partial)
    partial.mkdir(parents=True)
    try:
        with contextlib.closing(_Disk(partial, plan)) as sink:
            pour(table, plan, sink, watch)
            digests = sink.phi.finish(), sink.y.finish()
        _write_rest(partial, plan, *digests)
        if whole.exists():
            _remove(old)
            whole.rename(old)
        partial.rename(whole)
        _remove(old)
    finally:
        _remove(partial)
    return Store.open(out)


def _open(
    path: Path, client: str, target: str, features: Sequence[str] | None, watch: Watch | None = None
) -> tuple[Source, Plan]:
    """Open a file and survey it; text that turns out not to be UTF-8 is read as Latin-1."""
    source = open_source(path, client)
    try:
        return source, survey(source, client, target, features, watch)
    except NotUtf8Error:
        source = open_source(path, client)
        return source, survey(source, client, target, features, watch)


def survey(
    source: Source, client: str, target: str, features: Sequence[str] | None, watch: Watch | None = None
) -> Plan:
    """Read the ids, choose the features if none are named, and find the place of every client's rows."""
    name, columns = source.path.name, source.schema.names
    tables.check_columns(columns, client, target, features, name)
    others = tables.may_be_features(columns, client, target)
    # Text may be numbers, which only the whole column shows.
    looked_at = [*(others if features is None else features), target]
    texts = [column for column in looked_at if values.is_text(source.schema.field(column).type)]
    roles = dict.fromkeys(texts, "feature") | {target: "target"}
    words = {column: values.Words(column, name, source.decimal, roles[column]) for column in texts}
    tally, done = _Tally(f"{name}: column '{client}'"), 0
    for batch in source.batches(list(dict.fromkeys([client, *texts]))):
        for column in texts:
            words[column].add(batch[column])
        tally.add(batch[client], done)
        done += batch.num_rows
        if watch is not None:
            watch("Finding clients", done, source.n_rows)
    if done == 0:
        raise tables.no_rows(source.path)
    if features is None:
        numeric = {column for column in others if values.is_number(source.schema.field(column).type)} - source.blank
        numeric |= {column for column in words if column != target and words[column].are_numbers()}
        features = [column for column in others if column in numeric]
    tables.check_features(features, client, target, name)
    with_intercept(features, True)  # no feature may have its name
    for column in [*features, target]:
        if column in words:
            words[column].check()
    ids, offsets = tally.finish(may_be_numbers=source.text_ids)
    return Plan(client, target, tuple(features), tables.precision(source.schema, features), ids, offsets)


def pour(source: Source, plan: Plan, sink: Sink, watch: Watch | None = None) -> None:
    """Put every row where it belongs."""
    try:
        _pour(source, plan, sink, watch)
    except ColumnError as error:
        _find_fault(source, error.column, plan)
        raise
    except DataError as error:
        # Text where numbers were before: as text it is either read or refused by row. Rows go to the same places again.
        again = source.as_text() if isinstance(error.__cause__, pa.ArrowInvalid) else None
        if again is None:
            raise
        for column in (*plan.features, plan.target):
            _find_fault(again, column, plan)
        _pour(again, plan, sink, watch)


def _find_fault(source: Source, column: str, plan: Plan) -> None:
    """Refuse a column for all that is wrong with it, if there is any, and not only for what a batch shows."""
    name, role = source.path.name, "target" if column == plan.target else "feature"
    words, gaps = values.Words(column, name, source.decimal, role), Gaps(column, name)
    for batch in source.batches([column]):
        if values.is_text(batch[column].type):
            words.add(batch[column])
            gaps.add(values.read_text(batch[column], source.decimal)[0])
        else:
            gaps.add(values.as_floats(batch[column]))
    if words.rows:
        words.check()
    gaps.check(role)


def _pour(source: Source, plan: Plan, sink: Sink, watch: Watch | None) -> None:
    name, done = source.path.name, 0
    ids, free = plan.ids.to_numpy(zero_copy_only=False), plan.offsets[:-1].copy()
    for batch in source.batches([plan.client, plan.target, *plan.features]):
        sign = source.decimal
        phi = values.numbers(batch, plan.features, plan.precision, name, done, decimal=sign)
        y = values.numbers(batch, (plan.target,), np.float64, name, done, decimal=sign, role="target")[:, 0]
        here, owner = _places(batch, plan, ids, name)
        if np.any(np.diff(owner) < 0):
            order = np.argsort(owner, kind="stable")
            owner, phi, y = owner[order], phi[order], y[order]
        counts = np.bincount(owner, minlength=len(here))
        rows = np.repeat(free[here] - (np.cumsum(counts) - counts), counts) + np.arange(len(owner))
        free[here] += counts
        if np.any(free[here] > plan.offsets[1:][here]):
            raise _changed(name)
        sink.put(rows, phi, y)
        done += batch.num_rows
        if watch is not None:
            watch("Packing rows", done, plan.n_rows)
    if done != plan.n_rows:
        raise _changed(name)


def _places(batch: pa.Table, plan: Plan, ids: Array, name: str) -> tuple[Ints, Ints]:
    """Find a batch's clients among all (c,), and each row's (n,) place among those of the batch."""
    source = f"{name}: column '{plan.client}'"
    column = plain(batch[plan.client], source)
    try:
        column = column.cast(plan.ids.type)  # the ids of a CSV file come as text
    except pa.ArrowException as error:
        raise _changed(name) from error
    there, owner = find_clients(column, source)
    places = np.minimum(np.searchsorted(ids, there), len(ids) - 1)
    if np.any(ids[places] != there):
        raise _changed(name)
    return places, owner


def _changed(name: str) -> DataError:
    return DataError(f"{name}: the file changed while it was read: try again")


class _Tally:
    """Clients and their rows, counted batch by batch."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.ids: list[pa.Array] = []
        self.counts: list[Ints] = []
        self.limit = _MERGE

    def add(self, column: pa.ChunkedArray, first: int) -> None:
        """Count the rows of a batch."""
        ids, owner = encode_clients(column, self.source, first)
        self.ids.append(ids)
        self.counts.append(np.bincount(owner, minlength=len(ids)))
        if sum(map(len, self.ids)) > self.limit:
            self._merge()

    def finish(self, *, may_be_numbers: bool) -> tuple[pa.Array, Ints]:
        """Give the ids (c,), sorted, as numbers if they may be and are, and the offsets (c + 1,)."""
        self._merge()
        if may_be_numbers:
            self.ids = [tables.whole_numbers(self.ids[0])]
            self._merge()  # other than as text, 10 comes after 9
        return self.ids[0], offsets_of(self.counts[0])

    def _merge(self) -> None:
        ids, owner = encode_clients(pa.chunked_array(self.ids), self.source)
        counts = np.zeros(len(ids), dtype=np.int64)
        np.add.at(counts, owner, np.concatenate(self.counts))
        self.ids, self.counts, self.limit = [ids], [counts], 2 * len(ids) + _MERGE


class _Memory:
    """Rows in two arrays."""

    def __init__(self, phi: Array, y: Floats) -> None:
        self.phi, self.y = phi, y

    def put(self, rows: Ints, phi: Array, y: Floats) -> None:
        """Copy rows to their places."""
        self.phi[rows], self.y[rows] = phi, y


class _Disk:
    """Rows in two files."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        shape = (plan.n_rows, len(plan.features))
        with contextlib.ExitStack() as opened:
            self.phi = opened.enter_context(contextlib.closing(RowWriter(folder / "phi.npy", shape, plan.precision)))
            self.y = opened.enter_context(contextlib.closing(RowWriter(folder / "y.npy", shape[:1], np.float64)))
            self.close = opened.pop_all().close

    def put(self, rows: Ints, phi: Array, y: Floats) -> None:
        """Write each run of neighbours at once."""
        cuts = np.flatnonzero(np.diff(rows) != 1) + 1
        for begin, end in itertools.pairwise([0, *cuts.tolist(), len(rows)]):
            self.phi.write(int(rows[begin]), phi[begin:end])
            self.y.write(int(rows[begin]), y[begin:end])


def _write_rest(folder: Path, plan: Plan, phi: bytes, y: bytes) -> None:
    """Write the small files; the one that makes the folder a store comes last."""
    np.save(folder / "offsets.npy", plan.offsets)
    tables.write_parquet(folder / "ids.parquet", {"id": plan.ids})
    keys = draws.client_keys(plan.ids.to_numpy(zero_copy_only=False))
    about = {
        "format": FORMAT,
        "client": plan.client,
        "target": plan.target,
        "features": list(plan.features),
        "n_rows": plan.n_rows,
        "n_clients": len(plan.ids),
        "dtype": np.dtype(plan.precision).name,
        "digest": content_digest(phi, y, plan.offsets, keys),
    }
    tables.write_json(folder / "store.json", about)


def _check_free(out: Path) -> None:
    """Refuse to write over anything but an empty or a packed folder."""
    if not out.exists():
        return
    if Path.cwd().is_relative_to(out.resolve()):
        raise DataError(f"{out}: this is the folder that you are in: choose one below it")
    there = {path.name for path in out.iterdir()} if out.is_dir() else None
    if there is None or not there <= set(FILES) or (there and not is_store(out)):
        raise DataError(f"{out}: there is something else here: choose another --out, or remove it")


def _remove(folder: Path) -> None:
    """Remove a folder of ours; what others have put there stays, and is an error."""
    if not folder.is_dir():
        return
    for name in (*FILES, *(f"{name}.partial" for name in FILES)):
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()
