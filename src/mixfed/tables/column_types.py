"""From the columns of a table to numbers, and what is said where there are none.

Numbers may be kept as text. Columns of nothing but true and false, or yes and no, are 1 and 0. Dates are days since
1970-01-01, in every table alike, but a feature only if named. Everything else is words.
"""

import datetime
import re
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import Array, Floats, Ints
from ..core.errors import ColumnError, DataError
from .dialect import FALSE, MISSING, TRUE
from .missing import at_row, empty_column, not_finite

_DAY = 86_400.0
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TICKS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_NEARLY_NUMBER = re.compile(r"[€$£+-]?\s*\d[\d.,'\s]*\s*[€$£%]?|[€$£]\s*-\d[\d.,'\s]*")
"""Numbers with a unit, or with signs that part thousands."""
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([,.'\s]\d{3})+([.,]\d+)?")
"""Numbers whose thousands are parted."""
_OTHER_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}")
"""Dates as they are written in many countries, in one of several orders."""
_LONGEST = 40
"""Letters of a value that are shown."""


class ColumnType(StrEnum):
    """What a column holds."""

    NUMBERS = "numbers"
    SWITCHES = "yes/no"
    DATES = "dates"
    WORDS = "text"
    NOTHING = "empty"


class ValueType(IntEnum):
    """What a single value is."""

    MISSING = 0
    NUMBER = 1
    BIT = 2
    """0 or 1, which goes with both."""
    SWITCH = 3
    DATE = 4
    WORD = 5


def is_number(kind: pa.DataType) -> bool:
    """Tell types of numbers from others."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def is_text(kind: pa.DataType) -> bool:
    """Tell types of text from others."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_date(kind: pa.DataType) -> bool:
    """Tell dates and points in time from others."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


class TextColumn:
    """What a column of text holds, batch by batch."""

    def __init__(self, name: str, source: str, decimal: str = ".", role: str = "feature") -> None:
        self.name, self.source, self.decimal, self.role = name, source, decimal, role
        self.rows = 0
        self.counts: Ints = np.zeros(len(ValueType), dtype=np.int64)
        self.first: dict[int, tuple[str, int]] = {}
        """The first value of each kind, and its row."""

    def add(self, column: pa.ChunkedArray) -> None:
        """Look at the next rows."""
        _, kinds = read_text(column, self.decimal)
        self.counts += np.bincount(kinds, minlength=len(ValueType))
        for kind in np.flatnonzero(self.counts).tolist():
            if kind not in self.first:
                row = int(np.argmax(kinds == kind))
                self.first[kind] = column[row].as_py(), self.rows + row
        self.rows += len(kinds)

    def holds(self) -> ColumnType:
        """Say what the column holds; a few words within a column of numbers are an error."""
        missing, numbers, bits, switches, dates, words = self.counts.tolist()
        if missing == self.rows:
            return ColumnType.NOTHING
        if switches + dates + words == 0:
            return ColumnType.NUMBERS
        if numbers + dates + words == 0:
            return ColumnType.SWITCHES
        if numbers + bits + switches + words == 0:
            return ColumnType.DATES
        odd = switches + dates + words
        if odd <= numbers + bits:
            kinds = self.first.keys() & {ValueType.SWITCH, ValueType.DATE, ValueType.WORD}
            raise self._not_a_number(*min((self.first[kind] for kind in kinds), key=lambda found: found[1]), odd)
        return ColumnType.WORDS

    def are_numbers(self) -> bool:
        """Whether this column is a feature if none are named; one that would be, but for its thousands, is an error."""
        found = self.holds()
        if found is ColumnType.WORDS and ValueType.WORD in self.first:
            word, row = self.first[ValueType.WORD]
            if _THOUSANDS.fullmatch(word.strip()):
                raise self._not_a_number(word, row, int(self.counts[ValueType.WORD]))
        return found in (ColumnType.NUMBERS, ColumnType.SWITCHES)

    def check(self) -> None:
        """Refuse a column that was asked for and does not hold what can be a number."""
        found = self.holds()
        if found is ColumnType.NOTHING:
            raise DataError(empty_column(self.name, self.source, self.role))
        if found is ColumnType.DATES and self.role == "target":
            raise _date_target(self.name, self.source)
        if found is ColumnType.WORDS:
            kinds = (ValueType.WORD, ValueType.DATE, ValueType.SWITCH)
            word, row = next(self.first[kind] for kind in kinds if kind in self.first)
            if _NEARLY_NUMBER.fullmatch(word.strip()) or _OTHER_DATE.fullmatch(word.strip()):
                count = self.rows - int(self.counts[ValueType.MISSING])
                raise self._not_a_number(word, row, count)
            dummies = f"pandas.get_dummies(frame, columns=['{self.name}'])"
            ways = {
                "feature": f"leave it out, or make columns of 0 and 1 of it, as {dummies} does",
                "target": "choose another target, or write it as a number",
            }
            raise DataError(
                f"{self.source}: column '{self.name}' holds words ('{short(word)}' in {at_row(row)}), not numbers: "
                f"{ways[self.role]}"
            )

    def _not_a_number(self, word: str, row: int, count: int) -> DataError:
        """Refuse the first of so many values that are no numbers."""
        if _OTHER_DATE.fullmatch(word.strip()):
            way = "write dates like 2024-12-31, or leave the column out of the features"
        elif _NEARLY_NUMBER.fullmatch(word.strip()):
            way = "write numbers like 1234.5, with nothing before, within or after, or name the features without it"
        elif self.role == "feature":
            way = "mend it, or leave the column out of the features"
        else:
            way = "mend it or drop the row"
        others = {1: "", 2: " (1 more row has such)"}.get(count, f" ({count - 1:,} more rows have such)")
        return ColumnError(
            f"{self.source}: column '{self.name}' has '{short(word)}' in {at_row(row)}, which is not a number{others}: "
            f"{way}",
            self.name,
        )


def numbers(table: pa.Table, names: Sequence[str], kind: Any, source: str, decimal: str, role: str) -> Array:
    """Read columns as numbers, (n, len(names)); a `ColumnError` names one in which a value is none or missing."""
    values = np.empty((table.num_rows, len(names)), dtype=kind)
    for j, name in enumerate(names):
        values[:, j] = _numbers(table[name], name, source, decimal, role)
    for j in not_finite(values):
        raise ColumnError(f"{source}: column '{names[j]}' has a value that is not a number", names[j])
    return values


def _numbers(column: pa.ChunkedArray, name: str, source: str, decimal: str, role: str) -> Array:
    """Read a column as numbers; what is missing or not a number becomes NaN."""
    kind = column.type
    if is_date(kind) and role == "target":
        raise _date_target(name, source)
    if is_number(kind) or is_date(kind):
        return as_floats(column)
    if pa.types.is_null(kind):
        raise DataError(empty_column(name, source, role))
    text = decoded(column)
    if not is_text(text.type):
        raise DataError(f"{source}: column '{name}' holds {_plain(kind)}, not numbers: leave it out")
    if text is not column:  # which the first pass has not looked at
        words = TextColumn(name, source, decimal, role)
        words.add(text)
        words.check()
    return read_text(text, decimal)[0]


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give a column that is kept as places in a dictionary of its values as the values."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def as_floats(column: pa.ChunkedArray) -> Array:
    """Give a column of numbers, or of dates as days, as floating point numbers, and NaN where there is none."""
    if is_date(column.type):  # since 1970, which needs nothing of the table and so is the same at predict
        column = column if pa.types.is_timestamp(column.type) else column.cast(pa.timestamp("ms"))
        ticks: Floats = pc.cast(pc.cast(column, pa.int64()), pa.float64(), safe=False).to_numpy()
        return ticks / (_DAY * _TICKS[column.type.unit])
    if not pa.types.is_floating(column.type):
        column = pc.cast(column, pa.float64(), safe=False)
    values: Array = column.to_numpy()
    return values


def read_text(column: pa.ChunkedArray, decimal: str = ".") -> tuple[Floats, Ints]:
    """Read text as numbers. column (n,) -> values (n,) and what each of them is (n,)."""
    # Words come again and again: each is looked at once. The last place is for missing ones.
    encoded = column.dictionary_encode().combine_chunks()
    values = np.full(len(encoded.dictionary) + 1, np.nan)
    kinds = np.zeros(len(values), dtype=np.int64)
    for place, text in enumerate(encoded.dictionary.to_pylist()):
        values[place], kinds[place] = _read_value(text.strip(), decimal)
    places = pc.fill_null(encoded.indices, len(values) - 1).to_numpy(zero_copy_only=False)
    return values[places], kinds[places]


def _read_value(text: str, decimal: str) -> tuple[float, ValueType]:
    if text in MISSING:
        return np.nan, ValueType.MISSING
    plain = text
    if decimal == ",":  # there a point would part thousands, which is no number either
        plain = text.replace(".", "?").replace(",", ".")
    try:
        if "_" in text:  # which Python would read, and nobody means
            raise ValueError
        value = float(int(text, 16)) if text[:2] in ("0x", "0X") else float(plain)  # as Arrow reads them
        return value, ValueType.BIT if value in (0.0, 1.0) else ValueType.NUMBER
    except ValueError:
        pass
    if text.lower() in TRUE | FALSE:
        return float(text.lower() in TRUE), ValueType.SWITCH
    if text[:4].isdigit() and text[4:5] == "-":
        try:
            when = datetime.datetime.fromisoformat(text)
        except ValueError:
            return np.nan, ValueType.WORD
        when = when.replace(tzinfo=when.tzinfo or datetime.UTC)
        return (when - _EPOCH).total_seconds() / _DAY, ValueType.DATE
    return np.nan, ValueType.WORD


def _plain(kind: pa.DataType) -> str:
    if pa.types.is_time(kind):
        return "times of day"
    return "bytes that are not text" if pa.types.is_binary(kind) else str(kind)


def short(word: object) -> str:
    """Show a value in one line."""
    text = " ".join(str(word).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _date_target(name: str, source: str) -> DataError:
    return DataError(f"{source}: column '{name}' holds dates, which cannot be the target: choose a column of numbers")
