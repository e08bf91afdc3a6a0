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

import copy
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, cast

import numpy as np

from ..core.arrays import Array, Ints
from ..core.errors import DataError, PoolError, SettingsError
from ..exchange.base import PerClient, Query, R, S, T
from ..exchange.pool import Roster, Sample, Who, joined
from ..exchange.shapes import MessageError, finite
from .asking import Asking, Exchange, Question, readable
from .messages import Answer, Ask, Conclude, Enrol, Enrolled, check_query, pack, pack_query
from .plausibility import Asked, check_plausible
from .transport import Transport

_NONE = np.empty(0, np.int64)


class SitesLostError(PoolError):
    """Members of the pool are gone."""

    def __init__(self, lost: Mapping[str, str]) -> None:
        super().__init__(f"lost {len(lost)} site{'s' * (len(lost) > 1)} ({_list(lost)})")
        self.lost = dict(lost)


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
        self.run = secrets.token_hex(8)
        self.asking = Asking(transport, timeout, tries, pause, self._check_counts, watch)
        self.traffic = self.asking.traffic
        self.absent = dict(absent or {})
        """Sites that do not take part, and why."""
        self.members: dict[str, Enrolled] = {}
        """The sites that take part, in the order of their names, and what they said of themselves."""
        self._small: set[Sample] = set()
        self._last: Question | None = None
        """What was asked last: many sites may be asked the same."""
        known = list(transport.names)
        self._intercept = intercept
        self._enrol(sorted(name for name in known if name not in self.absent), Enrol(roster))
        if len(self.members) < max(1, math.ceil(min_share * len(known) - 1e-9)):
            count, reasons = f"{len(self.members)} of {len(known)}", _list(self.absent)
            raise PoolError(f"{count} sites take part, at least {min_share:.0%} must ({reasons})")
        sites = self.members.values()
        self.features = next(iter(sites)).features
        """The names of the features, the intercept, if any, as the last."""
        self.dim = len(self.features)
        self.n_clients = sum(site.clients for site in sites)
        self.n_rows = sum(site.rows for site in sites)

    # ---------------------------------------------------------------- who is there

    @property
    def digest(self) -> str:
        """Says whose rows these are."""
        return repr([(name, site.digest) for name, site in self.members.items()])

    @cached_property
    def roster(self) -> Roster:
        """The clients that may be asked by their places, site by site."""
        sites = self.members.values()
        return Roster(np.concatenate([site.keys for site in sites]), np.concatenate([site.sizes for site in sites]))

    @cached_property
    def _edges(self) -> Ints:
        """The clients of member i have the places edges[i]:edges[i + 1] of the roster."""
        counts = [len(site.keys) for site in self.members.values()]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def _enrol(self, names: list[str], query: Enrol) -> None:
        found = dict(self.asking.answers(dict.fromkeys(names, self._question(query))))
        self.absent |= {name: answer.complaint for name, answer in found.items() if answer.complaint is not None}
        said = {name: found[name].content for name in names if name not in self.absent}
        # Most sites are right about what the features are; of as many, the first by name.
        features = [site.features for site in said.values()]
        usual = max(features, key=features.count, default=())
        for name in said:
            if said[name].features == usual:
                self.members[name] = said[name]
            else:
                others = f"its features are {', '.join(said[name].features)}, not {', '.join(usual)}"
                self.absent[name] = readable(others)

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
            elif total is None:
                total = copy.deepcopy(answer.content)  # to which the others are added
            else:
                total += answer.content
        return total, refused

    def ask_each(self, query: PerClient[R], who: Array) -> R:
        """Ask the clients at places ``who`` one by one, through their sites; replies come in that order."""
        if len(self.roster.keys) == 0:
            raise SettingsError("no site lets its clients answer one by one: take anchors = 'summed'")
        order = np.concatenate([which for which, _ in self._split(np.asarray(who)).values()])
        replies = [cast(R, answer.content) for answer in self._exchange(query, who)]
        return joined(replies, np.argsort(order))

    def conclude(self, model: str) -> dict[str, str]:
        """Give all members the model (the content of ``model.json``). Gives those who did not take it, and why."""
        answers = self.asking.answers(dict.fromkeys(self.members, self._question(Conclude(model))))
        return {name: answer.complaint for name, answer in answers if answer.complaint is not None}

    def _question(self, query: Any, who: Ints | Sample | None = None) -> Question:
        if self._last is not None and self._last.query is query:
            sizes, content = self._last.sizes, self._last.ask.content
        else:
            sizes = check_query(query, self.dim) if isinstance(query, Query | PerClient) else {}
            content = pack_query(query)
        ask = Ask(self.run, self.traffic.exchanges + 1, self._intercept, content, who)
        self._last = Question(query, sizes, ask, pack(ask))
        return self._last

    def _split(self, who: Array) -> dict[str, tuple[Array, Ints]]:
        """Say for each member with anybody of ``who`` (c,) which of them these are, and at which of its places."""
        home = np.searchsorted(self._edges, who, side="right") - 1
        names, order = list(self.members), np.argsort(home, kind="stable")
        parts: dict[str, tuple[Array, Ints]] = {}
        for which in np.split(order, np.flatnonzero(np.diff(home[order])) + 1) if len(order) else ():
            place = home[which[0]]
            parts[names[place]] = which, (who[which] - self._edges[place]).astype(np.int64)
        return parts

    def _exchange(self, query: Query[Any, Any] | PerClient[Any], who: Who) -> Iterator[Answer]:
        """Put a question to everybody it concerns, and give the answers in the order of the sites' names.

        Each is given as soon as it is its turn. Unless every site answers, `SitesLostError` is raised in the end.
        """
        if not finite(query):
            raise DataError("the numbers of the fit are no longer finite: some site's sums cannot be right")
        if who is None or isinstance(who, Sample):
            questions = dict.fromkeys(self.members, self._question(query, who))
        else:
            questions = {
                name: self._question(query.part(which) if isinstance(query, PerClient) else query, places)
                for name, (which, places) in self._split(np.asarray(who)).items()
            }
        early: dict[str, Answer] = {}
        lost: dict[str, str] = {}
        turns = list(reversed(questions))
        for name, answer in self.asking.answers(questions):
            if answer.clients < 0 and answer.complaint is not None:
                lost[name] = answer.complaint
                continue
            early[name] = answer
            while turns and turns[-1] in early:
                yield early.pop(turns.pop())
        if lost:
            raise SitesLostError(lost)

    def _check_counts(self, name: str, question: Question, answer: Answer) -> None:
        """See that an answer is about as many clients and rows as there can be."""
        site, who = self.members[name], question.ask.who
        sizes = site.sizes[who] if isinstance(who, np.ndarray) else _NONE
        clients, rows = (len(sizes), int(sizes.sum())) if isinstance(who, np.ndarray) else (site.clients, site.rows)
        least = (0, 0) if isinstance(who, Sample) else (clients, rows)
        if not least[0] <= answer.clients <= clients:
            raise MessageError(f"an answer about {answer.clients} clients, when {clients} were asked")
        asked = Asked(answer.clients, (least[1], rows), sizes, self.n_rows)
        check_plausible(answer.content, question.query, asked)


def _list(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items())) or "nobody is there"
