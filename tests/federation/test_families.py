"""Classes and counts across sites: the fit of all clients in one place, and sums that no target can make."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.bad_answers import changed
from helpers.families import COUNTING, simulated
from helpers.federations import Disturbed, local_fit, split
from mixfed.exchange.anchors import AnchorEquations
from mixfed.exchange.mixture import MixtureNumbers
from mixfed.federation import InProcess, Job, conduct


@pytest.mark.parametrize("family", COUNTING)
@pytest.mark.parametrize("anchors", ["single", "summed"])
def test_sites_find_what_all_clients_in_one_place_do(family, anchors, tmp_path):
    clients = simulated(family)[0]
    expected = local_fit(clients, 2, family=family, anchors=anchors)
    job = Job(2, settings={"family": family, "anchors": anchors})
    found = conduct(InProcess(split(clients, 4)), job, tmp_path)
    for name in ("theta", "weights", "theta_error"):
        np.testing.assert_allclose(getattr(found.model, name), getattr(expected.model, name), rtol=1e-9, atol=1e-9)
    assert found.model.log_likelihood == pytest.approx(expected.model.log_likelihood, rel=1e-12)


def test_a_loss_names_the_family_of_a_job(tmp_path):
    clients = simulated("poisson", n_clients=60)[0]
    found = conduct(InProcess(split(clients, 2)), Job(1, loss="poisson"), tmp_path)
    assert found.model.family == "poisson"


def lie(part, change):
    """Change a part of what is said of the pooled fit to four columns, or of the second moments of anchors."""

    def lied(content):
        if isinstance(content, AnchorEquations) and part == "anchors":
            return type(content)(content.rows, content.square, content.cross, change(content.gram))
        if not isinstance(content, MixtureNumbers) or part == "anchors":
            return content
        if content.numbers.shape[1] != MixtureNumbers.length(1, 4, True):
            return content
        made = type(content)(content.numbers.copy(), content.missing)
        said = getattr(made.named(1, 4), part)
        said[...] = change(said)
        return made

    return lied


@pytest.mark.parametrize("family", COUNTING)
@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("likelihood", lambda values: -values),
        ("squares", lambda values: values + 1e3),
        ("rows", lambda values: 2.0 * values + 10.0),
        ("clients", lambda values: -values),
        ("gram", lambda values: -values),
        ("gram", lambda values: values + 1e9 * (np.arange(values.shape[-1]) == 1)),
        ("score", lambda values: values + 1e105),
        ("anchors", lambda values: -values),
    ],
)
def test_a_site_that_lies_is_caught(family, part, change, tmp_path):
    clients = simulated(family)[0]
    bad = changed(lie(part, change))
    transport = Disturbed(split(clients, 4), lambda name, _, content: bad(content) if name == "site-1" else [content])
    found = conduct(transport, Job(2, settings={"family": family}, tries=2), tmp_path)
    assert "site-1" in (tmp_path / "exchanges.jsonl").read_text()
    assert np.isfinite(found.model.theta).all()
    honest = local_fit(clients, 2, family=family)
    assert found.model.details["sizes"] != honest.model.details["sizes"], "the site took part"
