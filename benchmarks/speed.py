"""Speed, memory and growth, as ratios to yardsticks timed in the same run.

    python benchmarks/speed.py [PART ...] [--json FILE] [--plot FILE]

Parts: round, fit, first, report, small, profile, startup, growth, memory. Without names all are run; ``memory`` writes
3 GB to a temporary folder. The yardstick of rounds and fits is ``X @ theta.T`` in NumPy on the same rows, with as many
threads as NumPy likes. Each figure is a median of five.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mixfed import Clients, LocalPool, bottleneck_distance, fit_auto, simulate
from mixfed.evaluation.simulation import Simulation
from mixfed.exchange.census import Census
from mixfed.exchange.local_update import FedAvg, FedProx, LocalUpdate, Mixture, Update
from mixfed.exchange.mixture import Candidates, MixtureSums
from mixfed.exchange.pool import Pool
from mixfed.model.fit import Fit
from mixfed.model.residuals import residuals
from mixfed.recipes.standardise import from_user, gram_query, inspect, make_units
from mixfed.report import report_html
from rivals import flexmix, has_flexmix

FLEXMIX_SECONDS = 49.0
"""One start of R's flexmix on the problem of ``small``, measured elsewhere: for where it is not installed."""
BIN = Path(sys.executable).parent


class Results:
    """Figures as they come: printed, and kept for the JSON file."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def add(self, part: str, name: str, value: float, limit: float | None = None, unit: str = "x", **more: Any) -> None:
        """Print a figure beside its limit."""
        verdict = "" if limit is None else f"at most {limit:g}" + ("" if value <= limit else "   <-- above")
        print(f"{part:<9}{name:<46}{value:>9.2f} {unit:<7}{verdict}", flush=True)
        self.records.append({"part": part, "name": name, "value": value, "unit": unit, "limit": limit, **more})


def median(work: Callable[[], object], times: int = 5) -> float:
    """Seconds that some work takes, after a first time that does not count."""
    work()
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def in_turn(works: Sequence[Callable[[], object]], times: int = 5, each: int = 1) -> np.ndarray:
    """Time several, one right after the other, so that what else the machine does concerns them all. -> (times, w).

    What takes but a few hundredths of a second is timed more often each time.
    """
    return np.array([[median(work, each) for work in works] for _ in range(times)])


def product(made: Simulation) -> float:
    """Time the yardstick."""
    return median(lambda: made.clients.phi @ made.theta.T, 9)


def make(n_clients: int, dim: int, n_clusters: int) -> Simulation:
    """Simulate clients of five rows on average, 2 to 50 each."""
    return simulate(n_clients=n_clients, dim=dim, n_clusters=n_clusters, tail=2.12)


def exact_round(clients: Clients, theta: np.ndarray, noise: float) -> Callable[[], object]:
    """Make a round of soft memberships and exact normal equations, in standard units."""
    pool: Pool = LocalPool(clients)
    census = pool.ask(Census())
    columns = inspect(census, clients.intercept)
    frame, _ = make_units(columns, pool.ask(gram_query(columns)), census.n_rows)
    k = len(theta)
    log_variance = np.full((1, k), 2.0 * np.log(noise / frame.scale))
    candidate = Candidates(from_user(frame, theta)[None], log_variance, np.full((1, k), -np.log(k)))
    return lambda: pool.ask(MixtureSums(frame, candidate))


def rounds(results: Results) -> None:
    """Time one round of Phase 2 on 1.5 M rows, and the same in float32."""
    made = make(300_000, 32, 5)
    clients, k = made.clients, 5
    single = Clients(clients.phi.astype(np.float32), clients.y, clients.offsets, clients.ids, clients.features)
    rng = np.random.default_rng(0)
    theta = made.theta + 0.1 * rng.standard_normal(made.theta.shape) / np.sqrt(32)
    mixture = Mixture(theta, np.full(k, 1 / k), np.full(k, 0.3))
    yardstick = product(made)
    print(f"{clients.n_rows:,} rows, {clients.n_clients:,} clients, d=32, k=5; X @ theta.T: {1e3 * yardstick:.1f} ms")
    updates: dict[str, tuple[Update, float]] = {
        "hard FedAvg, s=1": (FedAvg(0.03, 1), 2),
        "hard FedAvg, s=5": (FedAvg(0.03, 5), 4),
        "hard FedProx": (FedProx(0.5), 5),
    }
    works: dict[str, tuple[list[Callable[[], object]], float]] = {
        name: ([partial(LocalPool(own).ask, LocalUpdate(mixture, True, update)) for own in (clients, single)], limit)
        for name, (update, limit) in updates.items()
    }
    works["soft, exact"] = [exact_round(own, theta, 0.3) for own in (clients, single)], 6
    for name, (both, limit) in works.items():
        double, half = in_turn(both, each=5).T
        results.add("round", name, float(np.median(double)) / yardstick, limit)
        results.add("round", f"{name}, float32 / float64", float(np.median(half / double)), 0.7)


def whole_fit(results: Results) -> None:
    """Time the auto recipe with k given, on the same data."""
    made = make(300_000, 32, 5)
    clients = made.clients
    yardstick = product(made)
    seconds = median(lambda: fit_auto(LocalPool(clients), clients.features, 5))
    results.add("fit", "auto, k given, 1.5 M rows", seconds / yardstick, 40, seconds=seconds)


FIRST = """
import sys, time
from mixfed import LocalPool, fit_auto, simulate
clients = simulate(n_clients=int(sys.argv[1]), dim=int(sys.argv[2]), n_clusters=3, tail=2.12).clients
import pyarrow, scipy.linalg  # as any command has by then
begun = time.perf_counter()
fit_auto(LocalPool(clients), clients.features, 3)
print(time.perf_counter() - begun, clients.n_rows)
"""


def first_fit(results: Results) -> None:
    """Time the first fit of a process, by plain and by compiled kernels, with their code on disk and without."""

    def fit(kernels: str, n_clients: int, dim: int, cache: str | None = None) -> tuple[float, int]:
        environment = os.environ | {"MIXFED_KERNELS": kernels} | ({"NUMBA_CACHE_DIR": cache} if cache else {})
        command = [sys.executable, "-c", FIRST, str(n_clients), str(dim)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        seconds, rows = done.stdout.split()
        return float(seconds), int(rows)

    for dim in (5, 32):
        for n_clients in (400, 2_000, 10_000, 30_000, 100_000, 300_000):
            fit("compiled", n_clients, dim)
            taken = np.array([[fit(kernels, n_clients, dim)[0] for kernels in ("plain", "compiled")] for _ in range(5)])
            plain, warm = np.median(taken, axis=0)
            numbers = fit("plain", n_clients, dim)[1] * dim
            name = f"{n_clients:,} clients, d = {dim}"
            results.add("first", f"{name}, plain", float(plain), unit="s", numbers=numbers)
            results.add("first", f"{name}, compiled, warm", float(warm), unit="s", numbers=numbers)
    with tempfile.TemporaryDirectory() as cache:
        results.add(
            "first", "300,000 clients, d = 32, compiled, cold", fit("compiled", 300_000, 32, cache)[0], unit="s"
        )


def report(results: Results) -> None:
    """Time the report of a million clients beside their fit, and weigh it."""
    made = make(1_000_000, 32, 5)
    clients = made.clients
    found = fit_auto(LocalPool(clients), clients.features, 5)
    fit = median(lambda: fit_auto(LocalPool(clients), clients.features, 5), 3)
    assigned = found.model.assign(clients)

    def build() -> Fit:
        model = found.model.with_details(residuals=residuals(found.model, clients, assigned))
        return dataclasses.replace(found, model=model)

    seconds = median(lambda: report_html(build(), assigned), 3)
    results.add("report", "of a million clients, beside their fit", seconds / fit, 0.1, seconds=seconds)
    results.add("report", "its size", len(report_html(build(), assigned).encode()) / 1e6, 5, unit="MB")


def small_fit(results: Results) -> None:
    """Time a problem beside one start of flexmix, or the 49 s that it took elsewhere."""
    made = make(20_000, 30, 5)
    clients = made.clients
    seconds = median(lambda: fit_auto(LocalPool(clients), clients.features, 5))
    theta = fit_auto(LocalPool(clients), clients.features, 5).model.theta
    error = bottleneck_distance(theta, made.theta) / bottleneck_distance(made.oracle(), made.theta)
    rival = FLEXMIX_SECONDS
    if has_flexmix():
        found, rival = flexmix(made, 0)
        other = bottleneck_distance(found, made.theta) / bottleneck_distance(made.oracle(), made.theta)
        results.add("small", "one start of flexmix", rival, unit="s")
        results.add("small", "its error over that with the kinds known", other)
    results.add("small", "auto, k=5, d=30, 20,000 clients", seconds, rival / 100, "s", rows=clients.n_rows)
    results.add("small", "our error over that with the kinds known", error)


POWERS = {"n_clients": 1, "dim": 2, "n_clusters": 1}
SEARCH = ("n_clusters", "whole fit, k given")
"""The server's own search among anchors grows faster with k, whatever the number of clients."""


def growth(results: Results, plot: Path | None) -> None:
    """Time one exact round and a whole fit against clients, features and kinds."""
    base = {"n_clients": 100_000, "dim": 32, "n_clusters": 5}
    sweeps: dict[str, list[int]] = {
        "n_clients": [25_000, 50_000, 100_000, 200_000, 400_000],
        "dim": [8, 16, 32, 64, 128],
        "n_clusters": [2, 4, 8, 16],
    }
    curves: dict[str, dict[str, list[float]]] = {}
    for axis, points in sweeps.items():
        curves[axis] = {"one exact round": [], "whole fit, k given": []}
        for point in points:
            settings = base | {axis: point}
            if axis == "dim":
                settings["n_clients"] = 50_000
            made = make(**settings)
            clients, k = made.clients, settings["n_clusters"]
            curves[axis]["one exact round"].append(median(exact_round(clients, made.theta, 0.3), 15))
            work: Callable[[], object] = lambda c=clients, k=k: fit_auto(LocalPool(c), c.features, k)  # type: ignore[misc]  # noqa: E731
            curves[axis]["whole fit, k given"].append(median(work))
        for name, seconds in curves[axis].items():
            slope = float(np.polyfit(np.log(points[-3:]), np.log(seconds[-3:]), 1)[0])
            limit = POWERS[axis] + 0.1 if (axis, name) != SEARCH else None
            results.add("growth", f"power of {axis}, {name}", slope, limit, "", points=points, seconds=seconds)
    if plot is not None:
        draw(sweeps, curves, plot)


def draw(sweeps: dict[str, list[int]], curves: dict[str, dict[str, list[float]]], plot: Path) -> None:
    """Plot the curves beside straight lines of the power that is claimed."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    titles = {"n_clients": "clients", "dim": "features, d (50,000 clients)", "n_clusters": "kinds, k (100,000 clients)"}
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), constrained_layout=True)
    for panel, (axis, points) in zip(panels, sweeps.items(), strict=True):
        power = POWERS[axis]
        for name, seconds in curves[axis].items():
            panel.loglog(points, seconds, "o-", label=name)
            line = seconds[-1] * (np.array(points) / points[-1]) ** power
            panel.loglog(points, line, ":", color="grey", label=None)
        panel.set_xlabel(titles[axis])
        panel.set_xticks(points, [f"{point:,}" for point in points], minor=False)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.text(0.05, 0.93, f"dotted: power {power}", transform=panel.transAxes, fontsize=8, va="top", color="grey")
    panels[0].set_ylabel("seconds, two cores")
    panels[1].legend(fontsize=8, loc="lower right")
    figure.savefig(plot, dpi=150)


class Watched(LocalPool):
    """A pool that notes how long the server took before each question, and the clients for their answer."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients)
        self.spent: dict[str, float] = {}
        self.last = time.perf_counter()

    def note(self, what: str) -> None:
        """Add the time since the last note."""
        now = time.perf_counter()
        self.spent[what] = self.spent.get(what, 0.0) + now - self.last
        self.last = now

    def ask(self, query: Any, who: Any = None) -> Any:
        """Answer, and note the time."""
        self.note("server: search among anchors, Newton steps")
        reply = super().ask(query, who)
        name = type(query).__name__
        if name == "MixtureSums":
            name = "Expect, with curvature" if query.curvature else "Expect, scores only"
        self.note(f"clients: {name}, {'all' if who is None else 'a sample'}")
        return reply

    def ask_each(self, query: Any, who: Any) -> Any:
        """Answer, and note the time."""
        self.note("server: search among anchors, Newton steps")
        replies = super().ask_each(query, who)
        self.note(f"clients: {type(query).__name__}, anchors")
        return replies


def profile(results: Results) -> None:
    """Show where the time of a whole fit goes, beside what the machine can do."""
    made = make(300_000, 32, 5)
    clients = made.clients
    yardstick = product(made)
    square = np.random.default_rng(0).standard_normal((2000, 2000))
    results.add("limits", "BLAS, two cores", 2 * 2000**3 / median(lambda: square @ square) / 1e9, unit="GF/s")
    results.add("limits", "reading memory, one core", clients.phi.nbytes / median(clients.phi.sum) / 1e9, unit="GB/s")
    fit_auto(LocalPool(clients), clients.features, 5)
    runs = []
    for _ in range(5):
        pool = Watched(clients)
        fit_auto(pool, clients.features, 5)
        pool.note("server: search among anchors, Newton steps")
        runs.append(pool.spent)
    for name in sorted(runs[0], key=lambda name: -runs[0][name]):
        results.add("profile", name, statistics.median(run[name] for run in runs) / yardstick)


def startup(results: Results) -> None:
    """Time the start of the command against the imports that nobody can avoid."""

    def compare(name: str, limit: float, *commands: tuple[str, ...]) -> None:
        works = [partial(subprocess.run, command, check=True, capture_output=True) for command in commands]
        ours, theirs = in_turn(works).T
        results.add("startup", name, float(np.median(ours / theirs)), limit)

    def python(code: str) -> tuple[str, ...]:
        return (sys.executable, "-c", code)

    mixfed = str(BIN / "mixfed")
    compare("mixfed --help / click, rich", 2, (mixfed, "--help"), python("import click, rich.table, rich.panel"))
    compare("import mixfed / import numpy", 2, python("import mixfed"), python("import numpy"))
    with tempfile.TemporaryDirectory() as folder:
        table = f"{folder}/clients.parquet"
        subprocess.run(
            [mixfed, "simulate", "--clients", "1000", "--dim", "10", "--clusters", "3", "--out", table],
            check=True,
            capture_output=True,
        )
        fit = (mixfed, "fit", table, "--client", "client", "--target", "y", "--out", f"{folder}/result")
        compare("mixfed fit / imports", 3, fit, python("import numba, scipy.linalg, pyarrow.parquet"))


FIT = """
import json, re, resource, sys, time
from pathlib import Path
from mixfed import Clients, LocalPool, Store, fit_auto

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

source, limit = sys.argv[1], int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
base, begun = peak(), time.perf_counter()
clients = Store.open(source, intercept=False) if limit else Clients.from_file(source, "client", "y", intercept=False)
read = time.perf_counter()
fit_auto(LocalPool(clients), clients.features, 5)
seconds = {"read": read - begun, "fit": time.perf_counter() - read}
print(json.dumps({**seconds, "base": base, "peak": peak(), "rows": clients.n_rows}))
"""
LIMIT = 1_200_000_000
"""Bytes of address space that a fit from disk may have, programs and all: less than the rows take."""
LEAN = {"MALLOC_ARENA_MAX": "2", "OPENBLAS_NUM_THREADS": "1"}
"""Without these, the C library and OpenBLAS set address space aside for each thread that they never use."""


def run_fit(source: str, limit: int = 0) -> dict[str, float]:
    """Fit in a process of its own, under a limit on memory if there is one."""
    command = [sys.executable, "-c", FIT, source, str(limit)]
    environment = os.environ | (LEAN if limit else {})
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def memory(results: Results) -> None:
    """Fit a million clients from a file and, under a limit, from disk; compare cost per row with 100,000 clients."""
    mixfed = str(BIN / "mixfed")
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name, n_clients in (("few", 100_000), ("many", 1_000_000)):
            table = f"{folder}/{name}.parquet"
            write_table(n_clients, table)
            run_fit(table)  # kernels compiled, file in the cache
            found[name] = run_fit(table)
        few, many = found["few"], found["many"]
        size = many["rows"] * (32 + 1) * 8
        results.add(
            "memory", "peak / size of 1 M clients' rows, from a file", many["peak"] / size, 1.4, rows=many["rows"]
        )
        per_row = (many["fit"] / many["rows"]) / (few["fit"] / few["rows"])
        results.add("memory", "cost per row, 1 M clients / 100,000", per_row, 1.2, seconds=many["fit"])
        command = [mixfed, "pack", f"{folder}/many.parquet", "--client", "client", "--target", "y"]
        subprocess.run([*command, "--out", f"{folder}/packed"], check=True, capture_output=True)
        packed = run_fit(f"{folder}/packed", LIMIT)
        more = (packed["peak"] - packed["base"]) / 1e6
        results.add("memory", "above the imports, from disk, limited", more, 400, "MB", limit_mb=LIMIT / 1e6)
        results.add("memory", "fit from disk / in memory, time", packed["fit"] / many["fit"])


def write_table(n_clients: int, path: str) -> None:
    """Write simulated clients as a parquet file."""
    from mixfed.tables.write import write_parquet

    write_parquet(Path(path), make(n_clients, 32, 5).columns())


def main() -> None:
    """Run the parts asked for."""
    parts: dict[str, Callable[[Results], None]] = {
        "round": rounds,
        "fit": whole_fit,
        "first": first_fit,
        "report": report,
        "small": small_fit,
        "profile": profile,
        "startup": startup,
        "growth": lambda results: growth(results, options.plot),
        "memory": memory,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *parts], help="parts to run [all]")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--plot", type=Path, default=None)
    options = parser.parse_args()
    for path in filter(None, (options.json, options.plot)):
        path.parent.mkdir(parents=True, exist_ok=True)
    results = Results()
    for name in options.parts or parts:
        parts[name](results)
    if options.json:
        options.json.write_text(json.dumps(results.records, indent=1) + "\n")


if __name__ == "__main__":
    main()
