"""Queries and replies as bytes: exact, self-describing, and data only.

A message is a dataclass of arrays, numbers, text, None, tuples and further messages. Its bytes are a JSON header that
says what is where, then all arrays, numbers and texts as they lie in memory, each on 8 bytes or a multiple of it.
Nothing in a message is ever run, and no more memory is asked for than it takes itself, so `decode` can be given
anything. Whether what came out is what was expected, `shapes.check` tells.
"""

import dataclasses
import json
import math
import struct
from functools import lru_cache
from typing import Any

import numpy as np

from .base import names_of
from .registry import MESSAGES
from .shapes import MessageError, check

_LENGTH, _WORD = struct.Struct("<Q"), 8
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_MOST_HEADER, _USUAL_HEADER = 1_000_000, 4_000
_DTYPES = {name: np.dtype(name) for name in ("<f8", "<f4", "<i8", "<i4", "<u8", "<u4", "|u1", "|b1")}
_NUMBERS = {float: struct.Struct("<d"), int: struct.Struct("<q"), bool: struct.Struct("<?7x")}
_NUMBER_NAMES = {kind.__name__: number for kind, number in _NUMBERS.items()}


def encode(message: Any, mark: bytes = b"") -> bytes:
    """Turn a message into bytes, behind a mark."""
    values: list[Any] = []
    header = _ENCODER.encode(_described(message, values)).encode()
    header += b" " * (-len(header) % _WORD)  # numbers lie where processors like them
    return b"".join([mark, _LENGTH.pack(len(header)), header, *values])


def decode(
    content: bytes,
    kinds: dict[str, type[Any]] = MESSAGES,
    expected: type[Any] | None = None,
    *,
    mark: int = 0,
    only_finite: bool = False,
    copy: bool = True,
) -> Any:
    """Turn bytes, behind a mark of so many, back into a message.

    ``kinds`` are the dataclasses that may occur in it, by name. If another than the ``expected`` comes out, or if
    ``only_finite`` numbers may be in it and there are others, `MessageError` is raised. Arrays are copies unless
    ``copy=False``: then they are the bytes themselves, which nobody may change.
    """
    try:
        (size,) = _LENGTH.unpack_from(content, mark)
        header = mark + _LENGTH.size
        begin = header + size
        if size > _MOST_HEADER or begin > len(content):
            raise MessageError(f"the header is said to have {size} bytes")
        if begin % _WORD and not copy:
            raise MessageError(f"numbers that begin at byte {begin}, not at a multiple of {_WORD}")
        values = bytearray(memoryview(content)[begin:]) if copy else memoryview(content)[begin:]
        reader = _Reader(values, kinds, only_finite)
        message = reader.read((_parsed if size < _USUAL_HEADER else json.loads)(content[header:begin]))
        if reader.place < len(values):
            raise MessageError(f"{len(values) - reader.place} bytes too many")
        if expected is not None:
            check(message, expected, {}, bind=True)
        return message
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(f"not a message ({type(error).__name__})") from error


_parsed = lru_cache(maxsize=64)(json.loads)
"""Messages of the same make have the same header, which is understood once for all."""


def _described(value: Any, values: list[Any]) -> Any:
    """Say in the header's words what a value is, and put what comes behind the header aside."""
    kind = type(value)
    if kind is np.ndarray:
        values += [np.ascontiguousarray(value), bytes(-value.nbytes % _WORD)]
        return {"dtype": value.dtype.str, "shape": value.shape}
    if kind in _NUMBERS:
        values.append(_NUMBERS[kind].pack(value))
        return {"number": kind.__name__}
    if kind is str:
        text = value.encode(errors="backslashreplace")  # what is no text at all is still told, as it would be written
        values += [text, bytes(-len(text) % _WORD)]
        return {"text": len(text)}
    if kind is tuple:
        return {"items": [_described(item, values) for item in value]}
    if value is None:
        return None
    if dataclasses.is_dataclass(kind):
        fields = {name: _described(getattr(value, name), values) for name in names_of(kind)}
        return {"kind": kind.__name__, "fields": fields}
    return _described(value.item(), values)  # of a number of NumPy's


class _Reader:
    """Reads the values of a message one behind another, as its header says."""

    def __init__(self, values: bytearray | memoryview, kinds: dict[str, type[Any]], only_finite: bool) -> None:
        self.values, self.kinds, self.only_finite = values, kinds, only_finite
        self.place = 0

    def read(self, found: Any) -> Any:
        """Read what the header says comes next."""
        if found is None:
            return None
        if not isinstance(found, dict):
            raise MessageError(f"a {type(found).__name__} in the header")
        if "dtype" in found:
            return self._array(found["dtype"], found["shape"])
        if "number" in found:
            (number,) = _NUMBER_NAMES[found["number"]].unpack_from(self.values, self._take(_WORD))
            self._check_finite(isinstance(number, float) and not math.isfinite(number))
            return number
        if "text" in found:
            if type(found["text"]) is not int or found["text"] < 0:
                raise MessageError("a text of an unknown length")
            begin = self._take(found["text"])
            return bytes(self.values[begin : begin + found["text"]]).decode()
        if "items" in found:
            return tuple([self.read(item) for item in found["items"]])
        kind: Any = self.kinds.get(found["kind"])
        if kind is None:
            raise MessageError(f"an unknown kind of message, {str(found['kind'])[:40]!r}")
        if tuple(found["fields"]) != names_of(kind):
            raise MessageError(f"other parts than a {found['kind']} has")
        return kind(*[self.read(part) for part in found["fields"].values()])

    def _array(self, name: Any, shape: Any) -> Any:
        if name not in _DTYPES or len(shape) > 8 or not all(type(size) is int and size >= 0 for size in shape):
            raise MessageError("an array of an unknown type or shape")
        dtype = _DTYPES[name]
        begin = self._take(dtype.itemsize * math.prod(shape))
        array: Any = np.ndarray(shape, dtype, self.values, begin)
        self._check_finite(dtype.kind == "f" and not np.isfinite(array).all())
        return array

    def _check_finite(self, infinite: bool) -> None:
        if self.only_finite and infinite:
            raise MessageError("numbers that are not finite")

    def _take(self, size: int) -> int:
        """Go on by so many bytes, to the next multiple of 8. Gives where they begin."""
        begin = self.place
        self.place += size + -size % _WORD
        if self.place > len(self.values):
            raise MessageError("an array is cut off")
        return begin
