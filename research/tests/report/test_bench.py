"""Pages and figures of the benchmark are made of its summary."""

import json
from pathlib import Path

from helpers import script

from agnosticfair.report.figures import png
from agnosticfair_research import store, verdict
from agnosticfair_research.report.bench import sections
from agnosticfair_research.report.bench_figures import figures

ROOT = Path(__file__).parents[2]
write = script("write_benchmark")


def summary():
    return json.loads((ROOT / "report/results.json").read_text())


def test_every_mark_of_the_pages_has_its_text_and_is_as_written():
    texts = sections(summary())
    texts |= {
        name: getattr(write, name)(json.loads((ROOT / f"report/{name}.json").read_text()))
        for name in ("published", "printed")
    }
    for page in write.PAGES:
        assert write.filled(page.read_text(), texts) == page.read_text()


def test_the_results_are_those_of_the_cells():
    cells = store.read(ROOT / "report/cells.jsonl.xz")
    assert write.by_line(verdict.summary(cells)) == (ROOT / "report/results.json").read_text()


def test_a_text_takes_the_place_of_the_one_before():
    page = "a\n<!-- begin: x -->\nold\n\nlines\n<!-- end: x -->\nb <!-- begin: y --><!-- end: y -->"
    assert write.filled(page, {"x": "new"}).startswith("a\n<!-- begin: x -->\nnew\n<!-- end: x -->")


def test_figures_are_drawn_of_what_there_is():
    drawn = figures(summary())
    assert {*drawn} == {"trade.png", "kinds.png"}
    assert all(png(figure).startswith(b"\x89PNG") for figure in drawn.values())
    assert all((ROOT / "report/figures" / name).is_file() for name in drawn)


def test_the_report_names_only_what_is_there():
    text = (ROOT / "report/report.md").read_text()
    assert "figures/trade.png" in text
    assert "figures/kinds.png" in text
