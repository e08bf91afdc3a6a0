"""The columns of a table, for people: what each holds, which may be the client and the target, what was left out."""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import Floats
from ..core.errors import DataError
from .column_types import ColumnType, TextColumn, as_floats, is_date, is_number, is_text, short
from .dialect import SEPARATORS
from .roles import may_be_features
from .sources import CsvSource, Source, no_rows, open_source, read_by

_MOST_ROWS = 20_000
"""Rows that are looked at, about."""
_LARGEST_COUNT = 200
"""Whole numbers beyond are as well fitted as any numbers."""
_MOST_TOLD = 6
"""Columns of a sort that a note names."""
_OWNERS = re.compile(
    r"account|animal|bird|client|company|customer|device|driver|farm|firm|group|hospital|household|id|key|machine|member|"
    r"participant|patient|person|player|pupil|school|sensor|shop|site|store|student|subject|unit|user|worker"
)
_TARGETS = re.compile(
    r"amount|cost|demand|label|outcome|price|profit|rating|response|result|revenue|salary|sales|score|target|value|"
    r"wage|y|yield"
)
_NUMBERINGS = re.compile(r"id|index|nr|number")
"""Words in the names of columns that tell the client, the target, and what is neither."""


@dataclass(frozen=True)
class Column:
    """What a column holds, as far as the first rows show."""

    name: str
    holds: str
    distinct: int
    rows: int
    example: str
    whole: bool
    """Whether all its numbers are whole."""

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers."""
        return self.holds == ColumnType.NUMBERS

    @property
    def likeness_to_client(self) -> float:
        """How much it looks like ids of clients: several of them, each more than once. 0 if it does not."""
        ids = self.holds == ColumnType.WORDS or (self.is_number and self.whole)
        if not ids or self.distinct < 2 or 2 * self.distinct > 1.5 * self.rows:
            return 0.0
        named = _says(_OWNERS, self.name)
        if not named and (self.is_number or self.distinct < 5):
            return 0.0  # small whole numbers count things, and few words are categories
        return 2.0 * named + self.distinct / self.rows

    @property
    def likeness_to_target(self) -> float:
        """How much it looks like what is to be explained. 0 if it cannot be."""
        if not self.is_number or self.distinct < 2 or _says(_NUMBERINGS, self.name):
            return 0.0
        return 1.0 + 2.0 * _says(_TARGETS, self.name) + 0.5 * (not self.whole)


@dataclass(frozen=True)
class Guess:
    """The columns of a table, and which of them may be the client and the target."""

    columns: tuple[Column, ...]
    client: str | None
    target: str | None
    rows: int
    whole: bool
    """Whether these rows are all there are."""


def guess(path: Path, client: str | None = None, target: str | None = None) -> Guess:
    """Describe the columns of a file and guess which are the client and the target, where that is not known."""
    columns, whole = read_by(_describe, path)
    rows = columns[0].rows
    if client is None:
        client = _likely_client([column for column in columns if column.name != target])
    if target is None:
        target = _likely_target([column for column in columns if column.name != client])
    return Guess(columns, client, target, rows, whole)


def notes(
    path: Path,
    client: str,
    target: str,
    taken: Any,
    *,
    features_named: bool = False,
    family: str = "gaussian",
    others: Sequence[str] = (),
) -> tuple[str, ...]:
    """Say what was noticed of a file as it was read: a line each, for the user to know and perhaps to mend.

    ``taken`` are the clients that were read, in memory or packed; ``features_named`` says that the user chose the
    features, and ``others`` are columns that are none but used. Of a target that is fitted as a number (the ``family``
    gaussian) and may be more, that is said.
    """
    try:
        source = open_source(path)
    except DataError:  # gone since it was read
        return ()
    told = _notes_on_writing(source)
    if not features_named:
        unused = [name for name in source.schema.names if name not in (client, target, *others, *taken.features)]
        told += _notes_on_unused(source, unused, may_be_features(unused, client, target))
    if taken.n_rows > 10 and family == "gaussian":
        told += _notes_on_target(target, [taken.block(*taken.blocks[place]).y for place in (0, -1)])
    if taken.n_clients == 1:
        told.append(
            f"column '{client}' has one value only, so all rows belong to one client: is it the right --client?"
        )
    elif taken.n_clients == taken.n_rows:
        told.append(
            f"column '{client}' is different in every row, so no client has two rows: is it the right --client?"
        )
    return tuple(told)


def _notes_on_target(target: str, parts: Sequence[Floats]) -> list[str]:
    """Look at the first and the last of the targets (n,): they may be classes or counts."""
    values = [np.unique(part) for part in parts]
    if all(len(some) == 2 for some in values):
        proposed = "; --family binomial fits probabilities" if all((some == [0, 1]).all() for some in values) else ""
        return [f"column '{target}' has two values only: it is fitted as a number, not as a class{proposed}"]
    whole = all((some == np.round(some)).all() for some in values)
    low, high = min(some[0] for some in values), max(some[-1] for some in values)
    # Marks and whole pounds are whole numbers, too; but small counts are 0 at times, and vary as their mean or more.
    if whole and low == 0 and 1 < high <= _LARGEST_COUNT and all(np.var(part) > 0.95 * np.mean(part) for part in parts):
        return [f"column '{target}' may be a count: it is fitted as a number; --family poisson fits rates"]
    return []


def _describe(source: Source) -> tuple[tuple[Column, ...], bool]:
    """Look at the first rows of a table. -> its columns, and whether those were all rows."""
    reader = source.batches(source.schema.names)
    tables, rows = [], 0
    for table in reader:
        tables.append(table)
        rows += table.num_rows
        if rows >= _MOST_ROWS:
            break
    if rows == 0:
        raise no_rows(source.name)
    whole = next(reader, None) is None
    table = pa.concat_tables(tables).slice(0, _MOST_ROWS)
    columns = tuple(_column(name, table[name], source.decimal) for name in table.column_names)
    return columns, whole and rows <= _MOST_ROWS


def _column(name: str, values: pa.ChunkedArray, decimal: str) -> Column:
    holds, whole = _holds(name, values, decimal), False
    if is_number(values.type) and holds is ColumnType.NUMBERS:
        found = as_floats(values)
        found = found[np.isfinite(found)]
        whole = bool(np.all(found == np.round(found)))
    elif holds is ColumnType.NUMBERS:
        whole = not pc.any(pc.match_substring_regex(pc.drop_null(values), r"[.,eE]")).as_py()
    filled = pc.drop_null(values)
    example = _shown(_first(filled), whole) if len(filled) else ""
    return Column(name, str(holds), _distinct(filled), len(values), example, whole)


def _holds(name: str, values: pa.ChunkedArray, decimal: str) -> ColumnType:
    kind = values.type
    if values.null_count == len(values):
        return ColumnType.NOTHING
    if is_number(kind):
        return ColumnType.SWITCHES if pa.types.is_boolean(kind) else ColumnType.NUMBERS
    if is_date(kind):
        return ColumnType.DATES
    if not is_text(kind):
        return ColumnType.WORDS
    words = TextColumn(name, "", decimal)
    words.add(values)
    try:
        return words.holds()
    except DataError:
        return ColumnType.NUMBERS  # but for a few


def _first(values: pa.ChunkedArray) -> Any:
    """Give the first value, times without what is below a microsecond, for which Python has no form."""
    first, kind = values[:1], values.type
    if pa.types.is_timestamp(kind):
        first = first.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_duration(kind):
        first = first.cast(pa.duration("us"), safe=False)
    elif pa.types.is_time64(kind):
        first = first.cast(pa.time64("us"), safe=False)
    return first[0].as_py()


def _distinct(values: pa.ChunkedArray) -> int:
    """Count the values that differ; of lists and the like, none."""
    if pa.types.is_nested(values.type):
        return 0
    try:
        return len(pc.unique(values))
    except pa.ArrowNotImplementedError:  # of types that are rare
        return len(set(values.to_pylist()))


def _shown(value: Any, whole: bool) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if whole else f"{value:.6g}"
    return value.isoformat(" ") if isinstance(value, datetime.datetime) else short(value)


def _says(words: re.Pattern[str], name: str) -> bool:
    """Whether a word is in a name: ``storeId``, ``store_id`` and ``Store ID`` are store and id."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return any(words.fullmatch(word) for word in re.split(r"[\W_\d]+", parted))


def _likely_client(columns: Sequence[Column]) -> str | None:
    likely = [column for column in columns if column.likeness_to_client > 0]
    return max(likely, key=lambda column: column.likeness_to_client).name if likely else None


def _likely_target(columns: Sequence[Column]) -> str | None:
    likely = [column for column in columns if column.likeness_to_target > 0]
    # Tables tend to end with what they are about.
    return max(likely, key=lambda column: column.likeness_to_target + (column is likely[-1])).name if likely else None


def _notes_on_writing(source: Source) -> list[str]:
    if not isinstance(source, CsvSource):
        return []
    dialect, name = source.dialect, source.name
    told = []
    usual = "\t" if name.lower().endswith(".tsv") else ","
    comma = " with decimal commas" if dialect.decimal == "," else ""
    if dialect.separator != usual or comma:
        told.append(f"{name}: read as columns parted by {SEPARATORS[dialect.separator]}{comma}")
    if dialect.encoding != "utf-8":
        told.append(f"{name}: not UTF-8, read as {dialect.encoding.upper()}: save it as UTF-8 if letters look wrong")
    return told


def _notes_on_unused(source: Source, unused: Sequence[str], usable: Sequence[str]) -> list[str]:
    """Say which columns are not features, by the reason."""
    sorts: dict[str, list[str]] = {}
    for name in unused:
        if name not in usable:
            why = "row numbers, by the name"
        elif name in source.blank:
            why = "empty"
        elif is_date(source.schema.field(name).type):
            why = "dates: to use them as days since 1970-01-01, name them in --features"
        else:
            why = "not numbers"
        sorts.setdefault(why, []).append(name)
    told = []
    for why, names in sorts.items():
        shown = names[:_MOST_TOLD]
        examples = _examples(source, shown) if why == "not numbers" else {}
        listed = ", ".join(f"'{name}'" + (f" ({examples[name]})" if name in examples else "") for name in shown)
        more = f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else ""
        told.append(f"left out: {listed}{more}: {why}" if examples else f"left out: {listed}{more} ({why})")
    return told


def _examples(source: Source, names: Sequence[str]) -> dict[str, str]:
    """Give the first value of each column, so that people see why it is no number."""
    batch = next(source.batches(names), None)
    filled = {name: pc.drop_null(batch[name]) for name in names} if batch is not None else {}
    return {name: short(_first(values)) for name, values in filled.items() if len(values)}
