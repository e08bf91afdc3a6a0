"""Every query of the registry is answered, every reply to it adds, and every message travels."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest

from helpers.exchanges import CLIENTS, COLUMNS, QUERIES, leaves, messages, reply_to
from mixfed.clients.answers.dispatch import answer_all, answer_one_by_one
from mixfed.clients.local import LocalPool
from mixfed.exchange.base import PerClient, Query
from mixfed.exchange.codec import decode, encode
from mixfed.exchange.registry import MESSAGES
from mixfed.federation.messages import check_answer, check_query

ALL = tuple(MESSAGES.values())
ASKED = [kind for kind in ALL if issubclass(kind, Query | PerClient)]
SUMMED = [kind for kind in ASKED if issubclass(kind, Query)]
SINGLE = [kind for kind in ASKED if issubclass(kind, PerClient)]


def name(kind):
    return kind.__name__


def same(found, expected, **close):
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        assert type(one) is type(other)
        if isinstance(other, np.ndarray):
            assert one.dtype == other.dtype
        if close and not isinstance(other, str | None):
            np.testing.assert_allclose(one, other, **close)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ASKED, ids=name)
def test_every_query_has_an_answer(kind):
    registered = answer_all if issubclass(kind, Query) else answer_one_by_one
    assert registered.dispatch(kind) is not registered.dispatch(object), (
        f"register what clients answer to {kind.__name__} in clients/answers"
    )


def test_every_answer_is_to_a_query_that_may_be_asked():
    assert {*answer_all.registry, *answer_one_by_one.registry} - {object} == set(ASKED)


def test_there_is_an_example_of_every_message():
    """What follows is checked of them: whoever adds a query adds one to helpers/exchanges.py."""
    assert set(QUERIES) == set(ASKED)
    assert set(messages()) == set(ALL)


@pytest.mark.parametrize("kind", ASKED, ids=name)
def test_every_reply_is_the_one_that_its_query_announces(kind):
    """In type, precision and shape."""
    query = QUERIES[kind]
    check_answer(reply_to(query), query, check_query(query, COLUMNS), CLIENTS.n_clients)


@pytest.mark.parametrize("kind", SUMMED, ids=name)
def test_every_reply_adds_in_any_order_and_grouping(kind):
    query, n = QUERIES[kind], CLIENTS.n_clients
    parts = [reply_to(query, CLIENTS.subset(np.array([i]))) for i in range(n)]
    close = {"rtol": 1e-9, "atol": 1e-9}
    whole = reply_to(query)
    same(reduce(add, parts), whole, **close)
    same(reduce(add, parts[::-1]), whole, **close)
    same(reduce(add, parts[:3]) + reduce(add, parts[3:]), whole, **close)
    same(parts[0] + parts[1], parts[1] + parts[0])  # to the last digit


@pytest.mark.parametrize("kind", SUMMED, ids=name)
def test_adding_changes_no_reply_that_was_added(kind):
    first, second = (reply_to(QUERIES[kind], CLIENTS.subset(np.array([i]))) for i in (0, 1))
    before = encode(first), encode(second)
    assert first + second is not first
    assert (encode(first), encode(second)) == before


@pytest.mark.parametrize("kind", SINGLE, ids=name)
def test_single_clients_say_the_same_whoever_else_is_asked(kind):
    query, pool, who = QUERIES[kind], LocalPool(CLIENTS), np.arange(CLIENTS.n_clients)
    whole, some = pool.ask_each(query, who), np.array([6, 1, 4])
    for found, expected in zip(leaves(pool.ask_each(query.part(some), who[some])), leaves(whole), strict=True):
        np.testing.assert_allclose(found, expected[some], rtol=1e-12)


@pytest.mark.parametrize("kind", ALL, ids=name)
def test_every_message_survives_its_bytes(kind):
    for message in messages()[kind]:
        again = decode(encode(message))
        assert type(again) is kind
        same(again, message)


@pytest.mark.parametrize("kind", ALL, ids=name)
def test_messages_with_arrays_are_told_apart_by_identity(kind):
    """Compared field by field, arrays have no truth; as the keys of caches, messages are themselves."""
    holds_arrays = any(isinstance(leaf, np.ndarray) for one in messages()[kind] for leaf in leaves(one))
    assert not (holds_arrays and kind.__dataclass_params__.eq), f"{kind.__name__} holds arrays: dataclass(eq=False)"


@pytest.mark.parametrize("kind", ASKED, ids=name)
def test_a_query_cannot_be_changed(kind):
    assert kind.__dataclass_params__.frozen
