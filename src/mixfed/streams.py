"""Tables read batch by batch, so that they may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from .errors import DataError
from .tables import check_names, check_path, is_number, readable

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
    """Columns that are called text only because their first rows are empty."""
    text_ids: bool
    """Whether ids are read as text although they may be whole numbers."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns of all rows, in order."""

    def as_text(self) -> Source | None:
        """Give the same table with every column as text, if another type was only a guess."""


class ParquetSource:
    """A parquet file."""

    blank: frozenset[str] = frozenset()
    text_ids = False

    def __init__(self, path: Path) -> None:
        self.path = path
        with readable(path), pq.ParquetFile(path) as file:
            self.schema: pa.Schema = file.schema_arrow
            self.n_rows: int | None = file.metadata.num_rows
        check_names(self.schema.names, path.name)
        if self.n_rows == 0:
            raise DataError(f"{path.name}: no rows")

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns of all rows, in order."""
        rows = max(1, min(BATCH_ROWS, BATCH_NUMBERS // len(columns)))
        with readable(self.path), pq.ParquetFile(self.path, buffer_size=_BUFFER, pre_buffer=False) as file:
            for batch in file.iter_batches(rows, columns=list(columns)):
                yield pa.Table.from_batches([batch])

    def as_text(self) -> Source | None:
        """Give nothing: the file knows its types."""
        return None


class CsvSource:
    """A CSV file, compressed or not.

    Ids are read as text, so that they keep their leading zeros. A column that begins with whole numbers may go on
    with others, so numbers are read as double precision; where that fails, the table is read again `as_text`.
    """

    n_rows: int | None = None
    text_ids = True

    def __init__(self, path: Path, client: str | None, *, text: bool = False) -> None:
        self.path, self.client, self.text = path, client, text
        with readable(path):
            found = pa.csv.open_csv(path, read_options=self._reading()).schema
            names = found.names
        check_names(names, path.name)
        self.blank = frozenset(field.name for field in found if pa.types.is_null(field.type))
        self.schema = pa.schema([(field.name, self._type(field)) for field in found])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns of all rows, in order."""
        types = {name: self.schema.field(name).type for name in columns}
        options = pa.csv.ConvertOptions(column_types=types, include_columns=list(columns))
        with readable(self.path):
            for batch in pa.csv.open_csv(self.path, read_options=self._reading(), convert_options=options):
                yield pa.Table.from_batches([batch])

    def as_text(self) -> Source | None:
        """Give the same table with every column as text."""
        return None if self.text else CsvSource(self.path, self.client, text=True)

    def _reading(self) -> pa.csv.ReadOptions:
        # One thread: only then does a complaint name the row.
        return pa.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)

    def _type(self, field: pa.Field) -> pa.DataType:
        if self.text or field.name == self.client or pa.types.is_null(field.type):
            return pa.string()
        if is_number(field.type) and not pa.types.is_boolean(field.type):
            return pa.float64()
        return field.type


def open_source(path: Path, client: str | None = None) -> Source:
    """Open a ``.parquet``, ``.csv`` or ``.csv.gz`` file."""
    check_path(path)
    return ParquetSource(path) if path.suffix == ".parquet" else CsvSource(path, client)
