"""Asking sites: until each has given an answer that can be believed, or was asked too often."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.arrays import Bytes
from ..exchange.base import Query, Traffic
from ..exchange.shapes import MessageError
from .messages import Answer, Ask, Enrol, Enrolled, check_answer, header_of, unpack
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
class SentQuery:
    """A query, whoever is asked."""

    query: Any
    content: Bytes
    """As it is sent."""
    sizes: Mapping[str, int]
    """What the letters in its shapes, and in those of its answer, stand for."""
    fitting: set[tuple[int, bytes]] = field(default_factory=set)
    """Headers of answers of so many single clients that were of the right types and shapes."""


@dataclass(frozen=True, eq=False)
class Question:
    """A question as it is put to a site."""

    about: SentQuery
    ask: Ask
    content: bytes


@dataclass
class Attempts:
    """What happens in one exchange."""

    bytes_down: dict[str, int] = field(default_factory=dict)
    bytes_up: dict[str, int] = field(default_factory=dict)
    dropped: list[tuple[str, str]] = field(default_factory=list)
    count: int = 0
    clients: int = 0
    """That the answers are about."""

    def down(self, messages: Mapping[str, bytes]) -> None:
        """Count what is sent."""
        for name, content in messages.items():
            self.bytes_down[name] = self.bytes_down.get(name, 0) + len(content)


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
        self.bytes_down: dict[str, int] = {}
        """By site, over all exchanges."""
        self.bytes_up: dict[str, int] = {}

    def answers(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        """Put questions until each site has given an answer that can be believed, or was asked too often.

        Gives answers as they come, and in the end one for each site without any, with the last reason as a complaint.
        """
        begun, said = time.perf_counter(), Attempts()
        silent = dict.fromkeys(questions, "not asked")
        while silent and said.count < self.tries:
            if said.count:
                time.sleep(min(self.pause * 2.0 ** (said.count - 1), _LONGEST_PAUSE))
            said.count += 1
            messages = {name: questions[name].content for name in silent}
            said.down(messages)
            patience = self.timeout if said.count == 1 else self.timeout * _LATER
            silent = dict.fromkeys(messages, f"no answer within {patience:g} s")
            for name, outcome in self.transport.send(messages, patience):
                if name not in silent:
                    again = "another answer in the same exchange" if name in questions else "it was not asked"
                    said.dropped.append((name, again))
                    continue
                try:
                    answer = self._heard(name, outcome, questions[name], said)
                except MessageError as error:
                    silent[name] = str(error)
                    continue
                except Exception as error:  # whatever a site makes up must not end the run of the others
                    silent[name] = f"an answer that cannot be read ({type(error).__name__})"
                    continue
                del silent[name]
                if answer.complaint is not None:
                    said.dropped.append((name, answer.complaint))
                else:
                    said.clients += answer.clients
                yield name, answer
            said.dropped += silent.items()
        tried = f"no answer in {said.count} tries"
        for name, why in silent.items():
            yield name, Answer("", -1, -1, None, tried if why.startswith("no answer within") else why)
        self._count(said, questions, time.perf_counter() - begun)

    def _heard(self, name: str, outcome: bytes | Exception, question: Question, said: Attempts) -> Answer:
        if isinstance(outcome, Exception):
            raise MessageError(" ".join(str(outcome).split()) or type(outcome).__name__)
        said.bytes_up[name] = said.bytes_up.get(name, 0) + len(outcome)
        return self._read(name, outcome, question)

    def _read(self, name: str, content: bytes, question: Question) -> Answer:
        """Read an answer, and believe it only if it can be true."""
        ask, query, answer = question.ask, question.about.query, unpack(content, Answer)
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
        # Messages with the same header have the same types and shapes.
        asked = len(ask.who) if isinstance(ask.who, np.ndarray) else 0
        look = asked, header_of(content)
        if look not in question.about.fitting:
            check_answer(answer.content, query, question.about.sizes, asked)
            question.about.fitting.add(look)
        if isinstance(answer.content, Enrolled):
            check_enrolled(answer.content)
        else:
            self.check_counts(name, question, answer)
        return answer

    def _count(self, said: Attempts, questions: Mapping[str, Question], seconds: float) -> None:
        self.traffic.exchanges += 1
        self.traffic.bytes_down += max(said.bytes_down.values(), default=0)
        self.traffic.bytes_up += max(said.bytes_up.values(), default=0)
        for total, own in ((self.bytes_down, said.bytes_down), (self.bytes_up, said.bytes_up)):
            for name, count in own.items():
                total[name] = total.get(name, 0) + count
        if self.watch is not None:
            self.watch(
                Exchange(
                    self.traffic.exchanges,
                    " / ".join(dict.fromkeys(_title(question.about.query) for question in questions.values())),
                    seconds,
                    len(said.bytes_down),
                    said.clients,
                    said.count,
                    sum(said.bytes_down.values()),
                    sum(said.bytes_up.values()),
                    tuple(said.dropped),
                )
            )


def readable(text: str) -> str:
    """Make one line of a text from outside, of some length, with nothing in it that a terminal would obey."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= _LONGEST_TEXT else line[:_LONGEST_TEXT] + " ..."


def _title(query: Any) -> str:
    """Name a query as people read it."""
    parts = getattr(query, "parts", (query,))
    names = [type(part).__name__ for part in parts]
    return names[0] if len(names) == 1 else " + ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
