"""Real data, where no model is true: our likelihood against the best of many random starts of EM.

"ties" counts the random starts that came within 0.5 of ours. Features are standardised, with an intercept; k = 2 to 8.
Reads the folder that MIXFED_DATA names.

Usage: python experiments/real_likelihood.py [--starts 50] [--data konza_bison,lahman_fielding_1954_2024]
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from mixfed import Clients, LocalPool, fit_auto
from mixfed.evaluation.baselines.em import EM


def load(name: str) -> Clients:
    """Read a set, standardise its features x_*, add an intercept."""
    table = pq.read_table(Path(os.environ["MIXFED_DATA"]) / f"{name}.parquet")
    names = [column for column in table.column_names if column.startswith("x_")]
    X = np.column_stack([table[column].to_numpy() for column in names])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    groups = table["client"].to_numpy()
    return Clients.from_arrays(X, table["y"].to_numpy(), groups, intercept=True, features=names)


def main() -> None:
    """Print a row per set and k."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--steps", type=int, default=500, help="EM steps of a random start, at most")
    parser.add_argument("--data", default="konza_bison,lahman_fielding_1954_2024")
    parser.add_argument("--kinds", default="2,3,4,5,6,7,8")
    options = parser.parse_args()
    print(f"{'set':<28} {'k':>2} {'ours':>12} {'s':>6} {'best of EM':>12} {'s':>7} {'ours - best':>12} {'ties':>5}")
    for name in options.data.split(","):
        clients = load(name)
        em = EM(clients)
        for k in map(int, options.kinds.split(",")):
            begun = time.perf_counter()
            ours = fit_auto(LocalPool(clients), clients.features, k).model.details["likelihood"]
            middle = time.perf_counter()
            rng = np.random.default_rng(k)
            found = np.array([em.climb(em.at_random(k, rng), options.steps, 1e-10)[1] for _ in range(options.starts)])
            end = time.perf_counter()
            print(
                f"{name:<28} {k:>2} {ours:>12.2f} {middle - begun:>6.1f} {found.max():>12.2f} {end - middle:>7.1f} "
                f"{ours - found.max():>12.2f} {np.sum(found > ours - 0.5):>5}",
                flush=True,
            )


if __name__ == "__main__":
    main()
