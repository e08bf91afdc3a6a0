"""What every family keeps: densities, scores, weights, draws, residuals. A new family is met here by its name alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from mixfed.families.base import Family
from mixfed.families.registry import FAMILIES, family_named

EVERY = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
ETA = np.array([-1.7, -0.3, 0.0, 0.8, 2.1])
DISPERSION = 0.7
DRAWN = 200_000


def log_phi(family: Family) -> float:
    return float(np.log(DISPERSION)) if family.has_dispersion else 0.0


def dispersion(family: Family) -> float:
    return DISPERSION if family.has_dispersion else 1.0


def targets(family: Family, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw many targets at each predictor. -> y (DRAWN,), eta (DRAWN,)."""
    eta = rng.choice(ETA, DRAWN)
    return family.draw(rng, eta, np.full(1, dispersion(family))), eta


@EVERY
def test_the_density_adds_to_one(family):
    for eta in ETA:

        def density(y, eta=eta):
            log = family.terms(np.asarray(y, float), np.full(1, eta), np.full(1, log_phi(family))).likelihood
            return np.exp(log)

        most = 2.0 if family.name == "binomial" else 400.0
        whole = density(np.arange(most)).sum() if family.discrete else quad(lambda y: density(y).item(), -30, 30)[0]
        assert whole == pytest.approx(1.0, abs=1e-8)


@EVERY
def test_scores_weights_and_statistics_are_derivatives(family):
    rng, step = np.random.default_rng(0), 1e-5
    eta = rng.uniform(-2.0, 2.0, 50)
    log = np.full(50, log_phi(family))
    y = family.draw(rng, eta, np.exp(log))
    here = family.terms(y, eta, log)

    def slope(change, scale=1.0):
        below, above = (family.terms(y, *(change(sign * step))).likelihood for sign in (-1, 1))
        return scale * (above - below) / (2 * step)

    phi = np.exp(log)
    np.testing.assert_allclose(here.score, slope(lambda h: (eta + h, log), phi), atol=1e-6)
    scores = [family.terms(y, eta + sign * step, log).score for sign in (-1, 1)]
    np.testing.assert_allclose(here.weight, -(scores[1] - scores[0]) / (2 * step), atol=1e-6)
    assert (here.weight >= 0).all()
    assert (here.statistic is None) == (not family.has_dispersion)
    if here.statistic is not None:
        np.testing.assert_allclose(0.5 * (here.statistic / phi - 1.0), slope(lambda h: (eta, log + h)), atol=1e-6)
    np.testing.assert_array_equal(family.score(y, eta), family.terms(y, eta, np.zeros(1)).score)


@EVERY
def test_draws_have_the_mean_the_variance_and_the_information(family):
    y, eta = targets(family, np.random.default_rng(1))
    phi = np.full(1, dispersion(family))
    terms = family.terms(y, eta, np.log(phi))
    for value in ETA:
        own = eta == value
        expected = float(family.variance(np.full(1, value), phi)[0])
        assert y[own].mean() == pytest.approx(
            float(family.mean(np.full(1, value))[0]), abs=5 * (expected / own.sum()) ** 0.5
        )
        assert y[own].var() == pytest.approx(expected, rel=0.05)
        assert terms.score[own].mean() == pytest.approx(0.0, abs=5 * terms.score[own].std() / own.sum() ** 0.5)
        assert (terms.score[own] ** 2).mean() == pytest.approx(phi[0] * terms.weight[own].mean(), rel=0.05)


@EVERY
def test_residuals_of_draws_are_standard_normal(family):
    rng = np.random.default_rng(2)
    y, eta = targets(family, rng)
    found = family.residuals(y, eta, np.full(1, dispersion(family)), rng.random(DRAWN))
    assert found.mean() == pytest.approx(0.0, abs=0.01)
    assert found.std() == pytest.approx(1.0, abs=0.01)
    assert np.mean(np.abs(found) < 1.0) == pytest.approx(0.6827, abs=0.005)


@EVERY
def test_probabilities_up_to_a_value_grow_to_one_and_add_densities(family):
    phi, y = np.full(1, dispersion(family)), np.arange(-3.0, 60.0)
    for eta in ETA:
        upto = family.cumulative(y, np.full(1, eta), phi)
        assert (np.diff(upto) >= 0).all()
        assert upto[0] < 0.5
        assert upto[-1] == pytest.approx(1.0, abs=1e-9)
        if family.discrete:
            density = np.exp(family.terms(y[3:5], np.full(1, eta), np.log(phi)).likelihood)
            np.testing.assert_allclose(upto[3:5], np.cumsum(density), rtol=1e-10)
            assert (upto[:3] == 0).all()


@EVERY
def test_deviance_is_the_likelihood_that_is_lost(family):
    rng = np.random.default_rng(3)
    eta = rng.uniform(-2.0, 2.0, 200)
    y = family.draw(rng, eta, np.ones(1))
    lost = family.deviance(y, family.mean(eta))
    assert (lost >= -1e-12).all()
    steps = np.diff(family.terms(y, np.stack([eta, eta + 0.1]), np.zeros(1)).likelihood, axis=0)[0]
    np.testing.assert_allclose(family.deviance(y, family.mean(eta + 0.1)), lost - 2.0 * steps, atol=1e-9)


@EVERY
def test_no_row_is_likelier_than_the_bound(family):
    y, eta = targets(family, np.random.default_rng(4))
    log = np.full(1, log_phi(family))
    assert (family.terms(y, eta, log).likelihood <= family.most_likely(log) + 1e-12).all()


@EVERY
def test_far_predictors_give_numbers(family):
    y = np.array([0.0, 1.0])
    for far in (-1e6, -800.0, 800.0, 1e6):
        terms = family.terms(y, np.full(2, far), np.zeros(1))
        assert all(np.isfinite(part).all() for part in terms if part is not None)


@EVERY
def test_the_predictor_of_a_mean_has_it(family):
    for mean in (0.2, 0.7):
        assert family.mean(np.full(1, family.predictor(mean)))[0] == pytest.approx(mean)
    assert np.isfinite([family.predictor(0.0), family.predictor(1.0)]).all()


@EVERY
def test_a_family_is_found_by_its_name_and_by_its_loss(family):
    assert family_named(family.name) is family
    assert family_named(family.loss) is family


@EVERY
def test_scores_and_weights_are_bounded_as_the_family_says(family):
    y, eta = targets(family, np.random.default_rng(5))
    terms = family.terms(y, 3.0 * eta, np.zeros(1))
    assert (np.abs(terms.score) <= family.most_score).all()
    assert (terms.weight <= family.most_weight).all()
