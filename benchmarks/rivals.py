"""R's flexmix, the best tool of one place: run where ``Rscript`` and flexmix are installed (Debian: r-cran-flexmix)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from mixfed.core.arrays import Floats
from mixfed.evaluation.simulation import Simulation


def has_flexmix() -> bool:
    """Say whether flexmix can be run here."""
    if shutil.which("Rscript") is None:
        return False
    test = subprocess.run(["Rscript", "-e", "library(flexmix)"], capture_output=True, check=False)
    return test.returncode == 0


def flexmix(made: Simulation, seed: int) -> tuple[Floats, float]:
    """Fit from one start of its own, keeping small clusters. -> (k, d), and the seconds of the fit alone."""
    k, dim = made.theta.shape
    clients = made.clients
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        owner = np.repeat(clients.ids, clients.rows)
        header = ",".join(["client", "y", *(f"x{j}" for j in range(dim))])
        np.savetxt(table, np.column_stack([owner, clients.y, clients.phi]), delimiter=",", header=header, comments="")
        script = (
            f"suppressMessages(library(flexmix)); set.seed({seed}); t <- read.csv('{table}');"
            f"f <- as.formula(paste('y ~ 0 +', paste(paste0('x', 0:{dim - 1}), collapse='+'), '| client'));"
            "took <- system.time("
            f"m <- flexmix(f, data=t, k={k}, control=list(minprior=0, iter.max=500)));"
            "p <- parameters(m); cat(took['elapsed'], p[-nrow(p),], sep=' ')"
        )
        out = subprocess.run(["Rscript", "-e", script], capture_output=True, text=True, check=True)
    seconds, *numbers = map(float, out.stdout.split())
    theta = np.zeros((k, dim))  # a kind that it lost is 0
    theta.flat[: len(numbers)] = numbers
    return theta, seconds
