"""Dask clusters here, and pools to which something happens. Without dask, whoever imports this is skipped."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from mixfed import AutoSettings, fit_auto

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


def healed(client, gone):
    """Wait until two workers answer, neither of them the one that is gone: the next test wants them both."""
    for _ in range(300):
        with contextlib.suppress(Exception):  # whatever dask says of a worker that is just being lost
            answering = list(client.run(os.getpid).values())
            if len(answering) == 2 and gone not in answering:
                return True
        time.sleep(0.1)
    return False


@contextlib.contextmanager
def bare_cluster(workers):
    """A scheduler with workers that nobody starts again. Gives a client, the workers' processes and the address."""
    with (
        distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=":0", silence_logs=50) as scheduler,
        distributed.Client(scheduler, set_as_default=False) as client,
    ):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler.scheduler_address, "--no-nanny"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes = [subprocess.Popen([*command, "--nthreads", "1", "--no-dashboard"], **quiet) for _ in range(workers)]
        try:
            client.wait_for_workers(workers, timeout=30)
            yield client, processes, scheduler.scheduler_address
        finally:
            for process in processes:
                process.kill()
                process.wait()


def same(first, second, tolerance=1e-9):
    for name in ("theta", "weights", "noise"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=tolerance, atol=tolerance)


def equal(first, second):
    same(first, second, 0.0)


def auto(pool, clients, k=2, **changes):
    return fit_auto(pool, clients.features, k, AutoSettings(**changes), seed=1)


class Disturbed:
    """A pool to which something happens before one of its exchanges."""

    def __init__(self, pool, at, event):
        self.pool, self.at, self.event = pool, at, event

    def __getattr__(self, name):
        return getattr(self.pool, name)

    def ask(self, *question):
        return self._after(self.pool.ask, question)

    def ask_each(self, *question):
        return self._after(self.pool.ask_each, question)

    def _after(self, ask, question):
        self.at -= 1
        if self.at == 0:
            self.event()
        return ask(*question)
