"""A run on disk: the journal of its replies.

Everything the server does is a function of the settings and of the replies it got. So a run is kept by writing
down each reply as it comes, and continued by reading them again: the algorithm runs as before, the journal answers
for as long as it can, and only then are the clients asked. The result is the same, bit for bit, wherever the run was
stopped, and no recipe has to know.

The file begins with a fingerprint of the data and the settings, so that a run is never continued with others. A
record is written behind its length and digest; a record that was cut off is as if it had not been written.
"""

import copy
import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, Self, cast

from .. import __version__
from ..core.arrays import Array
from ..core.errors import MixfedError, PoolError, SettingsError
from .base import PerClient, Query, R, T, Traffic
from .codec import decode, encode
from .pool import Pool, Roster, Who
from .registry import MESSAGES

_HEAD = struct.Struct("<Q16s")


class OtherRunError(SettingsError):
    """A journal is that of another run."""


class JournalPool:
    """A pool whose replies are kept in a file, and come from it as long as it has any."""

    def __init__(self, pool: Pool, path: Path, fingerprint: str, *, resume: bool) -> None:
        self.pool, self.path = pool, path
        self.dim, self.n_clients, self.traffic = pool.dim, pool.n_clients, copy.copy(pool.traffic)
        self._old = _read(path) if resume and path.exists() else []
        title = fingerprint.encode()
        if self._old and self._old[0] != title:
            raise OtherRunError(
                f"{path}: this run was started with other data or settings, or by another version: use the same, "
                "or start anew without --resume"
            )
        self._next = 1
        if self._old:
            whole = sum(_HEAD.size + len(record) for record in self._old)
            with path.open("r+b") as file:
                file.truncate(whole)  # what was cut off at the end goes
        else:
            try:
                with path.open("wb") as file:
                    _write(file, title)
            except OSError:  # there is no room for it
                path.unlink(missing_ok=True)
                raise
        self._file = path.open("ab")

    @property
    def roster(self) -> Roster:
        """The clients in the pool."""
        return self.pool.roster

    def ask(self, query: Query[Any, T], who: Who = None) -> T:
        """Give the reply of the journal or, after its end, of the clients."""
        return self._reply(lambda: self.pool.ask(query, who))

    def ask_each(self, query: PerClient[R], who: Array) -> R:
        """Give the replies of the journal or, after its end, of the anchors."""
        return self._reply(lambda: self.pool.ask_each(query, who))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Forget the run if it has ended, well or with an error that another try would repeat; else keep it."""
        self._file.close()
        if kind is None or (issubclass(kind, MixfedError) and not issubclass(kind, PoolError)):
            self.path.unlink(missing_ok=True)

    def _reply(self, fresh: Callable[[], T]) -> T:
        if self._next < len(self._old):
            entry: _Entry = decode(self._old[self._next], _MESSAGES)
            self._next += 1
        else:
            before = copy.copy(self.pool.traffic)
            reply = fresh()
            entry = _Entry(reply, self.pool.traffic.since(before))
            _write(self._file, encode(entry))
            self._file.flush()
        self.traffic.add(entry.traffic)
        return cast(T, entry.reply)


@dataclass(frozen=True, eq=False)
class _Entry:
    """What is written down of an exchange."""

    reply: Any
    traffic: Traffic
    """What it took."""


_MESSAGES = MESSAGES | {_Entry.__name__: _Entry}


class Described(Protocol):
    """What says by its digest whose rows it stands for."""

    @property
    def digest(self) -> str:
        """Of rows, owners and ids."""

    @property
    def features(self) -> tuple[str, ...]:
        """Their names."""


def fingerprint(clients: Described, *settings: object) -> str:
    """Summarise data, settings, version and what replies are made of, so that a change of any shows."""
    made_of = [(name, item.name, item.type) for name, kind in sorted(MESSAGES.items()) for item in fields(kind)]
    content = repr((__version__, made_of, clients.digest, clients.features, *settings))
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _write(file: Any, record: bytes) -> None:
    file.write(_HEAD.pack(len(record), hashlib.blake2b(record, digest_size=16).digest()) + record)


def _read(path: Path) -> list[bytes]:
    """Read the whole records of a journal, up to the first that was cut off."""
    content, records, place = path.read_bytes(), [], 0
    while place + _HEAD.size <= len(content):
        size, digest = _HEAD.unpack_from(content, place)
        record = content[place + _HEAD.size : place + _HEAD.size + size]
        if len(record) < size or hashlib.blake2b(record, digest_size=16).digest() != digest:
            break
        records.append(record)
        place += _HEAD.size + size
    return records
