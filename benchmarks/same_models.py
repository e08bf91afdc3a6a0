"""Whether two versions of the sources find the same models: fits of many sorts, each by both, and what differs.

    .venv/bin/python benchmarks/same_models.py OTHER_CHECKOUT

Coefficients must agree to 1e-9 of the largest (1e-5 where rows are in single precision), and warnings, numbers of kinds
and exchanges exactly. Real tables take part if MIXFED_DATA names their folder.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SINGLE, DOUBLE = 1e-5, 1e-9
TABLES = {
    "bison": "konza_bison.parquet",
    "fielding": "lahman_fielding_1954_2024.parquet",
    "MovieTweetings": "movietweetings_100k.parquet",
}


def fits() -> dict[str, Callable[[Path], Any]]:
    """Give the fits by name; only names that the package has always given are used."""
    from mixfed import AutoSettings, Clients, LocalPool, PaperSettings, Store, fit_auto, fit_paper, pack, simulate
    from mixfed.federation import InProcess, Job, Site, conduct

    made = simulate("nested", n_clients=1500, dim=6, seed=1)
    nested = made.clients
    mirror = simulate("mirror", n_clients=800, dim=4, seed=2).clients
    mixed = simulate(n_clients=600, dim=3, n_clusters=2, seed=3).clients
    big = simulate(n_clients=4000, dim=5, n_clusters=2, seed=4, n_anchors=60, anchor_rows=400).clients
    paper = {"n_anchors": 8, "n_recruits": 300, "pairs": 30, "rounds": 5, "refine_rounds": 60, "separation": 1.0}

    def auto(clients: Any, k: int | None = None, **settings: Any) -> Any:
        return fit_auto(LocalPool(clients), clients.features, k, AutoSettings(**settings))

    def by_paper(**settings: Any) -> Any:
        return fit_paper(LocalPool(big), big.features, 2, PaperSettings(**{**paper, **settings}))

    def single(_: Path) -> Any:
        owner = np.repeat(nested.ids, nested.rows)
        return auto(Clients.from_arrays(nested.phi.astype(np.float32), nested.y, owner), 3)

    def store(folder: Path) -> Any:
        pq.write_table(pa.table(made.columns()), folder / "rows.parquet")
        pack(folder / "rows.parquet", folder / "packed", "client", "y")
        return auto(Store.open(folder / "packed", intercept=False), 3)

    def dask(_: Path) -> Any:
        from distributed import Client, LocalCluster

        from mixfed import DaskPool

        cluster = LocalCluster(2, threads_per_worker=1, dashboard_address=None, processes=False)
        with cluster, Client(cluster) as client:
            return fit_auto(DaskPool(client, nested, 6), nested.features, 3)

    def federation(folder: Path) -> Any:
        home = np.arange(nested.n_clients) % 4
        sites = {f"site-{j}": Site(nested.subset(np.flatnonzero(home == j))) for j in range(4)}
        return conduct(InProcess(sites), Job(3, intercept=False), folder / "server")

    def table(name: str, **settings: Any) -> Callable[[Path], Any]:
        def fit(_: Path) -> Any:
            path = Path(os.environ["MIXFED_DATA"]) / TABLES[name]
            features = [column for column in pq.read_schema(path).names if column.startswith("x_")]
            return auto(Clients.from_file(path, "client", "y", features), 3, **settings)

        return fit

    found: dict[str, Callable[[Path], Any]] = {
        "k given": lambda _: auto(nested, 3),
        "k found": lambda _: auto(nested),
        "hard labels": lambda _: auto(mirror, 2, membership="hard"),
        "summed anchors": lambda _: auto(mirror, 2, anchors="summed"),
        "FedAvg on the way": lambda _: auto(mirror, 2, update="fedavg", step=0.5, local_steps=3),
        "personal, k given": lambda _: auto(mixed, 2, personal=True),
        "personal, k found": lambda _: auto(mixed, personal=True, max_clusters=4),
        "paper, FedAvg": lambda _: by_paper(update="fedavg", step=0.05, local_steps=3),
        "paper, FedProx": lambda _: by_paper(update="fedprox", step=0.5),
        "single precision": single,
        "store": store,
        "dask": dask,
        "federation": federation,
    }
    if os.environ.get("MIXFED_DATA"):
        found |= {name: table(name) for name in TABLES}
        found["bison, personal"] = table("bison", personal=True)
    return found


def run(names: list[str]) -> dict[str, Any]:
    """Make the fits, and keep what is compared."""
    said = {}
    for name, fit in fits().items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = fit(Path(folder))
        model = found.model
        said[name] = {
            "theta": model.theta,
            "weights": model.weights,
            "noise": model.noise,
            "warnings": list(model.warnings),
            "exchanges": found.traffic.exchanges,
        }
        print(f"{name} ...", file=sys.stderr, flush=True)
    return said


def of(sources: Path, names: list[str]) -> dict[str, Any]:
    """Make the fits with the sources of a checkout, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "said.pickle"
        environment = os.environ | {"PYTHONPATH": str(sources / "src")}
        subprocess.run([sys.executable, __file__, "--out", out, *names], env=environment, check=True)
        return dict(pickle.loads(out.read_bytes()))


def main() -> None:
    """Compare the two, and end with an error if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="another checkout, and fits if not all of them")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.out is not None:
        given.out.write_bytes(pickle.dumps(run(given.names)))
        return
    other, *names = given.names
    before, now = of(Path(other).resolve(), names), of(Path(__file__).resolve().parents[1], names)
    wrong = False
    print("| fit | kinds | exchanges | warnings | largest difference |\n|---|---|---|---|---|")
    for name, one in before.items():
        two = now[name]
        same = one["theta"].shape == two["theta"].shape
        gap = max(
            float(np.abs(one[part] - two[part]).max() / np.abs(one[part]).max()) if same else np.inf
            for part in ("theta", "weights", "noise")
        )
        about = [[len(said["theta"]), said["exchanges"], json.dumps(said["warnings"])] for said in (one, two)]
        good = gap <= (SINGLE if name == "single precision" else DOUBLE) and about[0] == about[1]
        wrong |= not good
        kinds, exchanges, warnings = (str(a) if a == b else f"{a} / {b}" for a, b in zip(*about, strict=True))
        warnings = str(len(one["warnings"])) if about[0][2] == about[1][2] else warnings
        print(f"| {name} | {kinds} | {exchanges} | {warnings} | {gap:.1e}{'' if good else ' **differs**'} |")
    sys.exit(wrong)


if __name__ == "__main__":
    main()
