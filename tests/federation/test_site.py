"""What a site says and what it does not: its floor, its secret, its file, its clients' rows and labels."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers.clients import random_clients
from helpers.federations import ask, local_fit, same, split
from mixfed import Clients, PoolError, SettingsError, simulate
from mixfed.core.draws import client_keys
from mixfed.core.symmetric import unpacked
from mixfed.exchange.anchors import Project
from mixfed.exchange.census import Census
from mixfed.exchange.mixture import Candidates, SplitMoments
from mixfed.exchange.moments import Gram, PairMoments
from mixfed.exchange.pool import Sample
from mixfed.exchange.random_effects import LeaveOut, RandomEffects
from mixfed.exchange.units import StandardUnits
from mixfed.federation import FederatedPool, InProcess, Job, Site, conduct, open_site
from mixfed.federation.messages import Ask, Enrol, unpack
from mixfed.federation.site_file import _secret
from mixfed.model.model import Model


def test_a_site_below_its_floor_contributes_nothing_and_says_so(small, tmp_path):
    sites = split(small.clients, 3)
    few = Site(small.clients.subset(np.arange(7)), min_clients=10)
    found = conduct(InProcess(sites | {"few": few}), Job(3, intercept=False), tmp_path / "a")
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)
    said = json.loads((tmp_path / "a" / "run.json").read_text())["absent"]
    assert said == {"few": "7 clients, below min_clients = 10: this site contributes nothing"}


def test_no_sum_is_over_fewer_clients_than_the_floor(small):
    clients = small.clients
    sites = split(clients, 3, min_clients=50)
    seen = []
    pool = FederatedPool(InProcess(sites), intercept=False, watch=seen.append)
    # A sample with too few clients at some site is not answered by it: all are asked.
    assert pool.ask(Census(), Sample(0, 0.05)).n_clients == clients.n_clients
    asked = pool.traffic.exchanges
    assert pool.ask(Census(), Sample(0, 0.05)).n_clients == clients.n_clients
    assert pool.traffic.exchanges == asked + 1  # which was learned for good
    first = sites["site-0"].clients.n_clients
    who = np.concatenate([np.arange(60), first + np.arange(20)])
    assert pool.ask(Census(), who).n_clients == 60
    assert seen[-1].dropped == (("site-1", "a sum over 20 clients, below min_clients = 50"),)
    with pytest.raises(PoolError, match="no site may speak for so few"):
        pool.ask(Census(), np.arange(20))


def test_the_floor_cannot_be_passed_by_asking_for_one_client_often(small):
    site = Site(small.clients, min_clients=5)
    assert ask(site, Enrol(True)).complaint is None
    for who in ([3] * 9, [-1, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, small.clients.n_clients]):
        answer = ask(site, Census(), np.array(who))
        assert answer.content is None
        assert "does not have, or one of them twice" in answer.complaint
    assert "below min_clients = 5" in ask(site, Census(), np.array([3])).complaint


def test_the_floor_holds_for_clients_with_two_rows_or_more(tmp_path):
    """A few of them among many with one row: what is said of pairs of rows would be theirs alone."""
    made = random_clients(0, [1] * 40 + [2] * 3 + [9] * 4, 2)
    mixture = Candidates(np.zeros((1, 2, 2)), np.zeros((1, 2)), np.log(np.full((1, 2), 0.5)))
    frame = StandardUnits.plain(2)
    spreads = RandomEffects(mixture.theta, mixture.log_variance, mixture.log_weight, np.ones((1, 2, 3)))
    for floor, all_told, small_told in ((3, True, True), (5, True, False), (8, False, False)):
        site = Site(made, min_clients=floor)
        for query in (PairMoments(frame, False), SplitMoments(frame, mixture)):
            told = ask(site, query).content
            assert bool(np.any(told.moments)) == (told.rows > 0) == all_told
        assert np.any(ask(site, PairMoments(frame, True)).content.moments)  # those with one row are in it, too
        left = ask(site, LeaveOut(frame, spreads, True, 3)).content
        assert (left.rows > 0).tolist() == [all_told, small_told]
        assert (left.squares > 0).tolist() == [[all_told, small_told]]


GRAM = Gram(np.zeros(5), np.ones(5), 0.0, 1.0)


def of_one_client(clients, told):
    """Whether one of the sums that were told, or the difference of two, is the second moments of a single client."""
    own = [one.phi.T @ one.phi for one in (clients.subset(np.array([i])) for i in range(clients.n_clients))]
    sums = [np.zeros((5, 5)), *(unpacked(said.content.gram, 5) for said in told if said.content is not None)]
    gaps = np.array([a - b for a in sums for b in sums])
    return any(np.abs(gaps - one).max(axis=(1, 2)).min() < 1e-9 for one in own)


def ask_for_places(site, run="run"):
    """Ask for ten clients by their places, and for nine of them: the difference is the tenth."""
    return [ask(site, GRAM, np.arange(count), run) for count in (10, 9)]


def test_clients_that_were_not_listed_cannot_be_asked_by_their_places(small):
    clients = small.clients
    open_, closed = Site(clients, min_clients=5), Site(clients, min_clients=5, anchors="summed")
    for site in (open_, closed):
        ask(site, Enrol(True))
    assert of_one_client(clients, ask_for_places(open_))  # which is what it means to list clients: see docs/privacy.md
    others = ask_for_places(closed) + ask_for_places(open_, "another run")
    ask(open_, Enrol(False), run="a third run")
    others += ask_for_places(open_, "a third run")
    assert all("when this site has listed none in this run" in said.complaint for said in others)
    assert not of_one_client(clients, others)


def halve_shares(site, seed=0):
    """Ask for samples, always between the two that differ least, until two differ by one client."""
    told = {1.0: ask(site, GRAM, Sample(seed, 1.0))}
    low, high = 0.0, 1.0
    for _ in range(40):
        share = (low + high) / 2
        told[share] = ask(site, GRAM, Sample(seed, share))
        within = {at: told[at].clients if at else 0 for at in (low, share, high)}
        wide = within[high] - within[share] >= within[share] - within[low]
        low, high = (share, high) if wide else (low, share)
    return list(told.values())


def test_samples_that_differ_by_few_clients_are_refused(small, tmp_path):
    clients = small.clients
    assert of_one_client(clients, halve_shares(Site(clients)))  # nothing is refused without a floor
    for floor in (2, 5, 30):
        told = []
        for out in (None, tmp_path / str(floor)):
            site = Site(clients, min_clients=floor, out=out)
            told += halve_shares(site)
        site = Site(clients, min_clients=floor, out=out)  # started again, it knows what it has answered
        told += halve_shares(site) + halve_shares(site, seed=1)
        answered = sorted({said.clients for said in told if said.content is not None})
        assert len(answered) >= 2
        assert min(np.diff([0, *answered])) >= floor
        assert not of_one_client(clients, told)
    assert "by another seed" in ask(site, GRAM, Sample(1, 0.5)).complaint
    assert ask(Site(clients.subset(np.arange(90)), min_clients=30, out=out), GRAM, Sample(1, 0.5)).complaint is None


def test_samples_leave_no_few_clients_with_pairs_of_rows():
    made = random_clients(0, [1] * 200 + [2] * 30, 5)
    alone = Site(made, min_clients=20)
    assert ask(alone, PairMoments(StandardUnits.plain(5), False)).content.rows == 60
    half = ask(alone, GRAM, Sample(0, 0.5))
    assert "differs from others by fewer than min_clients = 20" in half.complaint  # of 30 paired clients, some 15
    assert ask(Site(made.subset(np.arange(200)), min_clients=20), GRAM, Sample(0, 0.5)).complaint is None


def test_what_was_asked_is_not_forgotten_by_a_damaged_file(small, tmp_path):
    ask(Site(small.clients, min_clients=5, out=tmp_path), GRAM, Sample(0, 0.5))
    (tmp_path / "asked.json").write_text("{")
    said = ask(Site(small.clients, min_clients=5, out=tmp_path), GRAM, Sample(0, 0.25))
    assert said.content is None
    assert "asked.json: damaged" in said.complaint


def test_a_secret_is_whole_or_it_is_refused(tmp_path):
    path = tmp_path / "secret"
    made = _secret(path)
    assert len(made) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert _secret(path) == made
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]
    for damaged in ("", "zz", made.hex()[:-2]):
        path.write_text(damaged)
        with pytest.raises(SettingsError, match="secret: the secret is damaged: delete it"):
            _secret(path)


def test_a_site_may_not_let_clients_answer_alone(small, tmp_path):
    clients = small.clients
    site = Site(clients, anchors="summed")
    enrolled = ask(site, Enrol(True)).content
    assert len(enrolled.keys) == 0
    found = []

    class Recorded(InProcess):
        def send(self, messages, timeout):
            found.extend(unpack(content, Ask).query for content in messages.values())
            return super().send(messages, timeout)

    job = Job(3, settings={"anchors": "summed"}, intercept=False)
    conduct(Recorded(split(clients, 3, anchors="summed")), job, tmp_path / "a")
    assert not any(isinstance(query, Project) for query in found)
    with pytest.raises(SettingsError, match="anchors = 'summed'"):
        conduct(InProcess(split(clients, 3, anchors="summed")), Job(3, intercept=False), tmp_path / "b")
    # Anchors are taken from the other sites.
    mixed = split(clients, 3) | {"closed": Site(simulate(n_clients=200, dim=5, seed=9).clients, anchors="summed")}
    assert conduct(InProcess(mixed), Job(3, intercept=False), tmp_path / "c").model.n_clusters == 3


def test_sites_that_do_not_fit_together(small):
    other = random_clients(0, [3] * 30, 4)
    pool = FederatedPool(InProcess(split(small.clients, 3) | {"other": Site(other)}), intercept=False)
    assert pool.absent["other"].startswith("its features are x_0, x_1, x_2, x_3, not x_0")


@pytest.mark.parametrize("anchors", ["single", "summed"])
@pytest.mark.parametrize("single", [False, True])
def test_no_message_has_a_value_of_a_row_or_an_id_in_it(tmp_path, anchors, single):
    made = simulate(n_clients=400, dim=4, n_clusters=2, noise=0.3, seed=2).clients
    rng = np.random.default_rng(0)
    ids = np.array([f"patient-{i:04d}" for i in rng.permutation(400)])
    # So small that no sum in standard units is one of them by chance: numbers in single precision are few.
    phi = (2.0**-60 * (made.phi + 0.3)).astype(np.float32 if single else np.float64)
    owner = np.repeat(np.arange(400), made.rows)
    clients = Clients.from_arrays(phi, made.y, ids[owner], intercept=True)
    said = []

    class Tapped(InProcess):
        def send(self, messages, timeout):
            said.extend(messages.values())
            for name, content in super().send(messages, timeout):
                said.append(content)
                yield name, content

    sites = split(clients, 4, anchors=anchors, secret=b"of the site")
    conduct(Tapped(sites), Job(2, settings={"anchors": anchors}), tmp_path)
    assert not any(b"patient" in content for content in said)
    values = [clients.phi.astype(np.float64), clients.y, client_keys(clients.ids)]
    if single:  # two neighbours in a row, as they lie in memory
        values += [np.ascontiguousarray(clients.phi[:, j : j + 2]) for j in range(3)]
    for each_ in values:
        assert not holds(said, each_.view(np.uint64).ravel())
    assert holds([*said, b"...." + clients.y[5].tobytes()], clients.y.view(np.uint64))  # it can be found


def holds(contents, patterns):
    """Whether any of 8-byte patterns is in the contents, wherever it begins."""
    everything = b"".join(content + bytes(8) for content in contents)
    windows = (np.frombuffer(everything[at : at + (len(everything) - at) // 8 * 8], np.uint64) for at in range(8))
    return any(np.isin(window, patterns).any() for window in windows)


def test_pseudonyms_change_the_draws_but_not_the_model(small, tmp_path):
    sites = split(small.clients, 3, secret=b"a secret")
    found = conduct(InProcess(sites), Job(3, intercept=False), tmp_path)
    same(found, local_fit(small.clients), 1e-6)


def test_labels_stay_at_the_site(small, tmp_path):
    sites = split(small.clients, 3)
    for name, site in sites.items():
        site.out, site.columns = tmp_path / name, ("who", "y")
    found = conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "server")
    for name, site in sites.items():
        own = pq.read_table(tmp_path / name / "clients.parquet")
        np.testing.assert_array_equal(own["client"].to_numpy(), site.clients.ids)
        np.testing.assert_array_equal(own["cluster"].to_numpy(), found.model.assign(site.clients).cluster)
        assert Model.load(tmp_path / name).client_column == "who"
    assert sorted(path.name for path in (tmp_path / "server").iterdir()) == [
        "exchanges.jsonl",
        "members.json",
        "model.json",
        "run.json",
        "trace.parquet",
    ]


def test_a_site_file(small, tmp_path):
    columns = small.columns()
    pq.write_table(__import__("pyarrow").table(columns), tmp_path / "rows.parquet")
    path = tmp_path / "mixfed.toml"
    path.write_text('data = "rows.parquet"\nclient = "client"\ntarget = "y"\nout = "own"\n')
    site = open_site(path)
    assert (site.min_clients, site.anchors, site.columns) == (10, "single", ("client", "y"))
    assert len(site.secret) == 32
    assert open_site(path).secret == site.secret
    assert (tmp_path / "own" / "secret").stat().st_mode & 0o077 == 0
    conduct(InProcess({"a": site}), Job(3), tmp_path / "server")
    log = [json.loads(line) for line in (tmp_path / "own" / "questions.jsonl").read_text().splitlines()]
    assert {"Enrol", "Census", "Project", "MixtureSums", "Conclude"} <= {line["question"] for line in log}
    assert (tmp_path / "own" / "clients.parquet").exists()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('dta = "rows.parquet"', "unknown key 'dta'; did you mean 'data'?"),
        ('client = "c"', "data is missing"),
        ('data = "rows.parquet"\nmin_clients = "ten"', "min_clients = 'ten' must be a whole number"),
        ('data = "rows.parquet"\nmin_clients = 0', "must be 1 or more"),
        ('data = "rows.parquet"\nanchors = "none"', "must be 'single' or 'summed'"),
        ("data = ", "not valid TOML"),
    ],
)
def test_a_site_file_with_a_mistake(tmp_path, text, complaint):
    path = tmp_path / "mixfed.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"mixfed\.toml: ") as error:
        open_site(path)
    assert complaint in str(error.value)
    with pytest.raises(SettingsError, match="no such file"):
        open_site(tmp_path / "none.toml")
