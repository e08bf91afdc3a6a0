"""Phase 2, FedX + clustering: every client finds its kind and refines that kind's model.

A round t: the server broadcasts theta_{t-1}; client i estimates its memberships lambda_i, moves its copies of
the models with FedAvg (s local gradient steps) or FedProx (one proximal step) on

    L_i(theta) = 1 / (2 n_i) sum_j lambda_ij |y_i - phi_i theta_j|^2,

and the server averages over *all* clients with weights n_i / N, so a client outside cluster j holds theta_j
still. By the paper's Lemma 1 a round is

    theta_j <- theta_j - eta / N phi^T P Lambda_j (phi theta_j - y),

P block diagonal with P_i = sum_{l=0}^{s-1} (I - eta phi_i phi_i^T / n_i)^l for FedAvg (the sum in the paper's
appendix runs one too far), and (I + eta phi_i phi_i^T / n_i)^{-1} for FedProx. With soft memberships
lambda_ij eta takes the place of eta in P_i.
"""

from dataclasses import dataclass

import numpy as np

from ...core.arrays import Floats
from ...core.errors import SettingsError
from ...exchange.local_update import LocalUpdate, Mixture, ModelSum
from ...exchange.pool import Pool
from ...families.base import SQUARED, Loss
from ...model.fit import Stop
from ..settings import PaperSettings

_SMALLEST_NOISE = 1e-100
_LARGEST_SHIFT = 1e100


@dataclass(frozen=True, eq=False)
class State:
    """What the next round needs."""

    round: int
    mixture: Mixture


@dataclass(frozen=True)
class Info:
    """What people look at."""

    loss: float
    """Mean loss of a row under its own kind's model, before the step."""
    movement: float
    """The longest step of any model."""
    smallest_share: float
    """Share of rows of the smallest kind."""

    @property
    def note(self) -> str:
        """Say how it goes."""
        return f"models move by {self.movement:.1e} at most"


def init(theta: Floats, pool: Pool, loss: Loss = SQUARED) -> State:
    """Start from the models theta (k, d); weights and noise come from the hard labels they give."""
    k = len(theta)
    guess = Mixture(theta, np.full(k, 1.0 / k), np.ones(k))
    return State(0, described(guess, pool.ask(LocalUpdate(guess, hard=True, loss=loss)), shared=True))


def step(state: State, pool: Pool, settings: PaperSettings, loss: Loss = SQUARED) -> tuple[State, Info]:
    """One round: memberships, local updates, average."""
    reply = pool.ask(LocalUpdate(state.mixture, settings.hard, settings.local_update, loss))
    shift = reply.mean_shift()
    if not np.abs(shift).max() < _LARGEST_SHIFT:
        raise SettingsError(
            f"the local updates diverge at step = {settings.step:g}, in round {state.round + 1}: take a smaller step"
        )
    moved = Mixture(state.mixture.theta + shift, state.mixture.weights, state.mixture.noise)
    info = Info(
        loss=float(reply.loss.sum() / reply.rows),
        movement=float(np.linalg.norm(shift, axis=1).max()),
        smallest_share=float(reply.mass.min() / reply.rows),
    )
    return State(state.round + 1, described(moved, reply, shared=True)), info


def described(mixture: Mixture, reply: ModelSum, *, shared: bool) -> Mixture:
    """Take weights and noise, one for all kinds or one each, from a reply."""
    noise = np.full_like(mixture.noise, reply.shared_noise()) if shared else reply.noise_or(mixture.noise)
    return Mixture(mixture.theta, reply.shares_or(mixture.weights), np.maximum(noise, _SMALLEST_NOISE))


def stopped(state: State, info: Info | None, settings: PaperSettings) -> Stop | None:
    """Say why Phase 2 is over, if it is. Below rounding, more rounds would change nothing."""
    scale = np.abs(state.mixture.theta).max()
    if info is not None and info.movement <= 1e-14 * scale:
        return Stop.STILL
    return Stop.ROUNDS if state.round >= settings.refine_rounds else None
