"""Eight numbers at a time, in compiled code.

The compiler makes vectors of long loops by itself. A loop over the few models of a mixture is too short for that, and
it runs once for every row. Here it is told: `Eight` is a type of compiled code that holds eight neighbours in an array,
and ``+``, ``-`` and ``*``, with each other or with one number, which takes on their precision, do what they do with
numbers. So what is written for a number, such as a loss, serves eight. Processors with shorter vectors take several.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

LANES = 8
"""How many numbers an `Eight` has, and an array needs to spare behind the last that is read or written."""
_FLAGS = ("reassoc", "contract", "nsz")
"""As in `compiled`."""


class Eight(types.Type):
    """Eight numbers of a type."""

    def __init__(self, dtype: types.Float) -> None:
        super().__init__(f"Eight({dtype})")
        self.dtype = dtype


@register_model(Eight)
class _EightModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Eight) -> None:
        super().__init__(manager, kind, ir.VectorType(manager.lookup(kind.dtype).get_value_type(), LANES))


def _known(function: Callable[..., Any]) -> Any:
    """Make known to compiled code what gives a signature, and a way to write the instructions."""
    return intrinsic(function)


def _define(operation: Callable[..., Any], instruction: str) -> None:
    """Define an operation of two, of which at least one is an `Eight`; the other may be a number."""

    @type_callable(operation)
    def _typed(_context: Any) -> Callable[[Any, Any], Eight | None]:
        def result(left: Any, right: Any) -> Eight | None:
            first, second = (isinstance(one, Eight) for one in (left, right))
            if first and second:
                return left if left == right else None
            eight, number = (left, right) if first else (right, left)
            return eight if (first or second) and isinstance(number, types.Float) else None

        return result

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        own = signature.return_type

        def eight(kind: Any, value: Any) -> Any:
            return value if isinstance(kind, Eight) else _spread(builder, context.cast(builder, value, kind, own.dtype))

        return getattr(builder, instruction)(*map(eight, signature.args, values), flags=_FLAGS)

    for kinds in ((Eight, Eight), (Eight, types.Float), (types.Float, Eight)):
        lower_builtin(operation, *kinds)(lower)


def _spread(builder: Any, number: Any) -> Any:
    """Make eight of a number."""
    eight = ir.VectorType(number.type, LANES)(ir.Undefined)
    first = builder.insert_element(eight, number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, eight, ir.VectorType(ir.IntType(32), LANES)([0] * LANES))


for _operations, _instruction in (
    ((operator.add, operator.iadd), "fadd"),
    ((operator.sub, operator.isub), "fsub"),
    ((operator.mul, operator.imul), "fmul"),
):
    for _operation in _operations:
        _define(_operation, _instruction)


def _pointer(context: Any, builder: Any, kind: Any, values: Any, own: Any) -> Any:
    """Find the first of eight in an array (n, m), by its row and column."""
    array, *places = values
    found = context.make_array(kind)(context, builder, array)
    shape, strides = (cgutils.unpack_tuple(builder, part) for part in (found.shape, found.strides))
    first = cgutils.get_item_pointer2(context, builder, found.data, shape, strides, kind.layout, places)
    return builder.bitcast(first, context.get_value_type(own).as_pointer())


@_known
def read(_context: Any, array: Any, row: Any, column: Any) -> Any:
    """Read eight numbers of an array (n, m) that begin at a row and a column, beyond the row's end if it is near."""
    own = Eight(array.dtype)

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.load(_pointer(context, builder, array, values, own), align=array.dtype.bitwidth // 8)

    return own(array, types.intp, types.intp), lower


@_known
def write(_context: Any, array: Any, row: Any, column: Any, eight: Any) -> Any:
    """Write eight numbers into an array (n, m) as `read` reads them."""

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        pointer = _pointer(context, builder, array, values[:3], eight)
        builder.store(values[3], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, eight), lower


@_known
def zeros(_context: Any) -> Any:
    """Give eight zeros in double precision."""
    own = Eight(types.float64)
    return own(), lambda context, _builder, _signature, _values: context.get_value_type(own)([0.0] * LANES)


@_known
def doubled(_context: Any, eight: Any) -> Any:
    """Give eight numbers in double precision."""
    own = Eight(types.float64)

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return values[0] if eight == own else builder.fpext(values[0], context.get_value_type(own))

    return own(eight), lower
