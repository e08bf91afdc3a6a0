"""Clients at sites: the same model as in one process, however they are spread."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers.federations import Disturbed, local_fit, same, split
from helpers.personal import TWO, fit, simulated
from mixfed import Clients, LocalPool, PaperSettings, fit_paper, simulate
from mixfed.federation import InProcess, Job, Site, conduct
from mixfed.federation.messages import Answer, unpack
from mixfed.model.model import Model
from mixfed.recipes.paper.theory import least_gap

PAPER = {"n_anchors": 8, "n_recruits": 300, "pairs": 30, "rounds": 6, "refine_rounds": 40}


@pytest.mark.parametrize(
    ("k", "settings"),
    [
        (3, {}),
        (None, {}),
        (1, {}),
        (3, {"membership": "hard"}),
        (3, {"update": "fedprox", "refine_rounds": 40}),
        (3, {"update": "fedavg", "step": 0.1, "refine_rounds": 40}),
        (3, {"noise": "shared"}),
        (3, {"anchors": "summed"}),
    ],
)
def test_the_model_is_that_of_one_process(small, tmp_path, k, settings):
    job = Job(k, settings=settings, intercept=False)
    found = conduct(InProcess(split(small.clients, 4)), job, tmp_path)
    same(found, local_fit(small.clients, k, **settings))
    assert Model.load(tmp_path).n_clusters == found.model.n_clusters


@pytest.mark.slow
def test_hundreds_of_small_sites_and_two_large_ones(tmp_path):
    clients = simulate(n_clients=4000, dim=4, n_clusters=3, noise=0.3, seed=4).clients
    edges = np.cumsum([0, *[2] * 32, 1600, *[2] * 7, 1600, *[2] * 361]).tolist()
    sites = {f"site-{j:03d}": Site(clients.block(*ends)) for j, ends in enumerate(itertools.pairwise(edges))}
    large = [name for name, site in sites.items() if len(site.clients.blocks) > 1]
    assert large == ["site-032", "site-040"]  # asked at the same time, and with threads of their own
    same(conduct(InProcess(sites), Job(3, intercept=False), tmp_path), local_fit(clients))


@pytest.mark.parametrize("update", ["fedavg", "fedprox"])
@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_the_papers_recipe_too(tmp_path, update, membership):
    small = simulate(n_clients=2000, dim=5, n_clusters=3, noise=0.3, n_anchors=20, anchor_rows=400, seed=3)
    settings = PAPER | {"update": update, "membership": membership, "separation": least_gap(small.theta)}
    found = conduct(InProcess(split(small.clients, 4)), Job(3, "paper", settings, intercept=False), tmp_path)
    same(found, fit_paper(LocalPool(small.clients), small.clients.features, 3, PaperSettings(**settings)))


def test_few_exchanges_and_every_byte_counted(small, tmp_path):
    sent, heard = [], []

    class Counting(InProcess):
        def send(self, messages, timeout):
            sent.append(sum(map(len, messages.values())))
            for name, content in super().send(messages, timeout):
                heard.append(len(content))
                yield name, content

    conduct(Counting(split(small.clients, 4)), Job(3, intercept=False), tmp_path)
    assert len(sent) <= 30
    lines = [json.loads(line) for line in (tmp_path / "exchanges.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == list(range(1, len(sent) + 1))
    assert sum(line["bytes_down"] for line in lines) == sum(sent)
    assert sum(line["bytes_up"] for line in lines) == sum(heard)
    about = json.loads((tmp_path / "run.json").read_text())
    assert sum(site["bytes_down"] for site in about["sites"].values()) == sum(sent)
    assert sum(site["bytes_up"] for site in about["sites"].values()) == sum(heard)
    trace = pq.read_table(tmp_path / "trace.parquet")
    assert trace["exchanges"].to_pylist() == list(range(2, len(sent)))  # after enrolment, before the farewell


@pytest.mark.parametrize("count", [1, 7, 40])
def test_sites_of_any_number_and_size(small, tmp_path, count):
    """Down to sites of one client."""
    clients = small.clients.subset(np.arange(300))
    home = np.minimum(np.arange(300) // 7, count - 1)
    sites = {f"s{j}": Site(clients.subset(np.flatnonzero(home == j))) for j in range(count)}
    if count == 40:
        sites |= {"one": Site(clients.subset([299]))}
        clients = clients.subset([*range(300), 299])
    same(conduct(InProcess(sites), Job(3, intercept=False), tmp_path), local_fit(clients))


def test_samples_are_drawn_by_each_site(tmp_path):
    made = simulate(n_clients=12_000, dim=4, n_clusters=2, noise=0.4, seed=1)
    asked = []

    def disturb(name, number, content):
        asked.append(unpack(content, Answer).clients)
        yield content

    found = conduct(Disturbed(split(made.clients, 3), disturb), Job(2, intercept=False), tmp_path)
    same(found, local_fit(made.clients, 2))
    assert min(asked) < 1500  # of the 4,000 clients of a site


@pytest.mark.slow
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
