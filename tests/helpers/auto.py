"""Fits of the tuning-free recipe."""

from __future__ import annotations

from mixfed import AutoSettings, LocalPool, fit_auto

FEW = {"least_rows": 2, "most_rows": 4, "tail": 0.0}


def fit(clients, k=None, seed=0, **settings):
    return fit_auto(LocalPool(clients), clients.features, k, AutoSettings(**settings), seed=seed)
