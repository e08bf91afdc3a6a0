"""Clients of 2 to 4 rows at noise 1.0: how far hard labels end from the truth, and whether memberships are calibrated.

Usage: python experiments/soft_and_hard.py [--seeds 5]
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import numpy as np

from mixfed import AutoSettings, LocalPool, bottleneck_distance, fit_auto, simulate
from mixfed.evaluation.metrics import bottleneck_matching


def main() -> None:
    """Print the errors of both, then the reliability curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    chances, truths = [], []
    print(f"{'seed':>4} {'soft':>8} {'hard':>8} {'hard / soft':>12}")
    for seed in range(options.seeds):
        made = simulate("noisy", n_clients=20_000, most_rows=4, tail=0.0, seed=seed)
        clients = made.clients
        soft, hard = (
            fit_auto(LocalPool(clients), clients.features, 3, AutoSettings(membership=name)).model
            for name in ("soft", "hard")
        )
        errors = [bottleneck_distance(model.theta, made.theta) for model in (soft, hard)]
        print(f"{seed:>4} {errors[0]:>8.4f} {errors[1]:>8.4f} {errors[1] / errors[0]:>12.2f}", flush=True)
        order = bottleneck_matching(soft.theta, made.theta)
        chances.append(soft.assign(clients).probabilities[:, order].ravel())
        truths.append(np.eye(3)[made.labels].ravel())
    chance, truth = np.concatenate(chances), np.concatenate(truths)
    print(f"\n{'said':>12} {'happened':>9} {'sampling error':>15} {'memberships':>12}")
    for low, high in pairwise(np.linspace(0, 1, 11)):
        inside = (chance >= low) & (chance <= high)
        said = chance[inside]
        deviation = np.sqrt(np.mean(said * (1 - said)) / inside.sum())
        print(f"{said.mean():>12.4f} {truth[inside].mean():>9.4f} {deviation:>15.4f} {inside.sum():>12}")


if __name__ == "__main__":
    main()
