"""Who finds the maximum-likelihood solution? Hard families x seeds; ours, EM and IFCA from one random start, flexmix.

An answer counts as right if d(theta-hat, theta*) is at most 1.02 times that of EM started *at the truth*, which
nobody has in practice. "k found" is how often our fit that is not told k finds it. flexmix runs if Rscript and it are
installed.

Usage: python benchmarks/recovery.py [--seeds 20] [--clients 4000] [--families nested,rare] [--json FILE] [--no-auto]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mixfed import LocalPool, bottleneck_distance, fit_auto, simulate
from mixfed.core.arrays import Floats
from mixfed.evaluation.baselines.em import EM
from mixfed.evaluation.baselines.ifca import fit_ifca, random_start
from mixfed.evaluation.simulation import Simulation
from mixfed.recipes.auto.refine import polish, refine
from mixfed.recipes.conversation import converse
from rivals import flexmix, has_flexmix

SMALL = {"least_rows": 2, "most_rows": 4, "tail": 0.0}
FAMILIES: dict[str, dict[str, Any]] = {
    "nested": {"what": "nested"},
    "nested-unbalanced": {"what": "nested-unbalanced"},
    "nested, k=8": {"what": "nested", "n_clusters": 8, "n_clients": 2.5},
    "rare (3 %)": {"what": "rare"},
    "mirror": {"what": "mirror"},
    "k=10, d=30": {"n_clusters": 10, "dim": 30, "noise": 0.5, "n_clients": 2.0},
    "d=100": {"what": "wide", "n_clients": 1.5},
    "two rows each": {"n_clusters": 3, "dim": 15, "noise": 0.5, "most_rows": 2, "n_clients": 1.5},
    "noise 1.0, 2-4 rows": {"what": "noisy", "radius": 2.0, "n_clients": 1.5, **SMALL},
    "covariances, spread 6": {"what": "skewed", "noise": 0.5},
    "uniform features": {"n_clusters": 4, "dim": 20, "noise": 0.5, "law": "uniform"},
    "Rademacher features": {"n_clusters": 4, "dim": 20, "noise": 0.5, "law": "rademacher"},
    "2-4 rows, k=6": {"n_clusters": 6, "dim": 20, "noise": 0.5, "n_clients": 1.5, **SMALL},
    "k > d (k=3, d=2)": {"n_clusters": 3, "dim": 2, "noise": 0.3, "n_clients": 0.5},
}


def problem(family: str, clients: int, seed: int) -> Simulation:
    """Make an instance; a family's own number of clients is a multiple of the given one."""
    settings = dict(FAMILIES[family])
    settings["n_clients"] = int(clients * settings.get("n_clients", 1.0))
    return simulate(settings.pop("what", None), seed=seed, **settings)


Method = Callable[[Simulation, int], tuple[Floats, float]]
"""Gives models (k, d) and the seconds that they took."""


def timed(method: Callable[[Simulation, int], Floats]) -> Method:
    """Take the time of a method."""

    def run(made: Simulation, seed: int) -> tuple[Floats, float]:
        begun = time.perf_counter()
        theta = method(made, seed)
        return theta, time.perf_counter() - begun

    return run


def from_truth(made: Simulation) -> Floats:
    """EM started at the truth, brought to its very maximum. -> (k, d)."""
    em = EM(made.clients)
    k = len(made.theta)
    shares = np.bincount(made.labels, minlength=k) / len(made.labels)
    mixture, _ = em.climb(em.at(made.theta, made.design.noise, shares), steps=30)
    near = converse(em.pool, [refine(em.units, mixture, em.rules)])[0]
    found = converse(em.pool, [polish(em.units, near)])[0]
    return em.models(found.mixture)


@timed
def ours(made: Simulation, seed: int) -> Floats:
    """Fit with k given."""
    clients = made.clients
    return fit_auto(LocalPool(clients), clients.features, len(made.theta), seed=seed).model.theta


@timed
def random_em(made: Simulation, seed: int) -> Floats:
    """EM from one random start."""
    em = EM(made.clients)
    return em.models(em.climb(em.at_random(len(made.theta), np.random.default_rng(seed)))[0])


@timed
def random_ifca(made: Simulation, seed: int) -> Floats:
    """IFCA from one random start of the right norm, with a step that suits features of variance 1."""
    k, dim = made.theta.shape
    start = random_start(k, dim, made.design.radius, np.random.default_rng(seed))
    return fit_ifca(LocalPool(made.clients), start, step=0.5 * k, rounds=300)


def main() -> None:
    """Print a row per family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=4000)
    parser.add_argument("--families", default=None)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--no-auto", action="store_true", help="do not try to find k")
    parser.add_argument("--only-ours", action="store_true", help="leave out the rivals")
    options = parser.parse_args()
    methods: dict[str, Method] = {"ours": ours}
    if not options.only_ours:
        methods |= {"EM": random_em, "IFCA": random_ifca}
        methods |= {"flexmix": flexmix} if has_flexmix() else {}
    names = options.families.split(";") if options.families else list(FAMILIES)
    records = []
    print(
        f"{'family':<24}" + "".join(f"{name:>9} {'ratio':>7} {'s':>6}" for name in methods) + f"{'k found':>9} {'s':>6}"
    )
    for family in names:
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
        picks: list[tuple[bool, float]] = []
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            made = problem(family, options.clients, seed)
            floor = bottleneck_distance(from_truth(made), made.theta)
            for name, method in methods.items():
                theta, seconds = method(made, seed)
                results[name].append((bottleneck_distance(theta, made.theta) / floor, seconds))
            if not options.no_auto:
                begun = time.perf_counter()
                found = fit_auto(LocalPool(made.clients), made.clients.features, seed=seed).model.n_clusters
                picks.append((found == len(made.theta), time.perf_counter() - begun))
        line = f"{family:<24}"
        record: dict[str, Any] = {"family": family, "seeds": options.seeds}
        for name, outcomes in results.items():
            right = sum(ratio <= 1.02 for ratio, _ in outcomes)
            worst, seconds = max(ratio for ratio, _ in outcomes), statistics.median(s for _, s in outcomes)
            line += f"{right:>5}/{len(outcomes):<3} {worst:>7.3f} {seconds:>6.2f}"
            record[name] = {"right": right, "worst_ratio": worst, "median_seconds": seconds}
        if picks:
            good, seconds = sum(right for right, _ in picks), statistics.median(s for _, s in picks)
            line += f"{good:>6}/{len(picks):<3} {seconds:>5.2f}"
            record["k_found"] = {"right": good, "median_seconds": seconds}
        print(line, flush=True)
        records.append(record)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
