"""The folder of results."""

from __future__ import annotations

from mixfed import LocalPool, PaperSettings, fit_paper, simulate
from mixfed.report.folder import FILES, about_run, write_results


def test_results_with_an_empty_kind_are_written_whole(tmp_path):
    rows = {"least_rows": 5, "most_rows": 10, "n_anchors": 6, "anchor_rows": 60}
    made = simulate(n_clients=40, dim=2, n_clusters=1, noise=0.1, seed=0, **rows)
    settings = PaperSettings(separation=1.0, n_anchors=4, n_recruits=10, pairs=2, rounds=2, refine_rounds=5)
    found = fit_paper(LocalPool(made.clients), made.clients.features, 2, settings)
    assert found.model.details["kind_rows"] == [made.clients.n_rows, 0]
    write_results(tmp_path, found, found.model.assign(made.clients), about_run("table", ["fit"], "run"))
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
