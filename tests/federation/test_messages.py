"""Messages between server and site, under bytes that nobody should send: always an answer."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from helpers.clients import random_clients
from mixfed import LocalPool, fit_auto
from mixfed.exchange.anchors import Descend
from mixfed.exchange.base import Batch
from mixfed.exchange.census import Census
from mixfed.exchange.local_update import FedProx, LocalUpdate, Mixture
from mixfed.exchange.mixture import Candidates, MixtureSums, SplitMoments
from mixfed.exchange.pool import Sample
from mixfed.exchange.shapes import MessageError
from mixfed.exchange.units import StandardUnits
from mixfed.federation import FederatedPool, InProcess, Site
from mixfed.federation.messages import Answer, Ask, Conclude, Enrol, check_answer, check_query, pack, pack_query, unpack

CLIENTS = random_clients(0, [2, 5, 3, 2, 9, 4, 2, 2, 6, 3, 2, 4], 3)
SITE = Site(CLIENTS)


class Tape:
    """A pool that keeps what is asked."""

    def __init__(self):
        self.pool, self.asked = LocalPool(CLIENTS), []
        self.traffic, self.dim, self.n_clients, self.roster = self.pool.traffic, 3, 12, self.pool.roster

    def ask(self, query, who=None):
        self.asked.append((query, who))
        return self.pool.ask(query, who)

    def ask_each(self, query, who):
        self.asked.append((query, who))
        return self.pool.ask_each(query, who)


def questions():
    """The questions of a fit, as bytes."""
    tape = Tape()
    fit_auto(tape, CLIENTS.features, 2)
    mixture = Mixture(np.ones((2, 3)), np.array([0.5, 0.5]), np.ones(2))
    asked = [
        *tape.asked,
        (LocalUpdate(mixture, True, FedProx(0.1)), None),
        (Batch((Census(), Census())), Sample(1, 0.5)),
    ]
    return [pack(Ask("run", at, False, pack_query(query), who)) for at, (query, who) in enumerate(asked)]


QUESTIONS = questions()
assert unpack(SITE.answer(pack(Ask("run", 0, False, pack_query(Enrol(True)), None))), Answer).complaint is None


def test_every_question_of_a_fit_is_answered():
    for content in QUESTIONS:
        answer = unpack(SITE.answer(content), Answer)
        assert answer.complaint is None, answer.complaint


@given(st.binary(max_size=200))
def test_any_bytes_get_an_answer(content):
    for sent in (content, QUESTIONS[0][:8] + content, QUESTIONS[0][:16] + content):
        answer = unpack(SITE.answer(sent), Answer)
        assert answer.content is None
        assert answer.complaint


def test_a_complaint_about_what_is_no_text_is_an_answer(tmp_path):
    model = fit_auto(LocalPool(CLIENTS), CLIENTS.features, 2).model
    model.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text()) | {"family": "\ud800"}
    site = Site(CLIENTS, out=tmp_path / "site")
    answer = unpack(site.answer(pack(Ask("run", 1, False, pack_query(Conclude(json.dumps(content))), None))), Answer)
    assert "does not know the family '\\ud800'" in answer.complaint


@pytest.mark.slow
@settings(max_examples=1500)
@given(st.integers(0, len(QUESTIONS) - 1), st.data())
def test_damaged_questions_get_an_answer(which, data):
    """Bytes changed, cut off, put in or taken out, most of them in a header, where they do most harm."""
    if data.draw(st.booleans()):
        sent = damaged(QUESTIONS[which], data)
    else:
        ask = unpack(QUESTIONS[which], Ask)
        query = np.frombuffer(damaged(ask.content.tobytes(), data, mark=0), np.uint8)
        sent = pack(dataclasses.replace(ask, content=query))
    answer = unpack(SITE.answer(sent), Answer)
    assert answer.complaint or answer.clients >= 0


@pytest.mark.slow
@settings(max_examples=1500)
@given(st.integers(0, len(QUESTIONS) - 1), st.data())
def test_damaged_answers_are_read_or_refused(which, data):
    ask = unpack(QUESTIONS[which], Ask)
    query, asked = ask.query, len(ask.who) if isinstance(ask.who, np.ndarray) else 0
    content = damaged(SITE.answer(QUESTIONS[which]), data)
    with contextlib.suppress(MessageError):
        check_answer(unpack(content, Answer).content, query, check_query(query, 3), asked)


def damaged(content, data, mark=8):
    header = mark + 8 + struct.unpack_from("<Q", content, mark)[0]
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        end = max(1, min(header, len(changed)) if data.draw(st.integers(0, 4)) else len(changed))
        at = data.draw(st.integers(0, end - 1))
        kind = data.draw(st.sampled_from(["byte", "digit", "cut", "out", "in"]))
        if kind == "byte":
            changed[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
        elif kind == "digit":  # sizes and shapes
            places = range(mark + 8, min(header, len(changed)))
            digits = [place for place in places if changed[place : place + 1].isdigit()]
            if digits:
                changed[data.draw(st.sampled_from(digits))] = ord(data.draw(st.sampled_from("0123456789")))
        elif kind == "cut":
            del changed[at:]
        elif kind == "out":
            del changed[at : at + data.draw(st.integers(1, 9))]
        else:
            changed[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        if not changed:
            break
    return bytes(changed)


def test_questions_that_do_not_fit_the_site_are_refused():
    frame = StandardUnits.plain(3)
    fits = Candidates(np.zeros((1, 2, 3)), np.zeros((1, 2)), np.zeros((1, 2)))
    for query, complaint in (
        (
            MixtureSums(StandardUnits.plain(4), Candidates(np.zeros((1, 2, 4)), *(np.zeros((1, 2)),) * 2)),
            "StandardUnits.centre",
        ),
        (MixtureSums(frame, Candidates(np.zeros((1, 2, 4)), *(np.zeros((1, 2)),) * 2)), "Candidates.theta"),
        (MixtureSums(frame, Candidates(np.zeros((1, 2, 3)), np.zeros((1, 3)), np.zeros((1, 2)))), "log_variance"),
        (MixtureSums(frame, fits, since=Candidates(np.zeros((2, 2, 3)), *(np.zeros((2, 2)),) * 2)), "Candidates.theta"),
        (MixtureSums(frame, fits, informed=(4,)), "that there are not"),
        (MixtureSums(frame, fits, informed=(-1,)), "that there are not"),
        (MixtureSums(frame, fits, informed=(0, 0)), "or about one twice"),
        (MixtureSums(frame, Candidates(np.zeros((0, 2, 3)), *(np.zeros((0, 2)),) * 2)), "about nothing"),
        (MixtureSums(frame, Candidates(np.zeros((1, 0, 3)), *(np.zeros((1, 0)),) * 2)), "about nothing"),
        (SplitMoments(frame, Candidates(np.zeros((1, 0, 3)), *(np.zeros((1, 0)),) * 2)), "about nothing"),
        (LocalUpdate(Mixture(np.zeros((0, 3)), np.zeros(0), np.zeros(0)), True, FedProx(0.1)), "about nothing"),
        (Batch((LocalUpdate(Mixture(np.zeros((0, 3)), np.zeros(0), np.zeros(0)), True),)), "about nothing"),
        (Batch((MixtureSums(frame, fits), MixtureSums(StandardUnits.plain(4), fits))), "StandardUnits.centre"),
        ("a question", "in the place of a query"),
    ):
        answer = unpack(SITE.answer(pack(Ask("run", 1, False, pack_query(query), None))), Answer)
        assert complaint in answer.complaint


def test_single_clients_are_asked_as_many_as_the_question_is_about():
    descend = Descend(np.zeros((2, 3)), np.zeros((2, 3, 1)), 0, 1, 1, 0.0, 0.0, 0)
    for who, complaint in ((np.arange(2), None), (np.arange(3), "a query about 2 clients, when 3 are asked")):
        answer = unpack(SITE.answer(pack(Ask("run", 1, False, pack_query(descend), who))), Answer)
        assert answer.complaint == complaint


def test_answers_to_several_questions_are_checked_each():
    pool = FederatedPool(InProcess({"a": Site(CLIENTS)}), intercept=False)
    one = MixtureSums(
        StandardUnits.plain(3), Candidates(np.zeros((1, 2, 3)), np.zeros((1, 2)), np.full((1, 2), -np.log(2)))
    )
    two = MixtureSums(StandardUnits.plain(3), Candidates(np.zeros((4, 1, 3)), np.zeros((4, 1)), np.zeros((4, 1))))
    replies = pool.ask(Batch((one, two)))
    np.testing.assert_allclose(replies.parts[1].likelihood, LocalPool(CLIENTS).ask(two).likelihood)
    with pytest.raises(MessageError):
        check_answer(replies, Batch((two, one)), {"D": 3})
    with pytest.raises(MessageError, match="1 replies to 2 queries"):
        check_answer(dataclasses.replace(replies, parts=replies.parts[:1]), Batch((one, two)), {"D": 3})
