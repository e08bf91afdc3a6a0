"""Asking sites: until each has given an answer that can be believed, or was asked too often."""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..exchange.base import Query, Traffic
from ..exchange.shapes import MessageError
from .messages import Answer, Ask, Enrol, Enrolled, check_answer, unpack
from .plausibility import check_enrolled
from .transport import Transport

_LATER = 0.25
"""Share of the time-out that a site gets when it is asked again: it has been at work since the first time."""
_LONGEST_PAUSE = 5.0
_LONGEST_TEXT = 300
"""Letters of a site's complaint that are read."""


@dataclass(frozen=True)
class Exchange:
    """An exchange that has ended: what the server's log says of it."""

    number: int
    question: str
    seconds: float
    sites: int
    """Sites asked."""
    clients: int
    """Clients that the answers are about."""
    attempts: int
    bytes_down: int
    """To all sites together, every attempt counted."""
    bytes_up: int
    """From all sites together, bad answers and all."""
    dropped: tuple[tuple[str, str], ...]
    """Site and reason of every answer that was not taken, and of every answer that was refused."""


@dataclass(frozen=True, eq=False)
class Question:
    """A question as it is put to a site."""

    query: Any
    sizes: Mapping[str, int]
    """What the letters in the query's shapes, and in those of its answer, stand for."""
    ask: Ask
    content: bytes
    """As it is sent."""


class Asking:
    """How sites are asked, and what it took so far.

    Each is asked ``tries`` times, the first time for ``timeout`` seconds. ``check_counts`` raises if an answer is about
    other clients or rows than there can be.
    """

    def __init__(
        self,
        transport: Transport,
        timeout: float,
        tries: int,
        pause: float,
        check_counts: Callable[[str, Question, Answer], None],
        watch: Callable[[Exchange], None] | None,
    ) -> None:
        self.transport, self.timeout, self.tries, self.pause = transport, timeout, tries, pause
        self.check_counts, self.watch = check_counts, watch
        self.traffic = Traffic()
        self.bytes_down: Counter[str] = Counter()
        """By site, over all exchanges."""
        self.bytes_up: Counter[str] = Counter()

    def answers(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        """Put questions until each site has given an answer that can be believed, or was asked too often.

        Gives answers as they come, and in the end one for each site without any, with the last reason as a complaint.
        """
        begun, attempts, clients = time.perf_counter(), 0, 0
        down: Counter[str] = Counter()
        up: Counter[str] = Counter()
        dropped: list[tuple[str, str]] = []
        silent = dict.fromkeys(questions, "not asked")
        while silent and attempts < self.tries:
            if attempts:
                time.sleep(min(self.pause * 2.0 ** (attempts - 1), _LONGEST_PAUSE))
            patience = self.timeout * _LATER if attempts else self.timeout
            attempts += 1
            messages = {name: questions[name].content for name in silent}
            down.update({name: len(content) for name, content in messages.items()})
            silent = dict.fromkeys(messages, f"no answer within {patience:g} s")
            for name, outcome in self.transport.send(messages, patience):
                if name not in silent:
                    again = "another answer in the same exchange" if name in questions else "it was not asked"
                    dropped.append((name, again))
                    continue
                if isinstance(outcome, bytes):
                    up[name] += len(outcome)
                try:
                    answer = self._read(name, outcome, questions[name])
                except MessageError as error:
                    silent[name] = str(error)
                    continue
                except Exception as error:  # whatever a site makes up must not end the run of the others
                    silent[name] = f"an answer that cannot be read ({type(error).__name__})"
                    continue
                del silent[name]
                if answer.complaint is not None:
                    dropped.append((name, answer.complaint))
                else:
                    clients += answer.clients
                yield name, answer
            dropped += silent.items()
        tried = f"no answer in {attempts} tries"
        for name, why in silent.items():
            yield name, Answer("", -1, -1, None, tried if why.startswith("no answer within") else why)
        self.traffic.add(Traffic(1, max(down.values(), default=0), max(up.values(), default=0)))
        self.bytes_down.update(down)
        self.bytes_up.update(up)
        if self.watch is not None:
            title = " / ".join(dict.fromkeys(_title(question.query) for question in questions.values()))
            number, seconds = self.traffic.exchanges, time.perf_counter() - begun
            sent = down.total(), up.total()
            self.watch(Exchange(number, title, seconds, len(down), clients, attempts, *sent, tuple(dropped)))

    def _read(self, name: str, outcome: bytes | Exception, question: Question) -> Answer:
        """Read an answer, and believe it only if it can be true."""
        if isinstance(outcome, Exception):
            raise MessageError(" ".join(str(outcome).split()) or type(outcome).__name__)
        ask, query, answer = question.ask, question.query, unpack(outcome, Answer)
        if answer.complaint is not None:  # which people will read
            answer = dataclasses.replace(answer, complaint=readable(answer.complaint))
        # A site that could not even see what it was asked has only a complaint.
        unread = (answer.run, answer.exchange) == ("", -1) and answer.complaint is not None
        if answer.run != ask.run and not unread:
            raise MessageError("an answer from another run")
        if answer.exchange != ask.exchange and not unread:
            raise MessageError(f"an answer to exchange {answer.exchange}, not {ask.exchange}")
        if answer.complaint is not None:
            # Where only some clients are asked, a site may have too few of them, and its silence is an answer.
            partly = isinstance(query, Query) and ask.who is not None
            if answer.clients >= 0 and (isinstance(query, Enrol) or partly):
                return dataclasses.replace(answer, content=None)
            raise MessageError(f"it says: {answer.complaint}")
        check_answer(answer.content, query, question.sizes, len(ask.who) if isinstance(ask.who, np.ndarray) else 0)
        if isinstance(answer.content, Enrolled):
            check_enrolled(answer.content)
        else:
            self.check_counts(name, question, answer)
        return answer


def readable(text: str) -> str:
    """Make one line of a text from outside, of some length, with nothing in it that a terminal would obey."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= _LONGEST_TEXT else line[:_LONGEST_TEXT] + " ..."


def _title(query: Any) -> str:
    """Name a query as people read it."""
    parts = getattr(query, "parts", (query,))
    names = [type(part).__name__ for part in parts]
    return names[0] if len(names) == 1 else " + ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
