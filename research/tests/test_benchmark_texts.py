"""README's table and docs/benchmark.md are what the script makes of docs/benchmark.json: never typed."""

import json
from pathlib import Path

import pytest
from helpers import script

from agnosticfair_research.report.bench import document, readme

ROOT = Path(__file__).resolve().parents[2]


write = script("write_benchmark")


def test_texts_come_from_the_results():
    summary = json.loads((ROOT / "docs" / "benchmark.json").read_text())
    assert (ROOT / "docs" / "benchmark.md").read_text() == document(summary)
    text = (ROOT / "README.md").read_text()
    assert write.with_table(text, readme(summary)) == text


def result(*cells, source="one", clean=True, limit=0.1, **absent):
    rows = [{"limit": limit}]
    made = [
        {"dataset": data, "split": "shift", "seed": seed, "entrant": "fl", "rows": rows}
        for data, seed in cells
    ]
    return {"commit": "abc", "source": source, "clean": clean, "absent": absent, "cells": made}


def test_results_of_one_code_are_joined():
    parts = [result(("adult", 20), law="not here"), result(("adult", 21), ("law", 20))]
    made = write.joined(parts)
    assert [(cell["dataset"], cell["seed"]) for cell in made["cells"]] == [
        ("adult", 20),
        ("adult", 21),
        ("law", 20),
    ]
    assert made["absent"] == {}
    assert len(parts[0]["cells"]) == 1


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (result(("adult", 21), source="two"), "different code"),
        (result(("adult", 21), clean=False), "local changes"),
        (result(("adult", 20)), r"1 cells stand in two of the results \(adult-shift-20-fl\)"),
        (result(("adult", 21), limit=0.2), "different limits"),
    ],
)
def test_what_cannot_be_joined_is_refused(other, said):
    with pytest.raises(SystemExit, match=said):
        write.joined([result(("adult", 20)), other])


def test_the_table_goes_between_its_marks():
    text = f"before\n{write.BEGIN}old\n{write.END}after\n"
    assert write.with_table(text, "new\n") == f"before\n{write.BEGIN}new\n{write.END}after\n"


def test_what_is_said_of_privacy_comes_from_what_was_measured():
    privacy = script("write_privacy")
    kept, page = json.loads(privacy.FILE.read_text()), privacy.PAGE.read_text()
    assert privacy.written(page, kept) == page
    stated, halved = (entry["least"] for entry in kept["audit"]["found"])
    assert stated < kept["audit"]["found"][0]["claimed"] < halved


def test_what_is_said_of_the_first_picture_and_of_times_comes_from_what_was_measured():
    readme = script("write_readme")
    told = readme.said(json.loads(readme.FRONTIER.read_text()))
    for page in readme.PAGES:
        assert readme.written(page.read_text(), "first result", told) == page.read_text()
    timed, page = readme.timed(readme.SPEED.read_text()), readme.PAGES[0].read_text()
    assert readme.written(page, "time", timed) == page


def test_an_oracle_s_setting_keeps_what_training_rows_said_of_it():
    oracle = script("bench_oracle")
    tried = [{"asked": 0.05, "beyond": 0.08}, {"asked": 0.2, "beyond": 0.15}]
    cell = {"entrant": "rule", "seed": 20, "tried": tried, "rows": ["as chosen"]}
    made = {"rows": [{"limit": limit, "asked": 0.2, "all": {}} for limit in (0.1, 0.2)]}
    found = oracle.as_chosen(cell, made)
    assert [(row["limit"], row["kept"]) for row in found["rows"]] == [(0.1, False), (0.2, True)]
    assert found["seed"] == 20
