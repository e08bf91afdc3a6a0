"""Do 95 % intervals hold the truth 95 % of the time? Many small fits, every coefficient of every kind.

Usage: python experiments/coverage.py [--fits 300]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from mixfed import LocalPool, fit_auto, simulate
from mixfed.evaluation.metrics import bottleneck_matching

DESIGNS: dict[str, dict[str, Any]] = {
    "2 kinds, noise 0.6": {"n_clients": 400, "dim": 3, "n_clusters": 2, "noise": 0.6, "radius": 1.0},
    "3 kinds, 2 to 4 rows, noise 1.0": {
        "n_clients": 2000,
        "dim": 4,
        "n_clusters": 3,
        "noise": 1.0,
        "radius": 2.0,
        "most_rows": 4,
        "tail": 0.0,
    },
}


def main() -> None:
    """Print a row per design."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=300)
    options = parser.parse_args()
    for name, design in DESIGNS.items():
        held: list[bool] = []
        for seed in range(options.fits):
            made = simulate(seed=seed, **design)
            clients = made.clients
            model = fit_auto(LocalPool(clients), clients.features, len(made.theta)).model
            assert model.coef_error is not None
            order = bottleneck_matching(model.theta, made.theta)
            within = np.abs(model.coef[order] - made.theta) < 1.96 * model.coef_error[order]
            held.extend(within.ravel().tolist())
        print(f"{name:<34} {np.mean(held):.1%} of {len(held)} intervals in {options.fits} fits", flush=True)


if __name__ == "__main__":
    main()
