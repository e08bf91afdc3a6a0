"""The paper's data model, and named families of it that are hard to fit.

Client i has a hidden kind z_i drawn with ``weights``, a heavy-tailed number of rows n_i, and rows with
y = <phi(x), theta_{z_i}> + noise, where x is sub-Gaussian with a covariance that may differ by kind. Targets may also
be classes or counts, of which <phi(x), theta_{z_i}> + level is the linear predictor.
"""

import dataclasses
import itertools
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from ..clients.packed import Clients, offsets_of
from ..core import draws
from ..core.arrays import Array, Floats, Ints
from ..core.errors import SettingsError
from ..families.gaussian import GAUSSIAN
from ..families.registry import FAMILIES as FAMILIES_OF_TARGETS, family_named

_NEWTON_STEPS = 12
Law = Literal["normal", "uniform", "rademacher"]
Layout = Literal["orthogonal", "nested", "mirror"]


@dataclass(frozen=True)
class Design:
    """What to simulate."""

    n_clients: int = 10_000
    dim: int = 30
    """Number of raw features x; with ``degree`` above 1 there are more columns than that."""
    n_clusters: int = 5
    weights: tuple[float, ...] | None = None
    """Shares of the kinds; equal by default."""
    noise: float = 0.3
    target: str = GAUSSIAN.name
    """What the target is: a name of `families`. Those other than gaussian have no ``noise``."""
    level: float = 0.0
    """Added to every linear predictor: rare classes and high counts."""
    radius: float = 1.5
    """Norm of the models (orthogonal, mirror) or of the centres of the pairs (nested)."""
    layout: Layout = "orthogonal"
    law: Law = "normal"
    """Distribution of a feature, mean 0 and variance 1."""
    spread: float = 1.0
    """Largest over least eigenvalue of each kind's covariance; each kind has axes of its own."""
    degree: int = 1
    """phi holds all monomials of x up to this degree, without the constant, scaled to second moment 1."""
    least_rows: int = 2
    most_rows: int = 50
    tail: float = 2.5
    """P(n_i = n) falls as n to the power of minus this, between the least and the most."""
    n_anchors: int = 0
    """Clients, drawn at random, that have ``anchor_rows`` rows instead."""
    anchor_rows: int = 1000

    def __post_init__(self) -> None:
        checks = {
            "n_clients": self.n_clients >= 1,
            "dim": self.dim >= 1,
            "n_clusters": self.n_clusters >= 1,
            "noise": self.noise >= 0,
            "target": self.target in FAMILIES_OF_TARGETS,
            "level": np.isfinite(self.level),
            "radius": self.radius > 0,
            "layout": self.layout in get_args(Layout),
            "law": self.law in get_args(Law),
            "spread": self.spread >= 1,
            "degree": self.degree >= 1,
            "least_rows": self.least_rows >= 1,
            "most_rows": self.most_rows >= self.least_rows,
            "n_anchors": 0 <= self.n_anchors <= self.n_clients,
            "anchor_rows": self.anchor_rows >= 1,
            "weights": self.weights is None or (len(self.weights) == self.n_clusters and min(self.weights) > 0),
        }
        for name, holds in checks.items():
            if not holds:
                raise SettingsError(f"cannot simulate with {name} = {getattr(self, name)!r}")
        if self.layout != "orthogonal" and self.n_clusters % 2:
            raise SettingsError(f"{self.layout} clusters come in pairs: n_clusters = {self.n_clusters} is odd")


@dataclass(frozen=True, eq=False)
class Simulation:
    """Clients and the truth about them."""

    clients: Clients
    theta: Floats
    """(k, d)"""
    labels: Ints
    """(n_clients,)"""
    design: Design = field(repr=False)

    def columns(self) -> dict[str, Array]:
        """Give the columns of a table: ``client``, ``y`` and the features."""
        clients = self.clients
        features = dict(zip(clients.features, clients.phi.T, strict=True))
        return {"client": np.repeat(clients.ids, clients.rows), "y": clients.y, **features}

    def oracle(self) -> Floats:
        """Fit each kind with the true labels known: what no clustering can beat by much. -> (k, d)."""
        if self.design.target != GAUSSIAN.name or self.design.level:
            return self._likeliest()
        owner = np.repeat(self.labels, self.clients.rows)
        fits = [
            np.linalg.lstsq(self.clients.phi[owner == j], self.clients.y[owner == j], rcond=None)[0]
            for j in range(len(self.theta))
        ]
        return np.array(fits)

    def _likeliest(self) -> Floats:
        """Maximise the likelihood of each kind by Newton's method, the true labels and the level known."""
        family, owner, theta = (
            family_named(self.design.target),
            np.repeat(self.labels, self.clients.rows),
            self.theta.copy(),
        )
        for j, _ in itertools.product(range(len(theta)), range(_NEWTON_STEPS)):
            phi, y = self.clients.phi[owner == j], self.clients.y[owner == j]
            terms = family.terms(y, phi @ theta[j] + self.design.level, np.zeros(1))
            gram = (phi * terms.weight[:, None]).T @ phi + 1e-9 * np.eye(phi.shape[1])
            theta[j] += np.linalg.solve(gram, phi.T @ terms.score)
        return theta


FAMILIES: dict[str, dict[str, Any]] = {
    # Pairs of clusters at distance 1 around far centres of norm 2: random starts fail here.
    "nested": {"n_clusters": 4, "dim": 20, "layout": "nested", "radius": 2.0},
    "nested-unbalanced": {
        "n_clusters": 4,
        "dim": 20,
        "layout": "nested",
        "radius": 2.0,
        "weights": (0.5, 0.3, 0.1, 0.1),
    },
    "rare": {"n_clusters": 3, "dim": 15, "weights": (0.57, 0.40, 0.03)},
    "mirror": {"n_clusters": 2, "dim": 20, "layout": "mirror"},
    "noisy": {"n_clusters": 3, "dim": 10, "noise": 1.0},
    "wide": {"n_clusters": 4, "dim": 100},
    "skewed": {"n_clusters": 3, "dim": 20, "spread": 6.0},
}
"""Named hard families: what each changes in a `Design`."""


def design(family: str | None = None, **changes: Any) -> Design:
    """Make a design from a family's settings and the caller's own, which win."""
    family = family and family.lower().replace("_", "-").replace(" ", "-")
    if family is not None and family not in FAMILIES:
        raise SettingsError(f"unknown family '{family}'; choose from {', '.join(FAMILIES)}")
    settings = dict(FAMILIES[family]) if family else {}
    given = {name: value for name, value in changes.items() if value is not None}
    return Design(**(settings | given))


def simulate(what: Design | str | None = None, *, seed: int = 0, **changes: Any) -> Simulation:
    """Simulate clients of a design, or of a family by its name, with changes to it.

    Examples
    --------
    >>> from mixfed import simulate
    >>> simulation = simulate("nested", n_clients=500, seed=1)
    >>> simulation.theta.shape
    (4, 20)
    """
    plan = dataclasses.replace(what, **changes) if isinstance(what, Design) else design(what, **changes)
    rng = draws.generator(seed, "simulate")
    rows = _row_counts(plan, rng)
    shares = np.ones(plan.n_clusters) if plan.weights is None else np.array(plan.weights)
    labels = rng.choice(plan.n_clusters, size=plan.n_clients, p=shares / shares.sum())
    owner = np.repeat(np.arange(plan.n_clients), rows)
    x = _features(plan, labels[owner], rng)
    phi, names = _monomials(x, plan.degree)
    theta = _models(plan, phi.shape[1], rng)
    eta, family = np.einsum("nd,nd->n", phi, theta[labels[owner]]), family_named(plan.target)
    if family is GAUSSIAN:
        y = eta + plan.level + plan.noise * rng.standard_normal(len(phi))
    else:
        y = family.draw(rng, eta + plan.level, np.ones(1))
    clients = Clients(phi, y, offsets_of(rows), np.arange(plan.n_clients), names)
    return Simulation(clients, theta, labels, plan)


def _row_counts(plan: Design, rng: np.random.Generator) -> Ints:
    """-> (n_clients,)."""
    choices = np.arange(plan.least_rows, plan.most_rows + 1)
    chances = choices.astype(float) ** -plan.tail
    rows = rng.choice(choices, size=plan.n_clients, p=chances / chances.sum())
    rows[rng.permutation(plan.n_clients)[: plan.n_anchors]] = plan.anchor_rows
    return rows


def _features(plan: Design, kind: Array, rng: np.random.Generator) -> Floats:
    """Draw x with the covariance of each row's kind (n,). -> (n, dim)."""
    shape = (len(kind), plan.dim)
    if plan.law == "normal":
        x = rng.standard_normal(shape)
    elif plan.law == "uniform":
        x = rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), shape)
    else:
        x = rng.choice([-1.0, 1.0], shape)
    if plan.spread > 1:
        scales = np.geomspace(plan.spread**-0.25, plan.spread**0.25, plan.dim)
        for j in range(plan.n_clusters):
            axes = np.linalg.qr(rng.standard_normal((plan.dim, plan.dim))).Q
            x[kind == j] = (x[kind == j] * scales) @ axes.T
    return x


def _monomials(x: Floats, degree: int) -> tuple[Floats, tuple[str, ...]]:
    names = [f"x_{j}" for j in range(x.shape[1])]
    if degree == 1:
        return x, tuple(names)
    from sklearn.preprocessing import PolynomialFeatures

    powers = PolynomialFeatures(degree, include_bias=False).fit(x)
    phi = powers.transform(x)
    phi /= np.sqrt(np.mean(phi**2, axis=0))
    return phi, tuple(name.replace(" ", "*") for name in powers.get_feature_names_out(names))


def _models(plan: Design, dim: int, rng: np.random.Generator) -> Floats:
    """-> (k, dim)."""
    k = plan.n_clusters
    if plan.layout == "orthogonal":
        return plan.radius * _directions(k, dim, rng)
    centres = plan.radius * _directions(k // 2, dim, rng)
    if plan.layout == "mirror":
        return np.stack([centres, -centres], axis=1).reshape(k, dim)
    halves = 0.5 * _directions(k // 2, dim, rng)  # the two of a pair are at distance 1
    return np.stack([centres + halves, centres - halves], axis=1).reshape(k, dim)


def _directions(count: int, dim: int, rng: np.random.Generator) -> Floats:
    """Draw unit vectors that are well apart: orthogonal while the dimension allows it. -> (count, dim).

    On a line, where there are only two of them, vectors of other lengths lie between the two.
    """
    if count <= dim:
        return np.linalg.qr(rng.standard_normal((dim, count))).Q.T
    if dim == 1:
        return rng.permutation(np.linspace(-1.0, 1.0, count))[:, None]
    tries = rng.standard_normal((200, count, dim))
    tries /= np.linalg.norm(tries, axis=2, keepdims=True)
    cosines = tries @ tries.transpose(0, 2, 1) - 2.0 * np.eye(count)
    return np.asarray(tries[np.argmin(cosines.max(axis=(1, 2)))])
