"""How long whole fits take with two versions of the sources: both are asked in turn, so that noise concerns both.

    .venv/bin/python benchmarks/in_turn.py OTHER_CHECKOUT [fit|personal ...] [--pairs 15]

For each fit: the median of the ratios, this version over the other, with its 95 % interval (by order statistics).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

WORKER = """
import sys, time
from mixfed import AutoSettings, LocalPool, fit_auto, simulate
name = sys.argv[1]
if name == "personal":
    sys.path.insert(0, sys.argv[2])
    from personal import make
    clients, k = make(100_000, 16, 3), 3
else:
    clients, k = simulate(n_clients=300_000, dim=32, n_clusters=5, tail=2.12).clients, 5
settings = AutoSettings(personal=name == "personal")
for _ in range(2):
    fit_auto(LocalPool(clients), clients.features, k, settings)
print("ready", flush=True)
for _ in sys.stdin:
    begun = time.perf_counter()
    fit_auto(LocalPool(clients), clients.features, k, settings)
    print(time.perf_counter() - begun, flush=True)
"""
HERE = Path(__file__).resolve().parent


def start(sources: Path, name: str) -> subprocess.Popen[str]:
    """Start a process that makes a fit with the sources of a checkout for every line that it is sent."""
    environment = os.environ | {"PYTHONPATH": str(sources / "src")}
    command = [sys.executable, "-c", WORKER, name, str(HERE)]
    worker = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    if worker.stdout.readline() != "ready\n":
        sys.exit(f"{sources}: the fit failed")
    return worker


def seconds(worker: subprocess.Popen[str]) -> float:
    """Have a process make one fit, and say how long it took."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def main() -> None:
    """Time both versions in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="another checkout")
    parser.add_argument("fits", nargs="*", choices=[[], "fit", "personal"], help="fits to time [both]")
    parser.add_argument("--pairs", type=int, default=15)
    given = parser.parse_args()
    for name in given.fits or ("fit", "personal"):
        workers = [start(sources, name) for sources in (given.other.resolve(), HERE.parent)]
        taken = np.array([[seconds(worker) for worker in workers] for _ in range(given.pairs)])
        for worker in workers:
            worker.communicate()
        ratios = np.sort(taken[:, 1] / taken[:, 0])
        least = int(len(ratios) / 2 - 0.98 * np.sqrt(len(ratios)))
        other, here = np.median(taken, axis=0)
        interval = f"{ratios[least]:.3f} to {ratios[-1 - least]:.3f}"
        print(f"{name}: {here:.3f} s, the other {other:.3f} s; ratio {np.median(ratios):.3f} ({interval})", flush=True)


if __name__ == "__main__":
    main()
