"""Ten lines: find the kinds, one model per kind, each client's kind, and predict."""

import numpy as np

from mixfed import MixedRegressor, simulate

clients = simulate("nested", n_clients=2000, dim=8, seed=0).clients  # or your own X, y and ids
X, y, ids = clients.phi, clients.y, np.repeat(clients.ids, clients.rows)

model = MixedRegressor(random_state=0).fit(X, y, groups=ids)  # finds the number of kinds, too
print(model.n_clusters_, "kinds with shares", model.weights_.round(2))
print("coefficients of the largest kind:", model.coef_[0].round(2))
print("kind of client 7:", model.client_labels_[7], "with probability", model.client_proba_[7].max().round(3))
print("predictions:", model.predict(X[:3], groups=ids[:3]).round(2), "targets:", y[:3].round(2))
