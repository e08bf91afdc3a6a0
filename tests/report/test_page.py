"""The report: its numbers against plain loops, and the page as a browser shows it."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from mixfed import LocalPool, Model, Store, fit_auto, pack, simulate
from mixfed.cli import app
from mixfed.clients.packed import Clients
from mixfed.core import draws
from mixfed.exchange.base import Traffic
from mixfed.exchange.local_update import Mixture
from mixfed.model.assignment import Assignment
from mixfed.model.fit import Fit
from mixfed.model.residuals import residuals
from mixfed.model.traits import by_difference, traits
from mixfed.report import report_html
from mixfed.report.figures import digest
from mixfed.tables.write import write_parquet

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
EVIL = "</script><script>document.title='owned'</script>"


def mixfed(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Fit a table with names that are no friends of HTML."""
    folder = tmp_path_factory.mktemp("report")
    made = simulate("nested", n_clients=1500, dim=4, seed=3).clients
    frame = pd.DataFrame(made.phi, columns=["price", "a<b & c", EVIL, "a very long name of a column that nobody reads"])
    frame["shop"] = np.repeat([f"shop {i:04d} <i>" for i in range(made.n_clients)], made.rows)
    frame["sales"] = 100 * made.y
    frame.to_parquet(folder / "shops.parquet")
    done = mixfed("fit", folder / "shops.parquet", "--client", "shop", "--target", "sales", "--out", folder / "result")
    assert done.exit_code == 0, done.output
    return folder / "result"


def embedded(html):
    return json.loads(re.search(r'<script type="application/json" id="digest">(.*?)</script>', html, re.S)[1])


def some_fit(**details):
    theta = np.array([[1.0, 5.0], [1.0, -3.0], [2.0, 5.0]])
    model = Model(
        features=("a", "b"),
        coef=theta,
        intercept=np.zeros(3),
        weights=np.array([0.5, 0.3, 0.2]),
        noise=np.array([1.0, 2.0, 3.0]),
        has_intercept=False,
        loss="squared",
        recipe="auto",
        seed=0,
        details=details,
    )
    return Fit(model, [], Traffic(), {}, "")


# ---------------------------------------------------------------- numbers


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


def test_residuals_are_counted_in_units_of_the_noise():
    made = simulate("mirror", n_clients=400, dim=3, noise=0.5, seed=0)
    clients = made.clients
    model = fit_auto(LocalPool(clients), clients.features, 2).model
    found = residuals(model, clients, model.assign(clients))
    counts = np.zeros((2, len(found["edges"]) - 1))
    chances = model.assign(clients).probabilities
    for i in range(clients.n_clients):
        for row in range(clients.offsets[i], clients.offsets[i + 1]):
            for j in range(2):
                rest = (clients.y[row] - clients.phi[row] @ model.coef[j]) / model.noise[j]
                place = min(max(int(np.floor((rest + 5) / 0.25)), 0), counts.shape[1] - 1)
                counts[j, place] += chances[i, j]
    np.testing.assert_allclose(found["counts"], counts, atol=0.06)


@pytest.mark.parametrize(("n_clients", "rows"), [(5, 100_000), (150_000, 2)])
def test_residuals_of_many_rows_are_those_of_a_sample(tmp_path, n_clients, rows):
    made = simulate(n_clients=n_clients, dim=2, n_clusters=2, n_anchors=n_clients, anchor_rows=rows, seed=0)
    clients, kinds = made.clients, np.eye(2)[made.labels]
    model = Model.from_mixture(
        Mixture(made.theta, np.full(2, 0.5), np.full(2, 0.3)), clients.features, loss="squared", recipe="auto", seed=3
    )
    found = residuals(model, clients, Assignment(clients.ids, clients.rows, kinds))
    share = 200_000 / clients.n_rows
    starts = draws.uniform(3, "residuals", 0, clients.keys)[:, 0]
    upto = np.floor(share * np.arange(rows + 1) + starts[:, None])  # a row is taken when this rises
    taken = (np.diff(upto) > 0).ravel()
    rest = (clients.y - np.einsum("nd,nd->n", clients.phi, made.theta[np.repeat(made.labels, rows)]))[taken] / 0.3
    kind = np.repeat(made.labels, rows)[taken]
    counts = [np.histogram(np.clip(rest[kind == j], -4.99, 4.99), found["edges"])[0] for j in range(2)]
    np.testing.assert_allclose(found["counts"], counts, atol=0.06)
    assert found["rows"] == taken.sum() == pytest.approx(200_000, rel=0.01)
    inside = np.array(found["counts"])[:, 16:24].sum(axis=1) / np.array(found["counts"]).sum(axis=1)
    np.testing.assert_allclose(inside, 0.6827, atol=0.02)  # of a normal distribution, within one standard deviation
    write_parquet(tmp_path / "t.parquet", made.columns())
    packed = Store.open(pack(tmp_path / "t.parquet", tmp_path / "packed", "client", "y").path, intercept=False)
    assert residuals(model, packed, Assignment(clients.ids, clients.rows, kinds)) == found


def test_columns_in_large_units_do_not_look_important():
    model = some_fit(spread=[1.0, 0.001]).model
    assert by_difference(model).tolist() == [0, 1]
    assert by_difference(some_fit().model).tolist() == [1, 0]
    trait = traits(some_fit().model, 1, 1)[0]
    assert (trait.name, trait.value, trait.others) == ("b", -3.0, 5.0)


def test_kinds_can_stand_out_by_their_level_and_their_noise():
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(300) % 3, 6)
    X = rng.normal(50, 1, (len(label), 1))
    y = 2 * X[:, 0] + np.array([0.0, 30.0, 0.0])[label] + np.array([1.0, 1.0, 9.0])[label] * rng.normal(size=len(label))
    clients = Clients.from_arrays(X, y, np.repeat(np.arange(300), 6), intercept=True, features=("x",))
    model = fit_auto(LocalPool(clients), clients.features, 3).model
    high, loud = int(np.argmax(model.intercept + 50 * model.coef[:, 0])), int(np.argmax(model.noise))
    assert traits(model, high)[0].name == "usual level"
    assert traits(model, high)[0].value == pytest.approx(130, abs=1)
    assert traits(model, loud)[0].name in ("noise", "usual level")
    assert any(trait.name == "noise" and trait.value == pytest.approx(9, rel=0.1) for trait in traits(model, loud))


def test_a_kind_does_not_stand_out_by_what_is_not_sure():
    fit = some_fit()
    unsure = Model(**{**vars(fit.model), "coef_error": np.full((3, 2), 10.0)})
    assert [trait.name for trait in traits(unsure, 1)] == ["noise"]


def test_spreads_are_the_standard_deviations_of_the_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(1e5, [1e-3, 1.0, 1e3], (500, 3))
    y = X @ [1e3, 1, 0.1] + rng.normal(size=500)
    for intercept in (True, False):
        clients = Clients.from_arrays(X, y, np.repeat(np.arange(100), 5), intercept=intercept, features=("a", "b", "c"))
        details = fit_auto(LocalPool(clients), clients.features, 1).model.details
        np.testing.assert_allclose(details["spread"][1:], X.std(axis=0)[1:], rtol=1e-3)
        np.testing.assert_allclose(details["target_spread"], y.std(), rtol=1e-3)


@pytest.mark.parametrize("case", ["one kind", "one client each", "no intercept", "no labels"])
def test_every_fit_has_a_report(case):
    clients = simulate("mirror", n_clients=60, dim=2, seed=1).clients
    fit = fit_auto(LocalPool(clients), clients.features, 1 if case == "one kind" else 2)
    assigned = None if case == "no labels" else fit.model.assign(clients)
    html = report_html(fit, assigned)
    assert embedded(html)["coefficients"]["values"] == fit.model.theta.tolist()
    assert ('id="clients"' in html) == (case != "no labels")
    assert not re.search(
        r'(src|href)="(?!#)|https?://|url\(|@import', re.sub(r"<script.*?</script>", "", html, flags=re.S)
    )


def test_a_report_of_a_million_clients_stays_small():
    rng = np.random.default_rng(0)
    count = 1_000_000
    ids = np.array([f"customer-{i:09d}-of-a-long-name" for i in range(count)], dtype=object)
    assigned = Assignment(ids, rng.integers(1, 50, count), rng.dirichlet([0.1, 0.1, 0.1], count))
    html = report_html(some_fit(sizes=[[2, count]], kind_rows=[1.0, 1.0, 1.0], settings={}), assigned)
    assert len(html.encode()) < 1_000_000


# ---------------------------------------------------------------- what the commands write


def test_the_report_says_what_the_model_says(fitted):
    html, model = (fitted / "report.html").read_text(), json.loads((fitted / "model.json").read_text())
    numbers = embedded(html)
    theta = np.column_stack([model["coef"], model["intercept"]])
    np.testing.assert_array_equal(numbers["coefficients"]["values"], theta)
    assert [kind["share"] for kind in numbers["kinds"]] == model["weights"]
    assert [kind["noise"] for kind in numbers["kinds"]] == model["noise"]
    clients = pd.read_parquet(fitted / "clients.parquet")
    listed = pd.DataFrame(numbers["clients"]["listed"]).set_index(0)
    assert len(listed) == len(clients) == numbers["clients"]["total"]
    assert (listed[2].reindex(clients.client).to_numpy() == clients.cluster.to_numpy()).all()


def test_the_report_can_be_written_again(fitted, tmp_path):
    files = ["--card", tmp_path / "model.md", "--coef", tmp_path / "coef.csv"]
    done = mixfed("report", fitted, "--out", tmp_path / "again.html", *files)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "again.html").read_text() == (fitted / "report.html").read_text()
    model = Model.load(fitted)
    table = pd.read_csv(tmp_path / "coef.csv")
    assert table.feature.tolist() == list(model.terms) * model.n_clusters
    np.testing.assert_array_equal(table.coefficient.to_numpy().reshape(model.theta.shape), model.theta)
    np.testing.assert_array_equal(table.standard_error.to_numpy().reshape(model.theta.shape), model.theta_error)
    card = (tmp_path / "model.md").read_text()
    assert f"# Model card: sales by shop, {model.n_clusters} kinds" in card
    assert f"| {model.weights[0]:.1%} |" in card


def test_a_report_of_a_broken_folder_is_one_line(fitted, tmp_path):
    shutil.copytree(fitted, tmp_path / "broken")
    (tmp_path / "broken" / "run.json").write_text("{")
    done = mixfed("report", tmp_path / "broken")
    assert done.exit_code == 2
    assert "run.json" in done.output
    assert len(done.output.splitlines()) == 1


def test_mlflow_keeps_the_run(fitted, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    table = fitted.parent / "shops.parquet"
    done = mixfed("fit", table, "--client", "shop", "--target", "sales", "--clusters", 2, "--out", "r", "--mlflow")
    assert done.exit_code == 0, done.output
    [run] = mlflow.search_runs(output_format="list")
    assert run.data.metrics["n_clusters"] == 2
    assert run.data.params["target"] == "sales"
    artifacts = {path.name for path in (tmp_path / "runs").rglob("artifacts/*")}
    assert artifacts == {path.name for path in (tmp_path / "r").iterdir()}


def test_a_run_that_mlflow_refuses_is_there_all_the_same(fitted, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    table = fitted.parent / "shops.parquet"
    wanted = ["--client", "shop", "--target", "sales", "--clusters", 2, "--out", tmp_path / "r"]
    done = mixfed("fit", table, *wanted, "--mlflow", "--quiet")
    assert done.exit_code == 2
    assert "MLflow did not take the run" in done.output
    assert len(done.output.splitlines()) == 1
    assert (tmp_path / "r" / "model.json").exists()


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: the report is not opened in a browser")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
        running = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield running
        running.close()


VIEWS = [("desktop", 1280, "light"), ("desktop", 1280, "dark"), ("phone", 390, "light"), ("phone", 390, "dark")]


@pytest.fixture(params=VIEWS, ids=lambda view: f"{view[0]}-{view[2]}")
def page(request, browser, fitted, tmp_path_factory):
    name, width, theme = request.param
    context = browser.new_context(viewport={"width": width, "height": 850}, color_scheme=theme, offline=True)
    page = context.new_page()
    wrong = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith("file:") else None)
    page.goto((fitted / "report.html").as_uri())
    page.wait_for_selector("#coefficients svg")
    yield page
    page.screenshot(path=tmp_path_factory.mktemp("screens") / f"{name}-{theme}.png", full_page=True)
    context.close()
    assert wrong == []


def test_the_page_shows_the_model(page, fitted):
    model = Model.load(fitted)
    assert page.title() == f"{model.n_clusters} kinds of client in shops.parquet"
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    cards = page.locator(".kind")
    assert cards.count() == model.n_clusters
    for j in range(model.n_clusters):
        text = cards.nth(j).inner_text()
        assert f"Kind {j}" in text
        assert f"{100 * model.weights[j]:.0f}" in text
        assert f"noise\N{NO-BREAK SPACE}{model.noise[j]:#.3g}".rstrip(".") in text
    marks = page.locator("#coefficients g.coefficient")
    assert marks.count() == model.n_clusters * (len(model.features) + 1)  # the usual level is one more
    mark = page.locator('#coefficients g.coefficient[data-kind="1"][data-feature="price"]')
    told = mark.get_attribute("data-tip").replace("\N{MINUS SIGN}", "-")
    price = float(re.search(r"price: (\S+)", told)[1])
    assert price == pytest.approx(model.coef[1, 0], rel=1e-4)
    low, high = map(float, re.search(r"interval (\S+) to (\S+)", told).groups())
    assert (low + high) / 2 == pytest.approx(model.coef[1, 0], rel=2e-2)
    page.locator("summary", has_text="All coefficients").click()
    first = page.locator("#coefficient-table tbody tr").first.inner_text()
    assert f"{model.coef[0, 0]:.5g}" in first


def test_the_figures_answer(page, fitted):
    model = Model.load(fitted)
    page.locator("#units").select_option("own")  # then the intercept takes the place of the usual level
    assert page.locator("#coefficients g.coefficient").count() == model.n_clusters * len(model.terms)
    page.locator('.kind[data-kind="1"]').click()
    assert page.locator('.kind[data-kind="1"]').get_attribute("aria-pressed") == "true"
    assert float(page.locator('#coefficients g.coefficient[data-kind="0"]').first.get_attribute("opacity")) < 0.2
    assert page.locator("#residuals text.strong").all_text_contents() == ["Kind 1"]
    page.locator('.kind[data-kind="1"]').click()
    assert page.locator("#residuals text.strong").count() == model.n_clusters
    for name in ("certainty", "sizes", "convergence"):
        before = page.locator(f"#{name}").inner_html()
        page.locator(f'.controls[data-for="{name}"] button').nth(1).click()
        assert page.locator(f"#{name}").inner_html() != before
    page.locator("#choice .point").first.scroll_into_view_if_needed()
    page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )  # a scroll hides tips
    page.locator("#choice .point").first.hover()
    assert page.locator(".tip.on").inner_text().startswith("1 kind\nBIC")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_the_table_finds_a_client(page, fitted):
    clients = pd.read_parquet(fitted / "clients.parquet").set_index("client")
    page.locator("#search").fill("SHOP 0042")
    assert page.locator("#client-rows tr").count() == 1
    row = page.locator("#client-rows tr").first.inner_text().split("\t")
    found = clients.loc["shop 0042 <i>"]
    assert row[0] == "shop 0042 <i>"
    assert [int(row[1]), int(row[2])] == [found.rows, found.cluster]
    assert float(row[3]) == pytest.approx(found.probability, abs=1e-3)
    page.locator("#search").fill("")
    page.locator("#only").select_option("1")
    assert f"of {(clients.cluster == 1).sum():,} shown" in page.locator("#found").inner_text()
    page.locator("#only").select_option("")
    page.locator("#sorting").select_option("unsure")
    least = float(page.locator("#client-rows tr").first.inner_text().split("\t")[3])
    assert least == pytest.approx(clients.probability.min(), abs=1e-3)
    page.locator("#more").click()
    assert page.locator("#client-rows tr").count() == 115


def test_the_page_can_be_printed(browser, fitted, tmp_path):
    page = browser.new_context(color_scheme="dark").new_page()
    page.goto((fitted / "report.html").as_uri())
    page.wait_for_selector("#coefficients svg")
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    page.close()
