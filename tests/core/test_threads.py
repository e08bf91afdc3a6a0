"""The number of threads changes no digit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from threadpoolctl import threadpool_info

from mixfed.core.threads import one_blas_thread

SCRIPT = """
import sys
from mixfed import LocalPool, fit_auto, simulate
clients = simulate("nested", n_clients=8000, dim=6, seed=1).clients
assert len(clients.blocks) > 4
fit_auto(LocalPool(clients), clients.features, 4).model.save(sys.argv[1])
"""


@pytest.mark.process
@pytest.mark.slow
def test_the_number_of_threads_does_not_change_a_byte(tmp_path):
    written = []
    for threads in ("1", "2", "5"):
        path = tmp_path / f"{threads}.json"
        environment = os.environ | {"MIXFED_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        subprocess.run([sys.executable, "-c", SCRIPT, str(path)], env=environment, check=True)
        written.append(path.read_bytes())
    assert written[0] == written[1] == written[2]


def test_blas_has_its_threads_back_however_blocks_overlap():
    """Threads that come and go must not leave what one of them found for what there was."""
    before = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert all(library["num_threads"] == 1 for library in threadpool_info() if library["user_api"] == "blas")
    second.__exit__(None, None, None)
    assert [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"] == before
