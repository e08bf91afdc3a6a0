"""Rows of packed clients: in shifted and scaled columns, summed by client, and clients with as many rows side by side.

Client i owns rows ``offsets[i]:offsets[i + 1]``. Everything is in double precision, whatever that of the rows.
"""

from collections.abc import Iterator

import numpy as np

from ...core.arrays import Array, Floats, Ints

CACHED = 2048
"""Rows that stay in the cache, with what is made of them, about."""
AT_ONCE = 2_000_000
"""Numbers of clients that are looked at side by side, about."""


def scaled(phi: Array, centre: Array, inverse_sd: Array) -> Floats:
    """Shift and scale rows (n, d or less): x = (phi - centre) inverse_sd; columns beyond phi's are the constant 1."""
    dim = phi.shape[1]
    x: Floats = np.empty((len(phi), len(inverse_sd)))
    np.subtract(phi, centre[:dim], out=x[:, :dim])
    x[:, dim:] = 1.0 - centre[dim:]
    x *= inverse_sd
    return x


def by_client(values: Floats, offsets: Ints) -> Floats:
    """Sum rows (n, ...) over each client. -> (m, ...)."""
    return np.asarray(np.add.reduceat(values, offsets[:-1], axis=0)) if len(offsets) > 1 else values[:0]


def pieces(offsets: Ints) -> Iterator[tuple[slice, Ints]]:
    """Cut clients into pieces whose rows stay in the cache: their rows, and offsets from the first of these."""
    begin = 0
    while begin < len(offsets) - 1:
        end = max(begin + 1, int(np.searchsorted(offsets, offsets[begin] + CACHED, "right")) - 1)
        yield slice(offsets[begin], offsets[end]), offsets[begin : end + 1] - offsets[begin]
        begin = end


def alike(offsets: Ints, numbers: int) -> Iterator[tuple[Ints, Ints]]:
    """Give clients that have as many rows n: their places (c,) and their rows (c, n).

    ``numbers`` is how many each takes in what follows: as many clients are given at a time as memory is meant for.
    """
    sizes = np.diff(offsets)
    for n in np.unique(sizes).tolist():
        places = np.flatnonzero(sizes == n)
        count = max(1, AT_ONCE // max(numbers, n))
        for first in range(0, len(places), count):
            some = places[first : first + count]
            yield some, offsets[some, None] + np.arange(n)
