"""The page in a real browser: it draws, it computes what Python computes, and it trusts no data."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from helpers import decided, small_table, weights_of

from agnosticfair.cli import main
from agnosticfair.commands.rows import labelled
from agnosticfair.data.storage import Decided
from agnosticfair.data.table import Column
from agnosticfair.mathematics import scoring
from agnosticfair.mathematics.metrics import METRICS, Metric
from agnosticfair.model import load_model
from agnosticfair.report.page import report_page
from agnosticfair.report.studies import counts


@pytest.fixture
def look(browser):
    """Open a page; at the end it must have asked for nothing else and complained of nothing."""
    seen = []

    def open_page(url, width=1280):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
        allowed = (url, f"{url}data.json")
        page.on("request", lambda r: r.url in allowed or seen.append(r.url))
        page.goto(url)
        return page

    yield open_page
    assert seen == []


METHODS = ("fl", "fairfl")


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """Two fits of Adult, and their page on held-out rows."""
    folder = tmp_path_factory.mktemp("suite")
    sites = [str(folder / f"site-{k}.csv") for k in (1, 2)]
    roles = ["--target", "income", "--sensitive-features", "sex"]
    fits = [
        ["fit", *sites, *roles, "--method", name, "--run", str(folder / name)] for name in METHODS
    ]
    shown = ["--test", str(folder / "held-out.csv"), "--out", str(folder / "report.html")]
    for command in (
        ["data", "adult", "--out", str(folder)],
        *([*fit, "--out", str(folder / "model.safetensors")] for fit in fits),
        ["report", *(str(folder / name) for name in METHODS), *shown],
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 0
    return folder


@pytest.fixture(scope="module")
def tested(suite):
    """The held-out rows, with what both models decide."""
    models = {name: load_model(suite / name / "model.safetensors") for name in METHODS}
    (rows,) = labelled(models["fl"], [suite / "held-out.csv"], "income", ["sex"], None).values()
    decisions = {name: model.predict(rows).astype(float) for name, model in models.items()}
    return Decided.of(rows, "sex", ">50K", decisions, None)


def url(path: Path) -> str:
    return path.resolve().as_uri()


def slide(page, column, value, weight):
    """Move one slider, as a hand would."""
    slider = page.locator(f'input[data-column="{column}"][data-value-name="{value}"]').first
    slider.evaluate(
        "(x, w) => { x.value = w; x.dispatchEvent(new Event('input', { bubbles: true })); }", weight
    )


def mixed(page):
    """Accuracy, risk difference and rates at the present mix, method by method, as the page has them."""
    lines = page.eval_on_selector_all(
        "article:first-of-type table.mix tbody tr",
        """rows => rows.map(row => [row.cells[0].textContent,
            [...row.querySelectorAll("td .number")].map(x => Number(x.dataset.value))])""",
    )
    return {name: [v[1], v[3], *v[-2:]] for name, v in lines}


def expected(rows, p, w):
    right = scoring.positive_rate(1 - np.abs(rows.y - p), w)
    rates = scoring.positive_rates(p, rows.s.codes, w)
    return [right, scoring.risk_difference(p, rows.s.codes, w), *rates]


def test_numbers_in_the_page_are_those_of_the_rows(look, suite, tested):
    page = look(url(suite / "report.html"))
    shown = page.eval_on_selector_all(
        "table.methods tbody tr",
        "rows => rows.map(row => [...row.querySelectorAll('.number')].map(x => Number(x.dataset.value)))",
    )
    for line, p in zip(shown, tested.decisions.values(), strict=True):
        assert line == pytest.approx(expected(tested, p, None)[:2])
    assert page.locator("canvas").count() >= 3
    drawn = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0)"
    assert all(page.locator("canvas").nth(k).evaluate(drawn) for k in range(3))
    assert (suite / "report.html").stat().st_size < 5e6


def test_a_slider_moves_every_number_to_what_python_computes(look, suite, tested):
    page, rows = look(url(suite / "report.html")), tested
    table = counts(rows)
    weights = [np.ones(len(c["values"])) for c in table["columns"]]
    before = mixed(page)
    for name, p in rows.decisions.items():
        assert before[name] == pytest.approx(expected(rows, p, np.ones(len(rows.y))), abs=1e-6)
    for column, k, weight in ((0, 0, 2.5), (1, 1, 0.35), (2, 0, 4.0), (2, 1, 0.0)):
        about = table["columns"][column]
        weights[column][k] = weight
        slide(page, about["name"], about["values"][k], weight)
        now = mixed(page)
        w = weights_of(rows, table, weights)
        for name, p in rows.decisions.items():
            assert now[name] == pytest.approx(expected(rows, p, w), abs=1e-6)
            assert all(a != b for a, b in zip(now[name], before[name], strict=True))
        before = now
    page.get_by_role("button", name="Back to the test rows").click()
    for name, p in rows.decisions.items():
        assert mixed(page)[name] == pytest.approx(expected(rows, p, np.ones(len(rows.y))), abs=1e-6)


def test_the_worst_corner_is_one_click_away(look, suite, tested):
    page, rows = look(url(suite / "report.html")), tested
    table = counts(rows)
    page.get_by_role("button", name="Worst corner of fairfl", exact=True).click()
    corner = table["corners"]["fairfl"]
    assert mixed(page)["fairfl"][1] == pytest.approx(corner["difference"], abs=1e-6)
    only = [
        [float(k is None or k == v) for v in range(len(c["values"]))]
        for c, k in zip(table["columns"], corner["only"], strict=True)
    ]
    w = weights_of(rows, table, only)
    assert w.sum() == corner["rows"]
    assert mixed(page)["fl"] == pytest.approx(expected(rows, rows.decisions["fl"], w), abs=1e-6)


def test_the_keyboard_reaches_every_control(look, suite):
    page = look(url(suite / "report.html"))
    wanted = page.evaluate(
        """() => { let k = 0;
            const all = document.querySelectorAll('a, button, input, select, summary, [tabindex="0"]');
            const seen = [...all].filter(x => x.checkVisibility()); seen.forEach(x => { x.dataset.order = k++; });
            return seen.length; }"""
    )
    reached = set()
    for _ in range(wanted + 3):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.order"))
    assert {str(k) for k in range(wanted)} <= reached
    page.locator("input[type=range]").first.focus()
    before = mixed(page)
    page.keyboard.press("ArrowRight")
    assert mixed(page) != before
    unnamed = (
        "xs => xs.filter(x => !(x.labels?.length || x.ariaLabel || x.textContent.trim())).length"
    )
    assert page.eval_on_selector_all("input, select, button", unnamed) == 0


@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_the_screen_and_the_printer(look, suite, width):
    page = look(url(suite / "report.html"), width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert not page.locator(".worst").first.is_visible()
    assert page.locator("table.mix").is_visible()


EVIL = "</script><img src=x onerror=alert(1)><b>&amp;"


def page_of(rows, metric, name):
    """A page of two studies, with ``name`` wherever a name can stand."""
    profile = [{"feature": f"{name}=1", "mean": 0.1, "worst_mean": 0.2, "shift": 1.0}]
    entry = {"name": name, "accuracy": 0.5, "difference": 0.5}
    entry |= {"outcome": name, "note": name, "worst_profile": profile, "worst_groups": {}}
    study = {"title": name, "kind": "audit", "headline": name, "rows": 3}
    study["metric"] = asdict(METRICS[metric]) | {"quantity": name}
    study |= {"methods": [entry, entry | {"name": "b"}], "sentences": [name], "warnings": [name]}
    study |= {"rows_are": name, "set": name, "no_set": name, "status": name, "clients": []}
    glance = {"state": "kept", "sign": "✓", "answer": name, "tiles": [(name, name, name)]}
    study["glance"] = glance
    study |= {"explorer": counts(rows, metric=metric), "configuration": {name: name}}
    study |= {"provenance": {"command": name, "data": {name: {"rows": 1, "sha256": name}}}}
    return report_page({"version": name, "title": name, "studies": [study, study]})


def test_markup_in_data_is_shown_as_text(look, tmp_path):
    table = small_table()
    job = Column(table.categorical["job"].codes, (EVIL, "b", "{{DATA}}"))
    sex = Column(table.sensitive_features["sex"].codes, (EVIL, "g1"))
    rows = Decided({EVIL: job}, table.labels("yes"), sex, EVIL, EVIL, {EVIL: table.labels("yes")})
    (tmp_path / "evil.html").write_text(page_of(rows, "demographic_parity", EVIL))
    page = look(url(tmp_path / "evil.html"))
    assert page.locator("img").count() == page.locator("b").count() == 0
    assert page.locator("h1").inner_text() == EVIL
    assert page.locator("fieldset legend").first.inner_text() == EVIL
    assert page.locator(".slider label").first.inner_text() in (EVIL, "b", "{{DATA}}")
    assert EVIL in page.title()


@pytest.mark.parametrize("metric", [*METRICS, "predictive_equality"])
def test_the_explorer_knows_every_metric(look, tmp_path, metric, monkeypatch):
    """Also one that was registered from outside: the page has its record, and no list of its own."""
    monkeypatch.setitem(METRICS, "predictive_equality", Metric("predictive_equality", ((0,),), "x"))
    rows = decided()
    rows = replace(rows, decisions={"hard": rows.decisions["hard"]})
    (tmp_path / "page.html").write_text(page_of(rows, metric, "hard"))
    page = look(url(tmp_path / "page.html"))
    table = counts(rows)
    weights = [np.ones(len(c["values"])) for c in table["columns"]]
    weights[0][1] = 3.5
    about = table["columns"][0]
    slide(page, about["name"], about["values"][1], 3.5)
    w = weights_of(rows, table, weights)
    found = scoring.gap(metric, rows.y, rows.decisions["hard"], rows.s.codes, w)
    assert mixed(page)["hard"][1] == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_a_verdict_contents_and_number_fields(browser, suite, scheme):
    page = browser.new_page(viewport={"width": 390, "height": 900}, color_scheme=scheme)
    page.goto(url(suite / "report.html"))
    assert (
        page.locator(".verdict")
        .inner_text()
        .lstrip("✓✗? \n")
        .startswith(("Kept", "Broken", "Not", "No limit"))
    )
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 24, 30)"}[scheme]
    first = page.locator(".times input").first
    before = mixed(page)
    first.fill("3")
    assert page.locator(".slider input[type=range]").first.input_value() == "3"
    assert mixed(page) != before
    widths = "xs => xs.every(x => x.scrollWidth <= x.clientWidth + 1)"
    assert page.eval_on_selector_all(".scroll", widths)  # no column is out of sight
    assert page.eval_on_selector_all("table", "xs => xs.every(x => x.tBodies[0].rows.length)")
    page.close()


def test_the_page_is_accessible(accessible, suite):
    accessible((suite / "report.html").read_text())
