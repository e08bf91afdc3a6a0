"""Phase 1, federated moment descent (FedMD): coarse models from any start.

Each anchor i keeps a model theta_i. A round t

1. estimates, with m fresh recruits (the paper's S_t) of two rows each, the space spanned by
   Sigma_j (theta*_j - theta_i) over the clusters j: the leading left singular vectors of
   Y_i = mean over recruits of eps(x_1, y_1, theta_i) eps(x_2, y_2, theta_i)^T,
   where eps(x, y, theta) = (y - <phi(x), theta>) phi(x);
2. lets the anchor find its own residual within that space from 2 l fresh rows, and step along it.

The first is `orthogonal_iteration`, the second is at the anchor, in `clients/answers/anchors`; the end is `grouping`.
"""

from dataclasses import dataclass

import numpy as np

from ...core import draws
from ...core.arrays import Array, Floats
from ...core.errors import SettingsError
from ...exchange.anchors import Descend
from ...exchange.pool import Pool
from ..settings import PaperSettings
from .orthogonal_iteration import federated_orthogonal_iteration, random_frames


@dataclass(frozen=True, eq=False)
class Roles:
    """Who is an anchor (the paper's H) and who a recruit (S_t): a function of the roster and the seed."""

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


def assign_roles(pool: Pool, settings: PaperSettings, seed: int) -> Roles:
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
    return Roles(anchors, others[:wanted].reshape(settings.rounds, settings.n_recruits))


def init(roles: Roles, start: Floats) -> State:
    """Put every anchor at the start (d,)."""
    return State(0, np.tile(start, (len(roles.anchors), 1)))


def step(
    state: State, pool: Pool, roles: Roles, n_clusters: int, settings: PaperSettings, seed: int
) -> tuple[State, Info]:
    """One round: a basis for every anchor from fresh recruits, then a step of every anchor within it."""
    assert settings.basis_rounds is not None
    assert settings.power_rounds is not None
    basis = federated_orthogonal_iteration(
        pool,
        roles.recruits[state.round],
        state.theta,
        random_frames(pool.roster.keys[roles.anchors], pool.dim, n_clusters, state.round, seed),
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
        roles.anchors,
    )
    strides = np.linalg.norm(replies.theta - state.theta, axis=1)
    info = Info(int(np.sum(strides > 0)), float(replies.size.max()), float(strides.max()))
    return State(state.round + 1, replies.theta), info
