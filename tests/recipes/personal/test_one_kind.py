"""One kind that clients deviate from is the mixed model of statsmodels."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

from helpers.personal import PERSONAL, fit, one_kind, simulated, whole_likelihood
from mixfed import Clients, LocalPool, fit_auto
from mixfed.exchange.pool import Sample
from mixfed.exchange.random_effects import RandomEffectsSums


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_a_large_crowd_gets_the_form_that_suits_it(correlation):
    """A sample is asked about the full form first, and about the other only where it may do."""
    centred = np.array([[0.5, 0.5 * correlation, 0.0], [0.5 * correlation, 0.5, 0.0], [0.0, 0.0, 0.4]])
    shift = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-0.5, -0.5, 1.0]])  # columns have the mean 0.5
    psi = [shift @ centred @ shift.T]
    X, y, owner, *_ = simulated(4, 30_000, [[1.0, -1.0, 2.0]], psi, [0.7], [1.0], (2, 7))
    clients = Clients.from_arrays(X, y, owner, intercept=True)
    told = []
    found = fit_auto(Overheard(clients, told), clients.features, 1, PERSONAL).model
    assert sum(isinstance(who, Sample) for _, who in told) > 0
    assert any(not query.full for query, _ in told) == (correlation == 0)
    np.testing.assert_allclose(found.deviation[0, 0, 1], 0.5 * correlation, atol=0.02)
    assert (abs(found.deviation[0, 0, 1]) < 1e-12) == (correlation == 0)


class Overheard(LocalPool):
    """A pool that tells what is asked of deviations."""

    def __init__(self, clients, told):
        super().__init__(clients)
        self.told = told

    def ask(self, query, who=None):
        self.told += [(part, who) for part in getattr(query, "parts", (query,)) if isinstance(part, RandomEffectsSums)]
        return super().ask(query, who)


def against_statsmodels(X, y, owner):
    """Compare with MixedLM: the best of several methods, for each may stop early."""
    import statsmodels.api as sm

    clients = Clients.from_arrays(X, y, owner, intercept=True)
    model = fit(clients, 1, deviations="full").model
    design = np.column_stack([X, np.ones(len(X))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle = sm.MixedLM(y, design, owner, exog_re=design)
        fits = [oracle.fit(reml=False, method=[method], maxiter=3000, gtol=1e-9) for method in ("bfgs", "powell")]
        best = max(fits, key=lambda found: found.llf)
    return clients, model, best


def sleepstudy_like(seed=1):
    """18 subjects, 10 days each, as in lme4's example: intercept 250 +- 25, slope 10 +- 6, noise 25."""
    rng = np.random.default_rng(seed)
    owner, days = np.repeat(np.arange(18), 10), np.tile(np.arange(10.0), 18)
    own = rng.multivariate_normal([10.5, 251.0], [[35.0, 10.0], [10.0, 600.0]], 18)
    return days[:, None], days * own[owner, 0] + own[owner, 1] + 25.6 * rng.standard_normal(180), owner


@pytest.mark.slow
@pytest.mark.parametrize("make", [sleepstudy_like, lambda: one_kind()[:3], lambda: one_kind(3, 200, (1, 6))[:3]])
def test_one_kind_equals_statsmodels(make):
    clients, model, oracle = against_statsmodels(*make())
    likelihood = model.details["likelihood"]
    assert likelihood == pytest.approx(oracle.llf, rel=1e-4)
    assert likelihood >= oracle.llf - 1e-6
    assert whole_likelihood(model, clients) == pytest.approx(likelihood, rel=1e-9)
    psi = model.deviation[0]
    if likelihood < oracle.llf + 1e-3:  # it may stop short of the maximum, we may not
        np.testing.assert_allclose(model.theta[0], oracle.fe_params, atol=1e-4 * np.abs(oracle.fe_params).max())
        scale = np.sqrt(np.outer(np.diag(psi), np.diag(psi)))
        np.testing.assert_allclose(psi / scale, oracle.cov_re / scale, atol=1e-4)
        assert model.noise[0] ** 2 == pytest.approx(oracle.scale, rel=1e-4)
    else:
        assert likelihood > oracle.llf + 1e-3


def test_no_parameter_can_be_bettered():
    """The maximum against a plain loop: any small move loses likelihood."""
    X, y, owner, *_ = one_kind(5, 40, (2, 6))
    clients = Clients.from_arrays(X, y, owner, intercept=True)
    model = fit(clients, 1, deviations="full").model
    best, rng = whole_likelihood(model, clients), np.random.default_rng(0)
    for _ in range(20):
        factor = model.factor + 1e-3 * rng.standard_normal(model.factor.shape)
        coef = model.coef + 1e-3 * rng.standard_normal(model.coef.shape)
        noise = model.noise * np.exp(1e-3 * rng.standard_normal(1))
        moved = dataclasses.replace(model, factor=factor, coef=coef, noise=noise)
        assert whole_likelihood(moved, clients) < best


def test_a_singular_psi_is_reached():
    """Only the intercept deviates: the maximum is on the edge, and is found."""
    psi = np.zeros((1, 3, 3))
    psi[0, 2, 2] = 1.0
    X, y, owner, *_ = simulated(2, 150, [[1.0, 0.5, 0.0]], psi, [0.5], [1.0])
    found = fit(Clients.from_arrays(X, y, owner, intercept=True), 1, deviations="full")
    assert found.stop == "the likelihood is at its maximum"
    assert found.model.deviation[0, 2, 2] == pytest.approx(1.0, rel=0.3)
    assert found.model.deviation[0, 0, 0] < 0.02
    clients = Clients.from_arrays(X, y, owner, intercept=True)
    assert whole_likelihood(found.model, clients) == pytest.approx(found.model.details["likelihood"], rel=1e-8)
