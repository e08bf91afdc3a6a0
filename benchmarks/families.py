"""Whether fits to classes and counts reach the best maximum that is known of their penalised likelihood.

    .venv/bin/python benchmarks/families.py [--family poisson] [--seeds 5] [--only NAME ...] [--found]

Each instance is fitted with its number of kinds given. Beside the fit stand maxima that a solver of its own reaches
from the truth and from random starts, on all rows at once; what counts is the best of all. ``random`` is the share of
single random starts that end there. With ``--found`` the number of kinds is to be found, too.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from mixfed import Clients, LocalPool
from mixfed.families.registry import family_named
from mixfed.recipes.auto.select import Selection
from mixfed.recipes.auto.survey import make_survey
from mixfed.recipes.recorder import Recorder
from mixfed.recipes.settings import AutoSettings
from mixfed.recipes.standardise import from_user

GOOD = 0.5
"""Units of log likelihood by which a fit may miss the best."""


@dataclass(frozen=True)
class Instance:
    """What to simulate."""

    kinds: int = 3
    dim: int = 8
    clients: int = 800
    rows: tuple[int, int] = (3, 12)
    large: int = 40
    """Clients with 100 rows."""
    size: float = 1.0
    """Norm of a kind's coefficients."""
    nested: bool = False
    shares: tuple[float, ...] = ()
    mean: float = 1.0
    """Of counts, about; of classes, half of it, but for rare ones."""
    dummies: bool = False


INSTANCES = {
    "plain": Instance(),
    "two": Instance(2, 5, 500, large=0),
    "nested": Instance(4, 10, 1500, size=1.5, nested=True),
    "unbalanced": Instance(3, 8, 1500, shares=(0.6, 0.3, 0.1)),
    "many": Instance(6, 12, 1500, large=80, size=1.5),
    "wide": Instance(3, 30, 1500, large=60, size=1.5),
    "small": Instance(3, 6, 1500, large=0, size=1.5),
    "rare": Instance(3, 6, 2000, large=40, size=1.2, mean=0.1),
    "dummies": Instance(3, 8, 1200, dummies=True, size=1.5),
    "high": Instance(4, 10, 600, mean=10.0),
    "poor": Instance(3, 10, 200, large=4, size=1.5),
    "blurred": Instance(3, 6, 2000, large=10, size=0.7),
}


def simulated(name: str, family_name: str, seed: int) -> tuple[Clients, np.ndarray, np.ndarray]:
    """Draw clients of an instance. -> clients, theta (k, d + 1) with the intercept last, labels."""
    what, family = INSTANCES[name], family_named(family_name)
    rng = np.random.default_rng([seed, sorted(INSTANCES).index(name)])
    k, d = what.kinds, what.dim
    directions = rng.standard_normal((k, d))
    theta = directions / np.linalg.norm(directions, axis=1, keepdims=True) * what.size
    if what.nested:
        theta[1::2] = theta[::2] + 0.8 * theta[1::2] / np.linalg.norm(theta[1::2], axis=1, keepdims=True)
    if family_name == "poisson":
        theta *= 0.6
    level = np.log(what.mean) if family_name == "poisson" else np.log(what.mean / max(2.0 - what.mean, 1.0))
    theta = np.column_stack([theta, level + 0.3 * rng.standard_normal(k)])
    sizes = rng.integers(what.rows[0], what.rows[1] + 1, what.clients)
    sizes[: what.large] = 100
    labels = rng.choice(k, what.clients, p=what.shares or None)
    x = rng.standard_normal((sizes.sum(), d))
    if what.dummies:
        x[:, : d // 2] = rng.random((len(x), d // 2)) < 0.3
    owner = np.repeat(np.arange(what.clients), sizes)
    eta = np.einsum("nd,nd->n", np.column_stack([x, np.ones(len(x))]), theta[labels[owner]])
    y = family.draw(rng, eta, np.ones(1))
    return Clients.from_arrays(x, y, owner, intercept=True), theta, labels


class Problem:
    """The penalised likelihood of all rows at once, and a solver of its own: EM, then a quasi-Newton method."""

    def __init__(self, clients: Clients, units: Any, ridge: float) -> None:
        x = (clients.design - units.centre) * units.inverse_sd
        self.z, self.base, self.y = x @ units.whiten, x @ units.slope, clients.y
        self.begins, self.owner = clients.offsets[:-1], np.repeat(np.arange(clients.n_clients), clients.rows)
        self.family, self.ridge = family_named(units.family), ridge

    def value(self, theta: np.ndarray, logits: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Give the value and its slopes by theta (k, d) and logits (k,)."""
        log_weight = logits - logsumexp(logits)
        terms = self.family.terms(self.y[:, None], self.base[:, None] + self.z @ theta.T, np.zeros(1))
        logs = np.add.reduceat(terms.likelihood, self.begins, axis=0) + log_weight
        whole = logsumexp(logs, axis=1)
        share = np.exp(logs - whole[:, None])
        slope = (share[self.owner] * terms.score).T @ self.z - self.ridge * theta
        weight = share.sum(axis=0) - len(share) * np.exp(log_weight)
        return float(whole.sum() - 0.5 * self.ridge * (theta**2).sum()), slope, weight

    def climb(self, theta: np.ndarray, rounds: int = 400) -> float:
        """Give the maximum that a start leads to."""
        k, d = theta.shape

        def negative(flat: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope, weight = self.value(flat[: k * d].reshape(k, d), flat[k * d :])
            return -value, -np.concatenate([slope.ravel(), weight])

        start = np.concatenate([theta.ravel(), np.zeros(k)])
        found = minimize(negative, start, jac=True, method="L-BFGS-B", options={"maxiter": rounds, "ftol": 1e-10})
        return -float(found.fun)


def fitted(clients: Clients, family: str, k: int | None, seed: int = 0) -> tuple[Selection, Any]:
    """Fit, and give the search with what it found."""
    settings = AutoSettings(family=family)
    run = Recorder(LocalPool(clients), None)
    survey = make_survey(run, True, k or settings.max_clusters, None, settings, seed)
    search = Selection(run, survey, settings, seed, k)
    if k is None:
        search.choose(settings.max_clusters)
        found = search.more_kinds(search.finish(search.best(), None), settings.max_clusters, None)
    else:
        found = search.finish(k, None)
    return search, found


def instance(name: str, family: str, seed: int, starts: int, look_for_k: bool) -> dict[str, Any]:
    """Fit one instance, and look for better maxima."""
    clients, truth, _ = simulated(name, family, seed)
    k = len(truth)
    begun = time.perf_counter()
    search, found = fitted(clients, family, k)
    seconds = time.perf_counter() - begun
    problem = Problem(clients, search.survey.units, search.survey.rules.ridge)
    own = found.mixture.theta[0]
    value = problem.value(own, found.mixture.log_weight[0])[0]
    assert abs(value - found.value) < 1e-4 * (1 + abs(value)), (value, found.value)
    rng = np.random.default_rng(seed)
    ends = [problem.climb(from_user(search.survey.units, truth)), problem.climb(own, 50)]
    spread = max(float(np.sqrt((own**2).mean())), 0.1)
    randoms = [problem.climb(spread * rng.standard_normal(own.shape)) for _ in range(starts)]
    best = max([value, *ends, *randoms])
    said = {
        "lost": best - value,
        "truth": best - ends[0],
        "random": float(np.mean([best - end < GOOD for end in randoms])) if randoms else np.nan,
        "exchanges": search.run.pool.traffic.exchanges,
        "seconds": seconds,
        "stop": found.stop.name,
    }
    if look_for_k:
        other, chosen = fitted(clients, family, None)
        said["k"] = chosen.mixture.theta.shape[1]
        said["right"] = said["k"] == k
        said["bic"] = other.bic(chosen) <= search.bic(found) + 2 * GOOD
    return said


def main() -> None:
    """Print a line for each instance, and the shares that are good."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--found", action="store_true")
    given = parser.parse_args()
    every: list[dict[str, Any]] = []
    for family in given.family or ["binomial", "poisson"]:
        for name in given.only or INSTANCES:
            for seed in range(given.first, given.first + given.seeds):
                said = instance(name, family, seed, given.starts, given.found)
                every.append(said)
                parts = (f"{key} {one:.3g}" if isinstance(one, float) else f"{key} {one}" for key, one in said.items())
                print(f"{family:9} {name:11} {seed:3}  {'  '.join(parts)}", flush=True)
    good = np.mean([said["lost"] < GOOD for said in every])
    print(f"within {GOOD} of the best: {good:.1%} of {len(every)}")
    print(f"single random starts: {np.nanmean([said['random'] for said in every]):.1%}")
    print(f"exchanges: {np.median([said['exchanges'] for said in every]):.0f}")
    if given.found:
        for key in ("right", "bic"):
            print(f"{key}: {np.mean([said[key] for said in every]):.1%}")


if __name__ == "__main__":
    main()
