"""What the paper's theorems predict for a fit, up to the constants that it leaves unnamed.

Theorem 2: d(theta_t, theta*) <= (1 - C_1 s eta rho / kappa) d(theta_{t-1}, theta*) + C_2 s eta sigma nu log(e / nu).
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from ...core.arrays import Floats, Ints
from ...core.errors import DataError
from ...exchange.local_update import FedProx, Update
from ...model.model import Model
from ..settings import paper_settings


@dataclass(frozen=True)
class Constants:
    """The constants that the paper does not name."""

    error: float = 1.0
    """c in p_e(n) = 4 k exp(-c n (1 and Delta^2 / sigma^2)^2)."""
    deviation: float = 1.0
    """C before the root in nu."""
    contraction: float = 1.0
    """C_1 in the contraction 1 - C_1 s eta rho / kappa."""


@dataclass(frozen=True)
class Theory:
    """The paper's quantities; all statements hold up to constants."""

    gamma: float | None
    """eta max_i |phi_i|^2 / n_i: below 1 in the theorems; None if models are exact, without local steps."""
    kappa: float | None
    """Stability of the local updates, 1 or more; None if models are exact."""
    rho: float
    """Share of rows of the smallest kind."""
    chi2: float
    """How unequal the clients' row counts are: 0 if all are equal."""
    separation: float
    """Delta: the least distance between two models."""
    noise: float
    """sigma: the largest standard deviation of the noise in any kind."""
    p_e: float
    """Bound on the chance that a client with the most common number of rows is put into the wrong kind."""
    p_e_rows: int
    """That number of rows."""
    nu: float
    """Bound on the share of rows put into wrong kinds."""
    contraction: float | None
    """Factor on the error per round of Phase 2: 1 with an empty kind, which nothing pulls; None if models are exact."""
    rounds: int | None
    """Rounds of Phase 2 until the error is that of the clustering; None if there is no such number."""

    def as_dict(self) -> dict[str, float | int | None]:
        """Give the quantities by name; what is infinite (the separation of one kind) is None."""
        values = dataclasses.asdict(self)
        return {name: None if value in (math.inf, -math.inf) else value for name, value in values.items()}

    def described(self) -> list[tuple[str, str, str]]:
        """Give name, value and meaning of each quantity."""
        shown = {name: "-" if value is None else f"{value:.4g}" for name, value in self.as_dict().items()}
        return [
            ("gamma", shown["gamma"], "step times the largest |phi_i|^2 / n_i; the theorems ask for less than 1"),
            ("kappa", shown["kappa"], "stability of the local updates; 1 is ideal"),
            ("rho", shown["rho"], "share of rows of the smallest kind"),
            ("chi2", shown["chi2"], "how unequal the clients' row counts are; 0 if all are equal"),
            ("separation", shown["separation"], "least distance between two models (Delta)"),
            ("noise", shown["noise"], "largest noise of any kind (sigma)"),
            ("p_e", shown["p_e"], f"bound on a wrong label for a client of {self.p_e_rows} rows"),
            ("nu", shown["nu"], "bound on the share of rows with wrong labels"),
            ("contraction", shown["contraction"], "factor on the error per round of Phase 2"),
            ("rounds", shown["rounds"], "rounds of Phase 2 until the error is that of the labels"),
        ]


def predict(
    *,
    sizes: Ints,
    counts: Ints,
    peak: float | None,
    kind_rows: Floats,
    theta: Floats,
    noise: float,
    update: Update | None,
    constants: Constants | None = None,
) -> Theory:
    """Compute the paper's quantities; without a local update only those that do not depend on one.

    sizes (m,): numbers of rows that clients have; counts (m,): how many have each; peak: the largest |phi_i|^2 / n_i;
    kind_rows (k,): rows of each kind; theta (k, d).
    """
    constants = constants or Constants()
    k, dim = theta.shape
    n_clients, n_rows = int(counts.sum()), int(sizes @ counts)
    rho = float(kind_rows.min() / kind_rows.sum())
    chi2 = n_clients * float(counts @ sizes.astype(float) ** 2) / n_rows**2 - 1.0
    separation = least_gap(theta)
    errors = wrong_label_bound(sizes, k, separation, noise, constants.error)
    spread = math.sqrt(dim * k * math.log(k) / n_clients * (chi2 + 1.0))
    nu = float(counts @ (sizes * errors)) / n_rows + constants.deviation * spread
    usual = int(np.argmax(counts))
    gamma = kappa = contraction = rounds = None
    if update is not None and peak is not None:
        gamma = update.step * peak
        kappa = stability(update, gamma)
        pace = constants.contraction * update.local_steps * update.step * rho / kappa
        contraction = 1.0 - pace
        if pace > 0 and 0 < nu < separation < math.inf:
            rounds = math.ceil(math.log(separation / nu) / pace)
    return Theory(
        gamma=gamma,
        kappa=kappa,
        rho=rho,
        chi2=chi2,
        separation=separation,
        noise=noise,
        p_e=float(errors[usual]),
        p_e_rows=int(sizes[usual]),
        nu=nu,
        contraction=contraction,
        rounds=rounds,
    )


def predict_for(model: Model, constants: Constants | None = None) -> Theory:
    """Compute the paper's quantities for a fitted model."""
    if not {"sizes", "kind_rows", "settings"} <= set(model.details):
        raise DataError("the model says nothing of the clients that it was fitted on: it has no theory")
    sizes, counts = np.array(model.details["sizes"], dtype=np.int64).T
    update = paper_settings(model.details["settings"]).local_update if model.recipe == "paper" else None
    return predict(
        sizes=sizes,
        counts=counts,
        peak=model.details.get("peak"),
        kind_rows=np.array(model.details["kind_rows"]),
        theta=model.theta,
        noise=float(model.scale.max()),
        update=update,
        constants=constants,
    )


def stability(update: Update, gamma: float) -> float:
    """Give kappa: gamma s / (1 - (1 - gamma)^s) for FedAvg, 1 + gamma for FedProx."""
    if isinstance(update, FedProx):
        return 1.0 + gamma
    if gamma == 0:
        return 1.0
    if gamma >= 1:
        return gamma * update.local_steps  # the theorems ask for gamma < 1; this is the limit there
    # log1p and expm1 keep the digits when gamma is tiny.
    return gamma * update.local_steps / -math.expm1(update.local_steps * math.log1p(-gamma))


def wrong_label_bound(rows: Ints, n_clusters: int, separation: float, noise: float, constant: float = 1.0) -> Floats:
    """Give p_e(n) = 4 k exp(-c n (1 and Delta^2 / sigma^2)^2), at most 1, for each n in ``rows`` (m,) -> (m,)."""
    if n_clusters == 1:
        return np.zeros(len(rows))
    clarity = min(1.0, (separation / noise) ** 2) if noise > 0 else 1.0
    bound: Floats = np.minimum(1.0, 4.0 * n_clusters * np.exp(-constant * rows * clarity**2))
    return bound


def least_gap(theta: Floats) -> float:
    """Give Delta, the least distance between two models (k, d); infinite for one model."""
    gaps = np.linalg.norm(theta[:, None] - theta[None], axis=2)
    np.fill_diagonal(gaps, np.inf)
    return float(gaps.min())
