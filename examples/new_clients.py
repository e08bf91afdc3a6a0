"""Clients that were not in the fit: find their kinds from a few rows, then predict."""

import numpy as np

from mixfed import MixedRegressor, label_agreement, simulate

made = simulate("mirror", n_clients=1500, dim=6, seed=1)
clients = made.clients
X, y, ids = clients.phi, clients.y, np.repeat(clients.ids, clients.rows)
known = ids < 1000

model = MixedRegressor().fit(X[known], y[known], groups=ids[known])
kinds = model.assign(X[~known], y[~known], groups=ids[~known])
print(f"{label_agreement(kinds.cluster, made.labels[1000:]):.1%} of {len(kinds.ids)} new clients in the right kind")
print("of a client with", kinds.rows[0], "rows:", dict(zip(("kind 0", "kind 1"), kinds.probabilities[0], strict=True)))
