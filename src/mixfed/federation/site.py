"""A site: clients and their owner's rules. It answers the server and knows of no engine.

A site holds one client or a hundred thousand, and adds up their answers before it replies. What it never sends are
rows, labels of clients, and sums over fewer clients than its owner allows.
"""

import dataclasses
import hashlib
import logging
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..clients.local import LocalPool
from ..clients.store import ClientData
from ..core.arrays import Keys
from ..core.errors import MixfedError
from ..core.names import CLIENTS, MODEL
from ..exchange.base import PerClient
from ..exchange.pool import Sample
from ..model.model import Model
from ..recipes.settings import AnchorsName
from ..tables.rows import with_intercept
from ..tables.write import write_parquet
from .messages import Answer, Ask, Conclude, Concluded, Enrol, Enrolled, check_asked, check_query, pack, unpack
from .privacy.rules import RefusalError, Rules

_log = logging.getLogger(__name__)


class Site:
    """The clients of one owner, and what may be asked of them.

    Sums over fewer than ``min_clients`` clients are refused, and samples that differ by fewer. With
    ``anchors="summed"`` clients are neither listed nor asked by their places. With a ``secret`` the server knows
    clients by pseudonyms that nobody else can trace back to their ids. When a run ends, the kinds of the site's
    clients are written to the folder ``out``, with a model that knows the site's ``columns`` for client and target;
    what must not be forgotten of what was asked is kept there, too. ``log`` is told of every question.
    """

    def __init__(
        self,
        clients: ClientData,
        *,
        min_clients: int = 1,
        anchors: AnchorsName = "single",
        secret: bytes | None = None,
        out: Path | None = None,
        columns: tuple[str | None, str | None] = (None, None),
        log: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.clients, self.min_clients, self.anchors, self.secret = clients, min_clients, anchors, secret
        self.out, self.columns, self.log = out, columns, log
        self.rules = Rules(clients, min_clients, None if out is None else out / "asked.json")
        self._pools: dict[bool, LocalPool] = {}
        """With and without a constant term."""
        self._last = b"", b""
        self._one_at_a_time = threading.Lock()

    def answer(self, content: bytes) -> bytes:
        """Answer a question. Whatever comes in, an answer goes out."""
        with self._one_at_a_time:
            # A question that is asked again, because the answer came late or got lost, is not worked out again.
            known, packed = self._last
            if content != known:
                answer = self._answer(content)
                packed = pack(answer)
                if answer.clients >= 0:  # what failed may do better the next time
                    self._last = content, packed
            return packed

    def _answer(self, content: bytes) -> Answer:
        run, exchange, kind = "", -1, "unreadable"
        clients, found, complaint = -1, None, None
        try:
            ask = _read(content)
            run, exchange, kind = ask.run, ask.exchange, type(ask.query).__name__
            clients, found = self._reply(ask)
        except RefusalError as refusal:
            clients, complaint = refusal.clients, str(refusal)
        except MixfedError as error:
            complaint = str(error)
        except Exception as error:  # a site must outlive any question, and its owner wants to know of it
            _log.exception("a question (%s) cannot be answered", kind)
            complaint = f"the question cannot be answered ({type(error).__name__})"
        if self.log is not None:
            asked = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "run": run, "exchange": exchange, "question": kind}
            self.log(asked | {"clients": clients, "complaint": complaint})
        return Answer(run, exchange, clients, found, complaint)

    def _reply(self, ask: Ask) -> tuple[int, Any]:
        """Give the number of clients that are asked, and what they say."""
        pool = self._pool(ask.intercept)
        if isinstance(ask.query, Enrol):
            return self._enrol(ask, pool)
        if isinstance(ask.query, Conclude):
            return self._conclude(ask.query)
        if isinstance(ask.who, np.ndarray):
            self.rules.check_places(ask.run, ask.who)
        clients = len(ask.who) if isinstance(ask.who, np.ndarray) else pool.asked(ask.who).n_clients
        check_asked(ask.query, check_query(ask.query, pool.dim), clients)
        if isinstance(ask.query, PerClient):
            if self.anchors == "summed" or not isinstance(ask.who, np.ndarray):
                raise RefusalError("clients of this site are not asked one by one", clients)
            return clients, pool.answer_each(ask.query, ask.who)
        self.rules.check_count(clients)
        if isinstance(ask.who, Sample):
            self.rules.check_sample(ask.who, clients)
        return clients, self.rules.withheld(ask.query, pool.answer(ask.query, ask.who), pool.asked(ask.who).rows)

    def _pool(self, intercept: bool) -> LocalPool:
        if intercept not in self._pools:
            names = self.clients.features[: self.clients.dim - self.clients.intercept]
            clients = dataclasses.replace(self.clients, features=with_intercept(names, intercept))
            self._pools[intercept] = LocalPool(clients)
        return self._pools[intercept]

    def _enrol(self, ask: Ask, pool: LocalPool) -> tuple[int, Enrolled]:
        clients = pool.clients
        if clients.n_clients < self.min_clients:
            raise RefusalError(
                f"{clients.n_clients} clients, below min_clients = {self.min_clients}: this site contributes nothing",
                clients.n_clients,
            )
        listed = ask.query.roster and self.anchors == "single"
        if listed:
            self.rules.listed(ask.run)
        content = f"{self.clients.digest} {listed}"  # a run in which clients were asked alone cannot go on without
        return clients.n_clients, Enrolled(
            clients.features,
            clients.n_clients,
            clients.n_rows,
            hashlib.blake2b(content.encode(), key=self.secret or b"", digest_size=16).hexdigest(),
            self._pseudonyms(clients.keys) if listed else np.empty(0, np.uint64),
            clients.rows if listed else np.empty(0, np.int64),
        )

    def _pseudonyms(self, keys: Keys) -> Keys:
        """Hide keys (c,), which anybody can work out from ids, behind the site's secret."""
        if self.secret is None:
            return keys
        hidden = (hashlib.blake2b(key, key=self.secret, digest_size=8).digest() for key in keys)
        return np.frombuffer(b"".join(hidden), np.uint64)

    def _conclude(self, query: Conclude) -> tuple[int, Concluded]:
        if self.out is not None:
            client, target = self.columns
            model = Model.from_json(query.model, "the server's model")
            model = dataclasses.replace(model, client_column=client, target_column=target)
            clients = self._pool(model.has_intercept).clients
            self.out.mkdir(parents=True, exist_ok=True)
            (self.out / MODEL).unlink(missing_ok=True)
            write_parquet(self.out / CLIENTS, model.assign(clients).columns())
            model.save(self.out / MODEL)
        return self.clients.n_clients, Concluded(self.clients.n_clients)


@lru_cache(maxsize=1)
def _read(content: bytes) -> Ask:
    """Read a question, once for sites in one process that are asked the same."""
    return unpack(content, Ask)
