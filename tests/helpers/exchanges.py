"""One example of every message: what is asked, what clients reply, and what is made of their sum."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np

from helpers.candidates import random_candidates
from helpers.clients import random_clients, random_frame
from mixfed.clients import answers
from mixfed.exchange.anchors import ApplyMoment, Descend, Expand, Project
from mixfed.exchange.base import Batch, Query, Traffic
from mixfed.exchange.census import Census, LargestNorm
from mixfed.exchange.local_update import FedAvg, FedProx, LocalUpdate, Mixture
from mixfed.exchange.mixture import LocalStep, MixtureSums, SplitMoments
from mixfed.exchange.moments import Gram, PairMoments
from mixfed.exchange.random_effects import LeaveOut, RandomEffects, RandomEffectsSums
from mixfed.kernels import chosen

COLUMNS, DIM, KINDS = 4, 3, 2
CLIENTS = random_clients(0, [2, 5, 3, 2, 9, 4, 2, 6], COLUMNS)


def _queries():
    rng, units = np.random.default_rng(1), random_frame(0, COLUMNS, DIM)
    candidates, mixture = random_candidates(2, 2, KINDS, DIM), random_candidates(3, 1, KINDS, DIM)
    models = rng.standard_normal((KINDS, COLUMNS))
    spread = rng.uniform(0.1, 1.0, (2, KINDS, COLUMNS))
    effects = RandomEffects(candidates.theta, candidates.log_variance, candidates.log_weight, spread)
    anchors, basis = rng.standard_normal((8, COLUMNS)), np.linalg.qr(rng.standard_normal((8, COLUMNS, 2)))[0]
    census, step = Census(), LocalStep(units, mixture, FedProx(0.5), hard=True)
    return (
        census,
        LargestNorm(),
        Gram(np.zeros(COLUMNS), np.ones(COLUMNS), 0.0, 2.0),
        PairMoments(units, lone=True),
        SplitMoments(units, mixture),
        MixtureSums(units, candidates, (1,), since=random_candidates(4, 2, KINDS, DIM)),
        step,
        LocalUpdate(Mixture(models, np.array([0.3, 0.7]), np.ones(KINDS)), False, FedAvg(0.1, 2)),
        RandomEffectsSums(units, effects, False, (0,)),
        LeaveOut(units, effects, False, 3),
        ApplyMoment(anchors, basis, transpose=True),
        Batch((census, step)),
        Project(units, rng.standard_normal((DIM, 2))),
        Expand(units, rng.standard_normal((DIM, 2)), np.array([1.0, 0.0, 1.0])),
        Descend(anchors, basis, 0, 1, 9, 0.0, 0.5, 2),
    )


QUERIES = {type(query): query for query in _queries()}
"""To be asked of CLIENTS, of each of them if it is a question to single clients."""


def answer(query, clients):
    return answers.answer(query, clients, chosen(clients.n_rows * clients.dim))


def answer_each(query, clients):
    return answers.answer_each(query, clients, chosen(clients.n_rows * clients.dim))


def reply_to(query, clients=CLIENTS):
    return answer(query, clients) if isinstance(query, Query) else answer_each(query, clients)


@cache
def messages():
    """Give the examples and all that is in them, by their classes."""
    replies = [(query, reply_to(query)) for query in QUERIES.values()]
    finished = [query.finish(reply) for query, reply in replies if isinstance(query, Query)]
    waiting, found = [*QUERIES.values(), *(reply for _, reply in replies), *finished, Traffic(1, 2, 3)], {}
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting += one
        elif dataclasses.is_dataclass(one):
            found.setdefault(type(one), []).append(one)
            waiting += [getattr(one, field.name) for field in dataclasses.fields(one)]
    return found


def leaves(message):
    """Give the arrays, numbers and texts of a message, in order."""
    if isinstance(message, tuple):
        for item in message:
            yield from leaves(item)
    elif dataclasses.is_dataclass(message):
        for field in dataclasses.fields(message):
            yield from leaves(getattr(message, field.name))
    else:
        yield message
