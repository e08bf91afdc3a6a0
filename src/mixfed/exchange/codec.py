"""Queries and replies as bytes: exact, self-describing, and data only.

A message is a dataclass of arrays, numbers, text, None, tuples and further messages. Its bytes are a JSON header that
says what is where, then all arrays, numbers and texts as they lie in memory, each on 8 bytes or a multiple of it. So
messages of the same make have the same header, which is put together, and understood, once for all. Nothing in a
message is ever run, and no more memory is asked for than it takes itself, so `decode` can be given anything. Whether
what came out is what was expected, `check` tells by the annotations of the dataclass, shapes of arrays included.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import struct
import types
import typing
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import repeat
from typing import Annotated, Any, TypeAlias, Union, cast

import numpy as np

from ..core.arrays import Array
from ..core.compile import compiled
from ..core.errors import MixfedError
from .registry import MESSAGES

_LENGTH, _WORD = struct.Struct("<Q"), 8
_MOST_HEADER, _USUAL_HEADER = 1_000_000, 4_000
_DTYPES = {name: np.dtype(name) for name in ("<f8", "<f4", "<i8", "<i4", "<u8", "<u4", "|u1", "|b1")}
_NUMBERS = {float: struct.Struct("<d"), int: struct.Struct("<q"), bool: struct.Struct("<?7x")}
_NUMBER_NAMES = {kind.__name__: kind for kind in _NUMBERS}


class MessageError(MixfedError):
    """These bytes are no message, or not the one that was expected."""


# ---------------------------------------------------------------- to bytes and back


def encode(message: Any, mark: bytes = b"") -> bytes:
    """Turn a message into bytes, behind a mark."""
    values: list[Any] = []
    header = _header(_described(message, values))
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
        header = header_of(content, mark)
        layout = (_layout if len(header) < _USUAL_HEADER else _layout.__wrapped__)(header)
        begin = mark + _LENGTH.size + len(header)
        over = len(content) - begin - layout.size
        if over:
            raise MessageError("an array is cut off" if over < 0 else f"{over} bytes too many")
        if begin % _WORD and not copy:
            raise MessageError(f"numbers that begin at byte {begin}, not at a multiple of {_WORD}")
        values, begin = (bytearray(memoryview(content)[begin:]), 0) if copy else (content, begin)
        if only_finite:
            for dtype, count, place in layout.floats:
                if not _all_finite(np.frombuffer(values, dtype, count, begin + place)):
                    raise MessageError("numbers that are not finite")
        message = layout.build(values, begin, kinds)
        if expected is not None and expected not in layout.checked:
            check(message, expected, {}, bind=True)
            layout.checked.add(expected)
        return message
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(f"not a message ({type(error).__name__})") from error


def header_of(content: bytes, mark: int = 0) -> bytes:
    """Give the header of a message behind a mark: the kinds, types and shapes of all that it holds."""
    (size,) = _LENGTH.unpack_from(content, mark)
    begin = mark + _LENGTH.size
    if size > _MOST_HEADER or size > len(content) - begin:
        raise MessageError(f"the header is said to have {size} bytes")
    return content[begin : begin + size]


@compiled
def _all_finite(numbers: Array) -> bool:
    """Say whether all of some numbers (n,) are finite: for these 0 times them is 0."""
    total = 0.0
    for i in range(len(numbers)):
        total += 0.0 * numbers[i]
    return total == 0.0


def _described(value: Any, values: list[Any]) -> Any:
    """Say what a value is, as far as the header tells, and put what comes behind the header aside."""
    kind = type(value)
    if kind is np.ndarray:
        values.append(value if value.flags.c_contiguous else np.ascontiguousarray(value))
        if over := value.nbytes % _WORD:
            values.append(bytes(_WORD - over))
        return value.dtype, value.shape
    if kind in _NUMBERS:
        values.append(_NUMBERS[kind].pack(value))
        return kind
    if kind is str:
        text = value.encode(errors="backslashreplace")  # what is no text at all is still told, as it would be written
        values += [text, bytes(-len(text) % _WORD)]
        return str, len(text)
    if kind is tuple:
        return tuple, tuple([_described(item, values) for item in value])
    if value is None:
        return None
    if dataclasses.is_dataclass(kind):
        return kind, tuple([_described(part, values) for part in _held(kind)(value)])
    return _described(value.item(), values)  # of a number of NumPy's


@lru_cache(maxsize=64)
def _header(described: Any) -> bytes:
    text = json.dumps(_in_json(described), separators=(",", ":"))
    return text.encode() + b" " * (-len(text) % _WORD)  # numbers lie where processors like them


def _in_json(described: Any) -> Any:
    if described is None:
        return None
    if not isinstance(described, tuple):
        return {"number": described.__name__}
    what, rest = described
    if isinstance(what, np.dtype):
        return {"dtype": what.str, "shape": rest}
    if what is str:
        return {"text": rest}
    parts = [_in_json(part) for part in rest]
    if what is tuple:
        return {"items": parts}
    return {"kind": what.__name__, "fields": dict(zip(_names(what), parts, strict=True))}


Build: TypeAlias = Callable[[bytes | bytearray, int, dict[str, type[Any]]], Any]
"""Makes a message, or a part of one, of bytes, of where the values in them begin, and of dataclasses that may occur."""


def _nothing(values: bytes | bytearray, begin: int, kinds: dict[str, type[Any]]) -> None:
    return None


class _Layout:
    """What a header says: where the values are, and what they make."""

    def __init__(self, header: bytes) -> None:
        self.size = 0
        self.floats: list[tuple[Any, int, int]] = []
        """Runs of floating-point numbers: their dtype, how many there are, and where they begin."""
        self.checked: set[type[Any]] = set()
        """What a message of this layout is known to be."""
        self.build = self._builder(json.loads(header))

    def _builder(self, found: Any) -> Build:
        if found is None:
            return _nothing
        if not isinstance(found, dict):
            raise MessageError(f"a {type(found).__name__} in the header")
        if "dtype" in found:
            return self._array_builder(found["dtype"], found["shape"])
        if "number" in found:
            return self._number_builder(_NUMBER_NAMES[found["number"]])
        if "text" in found:
            return self._text_builder(found["text"])
        if "items" in found:
            parts = [self._builder(item) for item in found["items"]]
            return lambda values, begin, kinds: tuple([part(values, begin, kinds) for part in parts])
        name, fields = found["kind"], list(found["fields"])
        parts = [self._builder(value) for value in found["fields"].values()]

        def build(values: bytes | bytearray, begin: int, kinds: dict[str, type[Any]]) -> Any:
            kind: Any = kinds.get(name)
            if kind is None:
                raise MessageError(f"an unknown kind of message, {str(name)[:40]!r}")
            if fields != _names(kind):
                raise MessageError(f"other parts than a {name} has")
            return kind(*[part(values, begin, kinds) for part in parts])

        return build

    def _array_builder(self, name: Any, shape: Any) -> Build:
        if name not in _DTYPES or len(shape) > 8 or not all(type(size) is int and size >= 0 for size in shape):
            raise MessageError("an array of an unknown type or shape")
        dtype, count = _DTYPES[name], math.prod(shape)
        place = self._take(dtype, count)
        return lambda values, begin, kinds: np.ndarray(shape, dtype, values, begin + place)

    def _number_builder(self, kind: type[Any]) -> Build:
        number = _NUMBERS[kind]
        place = self._take(np.dtype(kind), 1)
        return lambda values, begin, kinds: number.unpack_from(values, begin + place)[0]

    def _text_builder(self, length: Any) -> Build:
        if type(length) is not int or length < 0:
            raise MessageError("a text of an unknown length")
        place = self._take(np.dtype(np.uint8), length)
        return lambda values, begin, kinds: values[begin + place : begin + place + length].decode()

    def _take(self, dtype: np.dtype[Any], count: int) -> int:
        """Set aside room for values; where they begin is given."""
        begin, length = self.size, count * dtype.itemsize
        self.size += length + -length % _WORD
        if dtype.kind == "f" and count:
            before = self.floats[-1] if self.floats else (dtype, 0, -1)
            if before[0] == dtype and before[2] + before[1] * dtype.itemsize == begin:
                self.floats[-1] = dtype, before[1] + count, before[2]
            else:
                self.floats.append((dtype, count, begin))
        return begin


_layout = lru_cache(maxsize=64)(_Layout)


@cache
def _held(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Make what gives all that a message of a kind is made of."""
    names = _names(cast(Any, kind))
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)


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
        self.plain = len(self.options) == 1 and all(size.isalpha() for size in self.usual)

    def check(self, shape: tuple[int, ...], sizes: dict[str, int], bind: bool, where: str) -> None:
        """Refuse another shape."""
        if shape == tuple(map(sizes.get, self.usual)):  # which is quick
            return
        if bind and self.plain and len(shape) == len(self.usual):  # and so is this
            learned = map(sizes.setdefault, self.usual, shape)
            if tuple(learned) == shape:
                return
        known = (option for option in self.options if all(size.letters <= sizes.keys() for size in option))
        option = next(known, self.options[0])
        if len(shape) != len(option) or not all(map(_Size.fits, option, shape, repeat(sizes), repeat(bind))):
            raise MessageError(f"{where} has the shape {shape}, not ({', '.join(size.text for size in option)})")


class _Size:
    """A size, such as ``d`` or ``k*(d+1)/2``; ``?`` is any."""

    def __init__(self, text: str) -> None:
        self.text = text
        product, self.halved = text.removesuffix("/2"), text.endswith("/2")
        factors = [factor.split("+") for factor in product.replace("(", "").replace(")", "").split("*")]
        self.factors = [] if text == "?" else factors
        self.letters = {term for factor in self.factors for term in factor if not term.isdigit()}

    def fits(self, found: int, sizes: dict[str, int], bind: bool) -> bool:
        """Say whether this is the size, which may be learned just now."""
        if not self.factors:
            return True
        if bind and self.text.isalpha():
            sizes.setdefault(self.text, found)
        return self.letters <= sizes.keys() and (1 + self.halved) * found == math.prod(
            sum(int(term) if term.isdigit() else sizes[term] for term in factor) for factor in self.factors
        )
