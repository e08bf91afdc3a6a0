"""A federation in one process: four sites answer with sums, and the model is that of all rows in one place."""

import tempfile
from pathlib import Path

import numpy as np

from mixfed import LocalPool, fit_auto, simulate
from mixfed.federation import InProcess, Job, Site, conduct

clients = simulate("nested", n_clients=2000, dim=8, seed=0).clients
home = np.arange(clients.n_clients) % 4  # who lives where
sites = {f"site-{j}": Site(clients.subset(np.flatnonzero(home == j)), min_clients=10) for j in range(4)}

with tempfile.TemporaryDirectory() as folder:  # where a run is kept, and goes on after a crash
    found = conduct(InProcess(sites), Job(n_clusters=4, intercept=False), Path(folder))

alone = fit_auto(LocalPool(clients), clients.features, 4)
print(found.traffic.exchanges, "exchanges,", found.traffic.bytes_up, "bytes from a site")
print("largest difference to one place:", np.abs(found.model.theta - alone.model.theta).max())
