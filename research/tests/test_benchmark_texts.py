"""Results of the benchmark that are joined into one page."""

import pytest
from helpers import script

write = script("write_benchmark")


def result(*cells, source="one", clean=True, limit=0.1, **absent):
    rows = [{"limit": limit}]
    made = [
        {"dataset": data, "split": "shift", "seed": seed, "entrant": "fl", "rows": rows}
        for data, seed in cells
    ]
    return {"commit": "abc", "source": source, "clean": clean, "absent": absent, "cells": made}


def test_results_of_one_code_are_joined():
    subgroups = [result(("adult", 20), law="not here"), result(("adult", 21), ("law", 20))]
    made = write.joined(subgroups)
    assert [(cell["dataset"], cell["seed"]) for cell in made["cells"]] == [
        ("adult", 20),
        ("adult", 21),
        ("law", 20),
    ]
    assert made["absent"] == {}
    assert len(subgroups[0]["cells"]) == 1


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


def test_an_oracle_s_setting_keeps_what_training_rows_said_of_it():
    oracle = script("bench_oracle")
    tried = [{"request": 0.05, "beyond": 0.08}, {"request": 0.2, "beyond": 0.15}]
    cell = {"entrant": "rule", "seed": 20, "tried": tried, "rows": ["as chosen"]}
    made = {"rows": [{"limit": limit, "request": 0.2, "all": {}} for limit in (0.1, 0.2)]}
    found = oracle.as_chosen(cell, made)
    assert [(row["limit"], row["kept"]) for row in found["rows"]] == [(0.1, False), (0.2, True)]
    assert found["seed"] == 20
