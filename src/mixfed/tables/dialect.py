"""How a text table is written: separator, decimal sign, encoding. Told from its first few kB, before it is read.

`sources.CsvSource` takes what is found here.
"""

import codecs
import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from ..core.errors import DataError, NotUtf8Error

TEXTS = (".csv", ".tsv", ".txt")
PACKERS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""How a text table may be compressed, by the end of its name."""
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
TRUE, FALSE = frozenset({"true", "yes"}), frozenset({"false", "no"})
"""Words that are 1 and 0 in a column that has no others."""
MISSING = frozenset(pa.csv.ConvertOptions().null_values)
"""How a missing value is written."""
_HEAD = 1 << 14
"""Bytes that are looked at."""
_MAGIC = {
    b"PK\x03\x04": "a spreadsheet or a zip archive: save it as CSV",
    b"\x1f\x8b": "compressed: let its name end in .csv.gz",
    b"BZh": "compressed: let its name end in .csv.bz2",
    b"\x28\xb5\x2f\xfd": "compressed: let its name end in .csv.zst",
    b"PAR1": "a parquet file: let its name end in .parquet",
}
"""What files of other kinds begin with."""
_NOT_UTF8: set[tuple[int, ...]] = set()
"""Files, as they are now, that seemed to be UTF-8 from their first few kB and are not."""
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.IGNORECASE)
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")


@dataclass(frozen=True)
class Dialect:
    """How a text table is written."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    broken_lines: bool = False
    """Whether quoted text goes on over the end of a line."""


def is_text_table(path: Path) -> bool:
    """Whether a file is, by its name, a table in text."""
    name = path.name.lower()
    packer = next((ending for ending in PACKERS if name.endswith(ending)), "")
    return name.removesuffix(packer).endswith(TEXTS)


def open_text(path: Path) -> pa.NativeFile:
    """Open a text table, compressed or not, for Arrow to read."""
    return pa.input_stream(str(path), compression=PACKERS.get(path.suffix.lower()))


def sniff(path: Path) -> Dialect:
    """Tell how a table is written from its first lines."""
    with open_text(path) as file:
        head: bytes = file.read(_HEAD)
    encoding = "latin-1" if _state(path) in _NOT_UTF8 else _encoding(head, path.name)
    text = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf-8" else encoding)().decode(head)
    if len(head) == _HEAD:
        text = text[: text.rfind("\n") + 1] or text  # the last line is cut off
    separator, rows = _separate(text)
    decimal = "," if separator != "," and _has_decimal_commas(rows[1:]) else "."
    broken = any("\n" in field for row in rows for field in row)
    return Dialect(separator, decimal, encoding, broken)


def not_utf8(path: Path) -> NotUtf8Error:
    """Say that a text is not UTF-8: for `sniff` it is Latin-1 from now on."""
    _NOT_UTF8.add(_state(path))
    return NotUtf8Error(f"{path.name}: the text is not UTF-8: save the table as UTF-8")


def _state(path: Path) -> tuple[int, ...]:
    about = path.stat()
    return about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size


def _encoding(head: bytes, source: str) -> str:
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise DataError(f"{source}: this is not text but {what}")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head:
        raise DataError(f"{source}: this is not text: give a table in CSV or parquet")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def _separate(text: str) -> tuple[str, list[list[str]]]:
    """Find the separator: the one that gives every line as many fields as the header, and most of them numbers."""
    first = text.lstrip("\r\n").split("\n", 1)[0]
    there = [separator for separator in SEPARATORS if separator in first]
    rows = {separator: _rows(text, separator) for separator in there or [","]}
    if len(rows) == 1:
        return next(iter(rows.items()))
    even = {separator: found for separator, found in rows.items() if len(set(map(len, found))) == 1}
    best = max(even or rows, key=lambda separator: _share_of_numbers(rows[separator]))  # of equals, the first
    return best, rows[best]


def _rows(text: str, separator: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]
    except csv.Error:  # a field longer than that module reads
        return []


def _share_of_numbers(rows: list[list[str]]) -> tuple[float, int]:
    """Give the share of fields that are numbers, and the number of columns; a single column is the last choice."""
    if not rows or len(rows[0]) < 2:
        return -1.0, 0
    fields = [field.strip().replace(",", ".", 1) for row in rows[1:] for field in row]
    return sum(map(_is_number, fields)) / max(1, len(fields)), len(rows[0])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _has_decimal_commas(rows: list[list[str]]) -> bool:
    """Whether numbers have decimal commas, without any doubt: 1,234 alone may be a thousand and more."""
    fields = [field.strip() for row in rows for field in row]
    if any(_POINT_NUMBER.fullmatch(field) for field in fields):
        return False
    return any(_COMMA_NUMBER.fullmatch(field) and not _THOUSANDS.fullmatch(field) for field in fields)
