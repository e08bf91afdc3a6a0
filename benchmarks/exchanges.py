"""What a federation costs: exchanges, bytes and seconds, of our recipe and of the paper's; and a thousand sites.

* recipes: the same table fitted by the auto recipe, by the auto recipe without single anchors, and by the paper's,
  across four sites in this process, or with --flare across real processes on NVIDIA FLARE.
* sites: 1,000 sites of 100 clients in this process against one pool with the same rows: seconds of each exchange of a
  fit, every question put to all clients, by the clock and in processor time.

Usage: python benchmarks/exchanges.py [--parts recipes,sites] [--flare] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mixfed import LocalPool, bottleneck_distance, fit_auto, simulate
from mixfed.core.arrays import Array
from mixfed.evaluation.simulation import Simulation
from mixfed.exchange.base import PerClient, Query
from mixfed.federation import FederatedPool, InProcess, Job, Site, conduct
from mixfed.recipes.paper.theory import least_gap
from mixfed.tables.write import write_parquet


def table() -> Simulation:
    """Make clients for both recipes: the paper's needs some with many rows."""
    return simulate(n_clients=20_000, dim=10, n_clusters=3, noise=0.3, n_anchors=40, anchor_rows=800, seed=0)


def jobs(made: Simulation) -> dict[str, Job]:
    """Set up each recipe; the paper's is told the separation and a safe step."""
    paper = {"separation": least_gap(made.theta), "n_anchors": 20, "rounds": 8, "pairs": 50, "step": 0.02}
    k = len(made.theta)
    return {
        "auto": Job(k, intercept=False),
        "auto, anchors summed": Job(k, settings={"anchors": "summed"}, intercept=False),
        "paper": Job(k, "paper", paper, intercept=False),
    }


def recipes(flare: bool) -> list[dict[str, Any]]:
    """Fit the same table by each recipe."""
    made = table()
    clients, floor = made.clients, bottleneck_distance(made.oracle(), made.theta)
    home = np.arange(clients.n_clients) % 4
    rows = []
    for name, job in jobs(made).items():
        transport = InProcess({f"site-{j}": Site(clients.subset(np.flatnonzero(home == j))) for j in range(4)})
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            fit = conduct(transport, job, Path(folder))
            seconds = time.perf_counter() - begun
            about = json.loads((Path(folder) / "run.json").read_text())
        down, up = (max(site[key] for site in about["sites"].values()) / 1e6 for key in ("bytes_down", "bytes_up"))
        row = {
            "recipe": name,
            "exchanges": fit.traffic.exchanges + 1,  # with the one that gives sites the model
            "MB to a site": round(down, 2),
            "MB from a site": round(up, 2),
            "seconds here": round(seconds, 2),
            "error / oracle": round(bottleneck_distance(fit.model.theta, made.theta) / floor, 3),
        }
        rows.append(row | (on_flare(made, job) if flare else {}))
    return rows


def on_flare(made: Simulation, job: Job) -> dict[str, Any]:
    """Run the same on NVIDIA FLARE: a server and four sites, each a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        data, config = Path(folder) / "table.parquet", Path(folder) / "config.toml"
        write_parquet(data, made.columns())
        lines = (f"{name} = {json.dumps(value)}" for name, value in job.settings.items())
        config.write_text("\n".join([f"[{job.recipe}]", *lines]))
        command = [
            sys.executable,
            "-m",
            "mixfed",
            "federate",
            "local",
            str(data),
            "--client",
            "client",
            "--target",
            "y",
        ]
        command += ["--clusters", str(job.n_clusters), "--recipe", job.recipe, "--config", str(config)]
        out = subprocess.run([*command, "--no-intercept", "--json"], capture_output=True, text=True, check=True)
    said = json.loads(out.stdout)
    return {"seconds on FLARE": round(sum(said["seconds"].values()), 1), "difference": said["largest_difference"]}


class Tape:
    """A pool that keeps the questions."""

    def __init__(self, pool: LocalPool) -> None:
        self.pool = pool
        self.asked: list[tuple[str, Callable[[Any], Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)

    def ask(self, query: Query[Any, Any], who: Any = None) -> Any:
        """Keep a question to all."""
        self.asked.append((type(query).__name__, lambda pool: pool.ask(query)))
        return self.pool.ask(query, who)

    def ask_each(self, query: PerClient[Any], who: Array) -> Any:
        """Keep a question to single clients."""
        self.asked.append((type(query).__name__, lambda pool: pool.ask_each(query, who)))
        return self.pool.ask_each(query, who)


def sites(count: int = 1000, each: int = 100) -> list[dict[str, Any]]:
    """Put the questions of a fit to one pool and to many sites, one right after the other; medians of 5."""
    made = simulate(n_clients=count * each, dim=32, n_clusters=5, noise=0.5, seed=1)
    clients = made.clients
    parts = {f"site-{j:04d}": Site(clients.block(j * each, (j + 1) * each)) for j in range(count)}
    pools = LocalPool(clients), FederatedPool(InProcess(parts), intercept=False)
    tape = Tape(pools[0])
    fit_auto(tape, clients.features, 5)
    taken: dict[str, list[Array]] = defaultdict(list)
    for name, put in tape.asked:
        seconds = np.empty((5, 2, 2))  # of each pool, by the clock and of the processor
        for own in seconds:
            for pool, both in zip(pools, own, strict=True):
                begun = clocks()
                put(pool)
                both[:] = clocks() - begun
        taken[name].append(np.median(seconds, axis=0))
    taken["all of a fit"] = [total for totals in list(taken.values()) for total in totals]
    rows = []
    for name, found in taken.items():
        one, many = np.sum(found, axis=0)
        rows.append(
            {
                "question": name,
                "times": len(found),
                "one pool, ms": round(1e3 * one[0], 1),
                "1,000 sites, ms": round(1e3 * many[0], 1),
                "ratio": many[0] / one[0],
                "ratio of processor time": many[1] / one[1],
            }
        )
    return rows


def clocks() -> Array:
    """Give the time by the clock, and that of the processor, all threads together."""
    return np.array([time.perf_counter(), time.process_time()])


def show(rows: list[dict[str, Any]]) -> None:
    """Print a table."""
    names = list(rows[0])
    width = {
        name: max(
            len(name), *(len(f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name])) for row in rows)
        )
        for name in names
    }
    print("  ".join(name.ljust(width[name]) for name in names))
    for row in rows:
        cells = (f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name]) for name in names)
        print("  ".join(cell.ljust(width[name]) for cell, name in zip(cells, names, strict=True)))
    print(flush=True)


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="recipes,sites")
    parser.add_argument("--flare", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    makers = {"recipes": lambda: recipes(chosen.flare), "sites": sites}
    found = {}
    for part in chosen.parts.split(","):
        found[part] = makers[part]()
        show(found[part])
    if chosen.json is not None:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
