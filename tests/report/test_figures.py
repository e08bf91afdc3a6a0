"""The numbers of the report, against plain loops."""

from __future__ import annotations

import numpy as np

from helpers.report import some_fit
from mixfed.model.assignment import Assignment
from mixfed.report.figures import digest


def test_the_digest_counts_as_a_plain_loop_does():
    rng = np.random.default_rng(0)
    chances = rng.dirichlet([0.4, 0.3, 0.3], 4000)
    rows = rng.integers(1, 300, 4000)
    assigned = Assignment(np.arange(4000), rows, chances)
    found = digest(some_fit().model, assigned, [])
    edges = found["certainty"]["edges"]
    counts, sizes = np.zeros((3, len(edges) - 1)), {}
    for chance, n in zip(chances, rows, strict=True):
        kind = int(np.argmax(chance))
        counts[kind, next(b for b in range(len(edges) - 1) if chance.max() < edges[b + 1] or b == len(edges) - 2)] += 1
        label = next(
            label
            for label in found["sizes"]["labels"]
            if (ends := [int(end) for end in label.split("\N{EN DASH}")]) and ends[0] <= n <= ends[-1]
        )
        sizes.setdefault(label, np.zeros(3))[kind] += 1
    np.testing.assert_array_equal(found["certainty"]["counts"], counts)
    np.testing.assert_array_equal(found["sizes"]["counts"], np.array([sizes[x] for x in found["sizes"]["labels"]]).T)
    assert found["certainty"]["sure"] == np.mean([chance.max() >= 0.9 for chance in chances])
    for kind in range(3):
        mine = [chance for chance in chances if np.argmax(chance) == kind]
        np.testing.assert_allclose(found["certainty"]["chances"][kind], np.mean(mine, axis=0), atol=1e-5)


def test_of_many_clients_the_largest_and_the_least_certain_are_listed():
    rng = np.random.default_rng(1)
    chances = rng.dirichlet([1, 1, 1], 20_000)
    rows = rng.permutation(20_000) + 1
    listed = digest(some_fit().model, Assignment(np.arange(20_000), rows, chances), [])["clients"]["listed"]
    ids = {int(line[0]) for line in listed}
    assert set(np.argsort(-rows)[:1000]) <= ids
    assert set(np.argsort(chances.max(axis=1))[:1000]) <= ids
    assert len(ids) == len(listed) <= 2000
    assert [line[1] for line in listed] == sorted((line[1] for line in listed), reverse=True)
    for client, n, kind, best, second, next_best in listed[:50]:
        chance = chances[int(client)]
        assert n == rows[int(client)]
        assert [kind, second] == np.argsort(-chance)[:2].tolist()
        np.testing.assert_allclose([best, next_best], np.sort(chance)[::-1][:2], atol=1e-4)
