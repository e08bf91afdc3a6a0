"""Queries and replies as bytes: exact, self-describing, and data only.

A message is a dataclass of arrays, numbers, text, None, tuples and further messages. Its bytes are a JSON header that
says what is where, then the arrays as they lie in memory, one behind another. Nothing in them is ever run, and no more
memory is asked for than they take themselves, so `decode` can be given anything. Whether what came out is what was
expected, `check` tells by the annotations of the dataclass, shapes of arrays included.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Union, cast

import numpy as np

from . import candidates, exchange, losses
from .errors import MixfedError

KINDS: dict[str, type[Any]] = {
    name: kind
    for home in (exchange, candidates, losses)
    for name, kind in vars(home).items()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind)
}
"""The messages of the recipes, by name."""
_LENGTH = struct.Struct("<Q")
_MOST_HEADER = 4_000_000
_DTYPES = ("<f8", "<f4", "<i8", "<i4", "<u8", "<u4", "|b1")


class MessageError(MixfedError):
    """These bytes are no message, or not the one that was expected."""


# ---------------------------------------------------------------- to bytes and back


def encode(message: Any) -> bytes:
    """Turn a message into bytes."""
    arrays: list[bytes] = []
    header = json.dumps(_describe(message, arrays), separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(header)), header, *arrays])


def decode(content: bytes, kinds: dict[str, type[Any]] = KINDS) -> Any:
    """Turn bytes back into a message; ``kinds`` are the dataclasses that may occur in it, by name."""
    try:
        (size,) = _LENGTH.unpack_from(content)
        if size > min(_MOST_HEADER, len(content) - _LENGTH.size):
            raise MessageError(f"the header is said to have {size} bytes")
        body = memoryview(content)[_LENGTH.size :]
        arrays = _Arrays(body[size:])
        message = _rebuild(json.loads(bytes(body[:size])), arrays, kinds)
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(f"not a message ({type(error).__name__})") from error
    if len(arrays.rest):
        raise MessageError(f"{len(arrays.rest)} bytes too many")
    return message


def _describe(value: Any, arrays: list[bytes]) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {item.name: _describe(getattr(value, item.name), arrays) for item in _given(type(value))}
        return {"kind": type(value).__name__, "fields": fields}
    if isinstance(value, np.ndarray):
        arrays.append(np.ascontiguousarray(value).tobytes())
        return {"dtype": value.dtype.str, "shape": value.shape}
    if isinstance(value, tuple):
        return {"items": [_describe(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    return value


class _Arrays:
    """The arrays behind a header, to be taken one after the other."""

    def __init__(self, rest: memoryview) -> None:
        self.rest = rest

    def take(self, dtype: Any, shape: Any) -> np.ndarray[Any, Any]:
        """Copy the next array, if there is as much of it as is said."""
        if dtype not in _DTYPES or len(shape) > 8 or not all(type(size) is int and size >= 0 for size in shape):
            raise MessageError("an array of an unknown type or shape")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > len(self.rest):
            raise MessageError("an array is cut off")
        flat = np.frombuffer(self.rest[:size], dtype)
        self.rest = self.rest[size:]
        return flat.reshape(shape).copy()


def _rebuild(found: Any, arrays: _Arrays, kinds: dict[str, type[Any]]) -> Any:
    if isinstance(found, list):
        raise MessageError("a list in the header")
    if not isinstance(found, dict):
        return found
    if "items" in found:
        return tuple(_rebuild(item, arrays, kinds) for item in found["items"])
    if "dtype" in found:
        return arrays.take(found["dtype"], found["shape"])
    kind = kinds.get(found["kind"])
    if kind is None:
        raise MessageError(f"an unknown kind of message, {str(found['kind'])[:40]!r}")
    return kind(**{name: _rebuild(value, arrays, kinds) for name, value in found["fields"].items()})


def _given(kind: type[Any]) -> Iterator[dataclasses.Field[Any]]:
    """Give the fields that make a message; others follow from them."""
    return (item for item in dataclasses.fields(kind) if item.init)


# ---------------------------------------------------------------- is it what was expected?


def check(message: Any, kind: Any, sizes: dict[str, int], *, bind: bool) -> None:
    """See that a message is of a kind, down to the types and shapes of all that it holds.

    ``sizes`` are those that letters in shapes stand for; others are learned from the message if ``bind``, and else not
    allowed. Of several shapes ("k d | k D") the first counts all letters of which are known.
    """
    _check(message, kind, sizes, bind, getattr(kind, "__name__", "message"))


def finite(message: Any) -> bool:
    """Say whether all numbers in a message are."""
    if dataclasses.is_dataclass(message):
        return all(finite(getattr(message, item.name)) for item in dataclasses.fields(message))
    if isinstance(message, tuple):
        return all(map(finite, message))
    if isinstance(message, np.ndarray):
        return message.dtype.kind != "f" or bool(np.isfinite(message).all())
    return not isinstance(message, float) or math.isfinite(message)


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {item.name: hints[item.name] for item in _given(kind)}


def _check(value: Any, hint: Any, sizes: dict[str, int], bind: bool, where: str) -> None:
    shape = None
    if typing.get_origin(hint) is Annotated:
        hint, shape = typing.get_args(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or (value is None and hint in (None, types.NoneType)):
        return
    if origin in (Union, types.UnionType):
        fitting = [part for part in arguments if _outwardly(value, part)]
        if not fitting:
            raise MessageError(f"{where} is a {type(value).__name__}")
        _check(value, fitting[0], sizes, bind, where)
    elif not _outwardly(value, hint):
        raise MessageError(f"{where} is a {type(value).__name__}")
    elif dataclasses.is_dataclass(value):
        for name, part in _hints(cast(Any, type(value))).items():
            _check(getattr(value, name), part, sizes, bind, f"{type(value).__name__}.{name}")
    elif isinstance(value, tuple):
        if shape is not None:
            _check_shape((len(value),), shape, sizes, bind, where)
        for item in value:
            _check(item, arguments[0], sizes, bind, where)
    elif isinstance(value, np.ndarray):
        wanted = typing.get_args(arguments[1])[0]
        if wanted is not Any and value.dtype != np.dtype(wanted):
            raise MessageError(f"{where} holds {value.dtype}, not {np.dtype(wanted)}")
        if shape is not None:
            _check_shape(value.shape, shape, sizes, bind, where)


def _outwardly(value: Any, hint: Any) -> bool:
    """Say whether a value is of a type, whatever it holds."""
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    kind = typing.get_origin(hint) or hint
    if kind is float:
        return type(value) in (int, float)
    if kind in (bool, int, str):
        return type(value) is kind
    return value is None if kind in (None, types.NoneType) else isinstance(value, kind)


def _check_shape(shape: tuple[int, ...], wanted: str, sizes: dict[str, int], bind: bool, where: str) -> None:
    options = [option.split() for option in wanted.split("|")]
    known = [option for option in options if not any(math.isnan(_size(size, sizes)) for size in option)]
    (option, *_) = known or options
    if bind:
        for size, found in zip(option, shape, strict=False):
            if size.isalpha():
                sizes.setdefault(size, found)
    expected = [found if size == "?" else _size(size, sizes) for size, found in zip(option, shape, strict=False)]
    if len(option) != len(shape) or expected != list(shape):
        raise MessageError(f"{where} has the shape {shape}, not ({', '.join(option)})")


def _size(size: str, sizes: dict[str, int]) -> float:
    """Work out a size such as ``k*(d+2)``; NaN if a letter is unknown."""
    product: float = 1
    for factor in size.replace("(", "").replace(")", "").split("*"):
        name, _, more = factor.partition("+")
        product *= (0 if name == "?" else sizes.get(name, math.nan)) + int(more or 0)
    return product
