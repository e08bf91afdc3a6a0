"""Ids of clients: whatever a caller has for them, as a column of Arrow; and which ids of two sources are the same."""

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import Array, Ints
from ..core.errors import DataError
from .missing import at_row

_COARSE = {"M": ("Y", "M", "W", "h", "m"), "m": ("W", "D", "h", "m")}
"""Units of times, and of spans of time, that Arrow does not know but in seconds."""
_FLOAT = re.compile(r"\A(-?\d+)[.,]0+\Z", re.ASCII)
"""How a whole number is written as one with a fraction."""
_ARROWS = ("pandas", "polars")
"""Libraries whose columns tell Arrow more than NumPy: zones of times, and which values are missing."""


def find_clients(groups: Any, source: str) -> tuple[Array, Ints]:
    """Find the distinct ids, sorted, and each row's place among them. groups (n,) -> (c,), (n,)."""
    ids, owner = encode_clients(_column(groups, source), source)
    return ids.to_numpy(zero_copy_only=False), owner


def encode_clients(column: pa.Array | pa.ChunkedArray, source: str, first: int = 0) -> tuple[pa.Array, Ints]:
    """Do what `find_clients` does for a column of Arrow, which begins at row ``first``, and leave the ids there."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_nested(column.type):
        raise DataError(f"{source}: a client id must be one value, not a {column.type}")
    column = plain(column, source)
    missing = column.is_null(nan_is_null=True) if pa.types.is_floating(column.type) else column.is_null()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        missing = pc.or_(missing, pc.fill_null(pc.equal(column, ""), False))
    if pc.any(missing).as_py():
        row = first + int(np.argmax(missing.to_numpy(zero_copy_only=False)))
        raise DataError(f"{source}: no client id in {at_row(row)}: give every row an id or drop the row")
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    place = np.empty(len(order), dtype=np.int64)
    place[order.to_numpy()] = np.arange(len(order))
    return encoded.dictionary.take(order), place[encoded.indices.to_numpy()]


def plain(ids: pa.Array | pa.ChunkedArray, source: str) -> pa.Array | pa.ChunkedArray:
    """Make text of ids that are UUIDs, bytes, or text as few programs write it, and usual numbers of half ones."""
    kind = ids.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.array([None if one is None else str(one) for one in ids.to_pylist()], pa.string())
    if pa.types.is_float16(kind):
        return ids.cast(pa.float32())
    if pa.types.is_string_view(kind):
        return ids.cast(pa.string())
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        kind, ids = pa.binary(), ids.cast(pa.binary())
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return ids
    try:
        return ids.cast(pa.large_string() if pa.types.is_large_binary(kind) else pa.string())
    except pa.ArrowInvalid as error:
        raise DataError(f"{source}: the client ids are bytes that are no text: write them as text") from error


def _column(groups: Any, source: str) -> pa.Array | pa.ChunkedArray:
    """Make a column of ids: an array, a list, a column of pandas or of polars. What pandas calls missing is missing."""
    if isinstance(groups, pa.ChunkedArray | pa.Array):
        return groups
    if not isinstance(groups, list | tuple) and type(groups).__module__.partition(".")[0] not in _ARROWS:
        groups = _native(np.asanyarray(groups))  # masks and all
    try:
        column = pa.array(groups, from_pandas=True)
        objects = getattr(groups, "dtype", np.dtype(object)) == np.dtype(object)
        if objects and pa.types.is_timestamp(column.type) and any(getattr(one, "nanosecond", 0) for one in groups):
            column = pa.array(groups, pa.timestamp("ns", column.type.tz))  # of objects Arrow takes microseconds
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        kinds = {type(one).__name__ for one in groups}
        if len(kinds) > 1:
            raise DataError(f"{source}: the client ids mix types; make them all text or all numbers") from error
        raise DataError(f"{source}: values of type {kinds.pop()} cannot be client ids; make them text") from error
    return column


def _native(ids: Array) -> Array:
    """Turn an array into one of a type that Arrow knows, if there is one that holds the same."""
    kind = ids.dtype
    if kind.kind in _COARSE:
        unit, _ = np.datetime_data(kind)
        return ids.astype(f"{kind.kind}8[{'s' if unit in _COARSE[kind.kind] else unit}]")
    return ids.astype(np.float64 if kind == np.longdouble else kind.newbyteorder("="), copy=False)


def common_form(first: Array, second: Array) -> str:
    """Say in which form the same ids of two sources are equal and none is changed: a type of NumPy's, or text."""
    kinds = first.dtype.kind + second.dtype.kind
    if kinds in ("MM", "mm", "ff"):
        return np.promote_types(first.dtype, second.dtype).str
    return "int64" if _are_whole(first) and _are_whole(second) else "text"


def in_form(ids: Array, form: str) -> Array:
    """Give ids in such a form, or as bare text: without fractions of zero, which programs may have added."""
    if not form.endswith("text"):
        return ids.astype(form, copy=False)
    # Whole numbers are the same, whether some program has made floats of them or not.
    text = [str(int(one)) if isinstance(one, float) and one.is_integer() else str(one) for one in ids.tolist()]
    bare = [_FLOAT.sub(r"\1", one) for one in text] if form == "bare text" else text
    return np.array(bare, dtype=object)


def joined(first: Array, second: Array) -> Array:
    """Put ids of two sources one behind another, in a form in which none is changed."""
    form = common_form(first, second)
    return np.concatenate([in_form(first, form), in_form(second, form)])


def _are_whole(ids: Array) -> bool:
    """Whether ids are whole numbers of 64 bits."""
    kind = ids.dtype.kind
    fits = kind in "iuf" and (len(ids) == 0 or (ids.min() >= -(2**63) and ids.max() < 2**63))
    return bool(fits and (kind != "f" or (ids == np.floor(ids)).all()))
