"""Tables on disk: read them, find the features in them, write results whole or not at all."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from .data import Rows, with_intercept
from .dialect import PACKERS, TEXTS, Dialect, check_text, header, is_text_table, not_utf8, open_text, sniff
from .errors import DataError, NotUtf8Error
from .gaps import at_row
from .ids import find_clients
from .outputs import write_all
from .values import check_words, looks_numeric, numbers, short

_ROW_GROUP = 1 << 17
"""Rows that the writer of a parquet file holds at once."""
_MOST_NAMES = 20
"""Names of columns that are told at once."""
_ROW_NUMBERS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
"""What pandas calls a column of row numbers in a file."""
_SPREADSHEETS = (".xlsx", ".xls", ".ods")


def read_table(path: Path, client: str | None = None) -> pa.Table:
    """Read a file; ids in the column ``client`` keep their leading zeros."""
    return _read(path, client)[0]


def read_rows(path: Path, client: str, target: str | None, features: Sequence[str] | None, *, intercept: bool) -> Rows:
    """Read a file and take clients, features and (unless None) the target from it."""
    table, decimal = _read(path, client)
    return rows_from_table(table, client, target, features, intercept=intercept, source=path.name, decimal=decimal)


def _read(path: Path, client: str | None) -> tuple[pa.Table, str]:
    """Read a file. -> the table, and the decimal sign of its text."""
    check_path(path)
    with readable(path):
        if is_text_table(path):
            table, decimal = _read_text(path, client)
        else:
            table, decimal = pq.ParquetFile(path).read(), "."
        names = table.column_names
    check_names(names, path.name)
    if table.num_rows == 0:
        raise no_rows(path)
    return table, decimal


def check_path(path: Path) -> None:
    """Refuse what is not a file that we read."""
    if path.is_dir():
        raise DataError(f"{path}: this is a folder, not a file: give a .parquet or .csv file")
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if path.suffix.lower() in _SPREADSHEETS:
        raise DataError(f"{path.name}: a spreadsheet: save it as CSV (UTF-8), and give that file")
    if path.suffix.lower() != ".parquet" and not is_text_table(path):
        texts, packers = ", ".join(TEXTS), ", ".join(PACKERS)
        raise DataError(
            f"{path.name}: unknown kind of file; use one of .parquet, {texts}, the last three also with {packers}"
        )
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path.name}: the file is empty")


def no_rows(path: Path) -> DataError:
    """Say that there is a header and nothing else."""
    return DataError(f"{path.name}: no rows: the file has the names of columns and nothing else")


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
        raise _unreadable(path, str(error).strip()) from error


_CAUSES = {
    "Truncated compressed stream": "the end of the file is missing: copy or download it again",
    "incorrect header check": "not compressed as its name says: mend the name",
    "BZ_DATA_ERROR_MAGIC": "not compressed as its name says: mend the name",
    "Unknown frame descriptor": "not compressed as its name says: mend the name",
    "magic bytes not found": "not a parquet file, or the end of it is missing: copy it again, or write it anew",
    "thrift": "the file is damaged: copy it again, or write it anew",
    "Empty CSV file": "no lines",
    "straddling object": "a line is longer than 2 MB: is a quote not closed?",
}
"""What Arrow says, and what to do about it."""
_UNEVEN = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)(?:: (.*))?")
"""What Arrow says of a row; the header is its row 1."""


def _unreadable(path: Path, reason: str) -> DataError:
    if "invalid UTF8" in reason or "codec can't decode" in reason:
        return not_utf8(path)
    source = path.name
    uneven = _UNEVEN.search(reason)
    if uneven:
        row, wanted, there, text = uneven.groups()
        where = at_row(int(row) - 2) if row else "a row"
        return DataError(
            f"{source}: {where} has {there} fields, the header has {wanted} ('{short(text or '')}'): "
            "look for a separator too many or too few, or for text that needs quotes"
        )
    cause = next((cause for sign, cause in _CAUSES.items() if sign in reason), reason.splitlines()[0] if reason else "")
    return DataError(f"{source}: cannot be read ({cause})")


def _read_text(path: Path, client: str | None) -> tuple[pa.Table, str]:
    dialect = sniff(path)
    try:
        return _read_as(path, client, dialect), dialect.decimal
    except NotUtf8Error:
        return _read_as(path, client, sniff(path)), dialect.decimal


def _read_as(path: Path, client: str | None, dialect: Dialect) -> pa.Table:
    types = {} if client is None else {client: pa.string()}
    parsing = dialect.parsing()
    try:
        with open_text(path) as file:
            table = pa.csv.read_csv(file, dialect.reading(), parsing, dialect.converting(types))
        check_text(table.schema, path)
    except pa.ArrowInvalid:
        # Words far down in a column of numbers, or a row of another length: read text on one thread, which names rows.
        with readable(path), open_text(path) as file:
            types = {name: pa.string() for name in header(path, dialect)}
            table = pa.csv.read_csv(file, dialect.reading(use_threads=False), parsing, dialect.converting(types))
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


def as_table(frame: Any, named: Sequence[str | None]) -> pa.Table:
    """Make an Arrow table of one of pandas, of polars or of Arrow; an index counts only where it is ``named``."""
    try:
        if not hasattr(frame, "reset_index"):
            return pa.table(frame)
        levels = [name for name in frame.index.names if name is not None and name in named and name not in frame]
        return pa.Table.from_pandas(frame.reset_index(levels) if levels else frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"frame: this cannot be made a table ({error})") from error


def rows_from_table(
    table: pa.Table,
    client: str,
    target: str | None,
    features: Sequence[str] | None,
    *,
    intercept: bool,
    source: str,
    decimal: str = ".",
) -> Rows:
    """Check a table and take clients, features and (unless None) the target from it.

    ``features=None`` takes every numeric column but the client and the target.
    """
    table = _usual_text(table)
    check_columns(table.column_names, client, target, features, source)
    if features is None:
        others = may_be_features(table.column_names, client, target)
        features = [name for name in others if looks_numeric(table[name], name, source, decimal)]
    else:
        check_words(table, dict.fromkeys(features, "feature"), source, decimal)
    check_features(features, client, target, source)
    ids, owner = find_clients(table[client], f"{source}: column '{client}'")
    phi = numbers(table, features, precision(table.schema, features), source, decimal=decimal)
    y = None
    if target is not None:
        check_words(table, {target: "target"}, source, decimal)
        y = numbers(table, (target,), np.float64, source, decimal=decimal, role="target")[:, 0]
    return Rows(phi, y, ids, owner, with_intercept(features, intercept))


def _usual_text(table: pa.Table) -> pa.Table:
    """Give text as Arrow's functions take it: frames of polars have views of it."""
    views = [field.name for field in table.schema if pa.types.is_string_view(field.type)]
    for name in views:
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.large_string()))
    return table


def may_be_features(names: Sequence[str], client: str, target: str | None) -> list[str]:
    """Give the columns that are features if they hold numbers; those that pandas made of row numbers are not."""
    return [name for name in names if name not in (client, target) and not _ROW_NUMBERS.fullmatch(name)]


def check_columns(
    names: Sequence[str], client: str, target: str | None, features: Sequence[str] | None, source: str
) -> None:
    """Refuse columns that are asked for and are not there."""
    for name in (client, *([target] if target is not None else []), *(features or [])):
        if name not in names:
            raise DataError(f"{source}: no column '{name}'; {_near(name, names)}{told_names(names)}")
    if target == client:
        raise DataError(f"{source}: column '{client}' cannot be both the client and the target")


def _near(name: str, names: Sequence[str]) -> str:
    """Guess which column was meant."""
    by_letters = {other.strip().lower(): other for other in reversed(names)}
    close = difflib.get_close_matches(name.strip().lower(), list(by_letters), n=1)
    return f"did you mean '{by_letters[close[0]]}'? " if close else ""


def told_names(names: Sequence[str]) -> str:
    """Tell the columns there are; a single one is most likely several that are not parted."""
    if len(names) == 1:
        parted = "commas, semicolons, tabs or pipes"
        return f"the only column is '{names[0]}': are the columns parted by something else than {parted}?"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"the columns are {', '.join(names[:_MOST_NAMES])}{more}"


def check_features(features: Sequence[str], client: str, target: str | None, source: str) -> None:
    """Refuse features that are not features."""
    clash = [name for name in features if name in (client, target)]
    if clash:
        raise DataError(f"{source}: column '{clash[0]}' cannot be a feature too")
    twice = [name for name in features if list(features).count(name) > 1]
    if twice:
        raise DataError(f"{source}: column '{twice[0]}' is named twice among the features")
    if not features:
        raise DataError(f"{source}: no numeric column is left to be a feature: add one, or name them by --features")


def precision(schema: pa.Schema, features: Sequence[str]) -> type[np.floating[Any]]:
    """Keep single precision where all features have it."""
    return np.float32 if all(pa.types.is_float32(schema.field(name).type) for name in features) else np.float64


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file beside ``path``, then put it in place in one step."""
    write_all({path: write})


def parquet_writer(columns: dict[str, Any]) -> Callable[[Path], object]:
    """Give what writes columns as a parquet file."""
    table = pa.table(columns)
    return lambda path: pq.write_table(table, path, row_group_size=_ROW_GROUP)


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    """Write columns as a parquet file, whole or not at all."""
    write_whole(path, parquet_writer(columns))


def write_table(path: Path, columns: dict[str, Any]) -> None:
    """Write columns as a parquet or, if the name says so, as a CSV file, whole or not at all."""
    if path.suffix == ".csv":
        write_whole(path, lambda partial: pa.csv.write_csv(pa.table(columns), partial))
    else:
        write_parquet(path, columns)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))
