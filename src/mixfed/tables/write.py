"""Tables on disk, whole or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.files import write_whole

_ROW_GROUP = 1 << 17
"""Rows that the writer of a parquet file holds at once."""


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
