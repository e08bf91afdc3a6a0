"""Answers that are wrong, late for their exchange, or made up: refused, named, and without harm to the others."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from helpers.clients import random_clients
from helpers.federations import Disturbed, same, split
from mixfed import LocalPool, simulate
from mixfed.exchange.anchors import AnchorEquations
from mixfed.exchange.base import BatchReply
from mixfed.exchange.census import Census, CensusSum
from mixfed.exchange.local_update import ModelSum
from mixfed.exchange.mixture import MixtureNumbers
from mixfed.exchange.moments import GramSum, PairSum
from mixfed.exchange.pool import Sample
from mixfed.exchange.random_effects import RandomEffectsReply
from mixfed.federation import FederatedPool, InProcess, Job, Site, conduct
from mixfed.federation.messages import VERSION, Answer, pack, unpack
from mixfed.federation.pool import SitesLostError


def changed(change):
    """Make bad bytes of an answer by a change to its content."""

    def disturb(content):
        answer = unpack(content, Answer)
        return [pack(dataclasses.replace(answer, content=each(answer.content, change)))]

    return disturb


def each(content, change):
    if isinstance(content, BatchReply):
        return BatchReply(tuple(each(part, change) for part in content.parts))
    return change(content)


def field_of(content):
    return next(item.name for item in dataclasses.fields(content) if getattr(content, item.name).dtype == np.float64)


def with_nan(content):
    name = field_of(content)
    return dataclasses.replace(content, **{name: np.full_like(getattr(content, name), np.nan)})


def with_another_shape(content):
    name = field_of(content)
    return dataclasses.replace(content, **{name: np.append(getattr(content, name), 1.0)})


def with_single_precision(content):
    name = field_of(content)
    return dataclasses.replace(content, **{name: getattr(content, name).astype(np.float32)})


def with_part(content, name, change):
    """Change a part of a content; that of an `MixtureNumbers` about `small` goes by the name that it gets later."""
    if not isinstance(content, MixtureNumbers):
        return dataclasses.replace(content, **{name: change(getattr(content, name))})
    made = dataclasses.replace(content, numbers=content.numbers.copy())
    part = getattr(made.named(k=3, width=5), name)
    part[...] = change(part)
    return made


def with_huge_mass(content):
    return with_part(content, "clients", lambda clients: clients * 1e6)


def with_negative_mass(content):
    def change(clients):
        clients = clients.copy()
        clients[0, 0] -= 2 * clients[0].sum()
        clients[0, -1] += 2 * clients[0].sum()
        return clients

    return with_part(content, "clients", change)


def with_few_rows(content):
    return with_part(content, "rows", lambda rows: rows / 2)


def of_another_exchange(content):
    answer = unpack(content, Answer)
    return [pack(dataclasses.replace(answer, exchange=answer.exchange - 1))]


def of_another_run(content):
    return [pack(dataclasses.replace(unpack(content, Answer), run="another"))]


BAD = {
    "not finite": (changed(with_nan), "numbers that are not finite"),
    "another shape": (changed(with_another_shape), "has the shape"),
    "another precision": (changed(with_single_precision), "holds float32, not float64"),
    "huge mass": (changed(with_huge_mass), "clients, when there are"),
    "negative mass": (changed(with_negative_mass), "clients, when there are"),
    "lost rows": (changed(with_few_rows), "rows, when there are"),
    "another type": (changed(lambda content: content.numbers), "is a ndarray"),
    "nothing": (changed(lambda content: None), "is a NoneType"),
    "another version": (
        lambda content: [content[:6] + (VERSION + 1).to_bytes(2, "little") + content[8:]],
        f"version {VERSION + 1}",
    ),
    "cut off": (lambda content: [content[:-9]], "an array is cut off"),
    "too long": (lambda content: [content + b"\0"], "1 bytes too many"),
    "no message": (lambda content: [b"<html>"], "not a message of mixfed"),
    "empty": (lambda content: [b""], "not a message of mixfed"),
    "earlier exchange": (of_another_exchange, "an answer to exchange"),
    "another run": (of_another_run, "an answer from another run"),
    "an error": (lambda content: [RuntimeError("out of memory")], "out of memory"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_answer_is_dropped_and_asked_for_again(small, tmp_path, kind):
    make, reason = BAD[kind]
    times = []

    def disturb(name, number, content):
        answer = unpack(content, Answer)
        if name == "site-1" and isinstance(answer.content, MixtureNumbers) and len(times) < 3:
            times.append(number)
            return make(content)
        return [content]

    sites = split(small.clients, 3)
    found = conduct(Disturbed(sites, disturb), Job(3, intercept=False), tmp_path / "a")
    assert len(times) == 3
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)
    lines = [json.loads(line) for line in (tmp_path / "a" / "exchanges.jsonl").read_text().splitlines()]
    dropped = [item for line in lines for item in line["dropped"]]
    assert [name for name, _ in dropped] == ["site-1"] * 3
    assert all(reason in why for _, why in dropped)


def test_a_site_whose_answers_stay_bad_is_left_out(small, tmp_path):
    make, reason = BAD["huge mass"]

    def disturb(name, number, content):
        bad = name == "site-1" and isinstance(unpack(content, Answer).content, MixtureNumbers)
        return make(content) if bad else [content]

    sites = split(small.clients, 4)
    found = conduct(Disturbed(sites, disturb), Job(3, intercept=False, tries=3), tmp_path / "a")
    del sites["site-1"]
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)
    assert reason in (tmp_path / "a" / "exchanges.jsonl").read_text()


def test_a_second_answer_is_dropped(small, tmp_path):
    def disturb(name, number, content):
        return [content, content] if name == "site-0" else [content]

    sites = split(small.clients, 3)
    found = conduct(Disturbed(sites, disturb), Job(3, intercept=False), tmp_path / "a")
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)
    assert "another answer in the same exchange" in (tmp_path / "a" / "exchanges.jsonl").read_text()


def test_an_answer_that_is_too_large_is_not_even_read(small, monkeypatch):
    monkeypatch.setattr("mixfed.federation.messages.LIMIT", 20_000)

    def disturb(name, number, content):
        return [content + bytes(30_000)] if name == "site-0" else [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False, tries=2, pause=0.0)
    assert "more than the 20000 that are allowed" in pool.absent["site-0"]


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


def test_sums_that_break_the_mathematics_end_the_run_and_are_forgotten(small, tmp_path, monkeypatch):
    """Nobody is blamed for numbers that came from the totals, and the next try begins without them."""
    sites, job = split(small.clients, 3), Job(3, intercept=False)

    def fail(*about):
        raise np.linalg.LinAlgError("Singular matrix")

    with monkeypatch.context() as patched:
        patched.setattr("mixfed.recipes.auto.survey._basis", fail)
        with pytest.raises(np.linalg.LinAlgError):
            conduct(InProcess(sites), job, tmp_path / "a")
    assert "some site's sums cannot be right" in (tmp_path / "a" / "error.txt").read_text()
    assert not (tmp_path / "a" / "journal.bin").exists()
    same(conduct(InProcess(sites), job, tmp_path / "a"), conduct(InProcess(sites), job, tmp_path / "b"), 1e-12)


def test_a_site_that_fails_once_does_better_the_next_time(small, tmp_path, monkeypatch):
    sites = split(small.clients, 3)
    whole, failed = LocalPool.answer, []

    def answer(self, query, who=None):
        if not failed:
            failed.append(query)
            raise MemoryError
        return whole(self, query, who)

    monkeypatch.setattr(LocalPool, "answer", answer)
    found = conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "a")
    assert len(failed) == 1
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)
    assert "cannot be answered (MemoryError)" in (tmp_path / "a" / "exchanges.jsonl").read_text()


def test_a_site_that_is_started_again_goes_on(small, tmp_path):
    sites = split(small.clients, 3)
    own = tmp_path / "site-1"  # where it keeps what must outlive it

    def disturb(name, number, content):
        if name == "site-1":
            sites[name] = Site(sites[name].clients, out=own)
        return [content]

    sites["site-1"] = Site(sites["site-1"].clients, out=own)

    found = conduct(Disturbed(sites, disturb), Job(3, intercept=False), tmp_path / "a")
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)


def test_a_site_that_no_longer_lets_clients_answer_alone(small, tmp_path):
    """In mid-run it is lost; between a stop and a resume the run begins anew."""

    def stop(name, number, content):
        if number == 8:
            raise KeyboardInterrupt
        yield content

    sites, job = split(small.clients, 4), Job(3, intercept=False, tries=2)
    with pytest.raises(KeyboardInterrupt):
        conduct(Disturbed(sites, stop), job, tmp_path / "a")
    sites["site-1"].anchors = "summed"
    sites["site-1"]._last = b"", b""
    found = conduct(InProcess(sites), job, tmp_path / "a")
    same(found, conduct(InProcess(sites), job, tmp_path / "b"), 1e-12)

    def change(name, number, content):
        if number == 2:
            sites["site-2"].anchors = "summed"
        yield content

    conduct(Disturbed(sites, change), job, tmp_path / "c")
    assert (
        "site-2: it says: clients of this site are not asked one by one"
        in (tmp_path / "c" / "exchanges.jsonl").read_text()
    )


def test_an_empty_complaint_is_a_complaint(small):
    def disturb(name, number, content):
        if name == "site-0" and number == 2:
            return [pack(dataclasses.replace(unpack(content, Answer), content=None, complaint="", clients=3))]
        return [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False)
    assert pool.ask(Census(), Sample(0, 0.5)).n_clients == small.clients.n_clients


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


@pytest.mark.parametrize("content", ["null", "3", '["site-0"]', "{}", "{"])
def test_a_list_of_members_that_is_none(small, tmp_path, content):
    sites, job = split(small.clients, 3), Job(3, intercept=False)
    tmp_path.joinpath("members.json").write_text(content)
    tmp_path.joinpath("journal.bin").write_bytes(b"")
    assert conduct(InProcess(sites), job, tmp_path).model.n_clusters == 3


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


def test_what_a_site_says_is_one_line_that_no_terminal_obeys(small):
    def disturb(name, number, content):
        bad = Answer(unpack(content, Answer).run, 1, 5, None, "\x1b[2Jgone\n" + "x" * 5000)
        return [pack(bad)] if name == "site-0" else [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False, tries=1)
    said = pool.absent["site-0"]
    assert said.startswith(" [2Jgone x")
    assert said.isprintable()
    assert len(said) < 400


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
