"""Clients at sites: the same model as in one process, whoever is late, gone, wrong or not allowed to say."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from conftest import random_clients
from mixfed import (
    AutoSettings,
    Clients,
    LocalPool,
    PaperSettings,
    PoolError,
    SettingsError,
    fit_auto,
    fit_paper,
    simulate,
)
from mixfed.candidates import (
    Candidates,
    ExpectSum,
    Frame,
    GramSum,
    PairMoments,
    Project,
    SplitMoments,
    Statistics,
)
from mixfed.deviations import DeviateSum, LeaveOut, Spreads
from mixfed.draws import client_keys
from mixfed.exchange import Census, CensusSum, ModelSum, Peak, Replies
from mixfed.federation import FederatedPool, InProcess, Job, Site, conduct, open_site
from mixfed.federation.pool import SitesLostError
from mixfed.federation.site import _secret
from mixfed.federation.wire import VERSION, Answer, Ask, Enrol, pack, unpack
from mixfed.model import Model
from mixfed.pool import Sample
from mixfed.theory import least_gap

PAPER = {"n_anchors": 8, "n_recruits": 300, "pairs": 30, "rounds": 6, "refine_rounds": 40}


def split(clients, count, **rules):
    """Sites with clients here and there, of different sizes."""
    home = np.random.default_rng(5).permutation(np.arange(clients.n_clients) * count // clients.n_clients)
    return {f"site-{j}": Site(clients.subset(np.flatnonzero(home == j)), **rules) for j in range(count)}


@pytest.fixture(scope="module")
def small():
    return simulate(n_clients=900, dim=5, n_clusters=3, noise=0.3, n_anchors=20, anchor_rows=220, seed=3)


def local_fit(clients, k=3, **settings):
    return fit_auto(LocalPool(clients), clients.features, k, AutoSettings(**settings))


def same(found, expected, tolerance=1e-9):
    np.testing.assert_allclose(found.model.theta, expected.model.theta, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.model.weights, expected.model.weights, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.model.noise, expected.model.noise, rtol=tolerance, atol=tolerance)


class Disturbed(InProcess):
    """A way to sites on which things happen: ``disturb(name, number, content)`` says what arrives instead."""

    def __init__(self, sites, disturb):
        super().__init__(sites)
        self.disturb, self.number = disturb, 0

    def send(self, messages, timeout):
        self.number += 1
        for name, content in super().send(messages, timeout):
            for outcome in self.disturb(name, self.number, content):
                yield name, outcome


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
    assert pool.ask(Peak()).peak == local.ask(Peak()).peak


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
    counted = []
    sites["site-1"].log = lambda line: counted.append(line["exchange"])

    def disturb(name, number, content):
        late = name == "site-1" and number % 3
        yield TimeoutError() if late else content

    pool = FederatedPool(Disturbed(sites, disturb), intercept=False, pause=0.0)
    pool.ask(Census())
    assert counted == [1, 2]


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


# ---------------------------------------------------------------- bad answers


def changed(change):
    """Make bad bytes of an answer by a change to its content."""

    def disturb(content):
        answer = unpack(content, Answer)
        return [pack(dataclasses.replace(answer, content=each(answer.content, change)))]

    return disturb


def each(content, change):
    if isinstance(content, Replies):
        return Replies(tuple(each(part, change) for part in content.parts))
    return change(content)


def field_of(content):
    return next(item.name for item in dataclasses.fields(content) if getattr(content, item.name).dtype == np.float64)


def with_nan(content):
    name = field_of(content)
    return dataclasses.replace(content, **{name: np.full_like(getattr(content, name), np.nan)})


def with_another_shape(content):
    name = field_of(content)
    return dataclasses.replace(content, **{name: np.append(getattr(content, name), 1.0)})


def with_single_precision(content):
    name = field_of(content)
    return dataclasses.replace(content, **{name: getattr(content, name).astype(np.float32)})


def with_huge_mass(content):
    return dataclasses.replace(content, clients=content.clients * 1e6)


def with_negative_mass(content):
    clients = content.clients.copy()
    clients[0, 0] -= 2 * clients[0].sum()
    clients[0, -1] += 2 * clients[0].sum()
    return dataclasses.replace(content, clients=clients)


def with_few_rows(content):
    return dataclasses.replace(content, rows=content.rows / 2)


def of_another_exchange(content):
    answer = unpack(content, Answer)
    return [pack(dataclasses.replace(answer, exchange=answer.exchange - 1))]


def of_another_run(content):
    return [pack(dataclasses.replace(unpack(content, Answer), run="another"))]


BAD = {
    "not finite": (changed(with_nan), "numbers that are not finite"),
    "another shape": (changed(with_another_shape), "has the shape"),
    "another precision": (changed(with_single_precision), "holds float32, not float64"),
    "huge mass": (changed(with_huge_mass), "clients, when there are"),
    "negative mass": (changed(with_negative_mass), "clients, when there are"),
    "lost rows": (changed(with_few_rows), "rows, when there are"),
    "another type": (changed(lambda content: content.likelihood), "is a ndarray"),
    "nothing": (changed(lambda content: None), "is a NoneType"),
    "another version": (
        lambda content: [content[:6] + (VERSION + 1).to_bytes(2, "little") + content[8:]],
        f"version {VERSION + 1}",
    ),
    "cut off": (lambda content: [content[:-9]], "an array is cut off"),
    "too long": (lambda content: [content + b"\0"], "1 bytes too many"),
    "no message": (lambda content: [b"<html>"], "not a message of mixfed"),
    "empty": (lambda content: [b""], "not a message of mixfed"),
    "earlier exchange": (of_another_exchange, "an answer to exchange"),
    "another run": (of_another_run, "an answer from another run"),
    "an error": (lambda content: [RuntimeError("out of memory")], "out of memory"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_answer_is_dropped_and_asked_for_again(small, tmp_path, kind):
    make, reason = BAD[kind]
    times = []

    def disturb(name, number, content):
        answer = unpack(content, Answer)
        if name == "site-1" and isinstance(answer.content, ExpectSum) and len(times) < 3:
            times.append(number)
            return make(content)
        return [content]

    sites = split(small.clients, 3)
    found = conduct(Disturbed(sites, disturb), Job(3, intercept=False), tmp_path / "a")
    assert len(times) == 3
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)
    lines = [json.loads(line) for line in (tmp_path / "a" / "exchanges.jsonl").read_text().splitlines()]
    dropped = [item for line in lines for item in line["dropped"]]
    assert [name for name, _ in dropped] == ["site-1"] * 3
    assert all(reason in why for _, why in dropped)


def test_a_site_whose_answers_stay_bad_is_left_out(small, tmp_path):
    make, reason = BAD["huge mass"]

    def disturb(name, number, content):
        bad = name == "site-1" and isinstance(unpack(content, Answer).content, ExpectSum)
        return make(content) if bad else [content]

    sites = split(small.clients, 4)
    found = conduct(Disturbed(sites, disturb), Job(3, intercept=False, tries=3), tmp_path / "a")
    del sites["site-1"]
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)
    assert reason in (tmp_path / "a" / "exchanges.jsonl").read_text()


def test_a_second_answer_is_dropped(small, tmp_path):
    def disturb(name, number, content):
        return [content, content] if name == "site-0" else [content]

    sites = split(small.clients, 3)
    found = conduct(Disturbed(sites, disturb), Job(3, intercept=False), tmp_path / "a")
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)
    assert "another answer in the same exchange" in (tmp_path / "a" / "exchanges.jsonl").read_text()


def test_an_answer_that_is_too_large_is_not_even_read(small, monkeypatch):
    monkeypatch.setattr("mixfed.federation.wire.LIMIT", 20_000)

    def disturb(name, number, content):
        return [content + bytes(30_000)] if name == "site-0" else [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False, tries=2, pause=0.0)
    assert "more than the 20000 that are allowed" in pool.absent["site-0"]


def answer_of(kind, change):
    """Let site-1 give bad answers of one type, once."""
    done = []

    def disturb(name, number, content):
        answer = unpack(content, Answer)
        if name == "site-1" and isinstance(answer.content, kind) and not done:
            done.append(number)
            return [pack(dataclasses.replace(answer, content=change(answer.content)))]
        return [content]

    return disturb


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (GramSum, {"square": -1e5}),
        (GramSum, {"gram": lambda old: -old}),
        (GramSum, {"cross": lambda old: old + 1e5}),
        (Statistics, {"gram": lambda old: old + 1e300}),
        (Statistics, {"cross": lambda old: old - 1e300}),
        (Statistics, {"rows": lambda old: old + np.where(np.arange(len(old)) == 0, 1e6, -1e6)}),
        (Statistics, {"square": lambda old: old * 0.0}),
        (ExpectSum, {"likelihood": lambda old: old + 1e300}),
        (ExpectSum, {"likelihood": lambda old: old - 1e300}),
        (ExpectSum, {"score": lambda old: old + 1e5}),
        (ExpectSum, {"gram": lambda old: old - 1e300}),
        (ExpectSum, {"squares": lambda old: old * 0.0}),
        (ExpectSum, {"squares": lambda old: old + 1e300}),
        (ModelSum, {"loss": lambda old: -old}),
        (ModelSum, {"loss": lambda old: 1e300 * old}),
        (CensusSum, {"total": lambda old: old + 1e6}),
        (CensusSum, {"target_high": 1e165}),
        (CensusSum, {"low": lambda old: old - 1e155}),
    ],
)
def test_sums_that_cannot_be_are_dropped(small, tmp_path, kind, change):
    def worse(content):
        made = {name: new(getattr(content, name)) if callable(new) else new for name, new in change.items()}
        return dataclasses.replace(content, **made)

    sites = split(small.clients, 3)
    job = Job(3, settings={"update": "fedprox", "refine_rounds": 4}, intercept=False)
    found = conduct(Disturbed(sites, answer_of(kind, worse)), job, tmp_path / "a")
    same(found, conduct(InProcess(sites), job, tmp_path / "b"), 1e-12)
    lines = [json.loads(line) for line in (tmp_path / "a" / "exchanges.jsonl").read_text().splitlines()]
    assert [name for line in lines for name, _ in line["dropped"]] == ["site-1"]


def test_sums_that_break_the_mathematics_end_the_run_and_are_forgotten(small, tmp_path, monkeypatch):
    """Nobody is blamed for numbers that came from the totals, and the next try begins without them."""
    sites, job = split(small.clients, 3), Job(3, intercept=False)

    def fail(*about):
        raise np.linalg.LinAlgError("Singular matrix")

    with monkeypatch.context() as patched:
        patched.setattr("mixfed.coarse._basis", fail)
        with pytest.raises(np.linalg.LinAlgError):
            conduct(InProcess(sites), job, tmp_path / "a")
    assert "some site's sums cannot be right" in (tmp_path / "a" / "error.txt").read_text()
    assert not (tmp_path / "a" / "journal.bin").exists()
    same(conduct(InProcess(sites), job, tmp_path / "a"), conduct(InProcess(sites), job, tmp_path / "b"), 1e-12)


def test_a_site_that_fails_once_does_better_the_next_time(small, tmp_path, monkeypatch):
    sites = split(small.clients, 3)
    whole, failed = LocalPool.answer, []

    def answer(self, query, who=None):
        if not failed:
            failed.append(query)
            raise MemoryError
        return whole(self, query, who)

    monkeypatch.setattr(LocalPool, "answer", answer)
    found = conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "a")
    assert len(failed) == 1
    same(found, conduct(InProcess(sites), Job(3, intercept=False), tmp_path / "b"), 1e-12)
    assert "cannot be answered (MemoryError)" in (tmp_path / "a" / "exchanges.jsonl").read_text()


def test_a_site_that_is_started_again_goes_on(small, tmp_path):
    sites = split(small.clients, 3)

    def disturb(name, number, content):
        if name == "site-1":
            sites[name] = Site(sites[name].clients)
        return [content]

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


def test_an_empty_complaint_is_a_complaint(small):
    def disturb(name, number, content):
        if name == "site-0" and number == 2:
            return [pack(dataclasses.replace(unpack(content, Answer), content=None, complaint="", clients=3))]
        return [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False)
    assert pool.ask(Census(), Sample(0, 0.5)).n_clients == small.clients.n_clients


def test_a_site_without_anybody_in_the_sample_does_not_spoil_it(small):
    sites = split(small.clients, 3) | {"tiny": Site(small.clients.subset([0]))}
    pool = FederatedPool(InProcess(sites), intercept=False)
    sample = Sample(next(seed for seed in range(99) if len(Sample(seed, 0.3).places(small.clients.keys[:1])) == 0), 0.3)
    assert pool.ask(Census(), sample).n_clients == len(sample.places(small.clients.keys))


def test_of_two_opinions_on_features_the_first_by_name_counts(small):
    other = random_clients(0, [3] * 30, 4)
    for names in ("ab", "ba"):
        sites = dict(zip(names, (Site(small.clients), Site(other)), strict=True))
        pool = FederatedPool(InProcess(sites), intercept=False)
        assert list(pool.members) == ["a"]


@pytest.mark.parametrize("content", ["null", "3", '["site-0"]', "{}", "{"])
def test_a_list_of_members_that_is_none(small, tmp_path, content):
    sites, job = split(small.clients, 3), Job(3, intercept=False)
    tmp_path.joinpath("members.json").write_text(content)
    tmp_path.joinpath("journal.bin").write_bytes(b"")
    assert conduct(InProcess(sites), job, tmp_path).model.n_clusters == 3


@pytest.mark.parametrize(
    "change", [{"clients": 10**6}, {"rows": 5}, {"clients": 0}, {"sizes": np.ones(3, np.int64)}, {"features": ()}]
)
def test_an_enrolment_that_cannot_be(small, change):
    def disturb(name, number, content):
        lie = changed(lambda content: dataclasses.replace(content, **change))
        return lie(content) if name == "site-0" else [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False, tries=1)
    assert list(pool.absent) == ["site-0"]


@pytest.mark.parametrize("part", ["sizes", "low", "target"])
def test_a_census_that_cannot_be(small, part):
    def change(content):
        if not isinstance(content, CensusSum):
            return content
        if part == "target":
            return dataclasses.replace(content, target_low=content.target_high + 1.0)
        values = getattr(content, part)
        return dataclasses.replace(content, **{part: values + (values.dtype.type(1000))})

    def disturb(name, number, content):
        return changed(change)(content) if name == "site-0" else [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False, tries=1)
    with pytest.raises(SitesLostError, match="site-0"):
        pool.ask(Census())


# ---------------------------------------------------------------- what sites do not say


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
    frame = Frame.plain(2)
    spreads = Spreads(mixture.theta, mixture.log_variance, mixture.log_weight, np.ones((1, 2, 3)))
    for floor, all_told, small_told in ((3, True, True), (5, True, False), (8, False, False)):
        site = Site(made, min_clients=floor)
        for query in (PairMoments(frame, False), SplitMoments(frame, mixture)):
            told = ask(site, query).content
            assert bool(np.any(told.matrix)) == (told.rows > 0) == all_told
        assert np.any(ask(site, PairMoments(frame, True)).content.matrix)  # those with one row are in it, too
        left = ask(site, LeaveOut(frame, spreads, True, 3)).content
        assert (left.rows > 0).tolist() == [all_told, small_told]
        assert (left.squares > 0).tolist() == [[all_told, small_told]]


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
    monkeypatch.setattr("mixfed.journal.__version__", "another")
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


def test_what_a_site_says_is_one_line_that_no_terminal_obeys(small):
    def disturb(name, number, content):
        bad = Answer(unpack(content, Answer).run, 1, 5, None, "\x1b[2Jgone\n" + "x" * 5000)
        return [pack(bad)] if name == "site-0" else [content]

    pool = FederatedPool(Disturbed(split(small.clients, 3), disturb), intercept=False, tries=1)
    said = pool.absent["site-0"]
    assert said.startswith(" [2Jgone x")
    assert said.isprintable()
    assert len(said) < 400


def test_wild_derivatives_of_one_site_do_not_hold_up_the_others(tmp_path):
    clients = simulate(n_clients=300, dim=2, n_clusters=2, noise=0.3, seed=1).clients

    def wild(name, number, content):
        answer = unpack(content, Answer)
        if name == "site-1" and isinstance(answer.content, DeviateSum):
            wilder = dataclasses.replace(answer.content, score=1e200 * answer.content.score)
            return [pack(dataclasses.replace(answer, content=wilder))]
        return [content]

    job = Job(2, settings={"personal": True}, intercept=False, tries=2)
    sites = split(clients, 3)
    found = conduct(Disturbed(sites, wild), job, tmp_path / "a")
    assert json.loads((tmp_path / "a" / "run.json").read_text())["absent"] == {
        "site-1": "it was lost: numbers beyond 1e+100"
    }
    del sites["site-1"]
    same(found, conduct(InProcess(sites), job, tmp_path / "b"), 1e-9)


def ask(site, query, who=None):
    return unpack(site.answer(pack(Ask("run", 1, False, query, who))), Answer)


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


# ---------------------------------------------------------------- what people write


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
    assert {"Enrol", "Census", "Project", "Expect", "Conclude"} <= {line["question"] for line in log}
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
