"""Which kinds are split and joined."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.candidates import random_mixtures
from mixfed.exchange.mixture import MixtureReply
from mixfed.recipes.auto.merge_split import splits


@pytest.mark.parametrize("k", [2, 3, 5])
def test_no_two_splits_are_the_same(k):
    rng = np.random.default_rng(k)
    dim = 3
    mixture, root = random_mixtures(rng, 1, k, dim), rng.standard_normal((k, dim, dim))
    overlap = rng.random((k, k))
    reply = MixtureReply(
        np.zeros(1),
        rng.uniform(10, 20, (1, k)),
        rng.uniform(30, 60, (1, k)),
        np.ones((1, k)),
        np.zeros((1, k, dim)),
        np.tile(np.eye(dim)[np.tril_indices(dim)] * 40.0, (1, k, 1)),
        (overlap + overlap.T + np.eye(k))[None],
        np.empty((0, 1, 1, 1)),
    )
    made = splits(mixture, reply, root @ root.transpose(0, 2, 1), 100)
    assert len(made) >= k
    sets = {tuple(sorted(map(tuple, one.theta[0].round(9).tolist()))) for one in made}
    assert len(sets) == len(made)
