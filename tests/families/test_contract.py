"""What every family keeps: densities, scores, weights, draws, residuals. A new family is met here by its name alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.integrate import quad

from helpers.clients import random_clients
from helpers.exchanges import answer
from mixfed.core.symmetric import mirrored
from mixfed.exchange.mixture import Candidates, MixtureSums
from mixfed.exchange.units import StandardUnits
from mixfed.families.base import Family
from mixfed.families.registry import FAMILIES, family_named
from mixfed.recipes.updates import Penalty, complete_information, maximise, penalised_likelihood

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
        whole = (
            density(np.arange(most)).sum() if family.discrete else quad(lambda y: density(y).item(), -np.inf, np.inf)[0]
        )
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
    seen = dataclasses.replace(family, observed=True) if family.name == "student" else family
    np.testing.assert_allclose(seen.terms(y, eta, log).weight, -(scores[1] - scores[0]) / (2 * step), atol=1e-6)
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
        assert upto[-1] == pytest.approx(1.0, abs=1e-9 if family.name != "student" else 1e-6)
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


def mixture_problem(family: Family, seed: int = 0):
    """Clients with offsets and weights, units of theirs and two kinds in them."""
    rng = np.random.default_rng([seed, 9])
    clients = random_clients(seed, [4, 1, 3, 6, 2, 5, 3, 4], 2)
    eta = clients.phi @ np.array([0.5, -0.4])
    more = {"offset": 0.3 * rng.standard_normal(clients.n_rows), "weight": rng.uniform(0.5, 2.0, clients.n_rows)}
    clients = dataclasses.replace(clients, y=family.draw(rng, eta, np.ones(1)), **more)
    log_dispersion = np.full((1, 2), log_phi(family))
    mixture = Candidates(0.7 * rng.standard_normal((1, 2, 2)), log_dispersion, np.log([[0.4, 0.6]]))
    return clients, dataclasses.replace(StandardUnits.plain(2), family=family.name), mixture


def asked(clients, units, mixture, **options):
    query = MixtureSums(units, mixture, **options)
    return query.finish(answer(query, clients))


@EVERY
def test_sums_are_slopes_and_curvature_of_the_likelihood(family):
    """Of theta and of log weights: slopes against differences of values, the information against those of slopes."""
    clients, units, mixture = mixture_problem(family)

    def moved(step):
        return Candidates(
            mixture.theta + step[:4].reshape(1, 2, 2), mixture.log_variance, mixture.log_weight + step[4:]
        )

    def likelihood(step):  # of weights that need not add to one
        other = moved(step)
        total = np.logaddexp.reduce(other.log_weight[0])
        other = dataclasses.replace(other, log_weight=other.log_weight - total)
        return float(asked(clients, units, other).likelihood[0])

    def slope(step):
        other = moved(step)
        log_weight = other.log_weight - np.logaddexp.reduce(other.log_weight[0])
        reply = asked(clients, units, dataclasses.replace(other, log_weight=log_weight))
        score = reply.score[0] * np.exp(-mixture.log_variance[0])[:, None]
        return np.concatenate([score.ravel(), reply.clients[0] - reply.clients[0].sum() * np.exp(log_weight[0])])

    def differences(function):
        steps = 1e-5 * np.eye(6)
        return np.array([function(step) - function(-step) for step in steps]) / 2e-5

    np.testing.assert_allclose(slope(np.zeros(6)), differences(likelihood), atol=1e-6)
    if family.name == "student":  # the curvature that is observed
        units = dataclasses.replace(units, family=dataclasses.replace(family, observed=True).wire_name)
    reply = asked(clients, units, mixture, informed=(0,))
    rules = Penalty(family=family)
    whole = complete_information(mixture, reply, 0, rules) - mirrored(reply.missing[0], 2)
    places = [0, 1, 4, 5, 3, 7]  # theta and log weight of each kind; between them is the dispersion
    # Clients who are nearly sure of their kind are left out of what is missing.
    np.testing.assert_allclose(whole[np.ix_(places, places)], -differences(slope), atol=1e-3)


@EVERY
def test_sums_add_over_clients_in_any_order(family):
    clients, units, mixture = mixture_problem(family, 1)
    whole = answer(MixtureSums(units, mixture, (0,)), clients)
    total = None
    for place in np.random.default_rng(0).permutation(clients.n_clients):
        part = answer(MixtureSums(units, mixture, (0,)), clients.subset(np.array([place])))
        total = part if total is None else part + total
    np.testing.assert_allclose(total.numbers, whole.numbers, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(total.missing, whole.missing, rtol=1e-10, atol=1e-10)


@EVERY
def test_em_on_two_kinds_raises_the_value(family):
    clients, units, mixture = mixture_problem(family, 2)
    rules, last = Penalty(ridge=family.ridge, family=family), -np.inf
    for _ in range(30):
        reply = asked(clients, units, mixture)
        value = float(penalised_likelihood(mixture, reply, rules)[0])
        assert value > last - 1e-9
        mixture, last = maximise(mixture, reply, rules), value
