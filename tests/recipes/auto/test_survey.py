"""Speed must not change a digit: samples, threads, precision."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from mixfed import AutoSettings, Clients, LocalPool, fit_auto, label_agreement, simulate
from mixfed.clients.packed import cut
from mixfed.core.threads import one_blas_thread
from mixfed.exchange.census import Census
from mixfed.exchange.local_update import FedAvg, FedProx, LocalUpdate, Mixture
from mixfed.exchange.mixture import Candidates, MixtureSums
from mixfed.exchange.pool import Sample
from mixfed.exchange.units import StandardUnits
from mixfed.kernels.gaussian import exponentials
from mixfed.recipes import updates as mixtures
from mixfed.recipes.auto import refine
from mixfed.recipes.auto import survey as coarse
from mixfed.recipes.standardise import gram_query, inspect, make_frame


def frame_of(clients: Clients) -> StandardUnits:
    pool = LocalPool(clients)
    census = pool.ask(Census())
    columns = inspect(census, clients.intercept)
    return make_frame(columns, pool.ask(gram_query(columns)), census.n_rows)[0]


def single(clients: Clients) -> Clients:
    return Clients(clients.phi.astype(np.float32), clients.y, clients.offsets, clients.ids, clients.features)


@pytest.mark.parametrize(("family", "k", "noise"), [("nested", 4, 0.3), ("noisy", 3, 1.0), ("rare", 3, 0.3)])
def test_a_search_among_some_clients_ends_at_the_maximum_of_all(family, k, noise, monkeypatch):
    clients = simulate(family, n_clients=30_000, dim=6, noise=noise, seed=5).clients
    monkeypatch.setattr(coarse, "SEARCH_ROWS", 100)
    sampled = fit_auto(LocalPool(clients), clients.features, k).model
    assert sampled.details["searched_clients"] < 0.4 * clients.n_clients
    monkeypatch.setattr(coarse, "WORTH_DRAWING", 0.0)
    whole = fit_auto(LocalPool(clients), clients.features, k).model
    assert whole.details["searched_clients"] == clients.n_clients
    np.testing.assert_allclose(sampled.theta, whole.theta, atol=1e-7)
    np.testing.assert_allclose(sampled.weights, whole.weights, atol=1e-7)
    np.testing.assert_allclose(sampled.coef_error, whole.coef_error, rtol=1e-2)
    assert sampled.details["likelihood"] == pytest.approx(whole.details["likelihood"], abs=1e-3)


def test_kinds_that_only_all_clients_tell_apart_are_found(monkeypatch):
    # One kind is rare: too few of its clients are in the sample for BIC to let them count.
    made = simulate(n_clients=20_000, dim=4, n_clusters=3, weights=(0.6, 0.39, 0.01), noise=1.0, seed=2)
    clients = made.clients
    monkeypatch.setattr(coarse, "SEARCH_ROWS", 60)
    monkeypatch.setattr(coarse, "LEAST_DRAWN", 100)
    drawn = coarse.SampleDesign(clients.n_clients, clients.n_rows, clients.dim, 0).draw(
        60 * coarse.SCAN_KINDS * clients.dim
    )
    some = clients.subset(drawn.places(clients.keys))
    assert fit_auto(LocalPool(some), clients.features).model.n_clusters == 2
    found = fit_auto(LocalPool(clients), clients.features).model
    assert found.details["searched_clients"] < clients.n_clients
    assert found.n_clusters == 3


def test_a_sample_depends_on_keys_alone():
    clients = simulate(n_clients=2000, dim=2, n_clusters=2).clients
    sample = Sample(3, 0.25)
    places = sample.places(clients.keys)
    assert abs(len(places) - 500) < 100
    halves = [np.arange(0, 2000, 2), np.arange(1, 2000, 2)]
    parts = [half[sample.places(clients.keys[half])] for half in halves]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), places)
    assert set(Sample(3, 0.1).places(clients.keys)) < set(places)  # a smaller share is part of a larger one


def test_a_pool_asks_a_sample_as_it_would_ask_those_clients():
    clients = simulate(n_clients=500, dim=3, n_clusters=2).clients
    sample = Sample(0, 0.3)
    asked = LocalPool(clients).ask(Census(), sample)
    alone = LocalPool(clients.subset(sample.places(clients.keys))).ask(Census())
    np.testing.assert_array_equal(asked.sizes, alone.sizes)
    np.testing.assert_array_equal(asked.total, alone.total)


SCRIPT = """
import sys
from mixfed import LocalPool, fit_auto, simulate
clients = simulate("nested", n_clients=8000, dim=6, seed=1).clients
assert len(clients.blocks) > 4
fit_auto(LocalPool(clients), clients.features, 4).model.save(sys.argv[1])
"""


def test_the_number_of_threads_does_not_change_a_byte(tmp_path):
    written = []
    for threads in ("1", "2", "5"):
        path = tmp_path / f"{threads}.json"
        environment = os.environ | {"MIXFED_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        subprocess.run([sys.executable, "-c", SCRIPT, str(path)], env=environment, check=True)
        written.append(path.read_bytes())
    assert written[0] == written[1] == written[2]


def test_blocks_are_whole_clients_of_about_equal_rows():
    rng = np.random.default_rng(0)
    for n_clients, dim in ((1, 1), (7, 3), (5000, 2), (60_000, 40), (300, 100_000)):
        offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 20, n_clients))])
        blocks = cut(offsets, dim)
        assert blocks[0][0] == 0
        assert blocks[-1][1] == n_clients
        assert all(left[1] == right[0] for left, right in itertools.pairwise(blocks))
        rows = [offsets[end] - offsets[begin] for begin, end in blocks]
        assert max(rows) <= 65_536 + 20
        assert max(rows) * dim <= 4_000_000 + 20 * dim


def test_exponentials_are_those_of_the_library():
    values = -np.concatenate([np.geomspace(1e-300, 39.9, 5000), [0.0, 40.1, 700.0, 1e300]])
    found = values.copy()
    exponentials(found)
    near = values > -40
    np.testing.assert_allclose(found[near], np.exp(values[near]), rtol=1e-13)
    assert (found[~near] == 0).all()


@pytest.mark.parametrize("update", [FedAvg(0.05, 1), FedAvg(0.05, 4), FedProx(0.7), None])
@pytest.mark.parametrize("hard", [True, False])
def test_single_precision_rounds_agree_with_double(update, hard):
    made = simulate(n_clients=3000, dim=5, n_clusters=3, tail=1.5, seed=1)  # some have more rows than features
    mixture = Mixture(made.theta, np.full(3, 1 / 3), np.full(3, 0.3))
    double = LocalPool(made.clients).ask(LocalUpdate(mixture, hard, update))
    half = LocalPool(single(made.clients)).ask(LocalUpdate(mixture, hard, update))
    np.testing.assert_allclose(half.shift, double.shift, atol=1e-3 * max(np.abs(double.shift).max(), 1.0))
    np.testing.assert_allclose(half.mass, double.mass, rtol=1e-3)
    assert half.likelihood == pytest.approx(double.likelihood, rel=1e-5)


def test_single_precision_fits_agree_with_double():
    clients = simulate("nested", n_clients=4000, dim=6, seed=1).clients
    double = fit_auto(LocalPool(clients), clients.features, 4).model
    half = fit_auto(LocalPool(single(clients)), clients.features, 4).model
    np.testing.assert_allclose(half.theta, double.theta, atol=1e-5)
    np.testing.assert_allclose(half.coef_error, double.coef_error, rtol=1e-3)


@pytest.mark.parametrize("hard", [True, False])
def test_second_moments_are_those_before_and_what_moved(hard):
    clients = simulate(n_clients=900, dim=3, n_clusters=2, noise=1.0).clients
    pool, frame = LocalPool(clients), frame_of(clients)
    rng = np.random.default_rng(0)
    first, second = (
        Candidates(rng.standard_normal((2, 3, 3)), np.zeros((2, 3)), np.full((2, 3), -np.log(3))) for _ in range(2)
    )
    before, whole = pool.ask(MixtureSums(frame, first, hard=hard)), pool.ask(MixtureSums(frame, second, hard=hard))
    moved = pool.ask(MixtureSums(frame, second, hard=hard, since=first))
    np.testing.assert_allclose(before.gram + moved.gram, whole.gram, atol=1e-9)
    np.testing.assert_array_equal(moved.score, whole.score)
    assert not pool.ask(MixtureSums(frame, second, hard=hard, since=second)).gram.any()


def test_scores_do_not_need_the_curvature():
    clients = simulate(n_clients=400, dim=3, n_clusters=2).clients
    pool, frame = LocalPool(clients), frame_of(clients)
    candidate = Candidates(np.ones((1, 2, 3)) * [[1.0], [-1.0]], np.zeros((1, 2)), np.full((1, 2), -np.log(2)))
    whole, quick = pool.ask(MixtureSums(frame, candidate)), pool.ask(MixtureSums(frame, candidate, curvature=False))
    np.testing.assert_array_equal(whole.score, quick.score)
    np.testing.assert_array_equal(whole.squares, quick.squares)
    assert len(quick.gram) == 0
    assert whole.gram.any()


def test_a_sampled_fit_has_no_doubts_about_its_maximum():
    clients = simulate("nested", n_clients=30_000, dim=5, seed=3).clients
    found = fit_auto(LocalPool(clients), clients.features)
    assert found.model.details["searched_clients"] < clients.n_clients
    assert found.model.n_clusters == 4
    assert found.model.warnings == ()
    assert found.stop == "the likelihood is at its maximum"


def panel(n_clients, rows, *, k=2, dim=3, noise=0.3, seed=0, kind=np.float64, shift=0.0, y_shift=0.0):
    """Clients with about equally many rows each, with an intercept."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(rows[0], rows[1] + 1, n_clients)
    owner, labels = np.repeat(np.arange(n_clients), sizes), rng.integers(k, size=n_clients)
    theta, x = 1.5 * rng.normal(size=(k, dim)), rng.normal(size=(len(owner), dim))
    y = np.einsum("nd,nd->n", x, theta[labels[owner]]) + noise * rng.normal(size=len(owner))
    clients = Clients.from_arrays((x + shift).astype(kind), y + y_shift, owner, intercept=True)
    return clients, labels


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("n_clients", "rows"), [(20, 8000), (100, 1000), (300, 800)])
def test_few_clients_with_many_rows_are_all_asked(n_clients, rows, seed):
    clients, labels = panel(n_clients, (rows, rows), k=3, seed=seed)
    for k in (3, None):
        model = fit_auto(LocalPool(clients), clients.features, k, seed=seed).model
        assert model.n_clusters == 3
        assert label_agreement(model.assign(clients).cluster, labels) == 1.0


def test_a_sample_has_clients_enough(monkeypatch):
    crowd = coarse.SampleDesign(n_clients=50_000, n_rows=50_000_000, dim=2, seed=0)
    assert crowd.draw(1000) == Sample(0, 2000 / 50_000)
    assert coarse.SampleDesign(n_clients=5000, n_rows=5_000_000, dim=2, seed=0).draw(1000) is None


def test_a_step_that_cannot_be_taken_on_the_way_is_left_out(monkeypatch):
    clients = simulate("mirror", n_clients=60_000, dim=5).clients
    expected = fit_auto(LocalPool(clients), clients.features, 2).model
    real, calls = refine.newton, []

    def newton(candidates, *arguments):
        found = real(candidates, *arguments)
        if arguments[3] == (1.0,):  # as polish asks
            calls.append(found)
            if len(calls) == 1:
                return mixtures.Newton(candidates.pick([]), np.inf)
        return found

    monkeypatch.setattr(refine, "newton", newton)
    found = fit_auto(LocalPool(clients), clients.features, 2)
    assert len(calls) > 1
    np.testing.assert_allclose(found.model.theta, expected.theta, atol=1e-7)


@pytest.mark.parametrize("settings", [AutoSettings(membership="hard"), AutoSettings(update="fedprox")])
def test_other_refinements_find_as_many_kinds_on_a_sample(settings):
    clients = simulate("noisy", n_clients=20_000, dim=4, radius=3.0, seed=0).clients
    model = fit_auto(LocalPool(clients), clients.features, None, settings).model
    assert model.n_clusters == 3
    assert model.details["searched_clients"] == clients.n_clients


def test_kinds_in_single_precision_do_not_mind_an_offset_of_the_target():
    clients, labels = panel(400, (2, 8), kind=np.float32, y_shift=1e7)
    assert (
        label_agreement(fit_auto(LocalPool(clients), clients.features, 2).model.assign(clients).cluster, labels) > 0.99
    )


def test_models_in_single_precision_do_not_mind_shifted_columns():
    clients, _ = panel(2000, (2, 8), dim=2, kind=np.float32, shift=1e5, noise=0.01)
    double = Clients(clients.phi.astype(np.float64), clients.y, clients.offsets, clients.ids, clients.features)
    one, two = (fit_auto(LocalPool(data), data.features, 2).model for data in (clients, double))
    mean = double.phi.mean(axis=0)
    np.testing.assert_allclose(one.coef @ mean + one.intercept, two.coef @ mean + two.intercept, atol=2e-4)


def test_combinations_of_columns_are_seen_in_single_precision():
    clients, _ = panel(1000, (3, 9), dim=2)
    dummies = np.eye(5)[np.random.default_rng(0).integers(5, size=clients.n_rows)]
    phi = np.column_stack([clients.phi, dummies]).astype(np.float32)
    ids = np.repeat(clients.ids, clients.rows)
    model = fit_auto(
        LocalPool(made := Clients.from_arrays(phi, clients.y, ids, intercept=True)), made.features, 2
    ).model
    assert any("combinations" in warning for warning in model.warnings)
    assert np.abs(model.theta).max() < 10


def test_a_large_client_in_single_precision_keeps_its_noise():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2_000_000, 1), dtype=np.float32)
    y = x[:, 0] + 0.5 * rng.standard_normal(len(x))
    clients = Clients.from_arrays(x, y, np.zeros(len(x), dtype=int), intercept=True)
    model = fit_auto(LocalPool(clients), clients.features, 1).model
    assert model.noise[0] == pytest.approx(np.std(y - x[:, 0] * model.coef[0, 0] - model.intercept[0]), rel=1e-5)


def test_hard_labels_end_in_single_precision():
    clients, _ = panel(4000, (2, 8), kind=np.float32)
    found = fit_auto(LocalPool(clients), clients.features, 2, AutoSettings(membership="hard"))
    assert found.stop == "no client changed its kind"
    assert found.traffic.exchanges < 30


def test_blas_has_its_threads_back_however_blocks_overlap():
    """Threads that come and go must not leave what one of them found for what there was."""
    before = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert all(library["num_threads"] == 1 for library in threadpool_info() if library["user_api"] == "blas")
    second.__exit__(None, None, None)
    assert [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"] == before
