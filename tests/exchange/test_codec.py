"""Messages survive their bytes exactly, and bytes that are no message cost nothing."""

from __future__ import annotations

import dataclasses
import json
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from mixfed.exchange.codec import MessageError, decode, encode
from mixfed.exchange.local_update import FedProx


@dataclasses.dataclass(frozen=True, eq=False)
class Inner:
    values: np.ndarray
    name: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Outer:
    first: np.ndarray
    inner: Inner
    several: tuple[Inner, ...]
    number: float
    count: int
    flag: bool


KINDS = {"Inner": Inner, "Outer": Outer}
some_arrays = st.one_of(
    arrays(np.float64, array_shapes(min_dims=0, min_side=0)),
    arrays(np.float32, array_shapes()),
    arrays(np.int64, array_shapes(min_side=0)),
    arrays(np.bool_, array_shapes()),
)


@given(some_arrays, some_arrays, some_arrays, st.floats(), st.integers(-(2**60), 2**60), st.booleans())
def test_a_message_survives_its_bytes(first, second, third, number, count, flag):
    message = Outer(first, Inner(second, "näme"), (Inner(third), Inner(second)), number, count, flag)
    again = decode(encode(message), KINDS)
    for value, expected in zip(flat(again), flat(message), strict=True):
        if isinstance(expected, np.ndarray):
            assert value.dtype == expected.dtype
            assert value.shape == expected.shape
            assert value.tobytes() == expected.tobytes()
            assert value.flags.aligned
            assert value.flags.writeable
        else:
            assert value == expected or (value != value and expected != expected)


def flat(message):
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(item):
                yield from flat(item)
            else:
                yield item


def test_unknown_kinds_are_refused():
    with pytest.raises(MessageError, match="'Inner'"):
        decode(encode(Inner(np.zeros(1))), {})


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", range(3))
def test_numbers_that_are_not_finite_are_found_wherever_they_are(bad, place):
    values = [0.0, 0.0, 0.0]
    values[place] = bad
    inner = Inner(np.array(values[1:2], np.float32))
    content = encode(Outer(np.array([1.0, values[0]]), inner, (Inner(np.array([True])),), values[2], 1, True))
    decode(content, KINDS)
    with pytest.raises(MessageError, match="not finite"):
        decode(content, KINDS, only_finite=True)


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 7, 40])
def test_one_number_that_is_not_finite_is_found_and_large_ones_are_not_taken_for_it(precision, bad, place):
    numbers = np.full(41, np.finfo(precision).max)
    numbers[::2] *= -1
    np.testing.assert_array_equal(decode(encode(numbers), only_finite=True), numbers)
    numbers[place] = bad
    with pytest.raises(MessageError, match="not finite"):
        decode(encode(numbers), only_finite=True)


def test_arrays_are_copies_or_the_bytes_themselves():
    content = encode(np.arange(5.0))
    assert decode(content).flags.writeable
    whole = decode(content, copy=False)
    assert not whole.flags.writeable
    assert whole.flags.aligned
    size = int.from_bytes(content[:8], "little")
    longer = (size + 1).to_bytes(8, "little") + content[8 : 8 + size] + b" " + content[8 + size :]
    np.testing.assert_array_equal(decode(longer), whole)
    with pytest.raises(MessageError, match="numbers that begin at byte"):
        decode(longer, copy=False)


def lying(**described):
    """A message that says of itself what it likes."""
    header = json.dumps(described).encode()
    return struct.pack("<Q", len(header)) + header


@pytest.mark.parametrize(
    "content",
    [
        lying(dtype="<f8", shape=[10**12]),
        lying(dtype="<f8", shape=[2**40, 2**40]),
        lying(dtype="<f8", shape=[-1]),
        lying(dtype="<f8", shape=[1.5]),
        lying(dtype="<f8", shape=[True]),
        lying(dtype="<f8", shape="99"),
        lying(dtype="<f8", shape=[0] * 100),
        lying(dtype="O", shape=[1]) + bytes(8),
        lying(dtype="<U1000000000", shape=[1]),
        lying(dtype=["<f8"], shape=[1]) + bytes(8),
        lying(text=10**12),
        lying(text=-1),
        lying(text=1.5),
        lying(text="a"),
        lying(text=2) + b"\xff\xfe" + bytes(6),
        lying(number="complex"),
        lying(number=["int"]),
        lying(number="int"),
        lying(kind="Census"),
        lying(kind="os.system", fields={}),
        lying(kind=["Census"], fields={}),
        lying(kind="Census", fields={"more": 1}),
        lying(kind="Census", fields=[1]),
        lying(items=5),
        lying(items=[[1]]),
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 5) + b"{}",
        struct.pack("<Q", 100_000) + b"[" * 100_000,
        struct.pack("<Q", 7) + b'"text"1',
        struct.pack("<Q", 6) + b'"text"',
        struct.pack("<Q", 3) + b"1.5",
        struct.pack("<Q", 2) + b"\xff\xfe",
        b"",
        b"1234567",
    ],
)
def test_lies_about_sizes_cost_nothing(content):
    tracemalloc.start()
    try:
        with pytest.raises(MessageError):
            decode(content)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(content) + 200_000
    finally:
        tracemalloc.stop()


def test_arrays_cannot_be_read_twice():
    """A short message cannot become a large one by many arrays of the same bytes."""
    one = {"dtype": "<f8", "shape": [1000]}
    header = json.dumps({"items": [one] * 1000}).encode()
    with pytest.raises(MessageError, match="cut off"):
        decode(struct.pack("<Q", len(header)) + header + bytes(8000))


def test_numbers_that_are_equal_are_read_as_the_same_kind():
    prox = decode(encode(FedProx(0.25)))
    assert (prox, prox.local_steps) == (FedProx(0.25), 1)
