"""The owner's rules: which questions a site answers, and what of an answer it withholds.

A sum over few clients tells of each of them, and so does the difference of two sums over groups that differ by few.
Samples are nested: those of one seed and the shares s_1 < s_2 < ... cut a site's clients into rings, whose sums are
differences of answers. So a site keeps, for each data set, the one seed and the shares that it has answered, and takes
another share only if no ring then holds few clients.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...clients.store import ClientData
from ...core.arrays import Array, Ints
from ...core.errors import MixfedError, SettingsError
from ...core.files import locked, write_json
from ...exchange.base import Batch, BatchReply
from ...exchange.mixture import SplitMoments
from ...exchange.moments import PairMoments, PairSum
from ...exchange.pool import Sample
from ...exchange.random_effects import LeaveOut, LeftOutSum
from ...exchange.shapes import MessageError

_RUNS = 100
"""Runs in which clients were listed that are remembered."""


class RefusalError(MixfedError):
    """What the owner's rules do not allow."""

    def __init__(self, reason: str, clients: int) -> None:
        super().__init__(reason)
        self.clients = clients


@dataclass
class _Asked:
    """What was asked of one data set."""

    seed: int | None = None
    shares: list[float] = field(default_factory=list)
    """Ascending."""
    runs: list[str] = field(default_factory=list)
    """In which clients were listed."""


class Rules:
    """What may be asked of a site's clients.

    What was asked is kept in the file ``memory``, or only as long as this object if there is none.
    """

    def __init__(self, clients: ClientData, min_clients: int, memory: Path | None) -> None:
        self.clients, self.min_clients, self.memory = clients, min_clients, memory
        self._asked: dict[str, _Asked] = {}
        """By the digest of the data."""

    def listed(self, run: str) -> None:
        """Take note that clients were listed in a run, and may be asked by their places in it."""
        with self._remembered() as asked:
            asked.runs = [*(known for known in asked.runs if known != run), run][-_RUNS:]

    def check_places(self, run: str, who: Array) -> None:
        """See that clients are asked by their places only as they were listed, and each once."""
        if run not in self._known.runs and run not in self._read().runs:
            raise MessageError("clients by their places, when this site has listed none in this run")
        if len(set(who.tolist())) < len(who) or (len(who) and not 0 <= who.min() <= who.max() < self.clients.n_clients):
            raise MessageError("clients that this site does not have, or one of them twice")

    def check_count(self, clients: int) -> None:
        """See that a sum is over enough clients."""
        if clients < self.min_clients:
            raise RefusalError(f"a sum over {clients} clients, below min_clients = {self.min_clients}", clients)

    def check_sample(self, sample: Sample, clients: int) -> None:
        """See that a sample of so many clients, with all samples that were answered, gives no sum over few."""
        if self.min_clients <= 1 or clients == self.clients.n_clients:
            return
        known = self._known
        if known.seed == sample.seed and sample.share in known.shares:
            return
        with self._remembered() as asked:
            if asked.seed not in (None, sample.seed):
                raise RefusalError("a sample by another seed than the first of these clients", clients)
            shares = sorted({*asked.shares, sample.share})
            ring = np.searchsorted(shares, sample.draws(self.clients.keys), side="right")
            # What is said of pairs of rows is about clients with two or more, if it is said at all.
            for counts in (np.bincount(ring), np.bincount(ring[self.clients.rows >= 2])):
                few = (counts > 0) & (counts < self.min_clients)
                if counts.sum() >= self.min_clients and np.any(few):
                    raise RefusalError(
                        f"a sample that differs from others by fewer than min_clients = {self.min_clients}", clients
                    )
            asked.seed = sample.seed
            # A share with the same clients as another tells nothing new, and there is no end of such.
            place = shares.index(sample.share)
            if np.any(ring == place) and np.any(ring == place + 1):
                asked.shares = shares

    def withheld(self, query: Any, reply: Any, rows: Ints) -> Any:
        """Leave out what is about clients with two rows or more alone, or about small ones, if they are too few.

        rows (a,): of the clients that were asked.
        """
        if isinstance(query, Batch):
            pairs = zip(query.parts, reply.parts, strict=True)
            return BatchReply(tuple(self.withheld(part, said, rows) for part, said in pairs))
        of_pairs = isinstance(query, SplitMoments | LeaveOut) or (isinstance(query, PairMoments) and not query.lone)
        if self.min_clients <= 1 or not of_pairs:
            return reply
        paired = int(np.sum(rows >= 2))
        if not isinstance(query, LeaveOut):
            return reply if self._enough(paired) else PairSum(np.zeros_like(reply.moments), 0)
        small = int(np.sum((rows >= 2) & (rows <= query.small)))
        kept = np.array([self._enough(paired), self._enough(small) and self._enough(paired - small)])
        return LeftOutSum(reply.squares * kept, reply.rows * kept)

    def _enough(self, clients: int) -> bool:
        """Say whether so many clients may be summed, or nobody is."""
        return clients == 0 or clients >= self.min_clients

    # ---------------------------------------------------------------- what was asked

    @property
    def _known(self) -> _Asked:
        """What this process knows of it."""
        return self._asked.setdefault(self.clients.digest, _Asked())

    def _read(self) -> _Asked:
        """Read what was asked of these data, by whichever process."""
        if self.memory is not None:
            with contextlib.suppress(FileNotFoundError):
                try:
                    table = json.loads(self.memory.read_text(encoding="utf-8"))
                    self._asked = {digest: _Asked(**asked) for digest, asked in table.items()}
                except (ValueError, TypeError, AttributeError) as error:
                    raise SettingsError(
                        f"{self.memory}: damaged ({error}): it holds which samples were answered; put it back"
                    ) from error
        return self._known

    @contextlib.contextmanager
    def _remembered(self) -> Iterator[_Asked]:
        """Change what was asked, and write it down before anything is answered; one process at a time."""
        with contextlib.ExitStack() as stack:
            if self.memory is not None:
                self.memory.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.memory.parent))
            asked = self._read()
            yield asked
            if self.memory is not None:
                write_json(self.memory, {digest: vars(some) for digest, some in self._asked.items()})
