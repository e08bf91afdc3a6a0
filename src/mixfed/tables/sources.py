"""Tables read batch by batch, so that they may be larger than memory: files, and data frames as if they were such."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..core.errors import DataError, NotUtf8Error
from .column_types import is_number, short
from .dialect import FALSE, PACKERS, TEXTS, TRUE, is_text_table, not_utf8, open_text, sniff
from .missing import at_row

T = TypeVar("T")

BATCH_ROWS, BATCH_NUMBERS = 65_536, 1_000_000
"""Rows and numbers of a batch of a parquet file, at most."""
BLOCK_BYTES = 1 << 21
"""Bytes of a CSV file that make a batch; a row must be shorter than this."""
_BUFFER = 1 << 18
"""Bytes of a column that are read at once; else, and by default, it is a whole row group."""
_SPREADSHEETS = (".xlsx", ".xls", ".ods")


class Source:
    """A table that can be read any number of times, from its first row on."""

    name: str
    """As people are told of it."""
    schema: pa.Schema
    """The columns and their types, as far as the first rows show them."""
    n_rows: int | None
    """Number of rows, if it is known without reading them."""
    blank: frozenset[str]
    """Columns of which all rows (parquet), or the first ones (text), are empty."""
    text_ids = False
    """Whether ids are read as text although they may be whole numbers."""
    decimal = "."
    """The decimal sign of numbers that are kept as text."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns of all rows, in order."""
        raise NotImplementedError

    def as_text(self) -> Source | None:
        """Give the same table with every column as text, if another type was only a guess."""
        return None


class ParquetSource(Source):
    """A parquet file."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        with readable(path), pq.ParquetFile(path) as file:
            self.schema: pa.Schema = file.schema_arrow
            self.n_rows: int | None = file.metadata.num_rows
            check_names(self.schema.names, path.name)
            self.blank = _blank_columns(file.metadata)
        if self.n_rows == 0:
            raise no_rows(path.name)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns of all rows, in order."""
        rows = max(1, min(BATCH_ROWS, BATCH_NUMBERS // len(columns)))
        with readable(self.path), pq.ParquetFile(self.path, buffer_size=_BUFFER, pre_buffer=False) as file:
            for batch in file.iter_batches(rows, columns=list(columns)):
                yield pa.Table.from_batches([batch])


def _blank_columns(about: pq.FileMetaData) -> frozenset[str]:
    """Find the columns that, by the file's own count, have no values."""
    groups = [about.row_group(place) for place in range(about.num_row_groups)]

    def is_blank(j: int) -> bool:
        parts = ((group.column(j), group.num_rows) for group in groups if group.num_rows)
        return all(
            part.is_stats_set and part.statistics.has_null_count and part.statistics.null_count == rows
            for part, rows in parts
        )

    return frozenset(about.schema.column(j).path for j in range(about.num_columns) if is_blank(j))


class CsvSource(Source):
    """A table in text, compressed or not.

    Ids are read as text, so that they keep their leading zeros. A column that begins with whole numbers may go on
    with others, so numbers are read as double precision; where that fails, the table is read again `as_text`. What
    may be 1 and 0 (true and false) may go on with other words, so it is text from the beginning.
    """

    n_rows = None
    text_ids = True

    def __init__(self, path: Path, client: str | None, *, text: bool = False) -> None:
        self.path, self.name, self.client, self.text = path, path.name, client, text
        with readable(path):
            self.dialect = sniff(path)
            with self._open({}) as reader:
                self.found: pa.Schema = reader.schema
        self.decimal, names = self.dialect.decimal, self.found.names
        if any(map(pa.types.is_binary, self.found.types)):  # which Arrow takes for bytes
            raise not_utf8(path)
        check_names(names, path.name)
        self.blank = frozenset(field.name for field in self.found if pa.types.is_null(field.type))
        self.schema = pa.schema([(field.name, self._type(field)) for field in self.found])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns of all rows, in order."""
        types = {name: self.schema.field(name).type for name in columns}
        with readable(self.path), self._open(types, columns) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])

    def as_text(self) -> Source | None:
        """Give the same table with every column as text."""
        return None if self.text else CsvSource(self.path, self.client, text=True)

    def _open(self, types: dict[str, pa.DataType], columns: Sequence[str] = ()) -> pa.csv.CSVStreamingReader:
        dialect = self.dialect
        return pa.csv.open_csv(
            open_text(self.path),
            # One thread: only then does a complaint name the row.
            pa.csv.ReadOptions(encoding=dialect.encoding, block_size=BLOCK_BYTES, use_threads=False),
            pa.csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=dialect.broken_lines),
            pa.csv.ConvertOptions(
                column_types=types,
                include_columns=list(columns),
                decimal_point=dialect.decimal,
                true_values=["1", *_in_any_case(TRUE)],
                false_values=["0", *_in_any_case(FALSE)],
            ),
        )

    def _type(self, field: pa.Field) -> pa.DataType:
        if self.text or field.name == self.client or pa.types.is_null(field.type) or pa.types.is_boolean(field.type):
            return pa.string()
        return pa.float64() if is_number(field.type) else field.type


class FrameSource(Source):
    """A data frame of pandas, of polars or of Arrow; an index counts only where it is ``named``."""

    name = "frame"
    n_rows: int

    def __init__(self, frame: Any, named: Sequence[str | None]) -> None:
        self.table = as_table(frame, named)
        self.schema, self.n_rows = self.table.schema, self.table.num_rows
        check_names(self.schema.names, self.name)
        self.blank = frozenset(name for name in self.schema.names if self.table[name].null_count == self.n_rows)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Give some columns of all rows, in order."""
        table = self.table.select(list(columns))
        for first in range(0, self.n_rows, BATCH_ROWS):
            yield table.slice(first, BATCH_ROWS)


def _in_any_case(words: frozenset[str]) -> list[str]:
    return [case(word) for word in sorted(words) for case in (str.lower, str.upper, str.capitalize)]


def open_source(path: Path) -> Source:
    """Open a ``.parquet`` file, or a table in text."""
    return read_by(lambda source: source, path)


def read_by(work: Callable[[Source], T], path: Path, client: str | None = None) -> T:
    """Let ``work`` read a file, and again if it finds text that is not UTF-8: then as Latin-1."""
    check_path(path)
    if not is_text_table(path):
        return work(ParquetSource(path))
    try:
        return work(CsvSource(path, client))
    except NotUtf8Error:
        return work(CsvSource(path, client))


def as_table(frame: Any, named: Sequence[str | None]) -> pa.Table:
    """Make an Arrow table of a data frame, with text as Arrow's functions take it: polars has views of it."""
    try:
        if hasattr(frame, "reset_index"):
            levels = [name for name in frame.index.names if name is not None and name in named and name not in frame]
            table = pa.Table.from_pandas(frame.reset_index(levels) if levels else frame, preserve_index=False)
        else:
            table = pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"frame: this cannot be made a table ({error})") from error
    for place, field in enumerate(table.schema):
        if pa.types.is_string_view(field.type):
            table = table.set_column(place, field.name, table[place].cast(pa.large_string()))
    return table


def read_parquet(path: Path) -> pa.Table:
    """Read a whole parquet file, such as those of results."""
    check_path(path)
    with readable(path), pq.ParquetFile(path) as file:
        return file.read()


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


def no_rows(source: str) -> DataError:
    """Say that there are names of columns and nothing else."""
    return DataError(f"{source}: no rows: it has the names of columns and nothing else")


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
