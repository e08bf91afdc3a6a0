"""Clients at sites: the pool whose exchanges are messages.

A pool has a definite set of members, the sites that enrolled, and every exchange is about all of them. So every total
is that of the same clients and the result is the one that `LocalPool` would give for their rows, whoever was late:

* a site that is silent, or whose answer is bad, is asked again; an answer depends on the question alone, so it does not
  matter which attempt brought it;
* a site that stays silent is lost, and with it the pool: `SitesLostError` says so, and a new pool has new members;
* totals are added in the order of the sites' names, so they do not depend on who was first.

Answers are believed only as far as they can be checked: version, run, exchange, types, shapes, finite numbers, and as
many clients and rows as the site has.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from ..core.arrays import Array, Bytes, Ints
from ..core.errors import DataError, PoolError, SettingsError
from ..exchange.base import Each, Query, R, S, T, Traffic
from ..exchange.codec import MessageError, finite
from ..exchange.pool import Roster, Sample, Who, joined
from .messages import (
    Answer,
    Ask,
    Conclude,
    Enrol,
    Enrolled,
    check_answer,
    check_query,
    header_of,
    pack,
    pack_query,
    unpack,
)
from .plausibility import Asked, check_enrolled, weigh
from .transport import Transport

_LATER = 0.25
"""Share of the time-out that a site gets when it is asked again: it has been at work since the first time."""
_LONGEST_PAUSE = 5.0
_NONE = np.empty(0, np.int64)
_LONGEST_TEXT = 300
"""Letters of a site's complaint that are read."""


class SitesLostError(PoolError):
    """Members of the pool are gone."""

    def __init__(self, lost: Mapping[str, str]) -> None:
        super().__init__(f"lost {len(lost)} site{'s' * (len(lost) > 1)} ({_list(lost)})")
        self.lost = dict(lost)


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
class _Query:
    """A query, whoever is asked."""

    query: Any
    content: Bytes
    """As it is sent."""
    sizes: Mapping[str, int]
    """What the letters in its shapes, and in those of its answer, stand for."""
    fitting: set[tuple[int, bytes]] = field(default_factory=set)
    """Headers of answers of so many single clients that were of the right types and shapes."""


@dataclass(frozen=True, eq=False)
class _Question:
    """A question as it is put to a site."""

    about: _Query
    ask: Ask
    content: bytes


@dataclass
class _Attempts:
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


class FederatedPool:
    """All clients of the sites that take part.

    All sites of the transport may, but those ``absent``, for a reason that is given for each. A site is asked ``tries``
    times before it is lost, the first time for ``timeout`` seconds. Unless ``min_share`` of the sites enrol, there is
    no pool. With ``roster=False`` the server learns nothing of single clients, and they cannot be asked one by one.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        absent: Mapping[str, str] | None = None,
        intercept: bool = True,
        roster: bool = True,
        timeout: float = 30.0,
        tries: int = 8,
        pause: float = 0.05,
        min_share: float = 0.5,
        watch: Callable[[Exchange], None] | None = None,
    ) -> None:
        self.transport, self.timeout, self.tries, self.pause, self.watch = transport, timeout, tries, pause, watch
        self.run = secrets.token_hex(8)
        self.traffic = Traffic()
        self.bytes_down: dict[str, int] = {}
        """By site, over all exchanges."""
        self.bytes_up: dict[str, int] = {}
        self.absent = dict(absent or {})
        """Sites that do not take part, and why."""
        self._members: dict[str, Enrolled] = {}
        self._small: set[Sample] = set()
        self._about: _Query | None = None
        """The last that was sent: many sites may be asked the same."""
        known = list(transport.names)
        self._intercept = intercept
        self._enrol(sorted(name for name in known if name not in self.absent), Enrol(roster))
        if len(self._members) < max(1, math.ceil(min_share * len(known) - 1e-9)):
            count, reasons = f"{len(self._members)} of {len(known)}", _list(self.absent)
            raise PoolError(f"{count} sites take part, at least {min_share:.0%} must ({reasons})")

    # ---------------------------------------------------------------- who is there

    @property
    def members(self) -> Mapping[str, Enrolled]:
        """The sites that take part, in the order of their names, and what they said of themselves."""
        return self._members

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The names of the features, the intercept, if any, as the last."""
        return next(iter(self._members.values())).features

    @property
    def dim(self) -> int:
        """Number of features."""
        return len(self.features)

    @property
    def digest(self) -> str:
        """Says whose rows these are."""
        return repr([(name, site.digest) for name, site in self._members.items()])

    @cached_property
    def n_clients(self) -> int:
        """Number of clients."""
        return sum(site.clients for site in self._members.values())

    @cached_property
    def n_rows(self) -> int:
        """Number of rows of all clients."""
        return sum(site.rows for site in self._members.values())

    @cached_property
    def roster(self) -> Roster:
        """The clients that may be asked by their places, site by site."""
        sites = self._members.values()
        return Roster(np.concatenate([site.keys for site in sites]), np.concatenate([site.sizes for site in sites]))

    @cached_property
    def _edges(self) -> Ints:
        """The clients of member i have the places edges[i]:edges[i + 1] of the roster."""
        counts = [len(site.keys) for site in self._members.values()]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def _enrol(self, names: list[str], query: Enrol) -> None:
        found = dict(self._answers(dict.fromkeys(names, self._question(query))))
        self.absent |= {name: answer.complaint for name, answer in found.items() if answer.complaint is not None}
        said = {name: found[name].content for name in names if name not in self.absent}
        # Most sites are right about what the features are; of as many, the first by name.
        features = [site.features for site in said.values()]
        usual = max(features, key=features.count, default=())
        for name in said:
            if said[name].features == usual:
                self._members[name] = said[name]
            else:
                self.absent[name] = _readable(
                    f"its features are {', '.join(said[name].features)}, not {', '.join(usual)}"
                )

    # ---------------------------------------------------------------- exchanges

    def ask(self, query: Query[Any, T], who: Who = None) -> T:
        """Ask all sites, or those that have some of the clients, and add up their answers."""
        if isinstance(who, Sample) and who in self._small:
            who = None
        total, refused = self._total(query, who)
        if refused and isinstance(who, Sample):
            # Some site may not speak for so few of its clients: then all are asked, here and from now on.
            self._small.add(who)
            total, _ = self._total(query, None)
        if total is None:
            raise PoolError("no site may speak for so few of its clients: lower min_clients, or ask more clients")
        return query.finish(total)

    def _total(self, query: Query[S, Any], who: Who) -> tuple[S | None, bool]:
        """Add up the answers, and say whether some site would not speak for those of its clients that were asked."""
        total: S | None = None
        refused = False
        for answer in self._exchange(query, who):
            if answer.complaint is not None:
                refused |= answer.clients > 0
            else:
                if total is None:
                    total = copy.deepcopy(answer.content)  # to which the others are added
                else:
                    total += answer.content
        return total, refused

    def ask_each(self, query: Each[R], who: Array) -> R:
        """Ask the clients at places ``who`` one by one, through their sites; replies come in that order."""
        if len(self.roster.keys) == 0:
            raise SettingsError("no site lets its clients answer one by one: take anchors = 'summed'")
        order = np.concatenate([which for which, _ in self._split(np.asarray(who)).values()])
        replies = [cast(R, answer.content) for answer in self._exchange(query, who)]
        return joined(replies, np.argsort(order))

    def conclude(self, model: str) -> dict[str, str]:
        """Give all members the model (the content of ``model.json``). Gives those who did not take it, and why."""
        answers = self._answers(dict.fromkeys(self._members, self._question(Conclude(model))))
        return {name: answer.complaint for name, answer in answers if answer.complaint is not None}

    def _question(self, query: Any, who: Ints | Sample | None = None) -> _Question:
        if self._about is None or self._about.query is not query:
            sizes = check_query(query, self.dim) if isinstance(query, Query | Each) else {}
            self._about = _Query(query, pack_query(query), sizes)
        ask = Ask(self.run, self.traffic.exchanges + 1, self._intercept, self._about.content, who)
        return _Question(self._about, ask, pack(ask))

    def _split(self, who: Array) -> dict[str, tuple[Array, Ints]]:
        """Say for each member with anybody of ``who`` (c,) which of them these are, and at which of its places."""
        home = np.searchsorted(self._edges, who, side="right") - 1
        names, order = list(self._members), np.argsort(home, kind="stable")
        parts: dict[str, tuple[Array, Ints]] = {}
        if len(order) == 0:
            return parts
        for which in np.split(order, np.flatnonzero(np.diff(home[order])) + 1):
            place = home[which[0]]
            parts[names[place]] = which, (who[which] - self._edges[place]).astype(np.int64)
        return parts

    def _exchange(self, query: Query[Any, Any] | Each[Any], who: Who) -> Iterator[Answer]:
        """Put a question to everybody it concerns, and give the answers in the order of the sites' names.

        Each is given as soon as it is its turn. Unless every site answers, `SitesLostError` is raised in the end.
        """
        if not finite(query):
            raise DataError("the numbers of the fit are no longer finite: some site's sums cannot be right")
        if who is None or isinstance(who, Sample):
            questions = dict.fromkeys(self._members, self._question(query, who))
        else:
            questions = {
                name: self._question(query.part(which) if isinstance(query, Each) else query, places)
                for name, (which, places) in self._split(np.asarray(who)).items()
            }
        early: dict[str | None, Answer] = {}
        lost: dict[str, str] = {}
        turns = iter(questions)
        turn = next(turns, None)
        for name, answer in self._answers(questions):
            if answer.clients < 0 and answer.complaint is not None:
                lost[name] = answer.complaint
                continue
            early[name] = answer
            while turn in early:
                yield early.pop(turn)
                turn = next(turns, None)
        if lost:
            raise SitesLostError(lost)

    def _answers(self, questions: Mapping[str, _Question]) -> Iterator[tuple[str, Answer]]:
        """Put questions until each site has given an answer that can be believed, or was asked too often.

        Gives answers as they come, and in the end one for each site without any, with the last reason as a complaint.
        """
        begun, said = time.perf_counter(), _Attempts()
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
            yield name, Answer(self.run, -1, -1, None, tried if why.startswith("no answer within") else why)
        self._count(said, questions, time.perf_counter() - begun)

    def _heard(self, name: str, outcome: bytes | Exception, question: _Question, said: _Attempts) -> Answer:
        if isinstance(outcome, Exception):
            raise MessageError(" ".join(str(outcome).split()) or type(outcome).__name__)
        said.bytes_up[name] = said.bytes_up.get(name, 0) + len(outcome)
        return self._read(name, outcome, question)

    def _read(self, name: str, content: bytes, question: _Question) -> Answer:
        """Read an answer, and believe it only if it can be true."""
        ask, query, answer = question.ask, question.about.query, unpack(content, Answer)
        if answer.complaint is not None:  # which people will read
            answer = dataclasses.replace(answer, complaint=_readable(answer.complaint))
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
            self._check_counts(name, question, answer)
        return answer

    def _check_counts(self, name: str, question: _Question, answer: Answer) -> None:
        """See that an answer is about as many clients and rows as there can be."""
        site, ask = self._members[name], question.ask
        clients, rows = (site.clients, site.clients), (site.rows, site.rows)
        sizes = _NONE
        if isinstance(ask.who, Sample):
            clients, rows = (0, site.clients), (0, site.rows)
        elif ask.who is not None:
            sizes = site.sizes[ask.who]
            total = int(sizes.sum())
            clients, rows = (len(sizes), len(sizes)), (total, total)
        if not clients[0] <= answer.clients <= clients[1]:
            raise MessageError(f"an answer about {answer.clients} clients, when {clients[1]} were asked")
        weigh(answer.content, question.about.query, Asked(answer.clients, rows, sizes, self.n_rows))

    def _count(self, said: _Attempts, questions: Mapping[str, _Question], seconds: float) -> None:
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


def _readable(text: str) -> str:
    """Make one line of a text from outside, of some length, with nothing in it that a terminal would obey."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= _LONGEST_TEXT else line[:_LONGEST_TEXT] + " ..."


def _list(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items())) or "nobody is there"


def _title(query: Any) -> str:
    """Name a query as people read it."""
    parts = getattr(query, "parts", (query,))
    names = [type(part).__name__ for part in parts]
    return names[0] if len(names) == 1 else " + ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
