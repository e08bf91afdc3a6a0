"""Clients that deviate from their kind, and what is said of them by plain loops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from mixfed import AutoSettings, LocalPool, fit_auto

PERSONAL = AutoSettings(personal=True)


def fit(clients, k=None, **settings):
    return fit_auto(LocalPool(clients), clients.features, k, dataclasses.replace(PERSONAL, **settings))


def simulated(seed, n_clients, theta, psi, noise, weights, rows=(2, 9), dim=None):
    """Clients of kinds with deviations: theta (k, d), the intercept being the last; psi (k, d, d)."""
    rng = np.random.default_rng(seed)
    theta, psi, noise = np.asarray(theta, float), np.asarray(psi, float), np.asarray(noise, float)
    k, dim = theta.shape
    kind = rng.choice(k, n_clients, p=weights)
    sizes = rng.integers(*rows, n_clients)
    owner = np.repeat(np.arange(n_clients), sizes)
    own = theta[kind] + np.stack([rng.multivariate_normal(np.zeros(dim), psi[j]) for j in kind])
    X = rng.standard_normal((len(owner), dim - 1)) * 1.5 + 0.5
    design = np.column_stack([X, np.ones(len(X))])
    y = np.einsum("nd,nd->n", design, own[owner]) + noise[kind][owner] * rng.standard_normal(len(owner))
    return X, y, owner, kind, own


def one_kind(seed=0, n_clients=60, rows=(2, 10)):
    psi = [[[1.0, 0.3, 0.2], [0.3, 0.5, 0.0], [0.2, 0.0, 2.0]]]
    return simulated(seed, n_clients, [[1.0, -1.0, 2.0]], psi, [0.7], [1.0], rows)


TWO = {
    "theta": [[2.0, -1.0, 1.0], [-1.5, 1.0, 0.0]],
    "psi": [[[0.3, 0.1, 0.0], [0.1, 0.2, 0.0], [0.0, 0.0, 0.5]], [[0.1, 0.0, 0.05], [0.0, 0.4, 0.1], [0.05, 0.1, 0.2]]],
    "noise": [0.5, 0.9],
    "weights": [0.6, 0.4],
}


def marginal(X, y, theta, psi, variance):
    """log N(y | X theta, variance I + X psi X^T) of one client."""
    cov = variance * np.eye(len(y)) + X @ psi @ X.T
    error = y - X @ theta
    return -0.5 * (np.linalg.slogdet(2 * np.pi * cov)[1] + error @ np.linalg.solve(cov, error))


def whole_likelihood(model, clients):
    """The log likelihood of a model, by a plain loop in the units of the table."""
    total = 0.0
    for i in range(clients.n_clients):
        part = slice(clients.offsets[i], clients.offsets[i + 1])
        X, y = clients.design[part].astype(float), clients.y[part]
        logs = [
            np.log(weight) + marginal(X, y, theta, psi, noise**2)
            for weight, theta, psi, noise in zip(model.weights, model.theta, model.deviation, model.noise, strict=True)
        ]
        total += np.logaddexp.reduce(logs)
    return total


def stores(folder):
    """Stores of two kinds that deviate from them, with a day of each row, and rows of later days."""
    rng = np.random.default_rng(0)
    weeks = rng.integers(3, 12, 300)
    store = np.repeat(np.arange(300), weeks)
    own = np.where(np.arange(300) % 2, -4.0, 2.0)[:, None] * [1.0, 0.3] + rng.normal(0, [0.6, 0.4], (300, 2))
    X = rng.normal(size=(len(store), 2))
    y = 10 + (X * own[store]).sum(axis=1) + rng.normal(0, 0.5, len(store))
    frame = pd.DataFrame({"store": [f"s{i:03d}" for i in store], "price": X[:, 0], "ads": X[:, 1], "sales": y})
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(frame.groupby("store").cumcount(), unit="D")
    later = frame.groupby("store").cumcount(ascending=False) == 0
    frame[~later].to_parquet(folder / "past.parquet", index=False)
    frame[later].to_parquet(folder / "future.parquet", index=False)
    frame.to_parquet(folder / "all.parquet", index=False)
    return folder
