"""The identities that the paper's algorithm satisfies exactly, over many random shapes."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.linalg import block_diag

from helpers.clients import client_rows, own_models, random_clients
from helpers.exchanges import answer
from mixfed.clients.local import LocalPool
from mixfed.clients.memberships import memberships
from mixfed.exchange.anchors import ApplyMoment
from mixfed.exchange.census import Census, LargestNorm
from mixfed.exchange.local_update import FedAvg, FedProx, LocalUpdate, Mixture, Update
from mixfed.recipes.paper import fedx
from mixfed.recipes.paper.orthogonal_iteration import federated_orthogonal_iteration
from mixfed.recipes.paper.theory import stability
from mixfed.recipes.settings import PaperSettings

EXACT = {"rtol": 1e-10, "atol": 1e-12}

sizes = st.lists(st.integers(1, 7), min_size=1, max_size=12)
seeds = st.integers(0, 2**32 - 1)
updates = st.one_of(
    st.builds(FedAvg, step=st.floats(0.001, 0.3), local_steps=st.integers(1, 6)),
    st.builds(FedProx, step=st.floats(0.001, 5.0)),
)


def random_mixture(seed: int, k: int, dim: int) -> Mixture:
    rng = np.random.default_rng([seed, 1])
    weights = rng.uniform(0.2, 1.0, k)
    return Mixture(rng.standard_normal((k, dim)), weights / weights.sum(), rng.uniform(0.5, 2.0, k))


def local_matrix(phi: np.ndarray, update: Update, membership: float = 1.0) -> np.ndarray:
    """P_i of Lemma 1, with membership * eta in the place of eta."""
    n = len(phi)
    gram = membership * update.step * phi @ phi.T / n
    if isinstance(update, FedProx):
        return np.linalg.inv(np.eye(n) + gram)
    return sum(np.linalg.matrix_power(np.eye(n) - gram, power) for power in range(update.local_steps))


@given(seeds, st.integers(2, 30), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
def test_federated_orthogonal_iteration_equals_orthogonal_iteration_on_yyt(seed, clients, dim, k, anchors, rounds):
    pool = LocalPool(random_clients(seed, [2] * clients, dim))
    rng = np.random.default_rng([seed, 2])
    theta = rng.standard_normal((anchors, dim))
    start = np.linalg.qr(rng.standard_normal((anchors, dim, min(k, dim)))).Q
    basis = federated_orthogonal_iteration(pool, np.arange(clients), theta, start, 2 * rounds)
    for h in range(anchors):
        moment = np.zeros((dim, dim))
        for i in range(clients):
            phi, y = client_rows(pool.clients, i)
            residual_moments = (y - phi @ theta[h])[:, None] * phi
            moment += np.outer(residual_moments[0], residual_moments[1]) / clients
        block = start[h]
        for _ in range(rounds):
            product = moment @ (moment.T @ block)
            block = np.linalg.qr(product).Q
        # With fewer clients than columns the last columns are free; what is spanned is not.
        spanned = np.linalg.matrix_rank(product, tol=1e-7 * np.linalg.norm(product))
        got, want = basis[h][:, :spanned], block[:, :spanned]
        conditioning = np.linalg.cond(product[:, :spanned]) if spanned else 1.0
        np.testing.assert_allclose(got @ got.T, want @ want.T, rtol=0, atol=1e-10 * max(1.0, conditioning / 1e3))


@given(seeds, st.integers(1, 30), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4))
def test_two_half_steps_apply_yyt(seed, clients, dim, width, anchors):
    pool = LocalPool(random_clients(seed, [2] * clients, dim))
    rng = np.random.default_rng([seed, 5])
    theta, block = rng.standard_normal((anchors, dim)), rng.standard_normal((anchors, dim, width))
    half = pool.ask(ApplyMoment(theta, block, transpose=True), np.arange(clients)).mean()
    whole = pool.ask(ApplyMoment(theta, half, transpose=False), np.arange(clients)).mean()
    for h in range(anchors):
        moment = np.zeros((dim, dim))
        for i in range(clients):
            phi, y = client_rows(pool.clients, i)
            e = (y - phi @ theta[h])[:, None] * phi
            moment += np.outer(e[0], e[1]) / clients
        expected = moment @ moment.T @ block[h]
        scale = np.linalg.norm(moment, 2) ** 2 * np.linalg.norm(block[h])
        np.testing.assert_allclose(whole[h], expected, rtol=1e-10, atol=1e-10 * scale)


@given(seeds, sizes, st.integers(1, 5), st.integers(1, 4), updates, st.booleans())
def test_a_round_of_phase_2_equals_lemma_1(seed, sizes, dim, k, update, hard):
    clients = random_clients(seed, sizes, dim)
    mixture = random_mixture(seed, k, dim)
    shift = LocalPool(clients).ask(LocalUpdate(mixture, hard, update)).mean_shift()
    membership = plain_memberships(clients, mixture, hard)
    for j in range(k):
        blocks = [local_matrix(client_rows(clients, i)[0], update, membership[i, j]) for i in range(clients.n_clients)]
        weights = np.repeat(membership[:, j], clients.rows)  # the diagonal of Lambda_j
        residual = clients.phi @ mixture.theta[j] - clients.y
        lemma = -update.step / clients.n_rows * clients.phi.T @ block_diag(*blocks) @ (weights * residual)
        np.testing.assert_allclose(shift[j], lemma, **EXACT)


@given(seeds, sizes, st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_memberships_equal_a_plain_loop(seed, sizes, dim, k, hard):
    clients = random_clients(seed, sizes, dim)
    mixture = random_mixture(seed, k, dim)
    np.testing.assert_allclose(memberships(mixture, clients, hard), plain_memberships(clients, mixture, hard), **EXACT)


@given(seeds, st.integers(1, 8), st.integers(1, 6), updates, st.floats(0.01, 0.99))
def test_eigenvalues_of_a_local_matrix_lie_between_s_over_kappa_and_s(seed, rows, dim, update, gamma):
    phi = np.random.default_rng(seed).standard_normal((rows, dim))
    step = gamma * rows / np.linalg.norm(phi, 2) ** 2  # so that gamma is the paper's gamma
    update = FedProx(step) if isinstance(update, FedProx) else FedAvg(step, update.local_steps)
    eigenvalues = np.linalg.eigvalsh(local_matrix(phi, update))
    steps, kappa = update.local_steps, stability(update, gamma)
    assert eigenvalues.min() >= steps / kappa * (1 - 1e-10)
    assert eigenvalues.max() <= steps * (1 + 1e-10)


@given(seeds, sizes, st.integers(1, 5), st.integers(1, 4), st.floats(0.001, 0.3))
def test_one_local_step_is_a_gradient_step_of_ifca_weighted_by_rows(seed, sizes, dim, k, step):
    clients = random_clients(seed, sizes, dim)
    mixture = random_mixture(seed, k, dim)
    moved = mixture.theta + LocalPool(clients).ask(LocalUpdate(mixture, True, FedAvg(step, 1))).mean_shift()
    expected = mixture.theta.copy()
    for i in range(clients.n_clients):
        phi, y = client_rows(clients, i)
        own = np.argmin([np.sum((y - phi @ theta) ** 2) for theta in mixture.theta])
        gradient = phi.T @ (phi @ mixture.theta[own] - y) / len(y)
        expected[own] -= step * len(y) / clients.n_rows * gradient
    np.testing.assert_allclose(moved, expected, **EXACT)


@given(seeds, st.lists(st.integers(2, 7), min_size=2, max_size=12), st.integers(1, 4), st.data())
def test_the_reply_of_a_site_is_the_sum_of_its_clients_replies(seed, sizes, dim, data):
    clients = random_clients(seed, sizes, dim)
    rng = np.random.default_rng([seed, 3])
    queries = [
        Census(),
        LargestNorm(),
        ApplyMoment(rng.standard_normal((2, dim)), rng.standard_normal((2, dim, 1)), data.draw(st.booleans())),
        LocalUpdate(random_mixture(seed, 3, dim), data.draw(st.booleans()), data.draw(updates)),
    ]
    for query in queries:
        site = answer(query, clients)
        alone = [answer(query, clients.subset(np.array([i]))) for i in range(clients.n_clients)]
        rng.shuffle(alone)  # the order does not matter
        total = alone[0]
        for reply in alone[1:]:
            total = total + reply
        for name, value in vars(site).items():
            np.testing.assert_allclose(vars(total)[name], value, **EXACT, err_msg=name)


@given(seeds, sizes)
def test_the_census_counts_clients_by_their_rows(seed, sizes):
    clients = random_clients(seed, sizes, 2)
    census = LocalPool(clients).ask(Census())
    pairs = zip(census.sizes.tolist(), census.counts.tolist(), strict=True)
    assert list(pairs) == sorted(Counter(sizes).items())
    assert (census.n_clients, census.n_rows) == (len(sizes), sum(sizes))
    huge = dataclasses.replace(census, sizes=np.array([10**12]), counts=np.array([3]))
    both = huge + census
    assert both.sizes.tolist() == [*census.sizes, 10**12]
    assert (both.n_clients, both.n_rows) == (len(sizes) + 3, sum(sizes) + 3 * 10**12)


@given(seeds, sizes, st.integers(1, 4), st.integers(2, 4), updates, st.booleans())
def test_relabelling_clusters_and_reordering_clients_changes_only_the_order(seed, sizes, dim, k, update, hard):
    clients = random_clients(seed, sizes, dim)
    mixture = random_mixture(seed, k, dim)
    rng = np.random.default_rng([seed, 4])
    names, order = rng.permutation(k), rng.permutation(clients.n_clients)
    renamed = Mixture(mixture.theta[names], mixture.weights[names], mixture.noise[names])
    settings = PaperSettings(
        separation=1,
        step=update.step,
        local_steps=update.local_steps,
        update="fedprox" if isinstance(update, FedProx) else "fedavg",
        membership="hard" if hard else "soft",
    )
    state, info = fedx.step(fedx.State(0, mixture), LocalPool(clients), settings)
    other, other_info = fedx.step(fedx.State(0, renamed), LocalPool(clients.subset(order)), settings)
    for name, value in vars(state.mixture).items():
        np.testing.assert_allclose(vars(other.mixture)[name], value[names], **EXACT, err_msg=name)
    assert other_info.loss == pytest.approx(info.loss, rel=1e-10)


@given(seeds, sizes, st.integers(1, 4), st.integers(1, 3), updates, st.booleans())
def test_a_clients_own_model_is_its_local_update_of_its_own_kind(seed, sizes, dim, k, update, hard):
    clients = random_clients(seed, sizes, dim)
    mixture = random_mixture(seed, k, dim)
    own = own_models(LocalUpdate(mixture, hard, update), clients)
    membership = plain_memberships(clients, mixture, hard)
    for i in range(clients.n_clients):
        phi, y = client_rows(clients, i)
        kind = np.argmax(membership[i])
        share = membership[i, kind]
        step = update.step * share / len(y)
        local = mixture.theta[kind]
        if isinstance(update, FedProx):
            local = np.linalg.solve(np.eye(dim) + step * phi.T @ phi, local + step * phi.T @ y)
        else:
            for _ in range(update.local_steps):
                local = local - step * phi.T @ (phi @ local - y)
        np.testing.assert_allclose(own[i], local, **EXACT)


def plain_memberships(clients, mixture, hard):
    """Memberships by a loop that reads as the formula."""
    result = np.zeros((clients.n_clients, len(mixture.theta)))
    for i in range(clients.n_clients):
        phi, y = client_rows(clients, i)
        squares = np.array([np.sum((y - phi @ theta) ** 2) for theta in mixture.theta])
        if hard:
            result[i, np.argmin(squares)] = 1.0
        else:
            density = mixture.weights * mixture.noise ** -len(y) * np.exp(-squares / (2 * mixture.noise**2))
            result[i] = density / density.sum()
    return result
