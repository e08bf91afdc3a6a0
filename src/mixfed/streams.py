"""Tables read batch by batch, so that they may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from .dialect import check_text, is_text_table, open_text, sniff
from .errors import NotUtf8Error
from .tables import check_names, check_path, no_rows, readable
from .values import is_number

BATCH_ROWS, BATCH_NUMBERS = 65_536, 1_000_000
"""Rows and numbers of a batch of a parquet file, at most."""
BLOCK_BYTES = 1 << 21
"""Bytes of a CSV file that make a batch; a row must be shorter than this."""
_BUFFER = 1 << 18
"""Bytes of a column that are read at once; else, and by default, it is a whole row group."""


class Source(Protocol):
    """A table that can be read any number of times, from its first row on."""

    path: Path
    schema: pa.Schema
    """The columns and their types, as far as the first rows show them."""
    n_rows: int | None
    """Number of rows, if it is known without reading them."""
    blank: frozenset[str]
    """Columns of which all rows (parquet), or the first ones (text), are empty."""
    text_ids: bool
    """Whether ids are read as text although they may be whole numbers."""
    decimal: str
    """The decimal sign of numbers that are kept as text."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns of all rows, in order."""

    def as_text(self) -> Source | None:
        """Give the same table with every column as text, if another type was only a guess."""


class ParquetSource:
    """A parquet file."""

    text_ids = False
    decimal = "."

    def __init__(self, path: Path) -> None:
        self.path = path
        with readable(path), pq.ParquetFile(path) as file:
            self.schema: pa.Schema = file.schema_arrow
            self.n_rows: int | None = file.metadata.num_rows
            check_names(self.schema.names, path.name)
            self.blank = _blank_columns(file.metadata)
        if self.n_rows == 0:
            raise no_rows(path)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns of all rows, in order."""
        rows = max(1, min(BATCH_ROWS, BATCH_NUMBERS // len(columns)))
        with readable(self.path), pq.ParquetFile(self.path, buffer_size=_BUFFER, pre_buffer=False) as file:
            for batch in file.iter_batches(rows, columns=list(columns)):
                yield pa.Table.from_batches([batch])

    def as_text(self) -> Source | None:
        """Give nothing: the file knows its types."""
        return None


def _blank_columns(about: pq.FileMetaData) -> frozenset[str]:
    """Find the columns that, by the file's own count, have no values."""
    blank = set(range(about.num_columns))
    for place in range(about.num_row_groups):
        group = about.row_group(place)
        if group.num_rows:
            blank = {j for j in blank if _nulls(group.column(j)) == group.num_rows}
        if not blank:
            break
    return frozenset(about.schema.column(j).path for j in blank)


def _nulls(part: pq.ColumnChunkMetaData) -> int | None:
    known = part.is_stats_set and part.statistics.has_null_count
    return part.statistics.null_count if known else None


class CsvSource:
    """A table in text, compressed or not.

    Ids are read as text, so that they keep their leading zeros. A column that begins with whole numbers may go on
    with others, so numbers are read as double precision; where that fails, the table is read again `as_text`. What
    may be 1 and 0 (true and false) may go on with other words, so it is text from the beginning.
    """

    n_rows: int | None = None
    text_ids = True

    def __init__(self, path: Path, client: str | None, *, text: bool = False) -> None:
        self.path, self.client, self.text = path, client, text
        with readable(path):
            self.dialect = sniff(path)
            with self._open({}) as reader:
                self.found: pa.Schema = reader.schema
        self.decimal, names = self.dialect.decimal, self.found.names
        check_text(self.found, path)
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
        # One thread: only then does a complaint name the row.
        reading = self.dialect.reading(block_size=BLOCK_BYTES, use_threads=False)
        converting = self.dialect.converting(types, columns)
        return pa.csv.open_csv(open_text(self.path), reading, self.dialect.parsing(), converting)

    def _type(self, field: pa.Field) -> pa.DataType:
        if self.text or field.name == self.client or pa.types.is_null(field.type) or pa.types.is_boolean(field.type):
            return pa.string()
        return pa.float64() if is_number(field.type) else field.type


def open_source(path: Path, client: str | None = None) -> Source:
    """Open a ``.parquet`` file, or a table in text. If reading finds that it is not UTF-8, opening it again helps."""
    check_path(path)
    if not is_text_table(path):
        return ParquetSource(path)
    try:
        return CsvSource(path, client)
    except NotUtf8Error:
        return CsvSource(path, client)
