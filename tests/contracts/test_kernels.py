"""Every compiled kernel gives what its plain twin gives; which of them are taken follows from the table's size."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from helpers.clients import random_clients
from mixfed import SettingsError
from mixfed.families.gaussian import GAUSSIAN
from mixfed.kernels import MOST_PLAIN, chosen, compiled, plain
from mixfed.kernels.compiled import TWINS

TOLERANCE = {np.float64: 1e-12, np.float32: 1e-5}
SIZES = ([1], [1, 1, 1], [2, 3, 1, 2], [700, 1, 4], None)
"""Rows of clients; None draws them."""


def same(found, expected, tolerance):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        one, other = np.asarray(one, float), np.asarray(other, float)
        assert one.shape == other.shape
        if other.size:
            np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * max(np.abs(other).max(), 1e-300))


def problem(seed, kind):
    """Rows, units and candidates of random shapes: single ones, one kind, one column, empty kinds."""
    rng = np.random.default_rng(seed)
    sizes = SIZES[seed % len(SIZES)] or rng.integers(1, 9, 60).tolist()
    dim, extra, count, k = (int(rng.integers(*bounds)) for bounds in ((1, 7), (0, 2), (1, 4), (1, 5)))
    rows = random_clients(seed, sizes, dim, single=kind is np.float32)
    width = dim + extra
    centre, inverse_sd = np.zeros(width, kind), rng.uniform(0.5, 2.0, width).astype(kind)
    centre[:dim] = rng.standard_normal(dim)
    log_weight = np.log(rng.dirichlet(np.ones(k), count))
    log_weight[0, -1] = -1000.0 if k > 1 else 0.0  # nobody is of this kind
    informed = np.arange(count)[: int(rng.integers(0, count + 1))]
    return rng, (rows.phi, rows.y, rows.offsets), (centre, inverse_sd), (count, k, width), log_weight, informed


def variances(rng, count, k):
    return 0.5 * rng.standard_normal((count, k))


@pytest.mark.compiles
@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("seed", range(10))
def test_mixture_sums(seed, kind):
    rng, rows, units, (count, k, width), log_weight, informed = problem(seed, kind)
    models = np.ascontiguousarray(rng.standard_normal((width, count * k)).astype(kind))
    log_variance, nobody = variances(rng, count, k), np.empty((0, count * k))
    for hard in (False, True):
        for curvature in (False, True):
            about = (*rows, *units, 0.3, 1.7, models, log_variance, log_weight, hard, curvature, informed)
            found, expected = (kernels.mixture_sums(*about, nobody) for kernels in (compiled, plain))
            same(found, expected, TOLERANCE[kind])
            moved = (*about[:8], log_variance + 0.1, *about[9:], expected[2])
            same(compiled.mixture_sums(*moved), plain.mixture_sums(*moved), 10 * TOLERANCE[kind])


@pytest.mark.compiles
@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("seed", range(10))
def test_census(seed, kind):
    _, (phi, y, _), (centre, _), *_ = problem(seed, kind)
    same(compiled.census(phi, y, len(centre)), plain.census(phi, y, len(centre)), 1e-12)
    for one, other in zip(*(each.census(phi[:0], y[:0], len(centre)) for each in (compiled, plain)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.compiles
@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("seed", range(10))
def test_second_moments(seed, kind):
    _, (phi, y, _), units, *_ = problem(seed, kind)
    about = (phi, y, *units, 0.3, 1.7)
    same(compiled.second_moments(*about), plain.second_moments(*about), TOLERANCE[kind])


@pytest.mark.compiles
@pytest.mark.parametrize("hard", [False, True])
def test_a_model_that_is_no_number_shows_in_both(hard):
    rows = random_clients(0, [2, 3, 4], 2)
    models = np.array([[0.1, np.nan], [0.2, 0.3]])
    about = (np.zeros(2), np.ones(2), 0.0, 1.0, models, np.zeros((1, 2)), np.full((1, 2), np.log(0.5)), hard, False)
    for kernels in (plain, compiled):
        numbers, _, _ = kernels.mixture_sums(
            rows.phi, rows.y, rows.offsets, *about, np.empty(0, np.int64), np.empty((0, 2))
        )
        assert np.isnan(numbers).any()


@pytest.mark.compiles
@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("seed", range(10))
def test_generic_sums_of_a_normal_target_are_those_of_its_own_kernel(seed, kind):
    rng, rows, units, (count, k, width), log_weight, informed = problem(seed, kind)
    models = np.ascontiguousarray(rng.standard_normal((width, count * k)).astype(kind))
    log_variance, nobody = variances(rng, count, k), np.empty((0, count * k))
    for hard in (False, True):
        for curvature in (False, True):
            about = (*rows, *units, 0.3, 1.7, models, log_variance, log_weight, hard, curvature, informed)
            for kernels in (compiled, plain):
                expected = kernels.mixture_sums(*about, nobody)
                same(plain.generic_sums(GAUSSIAN, *about, nobody), expected, TOLERANCE[kind])
                moved = (*about[:8], log_variance + 0.1, *about[9:], expected[2])
                found = plain.generic_sums(GAUSSIAN, *moved)
                same(found, kernels.mixture_sums(*moved), 10 * TOLERANCE[kind])


@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("seed", range(10))
def test_local_updates(seed, kind):
    rng, rows, _, (_, k, _), log_weight, _ = problem(seed, kind)
    theta = np.ascontiguousarray(rng.standard_normal((rows[0].shape[1], k)).astype(kind))
    noise = rng.uniform(0.5, 2.0, k)
    for hard in (False, True):
        for update, step, steps in (
            (plain.FEDAVG, 0.05, 1),
            (plain.FEDAVG, 0.05, 5),
            (plain.FEDPROX, 0.5, 1),
            (0, 0.0, 0),
        ):
            about = (*rows, theta, log_weight[0], noise, hard, 0, update, step, steps)
            same(compiled.local_updates(*about), plain.local_updates(*about), TOLERANCE[kind])


@pytest.mark.compiles
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_random_effects_sums(seed, full):
    rng, rows, units, (count, k, width), log_weight, informed = problem(seed, np.float64)
    dim = width if not full else int(rng.integers(1, width + 1))
    whiten, theta = rng.standard_normal((width, dim)), rng.standard_normal((count * k, dim))
    root = 0.5 * rng.standard_normal((count * k, dim, max(1, dim - 1)))  # singular
    psi = root @ root.swapaxes(1, 2) if full else np.maximum(rng.standard_normal((count * k, 1, dim)), 0.0)
    places = np.full(count, -1)
    places[informed[::-1]] = np.arange(len(informed))
    target, mixture = np.array([0.3, 1.7]), (variances(rng, count, k), log_weight, places)
    about = (
        *rows,
        *units,
        rng.standard_normal(width),
        target,
        whiten,
        theta,
        np.ascontiguousarray(psi),
        full,
        *mixture,
    )
    for fisher in (True, False):
        found, expected = (kernels.random_effects_sums(*about, fisher) for kernels in (compiled, plain))
        same(found, expected, 1e-11)


def test_every_twin_is_tested_here_and_has_the_name_of_a_plain_kernel():
    for twin in TWINS:
        assert f"test_{twin.__name__}" in globals()
        assert hasattr(plain, twin.__name__)


def test_kernels_follow_from_the_size_of_the_table(monkeypatch):
    monkeypatch.delenv("MIXFED_KERNELS", raising=False)
    assert (chosen(MOST_PLAIN), chosen(MOST_PLAIN + 1)) == (plain, compiled)
    monkeypatch.setenv("MIXFED_KERNELS", "compiled")
    assert chosen(1) is compiled
    monkeypatch.setenv("MIXFED_KERNELS", "quick")
    with pytest.raises(SettingsError, match="MIXFED_KERNELS = 'quick' must be plain or compiled"):
        chosen(1)


SMALL = """
import sys
from mixfed import AutoSettings, LocalPool, PaperSettings, fit_auto, fit_paper, simulate
clients = simulate(n_clients=2000, dim=4, n_clusters=2, n_anchors=10, anchor_rows=400, seed=5).clients
constants = dict(n_anchors=8, n_recruits=150, pairs=20, rounds=8, refine_rounds=20)
for settings, n_clusters in (
    (AutoSettings(), 2),
    (AutoSettings(), None),
    (AutoSettings(personal=True), 2),
    (PaperSettings(1.5, update="fedavg", **constants), 2),
    (PaperSettings(1.5, update="fedprox", **constants), 2),
):
    fit = fit_paper if isinstance(settings, PaperSettings) else fit_auto
    fit(LocalPool(clients), clients.features, n_clusters, settings).model.assign(clients)
assert "numba" not in sys.modules
"""


@pytest.mark.process
def test_a_small_table_compiles_nothing():
    environment = {name: value for name, value in os.environ.items() if name != "MIXFED_KERNELS"}
    subprocess.run([sys.executable, "-c", SMALL], check=True, env=environment)


COMMANDS = """
import sys
from mixfed.cli import app
table = ["clients.parquet", "--client", "client", "--target", "y"]
for command in (
    ["simulate", "--clients", "500", "--dim", "4", "--clusters", "2", "--out", table[0]],
    ["fit", *table, "--out", "result"],
    ["assign", "result", table[0], "--out", "kinds.parquet"],
    ["predict", "result", table[0], "--out", "predictions.parquet"],
    ["report", "result"],
    ["theory", "result"],
):
    app(command, standalone_mode=False)
assert "numba" not in sys.modules
"""


@pytest.mark.process
@pytest.mark.slow
def test_commands_on_a_small_table_do_not_load_the_compiler(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "MIXFED_KERNELS"}
    subprocess.run([sys.executable, "-c", COMMANDS], check=True, env=environment, cwd=tmp_path, capture_output=True)


LARGE = """
from collections import Counter
from numba.core import event
from mixfed import AutoSettings, LocalPool, fit_auto, simulate

compiled = []

class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func)

    def on_end(self, event):
        pass

clients = simulate(n_clients=300, dim=3, n_clusters=2, n_anchors=10, anchor_rows=200, seed=5).clients
with event.install_listener("numba:compile", Listener()):
    fit_auto(LocalPool(clients), clients.features, 2, AutoSettings(personal=True))
    for update, steps in (("fedavg", 1), ("fedavg", 60), ("fedprox", 1)):
        settings = AutoSettings(update=update, step=0.1, local_steps=steps)
        fit_auto(LocalPool(clients), clients.features, 2, settings)
ours = Counter(f"{made.__module__}.{made.__qualname__}" for made in compiled if made.__module__.startswith("mixfed"))
assert len(ours) > 30, ours
assert set(ours.values()) == {1}, ours
"""


@pytest.mark.compiles
@pytest.mark.process
@pytest.mark.slow
def test_no_function_is_compiled_twice(tmp_path):
    """Which a literal as an argument, or an array that lies in memory in another way, would bring about."""
    environment = os.environ | {"MIXFED_KERNELS": "compiled", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", LARGE], check=True, env=environment)
