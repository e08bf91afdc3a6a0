"""Whether a message is what was expected, by the annotations of its dataclass: types, and shapes of arrays."""

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from functools import cache
from itertools import repeat
from typing import Annotated, Any, TypeAlias, Union, cast

import numpy as np

from ..core.errors import MixfedError
from .base import names_of


class MessageError(MixfedError):
    """These bytes are no message, or not the one that was expected."""


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
        return all(finite(getattr(message, name)) for name in names_of(cast(Any, type(message))))
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
        return _union_checker([(_kind_of(option), _checker(option)) for option in arguments])
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


def _union_checker(options: list[tuple[Any, Checker]]) -> Checker:
    def check_value(value: Any, sizes: dict[str, int], bind: bool, where: str) -> None:
        for kind, checker in options:
            if _is_a(value, kind):
                return checker(value, sizes, bind, where)
        raise MessageError(f"{where} is a {type(value).__name__}")

    return check_value


def _kind_of(hint: Any) -> Any:
    inner = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    return typing.get_origin(inner) or inner


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
    named, hints = names_of(cast(Any, kind)), typing.get_type_hints(kind, include_extras=True)
    return [(name, f"{kind.__qualname__}.{name}", _checker(hints[name])) for name in named]


class _Shape:
    """A shape, such as ``C k d``, or several."""

    def __init__(self, text: str) -> None:
        self.options = [[_Size(size) for size in option.split()] for option in text.split("|")]

    def check(self, shape: tuple[int, ...], sizes: dict[str, int], bind: bool, where: str) -> None:
        """Refuse another shape."""
        option = self.options[0]
        if len(self.options) > 1:
            known = (some for some in self.options if all(size.letters <= sizes.keys() for size in some))
            option = next(known, option)
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
        if self.text in sizes or not self.factors:  # most are a letter that is known
            return sizes.get(self.text, found) == found
        if bind and self.text.isalpha():
            sizes.setdefault(self.text, found)
        return self.letters <= sizes.keys() and (1 + self.halved) * found == math.prod(
            sum(int(term) if term.isdigit() else sizes[term] for term in factor) for factor in self.factors
        )
