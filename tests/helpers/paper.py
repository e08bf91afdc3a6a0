"""Settings of the paper's recipe for a few clients, and its fits."""

from __future__ import annotations

from mixfed import LocalPool, PaperSettings, fit_paper
from mixfed.recipes.paper.theory import least_gap

SMALL = {"n_anchors": 8, "n_recruits": 300, "pairs": 30, "rounds": 6, "refine_rounds": 120}


def settings_for(made, **changes):
    return PaperSettings(separation=least_gap(made.theta), **(SMALL | changes))


def run(made, seed=0, **changes):
    clients = made.clients
    return fit_paper(LocalPool(clients), clients.features, len(made.theta), settings_for(made, **changes), seed=seed)


def small_settings(**changes):
    return PaperSettings(**({"separation": 1.0, "n_anchors": 3, "n_recruits": 5, "pairs": 2, "rounds": 3} | changes))
