"""Personal models within a kind: against plain loops, statsmodels, known truths and other units."""

from __future__ import annotations

import dataclasses
import json
import tempfile
import warnings
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.optimize import minimize

from helpers.clients import client_rows, random_clients, random_frame
from helpers.personal import PERSONAL, TWO, fit, marginal, one_kind, simulated, whole_likelihood
from mixfed import (
    AutoSettings,
    Clients,
    DataError,
    LocalPool,
    MixedRegressor,
    Model,
    SettingsError,
    fit_auto,
    label_agreement,
    simulate,
)
from mixfed.clients.store import Store
from mixfed.core.symmetric import doubled, mirrored, packed, unpacked
from mixfed.evaluation.metrics import bottleneck_matching
from mixfed.exchange.codec import decode, encode
from mixfed.exchange.mixture import Candidates
from mixfed.exchange.pool import Sample
from mixfed.exchange.random_effects import LeaveOut, LeftOutSum, RandomEffects, RandomEffectsSums
from mixfed.exchange.units import StandardUnits
from mixfed.federation import InProcess, Job, Site, conduct
from mixfed.federation.messages import check_answer, check_query
from mixfed.federation.privacy import rules
from mixfed.model.assignment import Assignment
from mixfed.model.prediction import mixture_quantile
from mixfed.recipes.conversation import converse
from mixfed.recipes.personal.climb import newton_rounds, started
from mixfed.recipes.personal.psd_newton import PsdConstraint, climb, unbound
from mixfed.recipes.personal.updates import cost_of_diagonal
from mixfed.recipes.updates import Penalty
from mixfed.tables.rows import Rows, rows_from_arrays


def random_spreads(seed, count, k, dim, full, columns=None):
    rng = np.random.default_rng([seed, 8])
    half = 0.5 * rng.standard_normal((count, k, dim, dim))
    spread = packed(half @ half.swapaxes(2, 3)) if full else rng.uniform(0.1, 1.0, (count, k, columns or dim))
    weight = np.log(rng.dirichlet(np.full(k, 2.0), size=count))
    return RandomEffects(rng.standard_normal((count, k, dim)), rng.uniform(-1, 0.5, (count, k)), weight, spread)


def kinds_of(clients, frame, spreads, c, i, full):
    """What one client says of each kind of candidate c: rows, residuals, theta, Psi and variance."""
    phi, y = client_rows(clients, i)
    x = (phi - frame.centre) * frame.inverse_sd
    z, target = x @ frame.whiten, (y - frame.target_centre - x @ frame.slope) / frame.scale
    inverse = np.linalg.inv(frame.whiten)
    for j, own in enumerate(spreads.spread[c]):
        psi = unpacked(own, frame.dim) if full else inverse @ np.diag(own) @ inverse.T
        yield z, target, spreads.theta[c, j], psi, np.exp(spreads.log_variance[c, j])


def plain_likelihood(clients, frame, spreads, c, full):
    total = 0.0
    for i in range(clients.n_clients):
        logs = [marginal(*about) for about in kinds_of(clients, frame, spreads, c, i, full)]
        total += np.logaddexp.reduce(spreads.log_weight[c] + np.array(logs))
    return total


def flat(spreads):
    parts = (spreads.theta[0], spreads.log_variance[0][:, None], spreads.log_weight[0][:, None], spreads.spread[0])
    return np.concatenate(parts, axis=1).ravel()


def unflat(numbers, k, dim):
    own = numbers.reshape(1, k, -1)
    return RandomEffects(own[..., :dim], own[..., dim], own[..., dim + 1], own[..., dim + 2 :])


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(("dim", "k"), [(3, 2), (1, 3), (2, 1)])
def test_sums_equal_a_plain_loop_and_its_derivatives(full, dim, k):
    clients, frame = random_clients(1, [1, 2, 5, 7, 3, 1, 4, 9], dim), random_frame(2, dim)
    spreads, pool = random_spreads(3, 3, k, dim, full), LocalPool(clients)
    reply = pool.ask(RandomEffectsSums(frame, spreads, full, (2, 0)))
    for c in range(3):
        assert reply.likelihood[c] == pytest.approx(plain_likelihood(clients, frame, spreads, c, full), abs=1e-9)
    start, step = flat(spreads.pick(0)), 1e-5
    steps = step * np.eye(len(start))
    slope = [
        plain_likelihood(clients, frame, unflat(start + e, k, dim), 0, full)
        - plain_likelihood(clients, frame, unflat(start - e, k, dim), 0, full)
        for e in steps
    ]
    np.testing.assert_allclose(reply.score[0].ravel(), np.array(slope) / (2 * step), rtol=1e-5, atol=1e-5)
    scores = [
        pool.ask(RandomEffectsSums(frame, unflat(start - e, k, dim), full)).score
        - pool.ask(RandomEffectsSums(frame, unflat(start + e, k, dim), full)).score
        for e in steps
    ]
    bend = np.array(scores).reshape(len(start), -1) / (2 * step)
    q = len(start) // k
    observed = -mirrored(reply.missing[1], k)
    for j in range(k):
        observed[j * q : (j + 1) * q, j * q : (j + 1) * q] += unpacked(reply.observed[1, j], q)
    np.testing.assert_allclose(observed, bend, rtol=1e-5, atol=1e-4 * np.abs(bend).max())


def test_fishers_information_is_the_mean_of_the_observed_one():
    """With targets drawn from the model, over many clients."""
    rng = np.random.default_rng(0)
    dim, count = 2, 30_000
    frame, spreads = StandardUnits.plain(dim), random_spreads(5, 1, 1, dim, True)
    sizes = rng.integers(1, 5, count)
    owner = np.repeat(np.arange(count), sizes)
    x = rng.standard_normal((len(owner), dim))
    own = rng.multivariate_normal(spreads.theta[0, 0], unpacked(spreads.spread[0, 0], dim), count)
    noise = np.exp(0.5 * spreads.log_variance[0, 0]) * rng.standard_normal(len(owner))
    reply = LocalPool(Clients.from_arrays(x, np.sum(x * own[owner], axis=1) + noise, owner)).ask(
        RandomEffectsSums(frame, spreads, True, (0,))
    )
    observed, expected = (unpacked(part[0, 0], reply.score.shape[-1]) for part in (reply.observed, reply.expected))
    size = np.sqrt(np.diag(expected))
    keep = size > 0
    shift = (observed - expected)[np.ix_(keep, keep)] / np.outer(size[keep], size[keep])
    assert np.abs(shift).max() < 0.05


@pytest.mark.parametrize("full", [True, False])
def test_left_out_rows_are_those_of_a_plain_loop(full):
    clients, frame = random_clients(1, [1, 2, 5, 7, 3], 2), random_frame(2, 2)
    spreads = random_spreads(3, 2, 2, 2, full)
    reply = LocalPool(clients).ask(LeaveOut(frame, spreads, full, 3))
    for c in range(2):
        squares = np.zeros(2)
        for i in range(1, clients.n_clients):
            n = int(clients.rows[i])
            for row in range(n):
                others, logs, means = np.arange(n) != row, [], []
                for z, target, theta, psi, variance in kinds_of(clients, frame, spreads, c, i, full):
                    cov = variance * np.eye(n - 1) + z[others] @ psi @ z[others].T
                    error = target[others] - z[others] @ theta
                    logs.append(marginal(z[others], target[others], theta, psi, variance))
                    means.append(z[row] @ theta + z[row] @ psi @ z[others].T @ np.linalg.solve(cov, error))
                share = np.exp(spreads.log_weight[c] + logs - np.logaddexp.reduce(spreads.log_weight[c] + logs))
                squares += (target[row] - share @ means) ** 2 * np.array([1.0, n <= 3])
        np.testing.assert_allclose(reply.squares[c], squares, rtol=1e-8)
    np.testing.assert_array_equal(reply.rows, [17, 5])


@pytest.mark.parametrize("full", [True, False])
def test_the_exchange_travels_as_bytes(full):
    clients, frame = random_clients(1, [1, 2, 5], 3), random_frame(2, 3, 2)
    query = RandomEffectsSums(frame, random_spreads(3, 2, 2, 2, full, 3), full, (1,))
    sizes = check_query(decode(encode(query)), 3)
    total = LocalPool(clients).answer(query)
    back = decode(encode(total))
    check_answer(back, query, sizes)
    np.testing.assert_array_equal(back.missing, total.missing)


def test_the_form_of_psi_is_chosen_anew_for_every_number_of_kinds():
    """With too few kinds the deviations stand for kinds, and are full; with all four they are diagonal."""
    made = simulate("nested", n_clients=500, dim=5, seed=0)
    clients = made.clients
    owners = np.repeat(clients.ids, clients.rows)
    for seed in (0, 7):
        model = MixedRegressor(personal=True, random_state=seed).fit(clients.phi, clients.y, groups=owners)
        assert model.n_clusters_ == 4
        assert label_agreement(model.client_labels_, made.labels) > 0.9


@pytest.mark.parametrize("full", [True, False])
def test_information_adds_up_over_many_clients_who_waver(full):
    """Products are made by the pile; of a few clients at a time there is no pile."""
    clients, frame = random_clients(5, [1, 2, 3] * 300, 3), random_frame(6, 3)
    query = RandomEffectsSums(frame, random_spreads(7, 2, 3, 3, full), full, (0, 1))
    whole = LocalPool(clients).ask(query)
    few = (LocalPool(clients.subset(np.arange(first, first + 100))).ask(query) for first in range(0, 900, 100))
    parts = reduce(add, few)
    for name in ("expected", "observed", "missing"):
        size = np.abs(getattr(whole, name)).max()
        np.testing.assert_allclose(getattr(whole, name), getattr(parts, name), rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("full", [True, False])
def test_the_way_within_the_cone_starts_where_each_eigenvalue_is_best(full):
    """mu log x - h (x - value)^2 / 2 has its maximum where h x (x - value) = mu."""
    rng, mu = np.random.default_rng(8), 0.3
    numbers = packed(np.diag([-2.0, 0.5, 1.0])) if full else np.array([-2.0, 0.5, 1.0])
    half = rng.standard_normal((len(numbers), len(numbers)))
    curvature, cone = half @ half.T + np.eye(len(numbers)), PsdConstraint(1, 3, full)
    found = cone.lifted(numbers, curvature, mu, np.zeros(1))
    own = np.array([0, 2, 5]) if full else np.arange(3)
    np.testing.assert_allclose(np.diag(curvature)[own] * found[own] * (found - numbers)[own], mu)
    np.testing.assert_allclose(np.delete(found, own), 0, atol=1e-12)
    assert cone.inside(found)
    np.testing.assert_allclose(cone.lifted(numbers, curvature, mu, np.full(1, 9.0))[own], 9.0)


@pytest.mark.parametrize("full", [True, False])
def test_a_step_within_the_cone_is_the_best_one(full):
    """No covariance drawn at random is better; the optimality conditions hold."""
    rng = np.random.default_rng(4)
    dim, size = 3, 6 if full else 3
    half = rng.standard_normal((size + 2, size + 2))
    curvature, slope = half @ half.T + 0.1 * np.eye(size + 2), 3 * rng.standard_normal(size + 2)
    now = packed(np.eye(dim)) if full else np.ones(dim)
    slope[2:] -= 5 * curvature[2:, 2:] @ now
    step, gain = climb(curvature, slope, unbound(curvature, slope), now, PsdConstraint(1, dim, full), np.array([1e-6]))
    psi = unpacked(now + step[2:], dim) if full else np.diag(now + step[2:])
    assert np.linalg.eigvalsh(psi).min() >= 0
    lean = (slope - curvature @ step)[2:]
    lean = unpacked(lean / doubled(dim), dim) if full else np.diag(lean)
    assert np.abs((slope - curvature @ step)[:2]).max() < 1e-6
    assert np.linalg.eigvalsh(lean).max() < 0.1 * np.abs(slope).max()
    assert -0.1 * gain < np.trace(lean @ psi) < 0
    assert np.linalg.eigvalsh(psi).min() < 0.05  # the edge is reached at all


def steep_problem(seed, full):
    """Two covariances near the edge, Fisher's information of many clients, and a step that leads far outside."""
    rng, k, dim, free = np.random.default_rng([seed, full]), 2, 3, 4
    axes = np.linalg.qr(rng.standard_normal((k, dim, dim)))[0] if full else np.tile(np.eye(dim), (k, 1, 1))
    now = (axes * 10 ** rng.uniform(-3, 0, (k, 1, dim))) @ axes.swapaxes(1, 2)
    units = unpacked(np.eye(6), dim) if full else np.eye(dim)[:, :, None] * np.eye(dim)[:, None]
    half = rng.standard_normal((free + k * len(units),) * 2)
    curvature = half @ half.T + 0.1 * np.eye(len(half))
    for j in range(k):
        precise = np.linalg.inv(now[j] + 0.01 * np.eye(dim))
        own = slice(free + j * len(units), free + (j + 1) * len(units))
        curvature[own, own] += 30 * np.einsum("ab,pbc,cd,qda->pq", precise, units, precise, units)
    numbers = packed(now).ravel() if full else np.diagonal(now, 0, 1, 2).ravel()
    return curvature, curvature @ rng.standard_normal(len(half)), numbers, PsdConstraint(k, dim, full)


def best_gain(curvature, slope, numbers, cone):
    """Covariances as products of their roots have no edge: any method finds the maximum."""
    split, times = len(slope) - len(numbers), np.tile(doubled(cone.dim), cone.k) if cone.full else 1.0
    eyes = np.zeros_like(cone.matrices(numbers)) + np.eye(cone.dim if cone.full else 1)

    def loss(flat):
        root = flat[split:].reshape(eyes.shape)
        step = np.concatenate([flat[:split], cone.numbers(root @ root.swapaxes(1, 2)) - numbers])
        lean = slope - curvature @ step
        uphill = 2 * cone.matrices(lean[split:] / times) @ root
        return -0.5 * step @ (slope + lean), -np.concatenate([lean[:split], uphill.ravel()])

    start = np.concatenate([np.zeros(split), eyes.ravel()])
    return -minimize(loss, start, jac=True, method="BFGS", options={"maxiter": 2000}).fun


@pytest.mark.parametrize("full", [True, False])
def test_a_step_within_the_cone_gains_nine_tenths_of_the_best_one(full):
    for seed in range(60):
        curvature, slope, numbers, cone = steep_problem(seed, full)
        step, gain = climb(curvature, slope, unbound(curvature, slope), numbers, cone, np.full(2, 1e-6))
        assert cone.inside(numbers + step[-len(numbers) :])
        assert 0.9 <= gain / best_gain(curvature, slope, numbers, cone) < 1 + 1e-6


def test_what_a_diagonal_costs_is_what_fits_of_both_show():
    """Where both are close, the likelihood is quadratic between them."""
    psi = [[[0.5, 0.06, 0.05], [0.06, 0.6, -0.05], [0.05, -0.05, 0.4]]]
    X, y, owner, *_ = simulated(3, 500, [[1.0, -1.0, 2.0]], psi, [0.7], [1.0], (4, 9))
    clients = Clients.from_arrays(np.column_stack([X, np.ones(len(X))]), y, owner)
    frame = dataclasses.replace(StandardUnits.plain(3), whiten=np.random.default_rng(5).standard_normal((3, 3)))
    pooled, found = Candidates(np.zeros((1, 1, 3)), np.zeros((1, 1)), np.zeros((1, 1))), {}
    for full in (True, False):
        steps = newton_rounds(frame, started(frame, pooled, full), full, Penalty(False), near=1e-9)
        [found[full]] = converse(LocalPool(clients), [steps])
    gain = found[True].value - found[False].value
    assert 2 < gain < 30
    np.testing.assert_allclose(cost_of_diagonal(frame, found[True]), gain, rtol=0.2)


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


@pytest.fixture(scope="module")
def two():
    X, y, owner, kind, _ = simulated(7, 3000, **TWO)
    rng = np.random.default_rng(1)
    held = (rng.random(len(y)) < 0.3) & (np.bincount(owner)[owner] > 2)
    clients = Clients.from_arrays(X[~held], y[~held], owner[~held], intercept=True)
    return X, y, owner, kind, held, clients, fit(clients).model


def test_truth_is_recovered_within_sampling_error(two):
    model = two[-1]
    assert model.n_clusters == 2
    order = bottleneck_matching(model.theta, np.array(TWO["theta"]))
    errors = np.column_stack([model.coef_error, model.intercept_error])[order]
    assert (np.abs(model.theta[order] - TWO["theta"]) < 4 * errors).all()
    assert (errors < 0.1).all()
    np.testing.assert_allclose(model.noise[order], TWO["noise"], rtol=0.06)
    np.testing.assert_allclose(model.weights[order], TWO["weights"], atol=0.04)
    for psi, truth in zip(model.deviation[order], np.array(TWO["psi"]), strict=True):
        # The error of a variance is about its size (with that of the noise) times sqrt(2 / clients of the kind).
        size = np.diag(truth) + 0.3
        assert (np.abs(psi - truth) < 4.5 * np.sqrt(np.outer(size, size)) * np.sqrt(2 / 1000)).all()


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_cover_at_their_level(two, level):
    X, y, owner, _, held, clients, model = two
    rows = rows_from_arrays(X[held], None, owner[held], intercept=True)
    for known in (model.assign(clients), None):
        low, high = model.predict_interval(rows, known, level).T
        assert abs(np.mean((low <= y[held]) & (y[held] <= high)) - level) < 0.02


def test_known_clients_are_predicted_better_than_unknown_ones(two):
    X, y, owner, _, held, clients, model = two
    rows = rows_from_arrays(X[held], None, owner[held], intercept=True)
    plain = fit_auto(LocalPool(clients), clients.features, 2).model
    errors = [
        np.sqrt(np.mean((prediction - y[held]) ** 2))
        for prediction in (
            model.predict(rows, model.assign(clients)),
            plain.predict(rows, plain.assign(clients)),
            model.predict(rows),
        )
    ]
    assert errors[0] < 0.9 * errors[1] < 0.9 * errors[2]


def test_a_clients_deviation_is_the_posterior_one(two):
    """Means and covariances of single clients, by the formulas in full."""
    clients, model = two[-2:]
    some = clients.subset(np.array([0, 5, 9]))
    known = model.assign(some)
    for i in range(3):
        part = slice(some.offsets[i], some.offsets[i + 1])
        X, y = some.design[part], some.y[part]
        logs = []
        for j in range(2):
            psi, factor = model.deviation[j], model.factor[j]
            cov = model.noise[j] ** 2 * np.eye(len(y)) + X @ psi @ X.T
            mean = psi @ X.T @ np.linalg.solve(cov, y - X @ model.theta[j])
            spread = psi - psi @ X.T @ np.linalg.solve(cov, X @ psi)
            width = factor.shape[1]
            np.testing.assert_allclose(factor @ known.effects[i, j], mean, atol=1e-9)
            np.testing.assert_allclose(factor @ unpacked(known.uncertainty[i, j], width) @ factor.T, spread, atol=1e-9)
            logs.append(np.log(model.weights[j]) + marginal(X, y, model.theta[j], psi, model.noise[j] ** 2))
        np.testing.assert_allclose(known.probabilities[i], np.exp(logs - np.logaddexp.reduce(logs)), atol=1e-9)


def test_quantiles_are_those_of_the_mixture():
    rng = np.random.default_rng(0)
    share, means, deviations = np.array([[0.3, 0.7]]), np.array([[-2.0, 1.0]]), np.array([[0.5, 2.0]])
    drawn = np.where(rng.random(400_000) < 0.3, rng.normal(-2, 0.5, 400_000), rng.normal(1, 2, 400_000))
    for level in (0.05, 0.5, 0.95):
        assert mixture_quantile(share, means, deviations, level)[0] == pytest.approx(
            np.quantile(drawn, level), abs=0.02
        )


def test_the_answer_does_not_depend_on_units():
    X, y, owner, *_ = simulated(7, 300, **TWO)
    first = fit(Clients.from_arrays(X, y, owner, intercept=True), 2).model
    unit, shift = np.array([1e6, 1e-5]), np.array([3e6, 2e-5])
    other = Clients.from_arrays(X * unit + shift, 1e4 * y - 7e4, owner, intercept=True)
    second = fit(other, 2).model
    np.testing.assert_allclose(second.coef * unit / 1e4, first.coef, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second.noise / 1e4, first.noise, rtol=1e-5)
    slopes = second.deviation[:, :2, :2] * np.outer(unit, unit) / 1e8
    np.testing.assert_allclose(slopes, first.deviation[:, :2, :2], rtol=1e-3, atol=1e-5)
    rows = rows_from_arrays(X, None, owner, intercept=True)
    moved = rows_from_arrays(X * unit + shift, None, owner, intercept=True)
    expected = first.predict(rows, first.assign(Clients.from_arrays(X, y, owner, intercept=True)))
    np.testing.assert_allclose((second.predict(moved, second.assign(other)) + 7e4) / 1e4, expected, atol=1e-4)


@pytest.mark.parametrize("k", [1, 2, None])
def test_sites_find_the_model_of_one_process(tmp_path, k):
    X, y, owner, *_ = simulated(7, 400, **TWO)
    clients = Clients.from_arrays(X, y, owner, intercept=True)
    home = np.random.default_rng(5).integers(0, 3, clients.n_clients)
    sites = {f"site-{j}": Site(clients.subset(np.flatnonzero(home == j)), out=tmp_path / f"{j}") for j in range(3)}
    found = conduct(InProcess(sites), Job(k, settings={"personal": True}), tmp_path / "run").model
    here = fit(clients, k).model
    for name in ("theta", "noise", "weights", "deviation"):
        np.testing.assert_allclose(getattr(found, name), getattr(here, name), rtol=1e-9, atol=1e-9)
    assert Model.load(tmp_path / "0").personal


def test_models_and_assignments_survive_their_files(tmp_path, two):
    X, _, owner, _, held, clients, model = two
    model.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    assert content["personal"] is True
    assert np.shape(content["deviation"]) == (2, 3, 3)
    again = Model.load(tmp_path)
    known = model.assign(clients)
    table = pa.table(known.columns())
    read = Assignment.from_table(table, 2)
    rows = rows_from_arrays(X[held], None, owner[held], intercept=True)
    np.testing.assert_array_equal(again.predict_interval(rows, read), model.predict_interval(rows, known))
    np.testing.assert_array_equal(again.predict(rows, read), model.predict(rows, known))
    for name in ("factor", "personal", "deviation"):
        content.pop(name)
    assert not Model.from_json(json.dumps(content), "old").personal
    content["factor"] = [[[1.0]]]
    with pytest.raises(DataError, match="factor"):
        Model.from_json(json.dumps(content), "damaged")


def test_new_rows_of_a_client_replace_what_was_known(two):
    clients, model = two[-2:]
    known, newer = model.assign(clients), model.assign(clients.subset(np.array([3, 1])))
    both = known.updated(newer)
    places = both.places(newer.ids)
    np.testing.assert_allclose(both.effects[places], newer.effects)
    assert len(both) == len(known)
    means = model.own_coefficients(both)
    assert means.shape == (len(known), 3)


def test_intervals_need_what_was_kept(two):
    X, _, owner, _, held, clients, model = two
    rows = rows_from_arrays(X[held], None, owner[held], intercept=True)
    with pytest.raises(DataError, match="history"):
        model.predict_interval(rows, model.assign(clients, uncertainty=False))
    with pytest.raises(SettingsError, match="level"):
        model.predict_interval(rows, None, 1.5)


def edge(name):
    rng = np.random.default_rng(3)
    X, y, owner, *_ = simulated(3, 120, **TWO)
    match name:
        case "one feature, no intercept":
            return Clients.from_arrays(X[:, :1], y, owner)
        case "one client":
            return Clients.from_arrays(X[:40], y[:40], np.zeros(40, int), intercept=True)
        case "one row each":
            return Clients.from_arrays(X, y, np.arange(len(y)), intercept=True)
        case "collinear":
            return Clients.from_arrays(np.column_stack([X, X.sum(axis=1)]), y, owner, intercept=True)
        case "constant column":
            return Clients.from_arrays(np.column_stack([X, np.full(len(X), 3.0)]), y, owner, intercept=True)
        case "single precision":
            return Clients.from_arrays(X.astype(np.float32), y, owner, intercept=True)
        case "names":
            return Clients.from_arrays(X, y, np.array([f"client {i}" for i in owner]), intercept=True)
        case "no noise":
            return Clients.from_arrays(X, X @ [1.0, 2.0] + 1.0, owner, intercept=True)
        case "no rows to spare":
            return Clients.from_arrays(X[:3], y[:3], np.array([0, 1, 1]), intercept=True)
        case _:
            return Clients.from_arrays(rng.standard_normal((300, 30)), rng.standard_normal(300), np.arange(300) // 3)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(
    "name",
    [
        "one feature, no intercept",
        "one client",
        "one row each",
        "collinear",
        "constant column",
        "single precision",
        "names",
        "no noise",
        "no rows to spare",
        "many features",
    ],
)
def test_edges(name, k):
    clients = edge(name)
    if k > clients.n_clients:
        return
    model = fit(clients, k).model
    known = model.assign(clients)
    rows = rows_from_arrays(
        clients.phi,
        None,
        np.repeat(clients.ids, clients.rows),
        intercept=clients.intercept,
        features=clients.features[: clients.phi.shape[1]],
    )
    prediction, bounds = (
        model.predict(rows, known),
        model.predict_interval(rows, model.assign(clients, uncertainty=True)),
    )
    assert np.isfinite(prediction).all()
    assert np.isfinite(bounds).all()
    assert (bounds[:, 0] <= bounds[:, 1]).all()
    error = np.sqrt(np.mean((prediction - clients.y) ** 2))
    assert error <= 1.01 * clients.y.std() + 1e-6 * np.abs(clients.y).max()


def test_collinear_columns_change_no_prediction():
    first, second = edge("names"), edge("collinear")
    ids = np.repeat(second.ids, second.rows)
    predictions = []
    for clients, names in ((first, first.ids), (second, second.ids)):
        model = fit(clients, 2).model
        rows = rows_from_arrays(clients.phi, None, np.repeat(names, clients.rows), intercept=True)
        by_row = dict(zip(clients.y.tolist(), model.predict(rows, model.assign(clients)).tolist(), strict=True))
        predictions.append(np.array([by_row[value] for value in sorted(by_row)]))
    assert len(ids) == second.n_rows
    np.testing.assert_allclose(predictions[0], predictions[1], atol=1e-4)


def test_settings_that_do_not_go_together():
    with pytest.raises(SettingsError, match="personal"):
        AutoSettings(personal=True, membership="hard")
    with pytest.raises(SettingsError, match="personal"):
        AutoSettings(personal=True, update="fedprox")
    with pytest.raises(SettingsError, match="personal"):
        AutoSettings(personal=1)
    with pytest.raises(SettingsError, match="recipe='auto'"):
        MixedRegressor(2, recipe="paper", personal=True).fit(np.eye(4), np.arange(4.0), groups=[0, 0, 1, 1])


def test_one_noise_for_all_kinds():
    X, y, owner, *_ = simulated(7, 300, **TWO)
    model = fit(Clients.from_arrays(X, y, owner, intercept=True), 2, noise="shared").model
    assert model.noise[0] == pytest.approx(model.noise[1])


def test_the_estimator_gives_what_the_model_does(two):
    X, y, owner, _, held, clients, _ = two
    found = MixedRegressor(2, personal=True).fit(X[~held], y[~held], groups=owner[~held])
    rows = rows_from_arrays(X[held], None, owner[held], intercept=True)
    np.testing.assert_allclose(found.deviation_, found.model_.deviation)
    known = found.model_.assign(clients)
    np.testing.assert_allclose(found.predict(X[held], groups=owner[held]), found.model_.predict(rows, known))
    low, high = found.predict_interval(X[held], groups=owner[held], level=0.8).T
    assert 0.75 < np.mean((low <= y[held]) & (y[held] <= high)) < 0.85
    latest = found.assign(X[~held][:30], y[~held][:30], owner[~held][:30])
    assert np.isfinite(found.predict(X[held], groups=owner[held], history=latest)).all()


def test_rows_on_disk_give_the_same_model(tmp_path):
    from mixfed import pack

    X, y, owner, *_ = simulated(7, 200, **TWO)
    table = pa.table({"client": owner, "a": X[:, 0], "b": X[:, 1], "y": y})
    import pyarrow.parquet as pq

    pq.write_table(table, tmp_path / "rows.parquet")
    pack(tmp_path / "rows.parquet", tmp_path / "packed", "client", "y")
    on_disk = Store.open(tmp_path / "packed")
    in_memory = Clients.from_file(tmp_path / "rows.parquet", "client", "y")
    first, second = fit(on_disk, 2).model, fit(in_memory, 2).model
    np.testing.assert_array_equal(first.deviation, second.deviation)
    np.testing.assert_array_equal(first.assign(on_disk).effects, second.assign(in_memory).effects)


def test_tied_columns_do_not_break_the_starts():
    """A full set of dummies and an intercept: a diagonal Psi has more columns than there are directions."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(300), 4)
    dummies = np.eye(3)[rng.integers(0, 3, len(owner))]
    X = np.column_stack([rng.standard_normal(len(owner)), dummies])
    own = np.where(np.arange(300) % 2, 2.0, -2.0)[owner] + 0.3 * rng.standard_normal(300)[owner]
    y = own * X[:, 0] + dummies @ [0.0, 1.0, 2.0] + 0.3 * rng.standard_normal(len(owner))
    model = MixedRegressor(2, settings=AutoSettings(personal=True)).fit(X, y, groups=owner)
    assert sorted(model.coef_[:, 0].round(1)) == pytest.approx([-2.0, 2.0], abs=0.2)


def test_what_was_not_kept_can_be_given_as_history():
    clients = simulate("mirror", n_clients=60, dim=2, seed=0).clients
    model = fit_auto(LocalPool(clients), clients.features, 2, AutoSettings(personal=True)).model
    without, some = model.assign(clients, uncertainty=False), clients.subset(np.arange(20))
    known = without.updated(model.assign(some, uncertainty=True))
    rows = Rows(some.phi, None, some.ids, np.repeat(np.arange(20), some.rows), some.features)
    expected = model.predict_interval(rows, model.assign(clients, uncertainty=True))
    np.testing.assert_allclose(model.predict_interval(rows, known), expected)
    everyone = Rows(clients.phi, None, clients.ids, np.repeat(np.arange(60), clients.rows), clients.features)
    np.testing.assert_allclose(model.predict(everyone, known), model.predict(everyone, without))
    with pytest.raises(DataError, match="give their rows as history"):
        model.predict_interval(everyone, known)


def test_rows_of_nobody_are_not_taken_for_known_clients():
    clients = simulate("mirror", n_clients=60, dim=2, seed=0).clients
    model = fit_auto(LocalPool(clients), clients.features, 2).model
    frame = pd.DataFrame(clients.phi[:5], columns=clients.features)
    with pytest.raises(DataError, match="do not say which of the known clients"):
        model.predict(frame, model.assign(clients))
    named = dataclasses.replace(model, client_column="who")
    frame["who"] = np.repeat(clients.ids, clients.rows)[:5]
    rows = Rows(clients.phi[:5], None, *np.unique(frame["who"], return_inverse=True), clients.features)
    np.testing.assert_allclose(named.predict(frame, model.assign(clients)), model.predict(rows, model.assign(clients)))


def test_a_site_does_not_tell_of_a_few_small_clients_apart():
    rng = np.random.default_rng(0)
    owner = np.concatenate([np.repeat(np.arange(40), 10), [40, 40]])
    X = rng.standard_normal((len(owner), 2))
    clients = Clients.from_arrays(X, X @ [1.0, 2.0] + rng.standard_normal(len(owner)), owner)
    told = []

    class Told(rules.Rules):
        def withheld(self, *about):
            kept = super().withheld(*about)
            told.extend(part for part in getattr(kept, "parts", [kept]) if isinstance(part, LeftOutSum))
            return kept

    site = Site(clients, min_clients=10)
    site.rules = Told(clients, 10, None)

    with tempfile.TemporaryDirectory() as folder:
        job = Job(None, settings={"personal": True, "max_clusters": 2}, intercept=False)
        conduct(InProcess({"a": site}), job, Path(folder))
    assert told
    assert all(part.rows[0] == 402 and part.rows[1] == 0 and not part.squares[:, 1].any() for part in told)
