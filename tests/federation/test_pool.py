"""Sites asked as one pool."""

from __future__ import annotations

import dataclasses

import numpy as np

from helpers.clients import random_clients
from helpers.federations import Disturbed, split
from mixfed import LocalPool
from mixfed.exchange.census import Census, CensusSum, LargestNorm
from mixfed.exchange.pool import Sample
from mixfed.federation import FederatedPool, InProcess, Site


def test_a_site_without_anybody_in_the_sample_does_not_spoil_it(small):
    sites = split(small.clients, 3) | {"tiny": Site(small.clients.subset([0]))}
    pool = FederatedPool(InProcess(sites), intercept=False)
    sample = Sample(next(seed for seed in range(99) if len(Sample(seed, 0.3).places(small.clients.keys[:1])) == 0), 0.3)
    assert pool.ask(Census(), sample).n_clients == len(sample.places(small.clients.keys))


def test_of_two_opinions_on_features_the_first_by_name_counts(small):
    other = random_clients(0, [3] * 30, 4)
    for names in ("ab", "ba"):
        sites = dict(zip(names, (Site(small.clients), Site(other)), strict=True))
        pool = FederatedPool(InProcess(sites), intercept=False)
        assert list(pool.members) == ["a"]


def test_queries_agree_with_one_process_one_by_one(small):
    clients = small.clients
    pool, local = FederatedPool(InProcess(split(clients, 5)), intercept=False), LocalPool(clients)
    assert pool.n_clients == clients.n_clients
    assert pool.dim == clients.dim
    order = {key: place for place, key in enumerate(clients.keys.tolist())}
    mine = np.array([order[key] for key in pool.roster.keys.tolist()])
    np.testing.assert_array_equal(np.sort(mine), np.arange(clients.n_clients))
    who = np.random.default_rng(0).permutation(clients.n_clients)[:200]
    for asked, here in ((None, None), (Sample(1, 0.3), Sample(1, 0.3)), (who, mine[who])):
        there, expected = pool.ask(Census(), asked), local.ask(Census(), here)
        for field in dataclasses.fields(CensusSum):
            np.testing.assert_allclose(getattr(there, field.name), getattr(expected, field.name), rtol=1e-12)
    assert pool.ask(LargestNorm()).peak == local.ask(LargestNorm()).peak


def test_a_late_site_works_once(small):
    """What it worked out while nobody waited is given when it is asked again."""
    sites = split(small.clients, 3)
    with_weights = []
    sites["site-1"].log = lambda line: with_weights.append(line["exchange"])

    def disturb(name, number, content):
        late = name == "site-1" and number % 3
        yield TimeoutError() if late else content

    pool = FederatedPool(Disturbed(sites, disturb), intercept=False, pause=0.0)
    pool.ask(Census())
    assert with_weights == [1, 2]
