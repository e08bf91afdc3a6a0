"""Answers that are wrong, late for their exchange, or made up: refused, named, and asked for again."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from helpers.bad_answers import changed, with_part
from helpers.federations import Disturbed, same, split
from mixfed import LocalPool
from mixfed.exchange.census import Census
from mixfed.exchange.mixture import MixtureNumbers
from mixfed.exchange.pool import Sample
from mixfed.federation import FederatedPool, InProcess, Job, conduct
from mixfed.federation.messages import VERSION, Answer, pack, unpack


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


def test_an_empty_complaint_is_a_complaint(small):
    def disturb(name, number, content):
        if name == "site-0" and number == 2:
            return [pack(dataclasses.replace(unpack(content, Answer), content=None, complaint="", clients=3))]
        return [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False)
    assert pool.ask(Census(), Sample(0, 0.5)).n_clients == small.clients.n_clients


def test_what_a_site_says_is_one_line_that_no_terminal_obeys(small):
    def disturb(name, number, content):
        bad = Answer(unpack(content, Answer).run, 1, 5, None, "\x1b[2Jgone\n" + "x" * 5000)
        return [pack(bad)] if name == "site-0" else [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False, tries=1)
    said = pool.absent["site-0"]
    assert said.startswith(" [2Jgone x")
    assert said.isprintable()
    assert len(said) < 400
