"""Draws are functions of seed, purpose, round and client."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import stats

from mixfed.core import draws


@pytest.mark.parametrize("ids", [np.arange(1000), np.array([f"client {i}" for i in range(1000)])])
def test_a_client_draws_the_same_whoever_else_is_there(ids):
    together = draws.uniform(3, "x", 2, draws.client_keys(ids), 4)
    alone = draws.uniform(3, "x", 2, draws.client_keys(ids[17:18]), 4)
    np.testing.assert_array_equal(together[17:18], alone)


def test_text_ids_of_any_length_have_keys_of_their_own():
    ids = np.array(["a", "aa", "aaa", "b", "ab", "ba", "", "a" * 40, "ä"], dtype=object)
    assert len(np.unique(draws.client_keys(ids))) == len(ids)
    np.testing.assert_array_equal(draws.client_keys(ids[:1]), draws.client_keys(ids)[:1])


def key_of(text):
    """The key of one id, letter by letter, in Python's own numbers."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15
    key = golden
    for code in filter(None, map(ord, text)):
        key = ((key ^ code) + golden) & mask
        key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & mask
        key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & mask
        key ^= key >> 31
    return key


@pytest.mark.parametrize(
    "ids",
    [
        np.array(["", "a", "ab", "ba", "käse", "\U0001f600", "nul\0 inside", "at the end\0", "\ud800"], dtype=object),
        np.array(["a", "ccc", "bb", ""]),
        np.array([1.5, 2e16, np.nan, 0.1], dtype=np.float32),
        np.array(["2024-02-29", "1969-12-31"], dtype="M8[ms]"),
        np.array([], dtype=object),
    ],
)
def test_keys_equal_a_plain_loop_over_letters(ids):
    expected = [key_of(text) for text in ids.astype(np.str_).tolist()]
    np.testing.assert_array_equal(draws.client_keys(ids), np.array(expected, dtype=np.uint64))


def test_one_very_long_id_among_many_short_ones_takes_no_more_room_than_its_letters(monkeypatch):
    ids = np.array([*(f"client {i}" for i in range(2000)), "x" * 10_000, *(f"{i}" for i in range(2000))], dtype=object)
    expected = np.array(list(map(key_of, ids)), dtype=np.uint64)
    tracemalloc.start()
    keys = draws.client_keys(ids)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
    np.testing.assert_array_equal(keys, expected)
    monkeypatch.setattr(draws, "_AT_ONCE", 700)
    np.testing.assert_array_equal(draws.client_keys(ids), expected)


def test_keys_of_neighbouring_ids_look_unrelated():
    bits = np.unpackbits(draws.client_keys(np.arange(4096)).view(np.uint8)).reshape(4096, 64)
    assert np.abs(np.corrcoef(bits.T) - np.eye(64)).max() < 0.08


@pytest.mark.parametrize("change", [{"seed": 1}, {"purpose": "y"}, {"round_": 1}])
def test_any_change_of_seed_purpose_or_round_changes_the_draw(change):
    keys = draws.client_keys(np.arange(500))
    base = {"seed": 0, "purpose": "x", "round_": 0, "keys": keys}
    first, second = draws.uniform(**base)[:, 0], draws.uniform(**(base | change))[:, 0]
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.15


def test_uniforms_and_normals_follow_their_laws():
    keys = draws.client_keys(np.arange(5000))
    assert stats.kstest(draws.uniform(0, "u", 0, keys, 4).ravel(), "uniform").pvalue > 0.001
    assert stats.kstest(draws.normal(0, "n", 0, keys, 4).ravel(), "norm").pvalue > 0.001


def test_a_shuffle_does_not_depend_on_the_order_it_starts_from():
    ids = np.arange(300)
    mixed = np.random.default_rng(0).permutation(ids)
    first = ids[draws.shuffled(5, "s", draws.client_keys(ids))]
    second = mixed[draws.shuffled(5, "s", draws.client_keys(mixed))]
    np.testing.assert_array_equal(first, second)
    assert np.any(first != ids)
