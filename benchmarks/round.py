"""Time one round of Phase 2 against the matrix product that no method can do without.

Usage: python benchmarks/round.py [--clients 100000] [--dim 32] [--clusters 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from mixfed import LocalPool, simulate
from mixfed.exchange import FedAvg, FedProx, Mixture, Refine, Update


def median_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Time a piece of work after one unmeasured run."""
    work()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def main() -> None:
    """Print a table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--clusters", type=int, default=5)
    options = parser.parse_args()
    made = simulate(n_clients=options.clients, dim=options.dim, n_clusters=options.clusters)
    clients, k = made.clients, options.clusters
    mixture = Mixture(made.theta + 0.1, np.full(k, 1 / k), np.full(k, 0.3))
    pool = LocalPool(clients)
    yardstick = median_seconds(lambda: clients.phi @ made.theta.T)
    print(f"{clients.n_rows} rows, {clients.n_clients} clients, d={options.dim}, k={k}; X @ theta.T: {yardstick:.4f} s")
    updates: dict[str, tuple[bool, Update]] = {
        "hard FedAvg, s=1": (True, FedAvg(0.03, 1)),
        "hard FedAvg, s=5": (True, FedAvg(0.03, 5)),
        "hard FedProx": (True, FedProx(0.5)),
        "soft FedAvg, s=1": (False, FedAvg(0.03, 1)),
    }
    for name, (hard, update) in updates.items():
        query = Refine(mixture, hard, update)
        seconds = median_seconds(lambda query=query: pool.ask(query))  # type: ignore[misc]
        print(f"{name:<20} {seconds / yardstick:6.1f} x")


if __name__ == "__main__":
    main()
