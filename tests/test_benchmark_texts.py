"""README's table and docs/benchmark.md are what the script makes of docs/benchmark.json: never typed."""

import json
from pathlib import Path

from helpers import script

from agnosticfair.report.bench import document, readme

ROOT = Path(__file__).resolve().parents[1]


write = script("write_benchmark")


def test_texts_come_from_the_results():
    summary = json.loads((ROOT / "docs" / "benchmark.json").read_text())
    assert (ROOT / "docs" / "benchmark.md").read_text() == document(summary)
    text = (ROOT / "README.md").read_text()
    assert write.with_table(text, readme(summary)) == text


def test_the_table_goes_between_its_marks():
    text = f"before\n{write.BEGIN}old\n{write.END}after\n"
    assert write.with_table(text, "new\n") == f"before\n{write.BEGIN}new\n{write.END}after\n"


def test_what_is_said_of_privacy_comes_from_what_was_measured():
    privacy = script("write_privacy")
    kept, page = json.loads(privacy.FILE.read_text()), privacy.PAGE.read_text()
    assert privacy.written(page, kept) == page
    stated, halved = (entry["least"] for entry in kept["audit"]["found"])
    assert stated < kept["audit"]["found"][0]["claimed"] < halved


def test_what_is_said_of_the_first_picture_comes_from_what_drew_it():
    readme = script("write_readme")
    told = readme.said(json.loads(readme.FRONTIER.read_text()))
    for page in readme.PAGES:
        assert readme.written(page.read_text(), told) == page.read_text()
