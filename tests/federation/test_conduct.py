"""Runs of a federation, whoever is late or gone, and how they go on."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from helpers.federations import Disturbed, local_fit, same, split
from mixfed import PoolError
from mixfed.federation import InProcess, Job, Site, conduct


@pytest.mark.slow
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


def test_sums_that_break_the_mathematics_end_the_run_and_are_forgotten(small, tmp_path, monkeypatch):
    """Nobody is blamed for numbers that came from the totals, and the next try begins without them."""
    sites, job = split(small.clients, 3), Job(3, intercept=False)

    def fail(*about):
        raise np.linalg.LinAlgError("Singular matrix")

    with monkeypatch.context() as patched:
        patched.setattr("mixfed.recipes.auto.survey._basis", fail)
        with pytest.raises(np.linalg.LinAlgError):
            conduct(InProcess(sites), job, tmp_path / "a")
    assert "some site's sums cannot be right" in (tmp_path / "a" / "error.txt").read_text()
    assert not (tmp_path / "a" / "journal.bin").exists()
    same(conduct(InProcess(sites), job, tmp_path / "a"), conduct(InProcess(sites), job, tmp_path / "b"), 1e-12)


@pytest.mark.parametrize("content", ["null", "3", '["site-0"]', "{}", "{"])
def test_a_list_of_members_that_is_none(small, tmp_path, content):
    sites, job = split(small.clients, 3), Job(3, intercept=False)
    tmp_path.joinpath("members.json").write_text(content)
    tmp_path.joinpath("journal.bin").write_bytes(b"")
    assert conduct(InProcess(sites), job, tmp_path).model.n_clusters == 3
