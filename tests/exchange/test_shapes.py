"""Messages are checked by the shapes that their classes are written with."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np
import pytest

from mixfed.core.arrays import Floats
from mixfed.exchange.shapes import MessageError, check


@dataclasses.dataclass(frozen=True, eq=False)
class Example:
    first: Annotated[Floats, "k d"]
    second: Annotated[Floats, "k*(d+2)"]
    third: Annotated[Floats, "k d | D"]
    count: int
    share: float
    flag: bool
    name: str | None
    parts: Annotated[tuple[int, ...], "i"]


def example(**other):
    made = {
        "first": np.zeros((2, 3)),
        "second": np.zeros(10),
        "third": np.zeros((2, 3)),
        "count": 1,
        "share": 0.5,
        "flag": True,
        "name": None,
        "parts": (1, 2),
    }
    return Example(**made | other)


def test_sizes_are_learned():
    sizes = {}
    check(example(), Example, sizes, bind=True)
    assert sizes == {"k": 2, "d": 3, "i": 2}
    check(example(name="x", share=1), Example, sizes, bind=False)
    check(Example(*dataclasses.astuple(example())), Example, sizes, bind=False)


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"first": np.zeros((2, 4))}, r"Example.first has the shape \(2, 4\), not \(k, d\)"),
        ({"first": np.zeros(2)}, "Example.first has the shape"),
        ({"first": np.zeros((2, 3), np.float32)}, "Example.first holds float32, not float64"),
        ({"first": [1.0]}, "Example.first is a list"),
        ({"second": np.zeros(8)}, r"Example.second has the shape \(8,\), not \(k\*\(d\+2\)\)"),
        ({"third": np.zeros(7)}, "Example.third has the shape"),
        ({"count": 1.0}, "Example.count is a float"),
        ({"count": True}, "Example.count is a bool"),
        ({"count": 10**400}, "Example.count is a int"),
        ({"share": 10**400}, "Example.share is a int"),
        ({"share": "1"}, "Example.share is a str"),
        ({"flag": 1}, "Example.flag is a int"),
        ({"name": 3}, "Example.name is a int"),
        ({"parts": (1, 2, 3)}, "Example.parts has the shape"),
        ({"parts": (1, "2")}, "Example.parts is a str"),
    ],
)
def test_what_is_not_expected_is_named(other, complaint):
    with pytest.raises(MessageError, match=complaint):
        check(example(**other), Example, {"k": 2, "d": 3, "i": 2}, bind=False)


def test_a_letter_that_nobody_knows_is_refused_in_an_answer():
    with pytest.raises(MessageError, match="first"):
        check(example(), Example, {}, bind=False)
