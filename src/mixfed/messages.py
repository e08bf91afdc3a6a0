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
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import repeat
from typing import Annotated, Any, TypeAlias, Union, cast

import numpy as np

from . import candidates, deviations, exchange, losses
from .errors import MixfedError

KINDS: dict[str, type[Any]] = {
    name: kind
    for home in (exchange, candidates, deviations, losses)
    for name, kind in vars(home).items()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind)
}
"""The messages of the recipes, by name."""
_LENGTH = struct.Struct("<Q")
_MOST_HEADER, _USUAL_HEADER = 4_000_000, 4_000
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
        message = _rebuild(_parsed(bytes(body[:size])), arrays, kinds)
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(f"not a message ({type(error).__name__})") from error
    if len(arrays.rest):
        raise MessageError(f"{len(arrays.rest)} bytes too many")
    return message


def _parsed(header: bytes) -> Any:
    return _parsed_before(header) if len(header) < _USUAL_HEADER else json.loads(header)


_parsed_before = lru_cache(maxsize=64)(json.loads)  # the answers of many sites to one question have one header


def _describe(value: Any, arrays: list[bytes]) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(value.tobytes())
        return {"dtype": value.dtype.str, "shape": value.shape}
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        return {
            "kind": kind.__name__,
            "fields": {name: _describe(getattr(value, name), arrays) for name in _names(kind)},
        }
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


@cache
def _names(kind: type[Any]) -> list[str]:
    """Give the names of what makes a message; the rest follows from it."""
    return [item.name for item in dataclasses.fields(kind) if item.init]


# ---------------------------------------------------------------- is it what was expected?


def check(message: Any, kind: Any, sizes: dict[str, int], *, bind: bool) -> None:
    """See that a message is of a kind, down to the types and shapes of all that it holds.

    ``sizes`` are those that letters in shapes stand for; others are learned from the message if ``bind``, and else not
    allowed. Of several shapes ("k d | k D") the first counts all letters of which are known.
    """
    _checker(kind)(message, sizes, bind, "the message")


def finite(message: Any) -> bool:
    """Say whether all numbers in a message are."""
    if isinstance(message, np.ndarray):
        return message.dtype.kind != "f" or bool(np.isfinite(message).all())
    if isinstance(message, tuple):
        return all(map(finite, message))
    if dataclasses.is_dataclass(message):
        return all(finite(getattr(message, name)) for name in _names(cast(Any, type(message))))
    return not isinstance(message, float) or math.isfinite(message)


Checker: TypeAlias = Callable[[Any, dict[str, int], bool, str], None]
"""Takes a value, sizes, whether to learn more of them, and where the value is; raises `MessageError`."""


@cache
def _checker(hint: Any) -> Checker:
    """Make what checks values of a type, once for each."""
    shape = None
    if typing.get_origin(hint) is Annotated:
        hint, text = typing.get_args(hint)
        shape = _Shape(text)
    kind, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is Any:
        return lambda value, sizes, bind, where: None
    if kind in (Union, types.UnionType):
        return _union_checker(arguments)
    element = typing.get_args(arguments[1])[0] if kind is np.ndarray else Any
    dtype = None if element is Any else np.dtype(element)
    item = _checker(arguments[0]) if kind is tuple else None

    def check_value(value: Any, sizes: dict[str, int], bind: bool, where: str) -> None:
        if not _is_a(value, kind):
            raise MessageError(f"{where} is a {type(value).__name__}")
        if dtype is not None and value.dtype != dtype:
            raise MessageError(f"{where} holds {value.dtype}, not {dtype}")
        if shape is not None:
            shape.check(value.shape if kind is np.ndarray else (len(value),), sizes, bind, where)
        if item is not None:
            for part in value:
                item(part, sizes, bind, where)
        for name, place, part_checker in _parts(cast(Any, type(value))):
            part_checker(getattr(value, name), sizes, bind, place)

    return check_value


def _union_checker(options: tuple[Any, ...]) -> Checker:
    inner = [typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint for hint in options]
    kinds = [typing.get_origin(hint) or hint for hint in inner]
    checkers = [_checker(hint) for hint in options]

    def check_value(value: Any, sizes: dict[str, int], bind: bool, where: str) -> None:
        for kind, checker in zip(kinds, checkers, strict=True):
            if _is_a(value, kind):
                return checker(value, sizes, bind, where)
        raise MessageError(f"{where} is a {type(value).__name__}")

    return check_value


def _is_a(value: Any, kind: Any) -> bool:
    """Say whether a value is of a type; a truth is no count, and a count has 64 bits at most."""
    if kind is float and type(value) is float:
        return True
    if kind in (int, float):
        return type(value) is int and -(2**63) <= value < 2**63
    return type(value) is kind if kind in (bool, str) else isinstance(value, kind)


@cache
def _parts(kind: type[Any]) -> list[tuple[str, str, Checker]]:
    """Say what a kind of message holds: names, how people call them, and what checks them."""
    if not dataclasses.is_dataclass(kind):
        return []
    named, hints = _names(cast(Any, kind)), typing.get_type_hints(kind, include_extras=True)
    return [(name, f"{kind.__qualname__}.{name}", _checker(hints[name])) for name in named]


class _Shape:
    """A shape, such as ``C k d``, or several."""

    def __init__(self, text: str) -> None:
        self.options = [[_Size(size) for size in option.split()] for option in text.split("|")]
        self.usual = tuple(text.split("|")[0].split())

    def check(self, shape: tuple[int, ...], sizes: dict[str, int], bind: bool, where: str) -> None:
        """Refuse another shape."""
        if shape == tuple(map(sizes.get, self.usual)):  # which is quick
            return
        known = (option for option in self.options if all(size.letters <= sizes.keys() for size in option))
        option = next(known, self.options[0])
        if len(shape) != len(option) or not all(map(_Size.fits, option, shape, repeat(sizes), repeat(bind))):
            raise MessageError(f"{where} has the shape {shape}, not ({', '.join(size.text for size in option)})")


class _Size:
    """A size, such as ``d`` or ``k*(d+v+2)``; ``?`` is any."""

    def __init__(self, text: str) -> None:
        self.text = text
        factors = [factor.split("+") for factor in text.replace("(", "").replace(")", "").split("*")]
        self.factors = [] if text == "?" else factors
        self.letters = {term for factor in self.factors for term in factor if not term.isdigit()}

    def fits(self, found: int, sizes: dict[str, int], bind: bool) -> bool:
        """Say whether this is the size, which may be learned just now."""
        if not self.factors:
            return True
        if bind and self.text.isalpha():
            sizes.setdefault(self.text, found)
        return self.letters <= sizes.keys() and found == math.prod(
            sum(int(term) if term.isdigit() else sizes[term] for term in factor) for factor in self.factors
        )
