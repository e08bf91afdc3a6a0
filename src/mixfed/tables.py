"""Tables on disk: read them, find the features in them, write results whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from .arrays import Array
from .data import Rows, at_row, check_finite, find_clients, with_intercept
from .errors import DataError

SUFFIXES = (".parquet", ".csv", ".csv.gz")
_ROW_GROUP = 1 << 17
"""Rows that the writer of a parquet file holds at once."""


def read_table(path: Path, client: str | None = None) -> pa.Table:
    """Read a ``.parquet``, ``.csv`` or ``.csv.gz`` file; ids in the column ``client`` keep their leading zeros."""
    check_path(path)
    with readable(path):
        table = pq.ParquetFile(path).read() if path.suffix == ".parquet" else _read_csv(path, client)
        names = table.column_names
    check_names(names, path.name)
    if table.num_rows == 0:
        raise DataError(f"{path.name}: no rows")
    return table


def check_path(path: Path) -> None:
    """Refuse what is not a file that we read."""
    if not path.name.endswith(SUFFIXES):
        raise DataError(f"{path.name}: unknown kind of file; use one of {', '.join(SUFFIXES)}")
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if not path.is_file():
        raise DataError(f"{path}: this is a folder, not a file")
    if path.stat().st_size == 0:
        raise DataError(f"{path.name}: the file is empty")


def check_names(names: Sequence[str], source: str) -> None:
    """Refuse columns of the same name."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{source}: column '{repeated[0]}' occurs twice; give each its own name")


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Say in one line why a file cannot be read."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{path.name}: cannot be read ({reason})") from error


def _read_csv(path: Path, client: str | None) -> pa.Table:
    types = {} if client is None else {client: pa.string()}
    try:
        table = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types=types))
    except pa.ArrowInvalid:
        # Words far down in a column of numbers, or a row of another length: read text on one thread, which names rows.
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            types = {name: pa.string() for name in next(csv.reader(file))}
        one_thread = pa.csv.ReadOptions(use_threads=False)
        options = pa.csv.ConvertOptions(column_types=types)
        table = pa.csv.read_csv(path, read_options=one_thread, convert_options=options)
    if client is None or client not in table.column_names:
        return table
    return table.set_column(table.column_names.index(client), client, whole_numbers(table[client]))


def whole_numbers(ids: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Make ids that are all written as whole numbers numbers, as they are in other files; leave others as they are."""
    try:
        numbers = pc.cast(ids, pa.int64())
    except pa.ArrowInvalid:
        return ids
    return numbers if pc.all(pc.equal(pc.cast(numbers, pa.string()), ids)).as_py() else ids


def rows_from_table(
    table: pa.Table,
    client: str,
    target: str | None,
    features: Sequence[str] | None,
    *,
    intercept: bool,
    source: str,
) -> Rows:
    """Check a table and take clients, features and (unless None) the target from it.

    ``features=None`` takes every numeric column but the client and the target.
    """
    check_columns(table.column_names, client, target, features, source)
    if features is None:
        others = [name for name in table.column_names if name not in (client, target)]
        features = [name for name in others if _looks_numeric(table[name], name, source)]
    check_features(features, client, target, source)
    ids, owner = find_clients(table[client], f"{source}: column '{client}'")
    phi = numbers(table, features, precision(table.schema, features), source)
    y = None if target is None else numbers(table, (target,), np.float64, source)[:, 0]
    return Rows(phi, y, ids, owner, with_intercept(features, intercept))


def check_columns(
    names: Sequence[str], client: str, target: str | None, features: Sequence[str] | None, source: str
) -> None:
    """Refuse columns that are asked for and are not there."""
    for name in (client, *([target] if target is not None else []), *(features or [])):
        if name not in names:
            raise DataError(f"{source}: no column '{name}'; the columns are {', '.join(names)}")
    if target == client:
        raise DataError(f"{source}: column '{client}' cannot be both the client and the target")


def check_features(features: Sequence[str], client: str, target: str | None, source: str) -> None:
    """Refuse features that are not features."""
    clash = [name for name in features if name in (client, target)]
    if clash:
        raise DataError(f"{source}: column '{clash[0]}' cannot be a feature too")
    twice = [name for name in features if list(features).count(name) > 1]
    if twice:
        raise DataError(f"{source}: column '{twice[0]}' is named twice among the features")
    if not features:
        raise DataError(f"{source}: no numeric column is left to be a feature")


def precision(schema: pa.Schema, features: Sequence[str]) -> type[np.floating[Any]]:
    """Keep single precision where all features have it."""
    return np.float32 if all(pa.types.is_float32(schema.field(name).type) for name in features) else np.float64


def numbers(table: pa.Table, names: Sequence[str], kind: Any, source: str, first: int = 0) -> Array:
    """Read columns as finite numbers, (n, len(names)); the table begins at row ``first`` of the whole one."""
    values = np.empty((table.num_rows, len(names)), dtype=kind)
    for j, name in enumerate(names):
        values[:, j] = _numbers(table[name], name, source, first)
    check_finite(values, names, source, first)
    return values


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file beside ``path``, then put it in place in one step."""
    partial = path.with_name(path.name + ".partial")
    try:
        write(partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    """Write columns as a parquet file, whole or not at all."""
    table = pa.table(columns)
    write_whole(path, lambda partial: pq.write_table(table, partial, row_group_size=_ROW_GROUP))


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def is_number(kind: pa.DataType) -> bool:
    """Tell types of numbers from others."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def is_text(kind: pa.DataType) -> bool:
    """Tell types of text from others."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


class Words:
    """What a column of text holds, batch by batch: numbers, words or, which is an error, a few words among numbers."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source
        self.rows = self.words = self.filled = 0
        self.first: tuple[str, int] | None = None

    def add(self, column: pa.ChunkedArray) -> None:
        """Look at the next rows."""
        values, bad = _parse(column)
        if self.first is None and bad.any():
            row = int(np.argmax(bad))
            self.first = column[row].as_py(), self.rows + row
        self.rows += len(bad)
        self.words += int(bad.sum())
        self.filled += int(bad.sum() + np.isfinite(values).sum())

    def are_numbers(self) -> bool:
        """Tell numbers from words; words within a column of numbers are an error."""
        if self.first is not None and self.words <= 0.5 * self.rows:
            raise _not_a_number(*self.first, self.name, self.source)
        return self.words == 0


def _looks_numeric(column: pa.ChunkedArray, name: str, source: str) -> bool:
    if not is_text(column.type):
        return is_number(column.type)
    words = Words(name, source)
    words.add(column)
    return words.are_numbers()


def _numbers(column: pa.ChunkedArray, name: str, source: str, first: int) -> Array:
    """Read a column as numbers; missing values become NaN."""
    if is_number(column.type):
        if not pa.types.is_floating(column.type):
            column = pc.cast(column, pa.float64(), safe=False)
        values: Array = column.to_numpy()
        return values
    if not is_text(column.type):
        raise DataError(f"{source}: column '{name}' holds {column.type}, not numbers: leave it out")
    parsed, bad = _parse(column)
    if bad.any():
        row = int(np.argmax(bad))
        raise _not_a_number(column[row].as_py(), first + row, name, source)
    return parsed


def _parse(column: pa.ChunkedArray) -> tuple[Array, Array]:
    """Read text as numbers. column (n,) -> values (n,) and a mask (n,) of those that are words."""
    # Words come again and again: each is looked at once. The last place is for missing ones.
    encoded = column.dictionary_encode().combine_chunks()
    values = np.full(len(encoded.dictionary) + 1, np.nan)
    bad = np.zeros(len(values), dtype=bool)
    for place, text in enumerate(encoded.dictionary.to_pylist()):
        if not text.strip():
            continue
        try:
            values[place] = float(text)
        except ValueError:
            bad[place] = True
    places = pc.fill_null(encoded.indices, len(values) - 1).to_numpy(zero_copy_only=False)
    return values[places], bad[places]


def _not_a_number(word: str, row: int, name: str, source: str) -> DataError:
    return DataError(
        f"{source}: column '{name}' has '{word}' in {at_row(row)}, which is not a number: "
        "mend it, or leave the column out of the features"
    )
