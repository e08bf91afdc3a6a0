"""The page as a browser shows it."""

from __future__ import annotations

import re
import shutil

import pandas as pd
import pytest

from mixfed import Model

pytestmark = pytest.mark.browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


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
