"""Several numbers at a time, in compiled code.

The compiler makes vectors of long loops by itself. A loop over the few models of a mixture, or over the few features of
a row, is too short for that, and it runs once for every row. Here it is told: `Lanes` is a type of compiled code that
holds neighbours in an array, and ``+``, ``-`` and ``*``, with each other or with one number, which takes on their
precision, do what they do with numbers. So what is written for a number, such as a loss, serves eight. Processors with
shorter vectors take several.

There are three lengths: eight numbers, for models and for clients side by side; a line, the 64 bytes of a cache line,
and half a line, for the features of a row. Single precision has twice as many numbers in a line.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, imputils
from numba.core.errors import TypingError
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

LANES = 8
"""How many numbers `read` takes, and an array needs to spare behind the last that is read or written."""
LINE = 64
"""Bytes of a line."""
_WORD = 8
"""Bytes that `spread` takes: a number, or two of single precision."""
_FLAGS = ("reassoc", "contract", "nsz")
"""As in `compiled`."""
_INDEX = ir.IntType(32)


class Lanes(types.Type):
    """So many numbers of a type."""

    def __init__(self, dtype: types.Float, count: int) -> None:
        super().__init__(f"Lanes({dtype}, {count})")
        self.dtype, self.count = dtype, count


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, ir.VectorType(manager.lookup(kind.dtype).get_value_type(), kind.count))


def _fitting(dtype: types.Float, size: int) -> Lanes:
    """Give the lanes of so many bytes."""
    return Lanes(dtype, 8 * size // dtype.bitwidth)


def _known(function: Callable[..., Any]) -> Any:
    """Make known to compiled code what gives a signature, and a way to write the instructions."""
    return intrinsic(function)


def _define(operation: Callable[..., Any], instruction: str) -> None:
    """Define an operation of two, of which at least one is `Lanes`; the other may be a number."""

    @type_callable(operation)
    def _typed(_context: Any) -> Callable[[Any, Any], Lanes | None]:
        def result(left: Any, right: Any) -> Lanes | None:
            first, second = (isinstance(one, Lanes) for one in (left, right))
            if first and second:
                return left if left == right else None
            lanes, number = (left, right) if first else (right, left)
            return lanes if (first or second) and isinstance(number, types.Float) else None

        return result

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        own = signature.return_type

        def lanes(kind: Any, value: Any) -> Any:
            return (
                value if isinstance(kind, Lanes) else _same(builder, context.cast(builder, value, kind, own.dtype), own)
            )

        return getattr(builder, instruction)(*map(lanes, signature.args, values), flags=_FLAGS)

    for kinds in ((Lanes, Lanes), (Lanes, types.Float), (types.Float, Lanes)):
        lower_builtin(operation, *kinds)(lower)


def _shuffled(builder: Any, left: Any, right: Any, places: Sequence[int]) -> Any:
    """Take numbers by their places in two vectors, one behind the other."""
    return builder.shuffle_vector(left, right, ir.VectorType(_INDEX, len(places))(list(places)))


def _same(builder: Any, number: Any, kind: Lanes) -> Any:
    """Put a number in all lanes."""
    lanes = ir.VectorType(number.type, kind.count)(ir.Undefined)
    return _shuffled(builder, builder.insert_element(lanes, number, _INDEX(0)), lanes, [0] * kind.count)


for _operations, _instruction in (
    ((operator.add, operator.iadd), "fadd"),
    ((operator.sub, operator.isub), "fsub"),
    ((operator.mul, operator.imul), "fmul"),
):
    for _operation in _operations:
        _define(_operation, _instruction)


def _pointer(context: Any, builder: Any, kind: Any, values: Any, pointed: Any, step: int = 1) -> Any:
    """Find a place in an array (n, m), by its row and by its column, which is counted in so many numbers."""
    if kind.layout != "C":
        raise TypingError(f"neighbours in a row of {kind} do not lie beside each other")
    array, row, column = values
    places = row, builder.mul(column, column.type(step))
    found = context.make_array(kind)(context, builder, array)
    shape, strides = (cgutils.unpack_tuple(builder, part) for part in (found.shape, found.strides))
    first = cgutils.get_item_pointer2(context, builder, found.data, shape, strides, kind.layout, places)
    return builder.bitcast(first, pointed.as_pointer())


def _reading(array: Any, own: Lanes, step: int) -> Any:
    """Say how lanes are read that begin at a row and at a column, which is counted in steps."""

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        pointer = _pointer(context, builder, array, values, context.get_value_type(own), step)
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return own(array, types.intp, types.intp), lower


@_known
def read(_context: Any, array: Any, row: Any, column: Any) -> Any:
    """Read eight numbers of an array (n, m) that begin at a row and a column, beyond the row's end if it is near."""
    return _reading(array, Lanes(array.dtype, LANES), 1)


@_known
def read_line(_context: Any, array: Any, row: Any, place: Any) -> Any:
    """Read a line of a row, by its place in the row; in double precision that is eight numbers."""
    own = _fitting(array.dtype, LINE)
    return _reading(array, own, own.count)


@_known
def read_half(_context: Any, array: Any, row: Any, place: Any) -> Any:
    """Read half a line of a row, by its place in the row."""
    own = _fitting(array.dtype, LINE // 2)
    return _reading(array, own, own.count)


@_known
def spread(_context: Any, array: Any, row: Any, place: Any) -> Any:
    """Read a word of a row, by its place in the row, and repeat it in a line.

    A word is one number in double precision and two in single, which so become eight pairs.
    """
    own, word = _fitting(array.dtype, LINE), ir.DoubleType()

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        pointer = _pointer(context, builder, array, values, word, 8 * _WORD // array.dtype.bitwidth)
        found = builder.load(pointer, align=array.dtype.bitwidth // 8)
        return builder.bitcast(_same(builder, found, Lanes(types.float64, LANES)), context.get_value_type(own))

    return own(array, types.intp, types.intp), lower


@_known
def write(_context: Any, array: Any, row: Any, column: Any, lanes: Any) -> Any:
    """Write eight numbers into an array (n, m) as `read` reads them, or any other number of them."""

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        pointer = _pointer(context, builder, array, values[:3], context.get_value_type(lanes))
        builder.store(values[3], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, lanes), lower


@_known
def write_folded(_context: Any, array: Any, row: Any, column: Any, first: Any, second: Any) -> Any:
    """Write eight numbers each of two lines into a row and the next: those of the lines, or the sums of their pairs."""
    own = Lanes(first.dtype, LANES)

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        array_value, row_value, column_value, *lines = values
        if first != own:
            sides = (_shuffled(builder, lines[0], lines[1], range(one, 2 * first.count, 2)) for one in (0, 1))
            both = builder.fadd(*sides, flags=_FLAGS)
            lines = [_shuffled(builder, both, both, range(one, one + LANES)) for one in (0, LANES)]
        for i, eight in enumerate(lines):
            place = array_value, builder.add(row_value, row_value.type(i)), column_value
            pointer = _pointer(context, builder, array, place, context.get_value_type(own))
            builder.store(eight, pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, first, first), lower


@_known
def write_line(_context: Any, array: Any, row: Any, place: Any, line: Any) -> Any:
    """Write a line of a row, by its place in the row."""

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        pointer = _pointer(context, builder, array, values[:3], context.get_value_type(line), line.count)
        builder.store(values[3], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, line), lower


@_known
def as_mutable(_context: Any, array: Any) -> Any:
    """Give an array that may be read only as one of the type that others have."""

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return imputils.impl_ret_borrowed(context, builder, signature.return_type, values[0])

    return array.copy(readonly=False)(array), lower


@_known
def number(_context: Any, lanes: Any, place: Any) -> Any:
    """Give one of the numbers."""

    def lower(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.extract_element(values[0], builder.trunc(values[1], _INDEX))

    return lanes.dtype(lanes, types.intp), lower


@_known
def zeros(_context: Any) -> Any:
    """Give eight zeros in double precision."""
    own = Lanes(types.float64, LANES)
    return own(), lambda context, _builder, _signature, _values: context.get_value_type(own)([0.0] * LANES)


@_known
def line_of_zeros(_context: Any, array: Any) -> Any:
    """Give a line of zeros in the precision of an array."""
    own = _fitting(array.dtype, LINE)
    return own(array), lambda context, _builder, _signature, _values: context.get_value_type(own)([0.0] * own.count)


@_known
def doubled(_context: Any, eight: Any) -> Any:
    """Give eight numbers in double precision."""
    own = Lanes(types.float64, LANES)

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return values[0] if eight == own else builder.fpext(values[0], context.get_value_type(own))

    return own(eight), lower


@_known
def inverse(_context: Any, lanes: Any) -> Any:
    """Give one over each number."""

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        ones = context.get_value_type(lanes)([1.0] * lanes.count)
        return builder.fdiv(ones, values[0], flags=_FLAGS)

    return lanes(lanes), lower


def _added_up(builder: Any, halves: Sequence[Any], own: Lanes) -> Any:
    """Add up the numbers within each of some halves of lines. -> as many sums, in order.

    A processor's vectors have parts of 16 bytes, within which numbers change places at little cost. So neighbours are
    added there first, and the two parts of half a line at last.
    """
    count = halves[0].type.count
    part = count // 2
    rest = part
    while rest > 1:
        halves = [_neighbours(builder, halves[i], halves[i + 1], part) for i in range(0, len(halves), 2)]
        rest //= 2
    low, high = ([*range(at, at + part), *range(count + at, count + at + part)] for at in (0, part))
    if len(halves) == 1:
        low, high = low[:part], high[:part]
    whole = []
    for i in range(0, len(halves), 2):
        pair = halves[i], halves[min(i + 1, len(halves) - 1)]
        whole.append(builder.fadd(_shuffled(builder, *pair, low), _shuffled(builder, *pair, high), flags=_FLAGS))
    return whole[0] if len(whole) == 1 else _shuffled(builder, whole[0], whole[1], range(own.count))


def _neighbours(builder: Any, left: Any, right: Any, part: int) -> Any:
    """Add neighbours in two vectors, part by part."""
    count = left.type.count
    places = [at + begin + i for begin in range(0, count, part) for at in (0, count) for i in range(0, part, 2)]
    sides = (_shuffled(builder, left, right, [place + one for place in places]) for one in (0, 1))
    return builder.fadd(*sides, flags=_FLAGS)


@_known
def sums_of_four(_context: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Add up the numbers within each of four halves of lines. -> four numbers."""
    own = Lanes(a.dtype, 4)
    return own(a, a, a, a), lambda _context, builder, _signature, values: _added_up(builder, values, own)


@_known
def sums_of_eight(_context: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """Add up the numbers within each of eight halves of lines. -> eight numbers."""
    own = Lanes(a.dtype, LANES)
    return own(*[a] * LANES), lambda _context, builder, _signature, values: _added_up(builder, values, own)
