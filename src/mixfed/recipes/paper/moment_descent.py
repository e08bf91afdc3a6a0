"""Phase 1, federated moment descent (FedMD): coarse models from any start.

Each anchor i keeps a model theta_i. A round t

1. estimates, with m fresh recruits of two rows each, the space spanned by Sigma_j (theta*_j - theta_i) over
   the clusters j: the leading left singular vectors of
   Y_i = mean over recruits of eps(x_1, y_1, theta_i) eps(x_2, y_2, theta_i)^T,
   where eps(x, y, theta) = (y - <phi(x), theta>) phi(x);
2. lets the anchor find its own residual within that space from 2 l fresh rows, and step along it.

In the end, anchors closer than half the separation are of one kind, and each kind's model is their mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import connected_components

from ...core import draws
from ...core.arrays import Array, Floats
from ...core.errors import SettingsError
from ...exchange.anchors import ApplyMoment, Descend
from ...exchange.pool import Pool
from ..settings import PaperSettings


@dataclass(frozen=True, eq=False)
class Cast:
    """Who plays which part: a function of the roster and the seed."""

    anchors: Array
    """(h,): places of the anchors in the roster."""
    recruits: Array
    """(rounds, m): places of each round's recruits; no client serves twice."""


@dataclass(frozen=True, eq=False)
class State:
    """What the next round needs."""

    round: int
    theta: Floats
    """(h, d): the anchors' models."""


@dataclass(frozen=True)
class Info:
    """What people look at."""

    moving: int
    """Anchors whose residual is still above the tolerance."""
    size: float
    """The largest residual of any anchor."""
    movement: float
    """The longest step of any anchor."""

    @property
    def note(self) -> str:
        """Say how it goes."""
        return f"{self.moving} anchors move, by {self.movement:.2g} at most"


@dataclass(frozen=True, eq=False)
class Groups:
    """The outcome of Phase 1."""

    theta: Floats
    """(k, d): the mean of each group of anchors."""
    labels: Array
    """(h,): the group of each anchor."""


def cast(pool: Pool, settings: PaperSettings, seed: int) -> Cast:
    """Draw anchors uniformly from the clients with rows enough, and recruits from all others with two."""
    roster = pool.roster
    needed = 2 * settings.pairs * settings.rounds
    order = draws.shuffled(seed, "cast", roster.keys)
    able = order[roster.rows[order] >= needed]
    if len(able) < settings.n_anchors:
        raise SettingsError(
            f"n_anchors = {settings.n_anchors} anchors need 2 * pairs * rounds = {needed} rows each, but only "
            f"{len(able)} clients have as many: lower n_anchors, pairs or rounds"
        )
    anchors = able[: settings.n_anchors]
    eligible = np.setdiff1d(np.flatnonzero(roster.rows >= 2), anchors)
    others = order[np.isin(order, eligible)]
    wanted = settings.n_recruits * settings.rounds
    if len(others) < wanted:
        raise SettingsError(
            f"n_recruits = {settings.n_recruits} fresh recruits in each of {settings.rounds} rounds need {wanted} "
            f"clients with two rows or more besides the anchors, but there are {len(others)}: "
            "lower n_recruits or rounds"
        )
    return Cast(anchors, others[:wanted].reshape(settings.rounds, settings.n_recruits))


def init(cast: Cast, start: Floats) -> State:
    """Put every anchor at the start (d,)."""
    return State(0, np.tile(start, (len(cast.anchors), 1)))


def step(
    state: State, pool: Pool, cast: Cast, n_clusters: int, settings: PaperSettings, seed: int
) -> tuple[State, Info]:
    """One round: a basis for every anchor from fresh recruits, then a step of every anchor within it."""
    assert settings.basis_rounds is not None
    assert settings.power_rounds is not None
    basis = federated_orthogonal_iteration(
        pool,
        cast.recruits[state.round],
        state.theta,
        _random_frames(pool, cast, n_clusters, state.round, seed),
        settings.basis_rounds,
    )
    replies = pool.ask_each(
        Descend(
            theta=state.theta,
            basis=basis,
            round=state.round,
            pairs=settings.pairs,
            power_rounds=settings.power_rounds,
            threshold=settings.tolerance * settings.separation,
            rate=settings.cov_low / (2 * settings.cov_high**2),
            seed=seed,
        ),
        cast.anchors,
    )
    strides = np.linalg.norm(replies.theta - state.theta, axis=1)
    info = Info(int(np.sum(strides > 0)), float(replies.size.max()), float(strides.max()))
    return State(state.round + 1, replies.theta), info


def finish(state: State, n_clusters: int, settings: PaperSettings) -> Groups:
    """Join anchors closer than half the separation; anchors joined through others are of one kind too."""
    gaps = np.linalg.norm(state.theta[:, None] - state.theta[None], axis=2)
    count, labels = connected_components(gaps < settings.separation / 2, directed=False)
    if count != n_clusters:
        hint = (
            "raise rounds, pairs or n_recruits so that anchors of one kind meet, or raise separation"
            if count > n_clusters
            else "lower separation, or raise n_anchors so that every kind has an anchor"
        )
        raise SettingsError(
            f"the {len(labels)} anchors form {count} groups at separation / 2 = {settings.separation / 2:g}, "
            f"not the {n_clusters} clusters asked for: {hint}"
        )
    members = labels[None, :] == np.arange(count)[:, None]
    return Groups(members @ state.theta / members.sum(axis=1, keepdims=True), labels)


def federated_orthogonal_iteration(pool: Pool, recruits: Array, theta: Floats, start: Floats, rounds: int) -> Floats:
    """Approximate the leading left singular vectors of each anchor's Y by orthogonal iteration on Y Y^T.

    theta (h, d), start (h, d, r) with orthonormal columns -> basis (h, d, r). Two half-steps are one iteration:
    an even one applies Y^T, an odd one applies Y and makes the columns orthonormal again. Y is applied,
    never built: each client sends d x r numbers per anchor.
    """
    block = start
    for half in range(rounds):
        even = half % 2 == 0
        block = pool.ask(ApplyMoment(theta, block, transpose=even), recruits).mean()
        if not even:
            block = np.linalg.qr(block).Q
    return block


def _random_frames(pool: Pool, cast: Cast, n_clusters: int, round_: int, seed: int) -> Floats:
    """Draw a random d x r matrix with orthonormal columns for every anchor. -> (h, d, r)."""
    dim = pool.dim
    width = min(n_clusters, dim)  # with as many clusters as features the basis is the whole space
    keys = pool.roster.keys[cast.anchors]
    normals = draws.normal(seed, "basis", round_, keys, dim * width)
    return np.linalg.qr(normals.reshape(len(keys), dim, width)).Q
