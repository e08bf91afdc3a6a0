"""What a site says and what it does not: its clients' rows, ids and labels."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers.clients import random_clients
from helpers.federations import Disturbed, ask, local_fit, same, split
from mixfed import Clients, SettingsError, simulate
from mixfed.core.draws import client_keys
from mixfed.exchange.anchors import Project
from mixfed.federation import FederatedPool, InProcess, Job, Site, conduct
from mixfed.federation.messages import Ask, Enrol, unpack
from mixfed.model.model import Model


def test_a_site_below_its_floor_contributes_nothing_and_says_so(small, tmp_path):
    sites = split(small.clients, 3)
    few = Site(small.clients.subset(np.arange(7)), min_clients=10)
    found = conduct(InProcess(sites | {"few": few}), Job(3, intercept=False), tmp_path / "a")
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)
    said = json.loads((tmp_path / "a" / "run.json").read_text())["absent"]
    assert said == {"few": "7 clients, below min_clients = 10: this site contributes nothing"}


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


def test_a_site_that_is_started_again_goes_on(small, tmp_path):
    sites = split(small.clients, 3)
    own = tmp_path / "site-1"  # where it keeps what must outlive it

    def disturb(name, number, content):
        if name == "site-1":
            sites[name] = Site(sites[name].clients, out=own)
        return [content]

    sites["site-1"] = Site(sites["site-1"].clients, out=own)

    found = conduct(Disturbed(sites, disturb), Job(3, intercept=False), tmp_path / "a")
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)


def test_a_site_that_no_longer_lets_clients_answer_alone(small, tmp_path):
    """In mid-run it is lost; between a stop and a resume the run begins anew."""

    def stop(name, number, content):
        if number == 8:
            raise KeyboardInterrupt
        yield content

    sites, job = split(small.clients, 4), Job(3, intercept=False, tries=2)
    with pytest.raises(KeyboardInterrupt):
        conduct(Disturbed(sites, stop), job, tmp_path / "a")
    sites["site-1"].anchors = "summed"
    sites["site-1"]._last = b"", b""
    found = conduct(InProcess(sites), job, tmp_path / "a")
    same(found, conduct(InProcess(sites), job, tmp_path / "b"), 1e-12)

    def change(name, number, content):
        if number == 2:
            sites["site-2"].anchors = "summed"
        yield content

    conduct(Disturbed(sites, change), job, tmp_path / "c")
    assert (
        "site-2: it says: clients of this site are not asked one by one"
        in (tmp_path / "c" / "exchanges.jsonl").read_text()
    )
