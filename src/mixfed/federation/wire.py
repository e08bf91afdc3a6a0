"""What travels between the server and a site.

Every message is a mark, the version of the format, and a message of `messages`: names, dtypes, shapes, arrays; no code.
The server sends an `Ask`, a site gives an `Answer`, and an answer belongs to one exchange of one run.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast, get_args

from .. import messages
from ..arrays import Ints, Keys
from ..candidates import Expect
from ..deviations import Deviate
from ..exchange import Each, Query, Replies, Together
from ..messages import MessageError
from ..pool import Sample

VERSION = 4
"""Of the wire format and of what the messages mean: sums of different versions must not be added."""
LIMIT = 1 << 28
"""Bytes of a message, at most."""
_HEAD = struct.Struct("<6sH")
_MARK = b"mixfed"
M = TypeVar("M")


@dataclass(frozen=True)
class Enrol:
    """Ask a site to take part in a run."""

    roster: bool
    """Whether clients are to be asked by their places: anchors one by one, recruits in groups."""


@dataclass(frozen=True, eq=False)
class Enrolled:
    """What the server must know of a site."""

    features: tuple[str, ...]
    clients: int
    rows: int
    digest: str
    """Of the site's data, so that a run is never continued with other data."""
    keys: Annotated[Keys, "m"]
    """The clients' keys, or pseudonyms of them, if they may be asked by their places; else none."""
    sizes: Annotated[Ints, "m"]
    """Their rows."""


@dataclass(frozen=True)
class Conclude:
    """Give a site the model, for it to find the kinds of its own clients; they stay there."""

    model: str
    """The content of ``model.json``."""


@dataclass(frozen=True)
class Concluded:
    """The site has the model."""

    clients: int


@dataclass(frozen=True, eq=False)
class Ask:
    """A question to a site."""

    run: str
    exchange: int
    intercept: bool
    """Whether models have a constant term."""
    query: Any
    """A `Query`, an `Each`, an `Enrol` or a `Conclude`."""
    who: Annotated[Ints, "?"] | Sample | None
    """Clients by their places at the site, a share of them, or all."""


@dataclass(frozen=True, eq=False)
class Answer:
    """A site's answer: a content, or the reason why there is none."""

    run: str
    exchange: int
    clients: int
    """Clients that the content is about; -1 if the question could not be answered at all."""
    content: Any
    complaint: str | None = None


_KINDS = messages.KINDS | {kind.__name__: kind for kind in (Enrol, Enrolled, Conclude, Concluded, Ask, Answer, Sample)}


def pack(message: Ask | Answer) -> bytes:
    """Turn a message into the bytes that travel."""
    return messages.encode(message, _HEAD.pack(_MARK, VERSION))


def unpack(content: bytes, kind: type[M]) -> M:
    """Turn bytes, from wherever they came, into a message of a kind; what it holds is still to be checked."""
    if len(content) > LIMIT:
        raise MessageError(f"a message of {len(content)} bytes, more than the {LIMIT} that are allowed")
    if len(content) < _HEAD.size or content[: len(_MARK)] != _MARK:
        raise MessageError("not a message of mixfed")
    _, version = _HEAD.unpack_from(content)
    if version != VERSION:
        raise MessageError(
            f"version {version} of the wire format, not {VERSION}: all parties need the same version of mixfed"
        )
    return cast(M, messages.decode(memoryview(content)[_HEAD.size :], _KINDS, kind, only_finite=True))


def header_of(content: bytes) -> bytes:
    """Give the header of a message that could be read: all about it but its numbers."""
    return messages.header_of(memoryview(content)[_HEAD.size :])


def check_query(query: Any, columns: int, asked: int) -> dict[str, int]:
    """See that a query can be answered by a site, and give the sizes that the letters in its shapes stand for.

    ``columns`` (D) is what the site has, ``asked`` the number of clients asked one by one.
    """
    if not isinstance(query, Query | Each):
        raise MessageError(f"a {type(query).__name__} in the place of a query")
    sizes = {"D": columns}
    if isinstance(query, Together):  # in which a letter of one query has nothing to do with that of another
        for part in query.parts:
            check_query(part, columns, asked)
        return sizes
    if isinstance(query, Each):
        sizes["h"] = asked
    messages.check(query, type(query), sizes, bind=True)
    if isinstance(query, Expect | Deviate):
        sizes["w"] = query.width
    if not all(sizes[letter] for letter in sizes.keys() - {"h", "i"}):
        raise MessageError("a query about nothing")
    informed = getattr(query, "informed", ())
    if len(set(informed)) < len(informed) or not set(informed) <= set(range(sizes.get("C", 0))):
        raise MessageError("information about candidates that there are not, or about one twice")
    return sizes


def check_answer(content: Any, query: Any, sizes: dict[str, int]) -> None:
    """See that a content is what the query asks for."""
    if isinstance(query, Together):
        messages.check(content, Replies, sizes, bind=False)
        if len(content.parts) != len(query.parts):
            raise MessageError(f"{len(content.parts)} replies to {len(query.parts)} queries")
        for part, asked in zip(content.parts, query.parts, strict=True):
            check_answer(part, asked, check_query(asked, sizes["D"], 0))
        return
    messages.check(content, _reply_kind(cast(Any, type(query))), dict(sizes), bind=isinstance(query, Enrol))


@lru_cache
def _reply_kind(query: type[Any]) -> type[Any]:
    """Find the S of a ``Query[S]``."""
    if query in (Enrol, Conclude):
        return Enrolled if query is Enrol else Concluded
    return cast(type[Any], get_args(query.__orig_bases__[0])[0])
