"""Phase 2's contraction per round: measured, beside the one that Theorem 2 predicts up to a constant.

The distance that contracts is the one to the point where Phase 2 ends, so the measured factor is that of
|theta_t - theta_end| over the rounds before rounding sets in. The prediction is 1 - C_1 s eta rho / kappa with C_1 = 1.
kappa is a worst case over clients and most clients are far from it, so the measured factor lies between the prediction
and 1 - s eta rho, which perfectly stable local steps (kappa = 1) would give on features whose second moment is the
identity; a sample's own least eigenvalue is a little below 1, so it can be slightly above the latter even for s = 1.

Usage: python experiments/contraction.py [--seed 0]
"""

from __future__ import annotations

import argparse

import numpy as np

from mixfed import LocalPool, PaperSettings, fedx, simulate
from mixfed.arrays import Floats
from mixfed.exchange import Census, Peak, Refine
from mixfed.simulation import Simulation
from mixfed.theory import predict

UPDATES = [
    ("fedavg", 0.03, 1),
    ("fedavg", 0.03, 5),
    ("fedavg", 0.01, 5),
    ("fedavg", 0.01, 20),
    ("fedprox", 0.03, 1),
    ("fedprox", 0.2, 1),
    ("fedprox", 1.0, 1),
]


def models(made: Simulation, settings: PaperSettings, rounds: int) -> Floats:
    """Run Phase 2 from models a little off the truth. -> (rounds + 1, k, d)."""
    pool = LocalPool(made.clients)
    state = fedx.init(made.theta * 0.85, pool)
    path = [state.mixture.theta]
    for _ in range(rounds):
        state, _ = fedx.step(state, pool, settings)
        path.append(state.mixture.theta)
    return np.array(path)


def measured(path: Floats) -> float:
    """Give the factor per round on the distance to the end, over the rounds where it is well above rounding."""
    distance = np.linalg.norm(path - path[-1], axis=2).max(axis=1)
    inside = np.flatnonzero((distance > 1e-6 * distance[0]) & (distance < 0.3 * distance[0]))
    first, last = inside[0], inside[-1]
    return float((distance[last] / distance[first]) ** (1 / (last - first)))


def main() -> None:
    """Print a row per update."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    made = simulate(n_clients=3000, dim=10, n_clusters=3, noise=0.3, seed=options.seed)
    pool = LocalPool(made.clients)
    census, peak = pool.ask(Census()), pool.ask(Peak()).peak
    print(f"{'update':>8} {'eta':>5} {'s':>3} {'gamma':>6} {'kappa':>6} {'rho':>6}", end=" ")
    print(f"{'measured':>9} {'predicted':>10} {'kappa = 1':>10}   (predictions up to constants)")
    for name, step, local_steps in UPDATES:
        settings = PaperSettings(
            separation=1.0,
            update=name,  # type: ignore[arg-type]
            step=step,
            local_steps=local_steps,
        )
        update = settings.local_update
        end = fedx.State(0, fedx.init(made.theta, pool).mixture)
        reply = pool.ask(Refine(end.mixture, hard=True))
        theory = predict(
            sizes=census.sizes,
            counts=census.counts,
            peak=peak,
            kind_rows=reply.mass,
            theta=made.theta,
            noise=made.design.noise,
            update=update,
        )
        ideal = 1 - update.local_steps * step * theory.rho
        rounds = int(np.ceil(40 / (1 - ideal)))
        factor = measured(models(made, settings, rounds))
        print(f"{name:>8} {step:>5} {update.local_steps:>3} {theory.gamma:>6.3f} {theory.kappa:>6.2f}", end=" ")
        print(f"{theory.rho:>6.3f} {factor:>9.4f} {theory.contraction:>10.4f} {ideal:>10.4f}", flush=True)


if __name__ == "__main__":
    main()
