"""Clients at sites: the same model as in one process, whoever is late or gone; and what can be asked for."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers.federations import Disturbed, local_fit, same, split
from mixfed import LocalPool, PaperSettings, PoolError, SettingsError, fit_paper, simulate
from mixfed.exchange.census import Census, CensusSum, LargestNorm
from mixfed.exchange.pool import Sample
from mixfed.federation import FederatedPool, InProcess, Job, Site, conduct
from mixfed.federation.messages import Answer, unpack
from mixfed.model.model import Model
from mixfed.recipes.paper.theory import least_gap

PAPER = {"n_anchors": 8, "n_recruits": 300, "pairs": 30, "rounds": 6, "refine_rounds": 40}


# ---------------------------------------------------------------- the same model


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


def test_queries_agree_with_one_process_one_by_one(small):
    clients = small.clients
    pool, local = FederatedPool(InProcess(split(clients, 5)), intercept=False), LocalPool(clients)
    assert pool.n_clients == clients.n_clients
    assert pool.dim == clients.dim
    order = {key: place for place, key in enumerate(clients.keys.tolist())}
    mine = np.array([order[key] for key in pool.roster.keys.tolist()])
    np.testing.assert_array_equal(np.sort(mine), np.arange(clients.n_clients))
    who = np.random.default_rng(0).permutation(clients.n_clients)[:200]
    for asked, here in ((None, None), (Sample(1, 0.3), Sample(1, 0.3)), (who, mine[who])):
        there, expected = pool.ask(Census(), asked), local.ask(Census(), here)
        for field in dataclasses.fields(CensusSum):
            np.testing.assert_allclose(getattr(there, field.name), getattr(expected, field.name), rtol=1e-12)
    assert pool.ask(LargestNorm()).peak == local.ask(LargestNorm()).peak


# ---------------------------------------------------------------- late, gone, back


def test_with_sites_that_drop_at_random_in_every_exchange(small, tmp_path):
    """30 % of the sites drop, in every exchange; the model is the same."""
    rng = np.random.default_rng(0)
    dropped = []

    def disturb(name, number, content):
        lost = rng.random() < 0.3
        dropped.append(lost)
        yield TimeoutError("no answer") if lost else content

    full = conduct(InProcess(split(small.clients, 10)), Job(3, intercept=False), tmp_path / "full")
    job = Job(3, intercept=False, tries=30)
    found = conduct(Disturbed(split(small.clients, 10), disturb), job, tmp_path / "some")
    assert 0.25 < np.mean(dropped) < 0.35
    same(found, full, 1e-12)
    lines = [json.loads(line) for line in (tmp_path / "some" / "exchanges.jsonl").read_text().splitlines()]
    assert max(line["attempts"] for line in lines) > 2
    assert all(reason == "no answer" for line in lines for _, reason in line["dropped"])


def test_a_late_site_works_once(small):
    """What it worked out while nobody waited is given when it is asked again."""
    sites = split(small.clients, 3)
    with_weights = []
    sites["site-1"].log = lambda line: with_weights.append(line["exchange"])

    def disturb(name, number, content):
        late = name == "site-1" and number % 3
        yield TimeoutError() if late else content

    pool = FederatedPool(Disturbed(sites, disturb), intercept=False, pause=0.0)
    pool.ask(Census())
    assert with_weights == [1, 2]


def test_a_site_that_is_gone_is_left_out_and_nothing_of_it_is_kept(small, tmp_path):
    sites = split(small.clients, 4)

    def disturb(name, number, content):
        gone = name == "site-2" and number > 6
        yield ConnectionError("gone") if gone else content

    found = conduct(Disturbed(sites, disturb), Job(3, intercept=False, tries=2), tmp_path / "a")
    rest = {name: site for name, site in sites.items() if name != "site-2"}
    undisturbed = conduct(InProcess(rest), Job(3, intercept=False), tmp_path / "b")
    same(found, undisturbed, 1e-12)
    assert "site-2: gone" in (tmp_path / "a" / "exchanges.jsonl").read_text()
    assert list(json.loads((tmp_path / "a" / "run.json").read_text())["sites"]) == sorted(rest)


def test_too_few_sites_end_the_run_and_it_can_go_on(small, tmp_path):
    sites = split(small.clients, 4)

    def disturb(name, number, content):
        gone = name != "site-2" and number > 6
        yield ConnectionError("gone") if gone else content

    job = Job(3, intercept=False, tries=2)
    with pytest.raises(PoolError, match=r"1 of 4 sites take part, at least 50%.*site-0"):
        conduct(Disturbed(sites, disturb), job, tmp_path)
    assert "1 of 4 sites" in (tmp_path / "error.txt").read_text()
    asked = []

    def listen(name, number, content):
        asked.append(number)
        yield content

    found = conduct(Disturbed(sites, listen), job, tmp_path)
    undisturbed = conduct(InProcess(sites), job, tmp_path / "b")
    same(found, undisturbed, 1e-12)
    assert not (tmp_path / "error.txt").exists()
    assert found.traffic.exchanges == undisturbed.traffic.exchanges
    assert max(asked) == undisturbed.traffic.exchanges + 1 - 5  # what was said before is not asked again


@pytest.mark.parametrize("when", [1, 2, 5, 9, 14])
def test_a_run_goes_on_after_a_crash_of_the_server(small, tmp_path, when):
    def disturb(name, number, content):
        if number == when:
            raise KeyboardInterrupt
        yield content

    sites, job = split(small.clients, 3), Job(3, intercept=False)
    with pytest.raises(KeyboardInterrupt):
        conduct(Disturbed(sites, disturb), job, tmp_path / "a")
    same(conduct(InProcess(sites), job, tmp_path / "a"), conduct(InProcess(sites), job, tmp_path / "b"), 1e-12)


def test_a_resumed_run_waits_for_its_members_and_takes_no_others(small, tmp_path):
    sites, job = split(small.clients, 4), Job(3, intercept=False, patience=0.0)
    first = {name: site for name, site in sites.items() if name != "site-3"}

    def stop(name, number, content):
        if number == 8:
            raise KeyboardInterrupt
        yield content

    with pytest.raises(KeyboardInterrupt):
        conduct(Disturbed(first, stop), job, tmp_path / "a")
    found = conduct(InProcess(sites), job, tmp_path / "a")  # site-3 is new, but this run is not its own
    same(found, conduct(InProcess(first), job, tmp_path / "b"), 1e-12)
    with pytest.raises(KeyboardInterrupt):
        conduct(Disturbed(sites, stop), job, tmp_path / "c")
    found = conduct(InProcess(first), job, tmp_path / "c")  # site-3 does not come back
    same(found, conduct(InProcess(first), job, tmp_path / "d"), 1e-12)
    assert "site-3 did not come back" in (tmp_path / "c" / "exchanges.jsonl").read_text()


def test_a_run_is_not_continued_with_other_data(small, tmp_path):
    def stop(name, number, content):
        if number == 8:
            raise KeyboardInterrupt
        yield content

    sites, job = split(small.clients, 3), Job(3, intercept=False)
    with pytest.raises(KeyboardInterrupt):
        conduct(Disturbed(sites, stop), job, tmp_path / "a")
    rows = sites["site-1"].clients
    sites["site-1"] = Site(dataclasses.replace(rows, y=rows.y + 1.0))
    same(conduct(InProcess(sites), job, tmp_path / "a"), conduct(InProcess(sites), job, tmp_path / "b"), 1e-12)
    assert "the data of site-1 have changed" in (tmp_path / "a" / "exchanges.jsonl").read_text()


def test_one_job_at_a_time_works_on_a_run(small, tmp_path):
    refused = []

    class Meddling(InProcess):
        def send(self, messages, timeout):
            if not refused:
                refused.append(1)
                with pytest.raises(PoolError, match="another job is at work on the run r: wait"):
                    conduct(InProcess(self.sites), Job(3, intercept=False), tmp_path / "r")
            return super().send(messages, timeout)

    found = conduct(Meddling(split(small.clients, 3)), Job(3, intercept=False), tmp_path / "r")
    same(found, local_fit(small.clients))
    assert refused


def test_replies_of_another_version_are_not_gone_on_with(small, tmp_path, monkeypatch):
    def stop(name, number, content):
        if number > 6:
            raise KeyboardInterrupt
        return [content]

    sites = split(small.clients, 3)
    with pytest.raises(KeyboardInterrupt):
        conduct(Disturbed(sites, stop), Job(3, intercept=False), tmp_path)
    monkeypatch.setattr("mixfed.exchange.journal.__version__", "another")
    same(conduct(InProcess(sites), Job(3, intercept=False), tmp_path), local_fit(small.clients))
    assert "of another job or version; the run begins anew" in (tmp_path / "exchanges.jsonl").read_text()


def test_a_site_that_cannot_keep_the_model_is_named(small, tmp_path, caplog):
    sites = split(small.clients, 3)
    (tmp_path / "taken").write_text("a file where the site's folder should be")
    sites["site-1"].out = tmp_path / "taken"
    job = Job(3, intercept=False, tries=1)
    conduct(InProcess(sites), job, tmp_path / "run")
    without = json.loads((tmp_path / "run" / "run.json").read_text())["without_model"]
    assert list(without) == ["site-1"]
    assert "cannot be answered (FileExistsError)" in without["site-1"]
    assert "a question (Conclude) cannot be answered" in caplog.text


# ---------------------------------------------------------------- what people write


def test_jobs():
    job = Job(4, settings={"noise": "shared"}, seed=7)
    assert Job.from_json(job.to_json()) == job
    for bad, complaint in (
        ({"recipe": "other"}, "unknown recipe 'other'"),
        ({"recipe": "paper"}, "separation is missing"),
        ({"recipe": "paper", "settings": {"separation": 1.0}}, "give n_clusters"),
        ({"settings": {"nois": "own"}}, "did you mean 'noise'"),
        ({"min_share": 1.5}, "must be 1 or less"),
        ({"tries": 0}, "tries = 0 must be 1 or more"),
        ({"tries": 2.5}, "tries = 2.5 is a float"),
        ({"seed": "x"}, "seed = 'x' is a str"),
        ({"seed": 2**63}, "more than the 64 bits"),
        ({"n_clusters": "3"}, "n_clusters = '3' is a str"),
        ({"min_share": float("nan")}, "min_share = nan must be"),
        ({"loss": "other"}, "unknown loss"),
    ):
        with pytest.raises(SettingsError, match=complaint):
            Job(**bad)
    with pytest.raises(SettingsError, match="unknown key"):
        Job.from_json('{"kinds": 3}')
    with pytest.raises(SettingsError, match="not a job"):
        Job.from_json("{")
