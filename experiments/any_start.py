"""Global convergence, measured: the paper's recipe from ten starts, random directions, norms from 0 to R.

Per start: how far the worst anchor is from its own truth after Phase 1, as a share of the separation Delta (the
theorem asks for less than a quarter or so), and d(theta-hat, theta*) after Phase 2 as a multiple of that of least
squares with the true labels known.

Usage: python experiments/any_start.py [--starts 10] [--seed 0]
"""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np

from mixfed import LocalPool, PaperSettings, bottleneck_distance, fit_paper, simulate
from mixfed.core.arrays import Floats
from mixfed.evaluation.simulation import Simulation
from mixfed.recipes.paper import moment_descent
from mixfed.recipes.paper.theory import least_gap

RADIUS = 1.5
PROBLEMS = [
    {"k": 2, "n_clients": 21_000, "n_anchors": 24, "n_recruits": 2000, "pairs": 50, "rounds": 10},
    {"k": 3, "n_clients": 50_000, "n_anchors": 35, "n_recruits": 4000, "pairs": 100, "rounds": 12},
]


def worst_anchor(made: Simulation, settings: PaperSettings, start: Floats, seed: int) -> float:
    """Run Phase 1 and give the largest error of any anchor, as a share of the separation."""
    pool, k = LocalPool(made.clients), len(made.theta)
    settings = settings.completed(k, made.clients.n_rows, made.clients.dim)
    roles = moment_descent.assign_roles(pool, settings, seed)
    state = moment_descent.init(roles, start)
    for _ in range(settings.rounds):
        state, _ = moment_descent.step(state, pool, roles, k, settings, seed)
    errors = np.linalg.norm(state.theta - made.theta[made.labels[roles.anchors]], axis=1)
    return float(errors.max() / settings.separation)


def main() -> None:
    """Print a row per problem and start."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{'k':>2} {'|theta_0|':>9} {'worst anchor / Delta':>21} {'FedAvg / floor':>15} {'FedProx / floor':>16}")
    for problem in PROBLEMS:
        k, pairs, rounds = problem["k"], problem["pairs"], problem["rounds"]
        made = simulate(
            n_clients=problem["n_clients"],
            dim=10,
            n_clusters=k,
            noise=0.3,
            radius=RADIUS,
            n_anchors=problem["n_anchors"],
            anchor_rows=2 * pairs * rounds,
            seed=options.seed,
        )
        floor = bottleneck_distance(made.oracle(), made.theta)
        rng = np.random.default_rng(options.seed)
        for norm in np.linspace(0, RADIUS, options.starts):
            direction = rng.standard_normal(10)
            start = norm * direction / np.linalg.norm(direction)
            settings = PaperSettings(
                separation=least_gap(made.theta),
                n_anchors=problem["n_anchors"],
                n_recruits=problem["n_recruits"],
                pairs=pairs,
                rounds=rounds,
                start=tuple(start),
            )
            seed = int(rng.integers(2**31))
            ratios = []
            for changes in ({"update": "fedavg", "step": 0.03, "local_steps": 5}, {"update": "fedprox", "step": 0.2}):
                chosen = dataclasses.replace(settings, **changes)  # type: ignore[arg-type]
                found = fit_paper(LocalPool(made.clients), made.clients.features, k, chosen, seed=seed)
                ratios.append(bottleneck_distance(found.model.theta, made.theta) / floor)
            anchor = worst_anchor(made, settings, start, seed)
            print(f"{k:>2} {norm:>9.2f} {anchor:>21.3f} {ratios[0]:>15.3f} {ratios[1]:>16.3f}", flush=True)


if __name__ == "__main__":
    main()
