"""Packed clients take no more memory than a few blocks."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

LIMITED = """
import os, resource, sys
from pathlib import Path
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # BLAS has a buffer of 32 MB for each thread
from mixfed import AutoSettings, Clients, LocalPool, Store, fit_auto, pack

def fit(store):
    clients = Store.open(store)
    model = fit_auto(LocalPool(clients), clients.features, 2, AutoSettings(), seed=0).model
    model.assign(clients)
    return sorted(model.coef[:, 0].round(2).tolist())

job, folder = sys.argv[1], Path(sys.argv[2])
jobs = {
    "pack": lambda name: pack(folder / f"{name}.parquet", folder / name, "c", "y").size,
    "fit": lambda name: fit(folder / name),
    "load": lambda name: Clients.from_file(folder / f"{name}.parquet", "c", "y").n_rows,
}
jobs[job]("small")  # compiles, starts threads
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(jobs[job]("large"))
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are of Linux")
def test_packing_and_fitting_need_less_memory_than_the_table(tmp_path):
    rng = np.random.default_rng(0)
    headroom = 100_000_000
    for name, rows in (("small", 30_000), ("large", 800_000)):
        owner = rng.integers(0, rows // 8, rows)
        x = rng.standard_normal((rows, 24))
        y = x[:, 0] * np.where(owner % 2, 2.0, -1.0) + 0.3 * rng.standard_normal(rows)
        order = np.argsort(owner // 100, kind="stable")  # almost sorted
        table = pa.table({"c": owner[order], "y": y[order]} | {f"x_{j}": x[order, j] for j in range(24)})
        small = {"row_group_size": 50_000, "data_page_size": 1 << 17, "use_dictionary": False}
        pq.write_table(table, tmp_path / f"{name}.parquet", **small)
    # Allocators that set address space aside, or keep what was freed, would hide what is used.
    quirks = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "1000000"}
    quirks["OPENBLAS_NUM_THREADS"] = "1"

    def limited(job, kernels="compiled"):
        command = [sys.executable, "-c", LIMITED, job, str(tmp_path), str(headroom)]
        environment = os.environ | quirks | {"MIXFED_KERNELS": kernels}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    packed, loaded = limited("pack"), limited("load")
    assert packed.returncode == 0, packed.stderr
    assert int(packed.stdout) > 1.5 * headroom
    for kernels in ("plain", "compiled"):
        fitted = limited("fit", kernels)
        assert fitted.returncode == 0, fitted.stderr
        assert fitted.stdout == "[-1.0, 2.0]\n"
    assert "MemoryError" in loaded.stderr  # in memory there is no room for it
