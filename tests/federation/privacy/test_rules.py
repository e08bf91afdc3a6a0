"""No sum is over fewer clients than the owner's floor, by whatever way it is asked for."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from helpers.clients import random_clients
from helpers.federations import ask, split
from mixfed import Clients, PoolError
from mixfed.core.symmetric import unpacked
from mixfed.exchange.census import Census
from mixfed.exchange.mixture import Candidates, SplitMoments
from mixfed.exchange.moments import Gram, PairMoments
from mixfed.exchange.pool import Sample
from mixfed.exchange.random_effects import LeaveOut, LeftOutSum, RandomEffects
from mixfed.exchange.units import StandardUnits
from mixfed.federation import FederatedPool, InProcess, Job, Site, conduct
from mixfed.federation.messages import Enrol
from mixfed.federation.privacy import rules


def test_no_sum_is_over_fewer_clients_than_the_floor(small):
    clients = small.clients
    sites = split(clients, 3, min_clients=50)
    seen = []
    pool = FederatedPool(InProcess(sites), intercept=False, watch=seen.append)
    # A sample with too few clients at some site is not answered by it: all are asked.
    assert pool.ask(Census(), Sample(0, 0.05)).n_clients == clients.n_clients
    asked = pool.traffic.exchanges
    assert pool.ask(Census(), Sample(0, 0.05)).n_clients == clients.n_clients
    assert pool.traffic.exchanges == asked + 1  # which was learned for good
    first = sites["site-0"].clients.n_clients
    who = np.concatenate([np.arange(60), first + np.arange(20)])
    assert pool.ask(Census(), who).n_clients == 60
    assert seen[-1].dropped == (("site-1", "a sum over 20 clients, below min_clients = 50"),)
    with pytest.raises(PoolError, match="no site may speak for so few"):
        pool.ask(Census(), np.arange(20))


def test_the_floor_cannot_be_passed_by_asking_for_one_client_often(small):
    site = Site(small.clients, min_clients=5)
    assert ask(site, Enrol(True)).complaint is None
    for who in ([3] * 9, [-1, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, small.clients.n_clients]):
        answer = ask(site, Census(), np.array(who))
        assert answer.content is None
        assert "does not have, or one of them twice" in answer.complaint
    assert "below min_clients = 5" in ask(site, Census(), np.array([3])).complaint


def test_the_floor_holds_for_clients_with_two_rows_or_more(tmp_path):
    """A few of them among many with one row: what is said of pairs of rows would be theirs alone."""
    made = random_clients(0, [1] * 40 + [2] * 3 + [9] * 4, 2)
    mixture = Candidates(np.zeros((1, 2, 2)), np.zeros((1, 2)), np.log(np.full((1, 2), 0.5)))
    frame = StandardUnits.plain(2)
    spreads = RandomEffects(mixture.theta, mixture.log_variance, mixture.log_weight, np.ones((1, 2, 3)))
    for floor, all_told, small_told in ((3, True, True), (5, True, False), (8, False, False)):
        site = Site(made, min_clients=floor)
        for query in (PairMoments(frame, False), SplitMoments(frame, mixture)):
            told = ask(site, query).content
            assert bool(np.any(told.moments)) == (told.rows > 0) == all_told
        assert np.any(ask(site, PairMoments(frame, True)).content.moments)  # those with one row are in it, too
        left = ask(site, LeaveOut(frame, spreads, True, 3)).content
        assert (left.rows > 0).tolist() == [all_told, small_told]
        assert (left.squares > 0).tolist() == [[all_told, small_told]]


GRAM = Gram(np.zeros(5), np.ones(5), 0.0, 1.0)


def of_one_client(clients, told):
    """Whether one of the sums that were told, or the difference of two, is the second moments of a single client."""
    own = [one.phi.T @ one.phi for one in (clients.subset(np.array([i])) for i in range(clients.n_clients))]
    sums = [np.zeros((5, 5)), *(unpacked(said.content.gram, 5) for said in told if said.content is not None)]
    gaps = np.array([a - b for a in sums for b in sums])
    return any(np.abs(gaps - one).max(axis=(1, 2)).min() < 1e-9 for one in own)


def ask_for_places(site, run="run"):
    """Ask for ten clients by their places, and for nine of them: the difference is the tenth."""
    return [ask(site, GRAM, np.arange(count), run) for count in (10, 9)]


def test_clients_that_were_not_listed_cannot_be_asked_by_their_places(small):
    clients = small.clients
    open_, closed = Site(clients, min_clients=5), Site(clients, min_clients=5, anchors="summed")
    for site in (open_, closed):
        ask(site, Enrol(True))
    assert of_one_client(clients, ask_for_places(open_))  # which is what it means to list clients: see docs/privacy.md
    others = ask_for_places(closed) + ask_for_places(open_, "another run")
    ask(open_, Enrol(False), run="a third run")
    others += ask_for_places(open_, "a third run")
    assert all("when this site has listed none in this run" in said.complaint for said in others)
    assert not of_one_client(clients, others)


def halve_shares(site, seed=0):
    """Ask for samples, always between the two that differ least, until two differ by one client."""
    told = {1.0: ask(site, GRAM, Sample(seed, 1.0))}
    low, high = 0.0, 1.0
    for _ in range(40):
        share = (low + high) / 2
        told[share] = ask(site, GRAM, Sample(seed, share))
        within = {at: told[at].clients if at else 0 for at in (low, share, high)}
        wide = within[high] - within[share] >= within[share] - within[low]
        low, high = (share, high) if wide else (low, share)
    return list(told.values())


def test_samples_that_differ_by_few_clients_are_refused(small, tmp_path):
    clients = small.clients
    assert of_one_client(clients, halve_shares(Site(clients)))  # nothing is refused without a floor
    for floor in (2, 5, 30):
        told = []
        for out in (None, tmp_path / str(floor)):
            site = Site(clients, min_clients=floor, out=out)
            told += halve_shares(site)
        site = Site(clients, min_clients=floor, out=out)  # started again, it knows what it has answered
        told += halve_shares(site) + halve_shares(site, seed=1)
        answered = sorted({said.clients for said in told if said.content is not None})
        assert len(answered) >= 2
        assert min(np.diff([0, *answered])) >= floor
        assert not of_one_client(clients, told)
    assert "by another seed" in ask(site, GRAM, Sample(1, 0.5)).complaint
    assert ask(Site(clients.subset(np.arange(90)), min_clients=30, out=out), GRAM, Sample(1, 0.5)).complaint is None


def test_samples_leave_no_few_clients_with_pairs_of_rows():
    made = random_clients(0, [1] * 200 + [2] * 30, 5)
    alone = Site(made, min_clients=20)
    assert ask(alone, PairMoments(StandardUnits.plain(5), False)).content.rows == 60
    half = ask(alone, GRAM, Sample(0, 0.5))
    assert "differs from others by fewer than min_clients = 20" in half.complaint  # of 30 paired clients, some 15
    assert ask(Site(made.subset(np.arange(200)), min_clients=20), GRAM, Sample(0, 0.5)).complaint is None


def test_what_was_asked_is_not_forgotten_by_a_damaged_file(small, tmp_path):
    ask(Site(small.clients, min_clients=5, out=tmp_path), GRAM, Sample(0, 0.5))
    (tmp_path / "asked.json").write_text("{")
    said = ask(Site(small.clients, min_clients=5, out=tmp_path), GRAM, Sample(0, 0.25))
    assert said.content is None
    assert "asked.json: damaged" in said.complaint


def test_a_site_does_not_tell_of_a_few_small_clients_apart():
    rng = np.random.default_rng(0)
    owner = np.concatenate([np.repeat(np.arange(40), 10), [40, 40]])
    X = rng.standard_normal((len(owner), 2))
    clients = Clients.from_arrays(X, X @ [1.0, 2.0] + rng.standard_normal(len(owner)), owner)
    told = []

    class Told(rules.Rules):
        def withheld(self, *about):
            kept = super().withheld(*about)
            told.extend(part for part in getattr(kept, "parts", [kept]) if isinstance(part, LeftOutSum))
            return kept

    site = Site(clients, min_clients=10)
    site.rules = Told(clients, 10, None)

    with tempfile.TemporaryDirectory() as folder:
        job = Job(None, settings={"personal": True, "max_clusters": 2}, intercept=False)
        conduct(InProcess({"a": site}), job, Path(folder))
    assert told
    assert all(part.rows[0] == 402 and part.rows[1] == 0 and not part.squares[:, 1].any() for part in told)
