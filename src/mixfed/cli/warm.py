"""The command that compiles ahead: `warm`."""

from __future__ import annotations

import time

import click

from . import options
from .options import say
from .usage import Command


@click.command(cls=Command)
@options.quiet
def warm(quiet: bool) -> None:
    """Compile what fits of large tables use, so that the first of them need not: for images and new machines.

    Tables of up to 500,000 numbers compile nothing.

    Example: `mixfed warm`
    """
    import numpy as np

    from .. import AutoSettings, Clients, LocalPool, fit_auto
    from ..evaluation.simulation import simulate
    from ..kernels import named

    begun = time.perf_counter()
    double = simulate(n_clients=300, dim=3, n_clusters=2, seed=0).clients
    single = Clients(double.phi.astype(np.float32), double.y, double.offsets, double.ids, double.features)
    for clients in (double, single):
        for settings in (AutoSettings(personal=True), AutoSettings(update="fedprox", step=0.1)):
            pool = LocalPool(clients)
            pool.kernels = named("compiled")
            fit_auto(pool, clients.features, 2, settings)
    say(f"Compiled code is on disk, for rows in both precisions ({time.perf_counter() - begun:.0f} s)", quiet)
