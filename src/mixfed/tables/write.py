"""Tables on disk, whole or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

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
    """Write columns as a parquet or, if the name says so, as a CSV file, whole or not at all.

    Lists of numbers, which a CSV file cannot have, are a column for each: effects_0_0, effects_0_1 and so on.
    """
    if path.suffix != ".csv":
        write_parquet(path, columns)
        return
    flat: dict[str, Any] = {}
    for name, column in zip((table := pa.table(columns)).column_names, table.columns, strict=True):
        if pa.types.is_fixed_size_list(column.type):
            flat |= {f"{name}_{j}": pc.list_element(column, j) for j in range(column.type.list_size)}
        else:
            flat[name] = column
    write_whole(path, lambda partial: csv.write_csv(pa.table(flat), partial))
