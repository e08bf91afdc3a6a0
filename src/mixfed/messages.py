"""Queries and replies as bytes: exact, self-describing, and data only.

A message is a dataclass of arrays, numbers, text, None, tuples and further messages. Its bytes are a JSON header that
says what is where, then the arrays as they lie in memory. Nothing in them is ever run.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any

import numpy as np

_LENGTH = struct.Struct("<Q")


def encode(message: Any) -> bytes:
    """Turn a message into bytes."""
    arrays: list[bytes] = []
    header = json.dumps(_describe(message, arrays)).encode()
    return b"".join([_LENGTH.pack(len(header)), header, *arrays])


def decode(content: bytes, kinds: dict[str, type[Any]]) -> Any:
    """Turn bytes back into a message; ``kinds`` are the dataclasses that may occur in it, by name."""
    (size,) = _LENGTH.unpack_from(content)
    header = json.loads(content[_LENGTH.size : _LENGTH.size + size])
    return _rebuild(header, memoryview(content)[_LENGTH.size + size :], kinds)


def _describe(value: Any, arrays: list[bytes]) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {item.name: _describe(getattr(value, item.name), arrays) for item in dataclasses.fields(value)}
        return {"kind": type(value).__name__, "fields": fields}
    if isinstance(value, np.ndarray):
        start = sum(map(len, arrays))
        arrays.append(np.ascontiguousarray(value).tobytes())
        return {"dtype": value.dtype.str, "shape": value.shape, "start": start}
    if isinstance(value, tuple):
        return {"items": [_describe(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    return value


def _rebuild(found: Any, arrays: memoryview, kinds: dict[str, type[Any]]) -> Any:
    if not isinstance(found, dict):
        return found
    if "items" in found:
        return tuple(_rebuild(item, arrays, kinds) for item in found["items"])
    if "dtype" in found:
        count = int(np.prod(found["shape"], dtype=np.int64))
        flat = np.frombuffer(arrays, np.dtype(found["dtype"]), count, found["start"])
        return flat.reshape(found["shape"]).copy()
    kind = kinds[found["kind"]]
    return kind(**{name: _rebuild(value, arrays, kinds) for name, value in found["fields"].items()})
