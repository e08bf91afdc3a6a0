"""Small federations in this process, and what may happen on the way to their sites."""

from __future__ import annotations

import numpy as np

from mixfed import AutoSettings, LocalPool, fit_auto
from mixfed.federation import InProcess, Site
from mixfed.federation.messages import Answer, Ask, pack, pack_query, unpack


def split(clients, count, **rules):
    """Sites with clients here and there, of different sizes."""
    home = np.random.default_rng(5).permutation(np.arange(clients.n_clients) * count // clients.n_clients)
    return {f"site-{j}": Site(clients.subset(np.flatnonzero(home == j)), **rules) for j in range(count)}


def local_fit(clients, k=3, **settings):
    return fit_auto(LocalPool(clients), clients.features, k, AutoSettings(**settings))


def same(found, expected, tolerance=1e-9):
    np.testing.assert_allclose(found.model.theta, expected.model.theta, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.model.weights, expected.model.weights, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.model.noise, expected.model.noise, rtol=tolerance, atol=tolerance)


class Disturbed(InProcess):
    """A way to sites on which things happen: ``disturb(name, number, content)`` says what arrives instead."""

    def __init__(self, sites, disturb):
        super().__init__(sites)
        self.disturb, self.number = disturb, 0

    def send(self, messages, timeout):
        self.number += 1
        for name, content in super().send(messages, timeout):
            for outcome in self.disturb(name, self.number, content):
                yield name, outcome


def ask(site, query, who=None, run="run"):
    return unpack(site.answer(pack(Ask(run, 1, False, pack_query(query), who))), Answer)
