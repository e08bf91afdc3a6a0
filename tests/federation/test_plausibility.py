"""Sums that cannot be are dropped, whatever their shape."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from helpers.bad_answers import changed, with_part
from helpers.federations import Disturbed, same, split
from mixfed import simulate
from mixfed.exchange.anchors import AnchorEquations
from mixfed.exchange.census import Census, CensusSum
from mixfed.exchange.local_update import ModelSum
from mixfed.exchange.mixture import MixtureNumbers
from mixfed.exchange.moments import GramSum, PairSum
from mixfed.exchange.random_effects import RandomEffectsReply
from mixfed.federation import FederatedPool, InProcess, Job, conduct
from mixfed.federation.messages import Answer, pack, unpack
from mixfed.federation.pool import SitesLostError


def answer_of(kind, change):
    """Let site-1 give bad answers of one type, once."""
    done = []

    def disturb(name, number, content):
        answer = unpack(content, Answer)
        if name == "site-1" and isinstance(answer.content, kind) and not done:
            done.append(number)
            return [pack(dataclasses.replace(answer, content=change(answer.content)))]
        return [content]

    return disturb


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (GramSum, {"square": -1e5}),
        (GramSum, {"gram": lambda old: -old}),
        (GramSum, {"cross": lambda old: old + 1e5}),
        (PairSum, {"moments": lambda old: old + 1e300}),
        (PairSum, {"rows": 10**9}),
        (AnchorEquations, {"gram": lambda old: old + 1e300}),
        (AnchorEquations, {"cross": lambda old: old - 1e300}),
        (AnchorEquations, {"rows": lambda old: old + np.where(np.arange(len(old)) == 0, 1e6, -1e6)}),
        (AnchorEquations, {"square": lambda old: old * 0.0}),
        (MixtureNumbers, {"likelihood": lambda old: old + 1e300}),
        (MixtureNumbers, {"likelihood": lambda old: old - 1e300}),
        (MixtureNumbers, {"score": lambda old: old + 1e5}),
        (MixtureNumbers, {"gram": lambda old: old - 1e300}),
        (MixtureNumbers, {"squares": lambda old: old * 0.0}),
        (MixtureNumbers, {"squares": lambda old: old + 1e300}),
        (ModelSum, {"loss": lambda old: -old}),
        (ModelSum, {"loss": lambda old: 1e300 * old}),
        (CensusSum, {"total": lambda old: old + 1e6}),
        (CensusSum, {"target_high": 1e165}),
        (CensusSum, {"low": lambda old: old - 1e155}),
    ],
)
def test_sums_that_cannot_be_are_dropped(small, tmp_path, kind, change):
    def worse(content):
        ((name, new),) = change.items()
        return with_part(content, name, new if callable(new) else lambda old: new)

    sites = split(small.clients, 3)
    job = Job(3, settings={"update": "fedprox", "refine_rounds": 4}, intercept=False)
    found = conduct(Disturbed(sites, answer_of(kind, worse)), job, tmp_path / "a")
    same(found, conduct(InProcess(sites), job, tmp_path / "b"), 1e-12)
    lines = [json.loads(line) for line in (tmp_path / "a" / "exchanges.jsonl").read_text().splitlines()]
    assert [name for line in lines for name, _ in line["dropped"]] == ["site-1"]


@pytest.mark.parametrize(
    "change", [{"clients": 10**6}, {"rows": 5}, {"clients": 0}, {"sizes": np.ones(3, np.int64)}, {"features": ()}]
)
def test_an_enrolment_that_cannot_be(small, change):
    def disturb(name, number, content):
        lie = changed(lambda content: dataclasses.replace(content, **change))
        return lie(content) if name == "site-0" else [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False, tries=1)
    assert list(pool.absent) == ["site-0"]


@pytest.mark.parametrize(
    ("part", "lie"),
    [
        ("sizes", lambda old: old + 1000),
        ("sizes", lambda old: old[::-1]),
        ("sizes", lambda old: np.where(old == old[0], 2**62, old)),
        ("sizes", lambda old: old[:-1]),
        ("counts", lambda old: old - 2**40 * (np.arange(len(old)) == 0) + 2**40 * (np.arange(len(old)) == 1)),
        ("counts", lambda old: old * 0),
        ("low", lambda old: old + 1000.0),
        ("target_low", lambda old: 1e9),
    ],
)
def test_a_census_that_cannot_be(small, part, lie):
    def change(content):
        if not isinstance(content, CensusSum):
            return content
        return dataclasses.replace(content, **{part: lie(getattr(content, part))})

    def disturb(name, number, content):
        return changed(change)(content) if name == "site-0" else [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False, tries=1)
    with pytest.raises(SitesLostError, match="site-0"):
        pool.ask(Census())


def test_wild_derivatives_of_one_site_do_not_hold_up_the_others(tmp_path):
    clients = simulate(n_clients=300, dim=2, n_clusters=2, noise=0.3, seed=1).clients

    def wild(name, number, content):
        answer = unpack(content, Answer)
        if name == "site-1" and isinstance(answer.content, RandomEffectsReply):
            wilder = dataclasses.replace(answer.content, score=1e200 * answer.content.score)
            return [pack(dataclasses.replace(answer, content=wilder))]
        return [content]

    job = Job(2, settings={"personal": True}, intercept=False, tries=2)
    sites = split(clients, 3)
    found = conduct(Disturbed(sites, wild), job, tmp_path / "a")
    assert json.loads((tmp_path / "a" / "run.json").read_text())["absent"] == {
        "site-1": "it was lost: numbers beyond 1e+100"
    }
    del sites["site-1"]
    same(found, conduct(InProcess(sites), job, tmp_path / "b"), 1e-9)
