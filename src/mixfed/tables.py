"""Tables on disk: read them, find the features in them, write results whole or not at all."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Callable, Sequence
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


def read_table(path: Path, client: str | None = None) -> pa.Table:
    """Read a ``.parquet``, ``.csv`` or ``.csv.gz`` file; ids in the column ``client`` keep their leading zeros."""
    if not path.name.endswith(SUFFIXES):
        raise DataError(f"{path.name}: unknown kind of file; use one of {', '.join(SUFFIXES)}")
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if not path.is_file():
        raise DataError(f"{path}: this is a folder, not a file")
    if path.stat().st_size == 0:
        raise DataError(f"{path.name}: the file is empty")
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else _read_csv(path, client)
        names = table.column_names
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{path.name}: cannot be read ({reason})") from error
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{path.name}: column '{repeated[0]}' occurs twice; give each its own name")
    if table.num_rows == 0:
        raise DataError(f"{path.name}: no rows")
    return table


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
    try:  # ids that are written as whole numbers are numbers, as in other files
        numbers = pc.cast(table[client], pa.int64())
    except pa.ArrowInvalid:
        return table
    if not pc.all(pc.equal(pc.cast(numbers, pa.string()), table[client])).as_py():
        return table
    return table.set_column(table.column_names.index(client), client, numbers)


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
    named = [client, *([target] if target is not None else []), *(features or [])]
    for name in named:
        if name not in table.column_names:
            raise DataError(f"{source}: no column '{name}'; the columns are {', '.join(table.column_names)}")
    if target == client:
        raise DataError(f"{source}: column '{client}' cannot be both the client and the target")
    if features is None:
        others = [name for name in table.column_names if name not in (client, target)]
        features = [name for name in others if _looks_numeric(table[name], name, source)]
    clash = [name for name in features if name in (client, target)]
    if clash:
        raise DataError(f"{source}: column '{clash[0]}' cannot be a feature too")
    twice = [name for name in features if list(features).count(name) > 1]
    if twice:
        raise DataError(f"{source}: column '{twice[0]}' is named twice among the features")
    if not features:
        raise DataError(f"{source}: no numeric column is left to be a feature")
    ids, owner = find_clients(table[client], f"{source}: column '{client}'")
    single = all(pa.types.is_float32(table[name].type) for name in features)
    phi = np.empty((table.num_rows, len(features)), dtype=np.float32 if single else np.float64)
    for j, name in enumerate(features):
        phi[:, j] = _numbers(table[name], name, source)
    check_finite(phi, features, source)
    y = None
    if target is not None:
        y = np.ascontiguousarray(_numbers(table[target], target, source), dtype=np.float64)
        check_finite(y[:, None], (target,), source)
    return Rows(phi, y, ids, owner, with_intercept(features, intercept))


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
    write_whole(path, lambda partial: pq.write_table(table, partial))


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def _is_number(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _looks_numeric(column: pa.ChunkedArray, name: str, source: str) -> bool:
    """Tell a column of numbers from one of words; words within a column of numbers are an error."""
    if _is_number(column.type):
        return True
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    _, bad = _parse(column)
    if 0 < bad.sum() <= 0.5 * len(bad):
        _refuse_text(column, bad, name, source)
    return bool(bad.sum() == 0)


def _numbers(column: pa.ChunkedArray, name: str, source: str) -> Array:
    """Read a column as numbers; missing values become NaN."""
    if _is_number(column.type):
        if not pa.types.is_floating(column.type):
            column = pc.cast(column, pa.float64(), safe=False)
        numbers: Array = column.to_numpy()
        return numbers
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise DataError(f"{source}: column '{name}' holds {column.type}, not numbers: leave it out")
    parsed, bad = _parse(column)
    if bad.any():
        _refuse_text(column, bad, name, source)
    return parsed


def _parse(column: pa.ChunkedArray) -> tuple[Array, Array]:
    """Read text as numbers. column (n,) -> values (n,) and a mask (n,) of those that are words."""
    values = np.full(len(column), np.nan)
    bad = np.zeros(len(column), dtype=bool)
    for row, text in enumerate(column.to_pylist()):
        if text is None or not text.strip():
            continue
        try:
            values[row] = float(text)
        except ValueError:
            bad[row] = True
    return values, bad


def _refuse_text(column: pa.ChunkedArray, bad: Array, name: str, source: str) -> None:
    row = int(np.argmax(bad))
    raise DataError(
        f"{source}: column '{name}' has '{column[row].as_py()}' in {at_row(row)}, which is not a number: "
        "mend it, or leave the column out of the features"
    )
