"""What travels between the server and a site.

Every message is a mark, the version of the format, and a message by `exchange.codec`: names, dtypes, shapes, arrays; no
code. The server sends an `Ask`, a site gives an `Answer`, and an answer belongs to one exchange of one run.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, TypeVar, cast, get_args

import numpy as np

from ..core.arrays import Bytes, Ints, Keys
from ..exchange import codec, shapes
from ..exchange.base import ASKED_AT_ONCE, Batch, BatchReply, PerClient, Query
from ..exchange.census import Census
from ..exchange.mixture import MixtureSums, SplitMoments
from ..exchange.moments import PairMoments
from ..exchange.pool import Sample
from ..exchange.random_effects import RandomEffectsSums
from ..exchange.registry import MESSAGES
from ..exchange.shapes import MessageError

VERSION = 8
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
    content: Annotated[Bytes, "?"]
    """The query, a message of its own: whoever is asked, it is packed once, and read once by sites in one process."""
    who: Annotated[Ints, "?"] | Sample | None
    """Clients by their places at the site, a share of them, or all."""

    @cached_property
    def query(self) -> Any:
        """A `Query`, a `PerClient`, an `Enrol` or a `Conclude`."""
        return _query(self.content.tobytes())


@dataclass(frozen=True, eq=False)
class Answer:
    """A site's answer: a content, or the reason why there is none."""

    run: str
    exchange: int
    clients: int
    """Clients that the content is about; -1 if the question could not be answered at all."""
    content: Any
    complaint: str | None = None


_MESSAGES = MESSAGES | {kind.__name__: kind for kind in (Enrol, Enrolled, Conclude, Concluded, Ask, Answer, Sample)}


def pack_query(query: Any) -> Bytes:
    """Turn a query into the content of an `Ask`."""
    return np.frombuffer(codec.encode(query), np.uint8)


@lru_cache(maxsize=1)
def _query(content: bytes) -> Any:
    return codec.decode(content, _MESSAGES, only_finite=True)


def pack(message: Ask | Answer) -> bytes:
    """Turn a message into the bytes that travel."""
    return codec.encode(message, _HEAD.pack(_MARK, VERSION))


def unpack(content: bytes, kind: type[M]) -> M:
    """Turn bytes, from wherever they came, into a message of a kind; what it holds is still to be checked.

    Its arrays are the bytes themselves: whoever wants to change them makes copies.
    """
    if len(content) > LIMIT:
        raise MessageError(f"a message of {len(content)} bytes, more than the {LIMIT} that are allowed")
    if len(content) < _HEAD.size or content[: len(_MARK)] != _MARK:
        raise MessageError("not a message of mixfed")
    _, version = _HEAD.unpack_from(content)
    if version != VERSION:
        raise MessageError(
            f"version {version} of the wire format, not {VERSION}: all parties need the same version of mixfed"
        )
    return cast(M, codec.decode(content, _MESSAGES, kind, mark=_HEAD.size, only_finite=True, copy=False))


def check_query(query: Any, columns: int) -> Mapping[str, int]:
    """See that a query can be answered by a site with so many columns (D).

    Gives the sizes that the letters in its shapes stand for.
    """
    if not isinstance(query, Query | PerClient):
        raise MessageError(f"a {type(query).__name__} in the place of a query")
    return _sizes(query, columns)


@lru_cache(maxsize=ASKED_AT_ONCE)
def _sizes(query: Query[Any, Any] | PerClient[Any], columns: int) -> Mapping[str, int]:
    sizes = {"D": columns}
    if isinstance(query, Batch):  # in which a letter of one query has nothing to do with that of another
        for part in query.parts:
            check_query(part, columns)
        return sizes
    shapes.check(query, type(query), sizes, bind=True)
    if isinstance(query, RandomEffectsSums):
        sizes["w"] = query.width
    elif isinstance(query, MixtureSums | PairMoments | SplitMoments):
        sizes["w"] = query.units.width
    if not all(sizes[letter] for letter in sizes.keys() - {"h", "i"}):
        raise MessageError("a query about nothing")
    informed = getattr(query, "informed", ())
    if len(set(informed)) < len(informed) or not set(informed) <= set(range(sizes.get("C", 0))):
        raise MessageError("information about candidates that there are not, or about one twice")
    return sizes


def check_asked(query: Any, sizes: Mapping[str, int], asked: int) -> None:
    """See that a query to single clients is, by the sizes in it, about as many as are asked."""
    if isinstance(query, PerClient) and sizes.get("h", asked) != asked:
        raise MessageError(f"a query about {sizes['h']} clients, when {asked} are asked")


def check_answer(content: Any, query: Any, sizes: Mapping[str, int], asked: int = 0) -> None:
    """See that a content is what the query asks for, of ``asked`` single clients."""
    if isinstance(query, Batch):
        shapes.check(content, BatchReply, {}, bind=False)
        if len(content.parts) != len(query.parts):
            raise MessageError(f"{len(content.parts)} replies to {len(query.parts)} queries")
        for part, question in zip(content.parts, query.parts, strict=True):
            check_answer(part, question, check_query(question, sizes["D"]))
        return
    found = {**sizes, "h": asked} if isinstance(query, PerClient) else dict(sizes)
    shapes.check(content, _reply_kind(cast(Any, type(query))), found, bind=isinstance(query, Enrol | Census))


@lru_cache
def _reply_kind(query: type[Any]) -> type[Any]:
    """Find the S of a ``Query[S, T]``."""
    if query in (Enrol, Conclude):
        return Enrolled if query is Enrol else Concluded
    return cast(type[Any], get_args(query.__orig_bases__[0])[0])
