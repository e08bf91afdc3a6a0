"""Answers with another content than the site gave."""

from __future__ import annotations

import dataclasses

from mixfed.exchange.base import BatchReply
from mixfed.exchange.mixture import MixtureNumbers
from mixfed.federation.messages import Answer, pack, unpack


def changed(change):
    """Make bad bytes of an answer by a change to its content."""

    def disturb(content):
        answer = unpack(content, Answer)
        return [pack(dataclasses.replace(answer, content=each(answer.content, change)))]

    return disturb


def each(content, change):
    if isinstance(content, BatchReply):
        return BatchReply(tuple(each(part, change) for part in content.parts))
    return change(content)


def with_part(content, name, change):
    """Change a part of a content; that of an `MixtureNumbers` about `small` goes by the name that it gets later."""
    if not isinstance(content, MixtureNumbers):
        return dataclasses.replace(content, **{name: change(getattr(content, name))})
    made = dataclasses.replace(content, numbers=content.numbers.copy())
    part = getattr(made.named(k=3, width=5), name)
    part[...] = change(part)
    return made
