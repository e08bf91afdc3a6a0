"""Randomness as a function of (seed, purpose, round, client key).

Nothing is drawn from a running generator: what a client draws depends on its own id only, not on
which other clients there are, where they live or who was asked before. So a run can stop and go on,
and a site of a federation draws what the whole table would have drawn.
"""

import hashlib

import numpy as np

from .arrays import Array, Floats, Keys

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_AT_ONCE = 1 << 16
"""Ids whose letters are held at once."""


def client_keys(ids: Array) -> Keys:
    """Give every client a 64-bit key that depends on its id alone. ids (c,) -> (c,)."""
    ids = np.asarray(ids)
    if ids.dtype.kind in "iub":
        return _mix(ids.astype(np.int64).view(np.uint64))
    parts = (ids[first : first + _AT_ONCE] for first in range(0, len(ids), _AT_ONCE))
    return np.concatenate([np.empty(0, np.uint64), *map(_text_keys, parts)])


def _text_keys(ids: Array) -> Keys:
    """Mix the letters of each id into its key, one after another. ids (c,) -> (c,)."""
    # NumPy pads text to the longest: of one long id among many short ones there would be as many copies.
    text = list(map(str, ids)) if ids.dtype == object else ids.astype(np.str_).tolist()
    codes = np.frombuffer("".join(text).encode("utf-32-le", "surrogatepass"), np.uint32)
    length = np.fromiter(map(len, text), np.int64, len(text))
    order = np.argsort(-length, kind="stable")
    begin, keys = (np.cumsum(length) - length)[order], np.full(len(text), _GOLDEN)
    longer = len(text) - np.searchsorted(length[order[::-1]], np.arange(length.max()), side="right")
    for place, count in enumerate(longer.tolist()):
        code, some = codes[begin[:count] + place].astype(np.uint64), keys[:count]
        keys[:count] = np.where(code == 0, some, _mix(some ^ code))  # NumPy's text has no zeros at its end
    return keys[np.argsort(order)]


def draw(seed: int, purpose: str, round_: int, keys: Keys, count: int = 1) -> Keys:
    """Draw 64 random bits. keys (c,) -> (c, count)."""
    label = hashlib.blake2b(f"{seed}/{purpose}/{round_}".encode(), digest_size=8).digest()
    stream = _mix(keys ^ np.uint64(int.from_bytes(label, "little")))
    with np.errstate(over="ignore"):
        counters = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        return _mix(stream[:, None] + counters)


def uniform(seed: int, purpose: str, round_: int, keys: Keys, count: int = 1) -> Floats:
    """Draw from the open interval (0, 1). keys (c,) -> (c, count)."""
    bits = draw(seed, purpose, round_, keys, count) >> np.uint64(11)
    uniforms: Floats = (bits.astype(np.float64) + 0.5) * 2.0**-53
    return uniforms


def normal(seed: int, purpose: str, round_: int, keys: Keys, count: int = 1) -> Floats:
    """Draw from the standard normal distribution. keys (c,) -> (c, count)."""
    from scipy.special import ndtri  # slow to import, and few fits need it

    normals: Floats = ndtri(uniform(seed, purpose, round_, keys, count))
    return normals


def shuffled(seed: int, purpose: str, keys: Keys) -> Array:
    """Put clients in a random order that does not depend on the order they came in. keys (c,) -> (c,)."""
    return np.lexsort((keys, draw(seed, purpose, 0, keys)[:, 0]))


def generator(seed: int, purpose: str, round_: int = 0) -> np.random.Generator:
    """Make a generator for draws that belong to no client."""
    label = hashlib.blake2b(f"{seed}/{purpose}/{round_}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(label, "little")))


def _mix(bits: Keys) -> Keys:
    """Scramble 64 bits so that each of them depends on all (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        bits = bits + _GOLDEN
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))
