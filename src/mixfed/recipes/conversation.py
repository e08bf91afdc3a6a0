"""Conversations: generators that yield a query and are sent the reply, so that several can share their exchanges."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

from ..core.threads import side_by_side
from ..exchange.base import Batch, Query
from ..exchange.pool import Pool, Sample

Conversation: TypeAlias = Generator[Query[Any, Any], Any, Any]


class Talk:
    """A conversation on its way: with the query that it waits for the reply to, or what it found in the end."""

    query: Any = None
    found: Any = None

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.hear(None)

    def hear(self, reply: Any) -> None:
        """Go on with the reply."""
        try:
            self.query = self._conversation.send(reply)
        except StopIteration as end:
            self.found, self.query = end.value, None


def converse(
    pool: Pool,
    conversations: Sequence[Conversation],
    report: Callable[[Sequence[Query[Any, Any]], Sequence[Any]], None] | None = None,
    who: Sample | None = None,
) -> list[Any]:
    """Lead conversations side by side: in each exchange the next query of every one that has not ended.

    What the server can do by itself before they ask anything is done on a thread for each.
    """
    talks = list(side_by_side(Talk, conversations))
    while going := [talk for talk in talks if talk.query is not None]:
        queries = tuple(talk.query for talk in going)
        replies = (pool.ask(queries[0], who),) if len(queries) == 1 else pool.ask(Batch(queries), who).parts
        for talk, reply in zip(going, replies, strict=True):
            talk.hear(reply)
        if report is not None:
            report(queries, replies)
    return [talk.found for talk in talks]
