"""The benchmark: its rule, its seeds, its cells on the disk, and that one failure is one row."""

import json
import lzma
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agnosticfair.errors import SettingsError
from agnosticfair_research import benchmark, store
from agnosticfair_research.benchmark import (
    Cell,
    Tried,
    cells,
    chosen,
    here,
    parsed,
    run_cell,
    worth,
)
from agnosticfair_research.entrants import ENTRANTS, Entrant, Train, digest, from_file
from agnosticfair_research.verdict import aggregate

CELL = Cell("oulad", 0, "balanced", "coin", limits=(0.1,), request=(0.02, 0.2))


def by_group(train: Train, limit: float):
    """Decides the groups ``limit`` apart, by lot: what is asked for is what is decided."""

    def decide(table):
        s = table.column(train.sensitive_features).codes
        return 0.5 + limit * (s - 0.5)

    return decide


def broken(train: Train, limit: float):
    raise ValueError("it broke")


def choosy(train: Train, limit: float):
    return broken(train, limit) if limit < 0.1 else by_group(train, 0.0)


@pytest.fixture
def entrants(monkeypatch):
    for name, fit in {"coin": by_group, "broken": broken, "choosy": choosy}.items():
        monkeypatch.setitem(ENTRANTS, name, Entrant(name, fit, "a stand-in", sees=True))
    monkeypatch.setitem(ENTRANTS, "own", replace(ENTRANTS["coin"], name="own", ours=True))
    monkeypatch.setitem(ENTRANTS, "own-choosy", replace(ENTRANTS["choosy"], ours=True))
    absent = Entrant("absent", by_group, "", packages=("no_such_package",))
    monkeypatch.setitem(ENTRANTS, "absent", absent)


def tried(one_request: float, right: int, beyond: float, first: int = 0) -> Tried:
    """A setting that is right on some of a thousand rows, one after the other."""
    rows = (np.arange(1000) >= first) & (np.arange(1000) < first + right)
    return Tried(one_request, rows.astype(float), beyond + 0.05, beyond, one_request / 2)


def test_the_rule_takes_the_most_accurate_that_keeps_the_limit():
    settings = [tried(0.02, 700, 0.04), tried(0.1, 800, 0.09), tried(0.2, 900, 0.3)]
    assert [chosen(settings, limit)[0].request for limit in (0.05, 0.1, 0.5)] == [0.02, 0.1, 0.2]
    nearest, keeps = chosen(settings, 0.01)
    assert (nearest.request, keeps) == (0.02, False)
    assert chosen([*settings, Tried(0.3, why="it broke")], 0.5)[0].request == 0.2
    with pytest.raises(SettingsError, match="fit failed"):
        chosen([Tried(0.3, why="it broke")], 0.5)


def test_of_settings_as_accurate_within_error_the_rule_takes_the_lowest_p90():
    """Some 40 rows that one alone decides rightly: the standard error is sqrt(40) rows, a little over six."""
    lax, limit = tried(0.2, 700, 0.09), 0.1
    assert chosen([tried(0.05, 695, 0.02, 20), lax], limit)[0].request == 0.05
    assert chosen([tried(0.05, 692, 0.02, 20), lax], limit)[0].request == 0.2
    assert (
        chosen([tried(0.05, 695, 0.02), lax], limit)[0].request == 0.2
    )  # right on fewer, nowhere else
    assert chosen([tried(0.05, 701, 0.2), lax], limit)[0].request == 0.2  # keeps no limit


def test_the_error_of_a_difference_is_that_of_the_rows_drawn_again():
    rng = np.random.default_rng(0)
    one, two = (rng.random(400) < rate for rate in (0.75, 0.7))
    means = [(one[k] * 1.0 - two[k]).mean() for k in rng.integers(0, 400, (4000, 400))]
    gap, error = np.mean(means), np.std(means)
    shifted = two + gap - 1.1 * error, two + gap - 0.9 * error
    best = Tried(0.2, one * 1.0)
    assert [Tried(0.1, right).as_useful_as(best) for right in shifted] == [False, True]


def test_a_cell_of_ours_chooses_on_training_rows_and_measures_on_others(entrants):
    made = run_cell(replace(CELL, entrant="own"))
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["rows"] == [{"limit": 0.1, "request": 0.02, "kept": True}]
    (row,) = made["settings"]
    assert row["request"] == 0.02
    assert row["all"]["max"] == pytest.approx(0.02)
    assert row["test"]["balanced_accuracy"] == pytest.approx(0.5, abs=0.01)
    assert max(row["kinds"].values()) <= row["all"]["max"]
    assert {"natural", "pair", "triple", "mixture"} <= {*row["kinds"]}
    lax = run_cell(replace(CELL, entrant="own", limits=(0.3,)))["rows"][0]
    assert lax["request"] in (0.02, 0.2)


def test_a_method_of_others_is_measured_at_every_setting(entrants):
    made = run_cell(replace(CELL, limits=(0.1, 0.3)))
    assert [setting["request"] for setting in made["settings"]] == [0.02, 0.2]
    assert [row["request"] for row in made["rows"]] == [0.02, 0.2]  # the laxest within the limit
    assert "tried" not in made


def test_the_same_cell_gives_the_same_numbers(entrants):
    one, two = (run_cell(CELL) for _ in range(2))
    assert one | {"seconds": 0} == two | {"seconds": 0}


def test_a_cell_does_not_begin_where_another_one_ended(monkeypatch):
    starts = []

    def rule(train, limit):
        starts.append(train.cache.get(("path",)))
        train.cache["path",] = limit
        return by_group(train, limit)

    for protocol in ("balanced", "balanced", "rate"):
        monkeypatch.setitem(ENTRANTS, "coin", Entrant("coin", rule, "", sees=True, rates=True))
        run_cell(replace(CELL, protocol=protocol))
    assert starts == [None, 0.02] * 3


def test_what_rows_are_worth_is_balanced_accuracy():
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, 500) * (rng.random(500) < 0.4), rng.random(500)
    right = 1 - np.abs(y - p)
    assert worth(y, p).mean() == pytest.approx((right[y == 0].mean() + right[y == 1].mean()) / 2)


def test_entrants_share_what_is_learned_of_the_same_rows_and_nothing_else():
    held = benchmark.prepared("oulad", 0, None)
    at_rate = held.under("rate")
    assert at_rate.train.positive_rate == pytest.approx(held.train.pooled.y.mean())
    assert held.under("balanced").train.positive_rate is None
    assert at_rate.train.shared("x", lambda: 1) == held.train.shared("x", lambda: 2) == 1
    assert held.folds[0].train.shared("x", lambda: 3) == 3
    seen = {*held.folds[0].train.cache} | {*held.folds[1].train.cache}
    assert not any(held.folds[0].train.cache is fold.train.cache for fold in held.folds[1:])
    assert seen


def test_no_entrant_is_shown_a_test_row(entrants, monkeypatch):
    seen = []

    def spy(train, limit):
        seen.append(train)
        return by_group(train, limit)

    monkeypatch.setitem(ENTRANTS, "coin", replace(ENTRANTS["coin"], fit=spy))
    monkeypatch.setitem(ENTRANTS, "own", replace(ENTRANTS["own"], fit=spy))
    run_cell(CELL)
    run_cell(replace(CELL, entrant="own"))
    held = benchmark.prepared("oulad", 0, None)
    maximum = sum(map(len, held.split.train.values()))
    sizes = [sum(map(len, train.clients.values())) for train in seen]
    assert max(sizes) == maximum
    assert (
        sizes.count(maximum) == 3
    )  # two settings of others and the one that is taken; all others lack a fold
    held_back = {*held.split.test.take(held.split.test_piece == 1).column("region").values()}
    assert not any(held_back & {*train.clients} for train in seen)


@pytest.mark.parametrize(
    ("name", "why"), [("broken", "it broke"), ("absent", "no_such_package is not installed")]
)
def test_what_fails_is_a_row_that_says_so(name, why, entrants):
    row = run_cell(replace(CELL, entrant=name))
    assert row["rows"] == []
    assert why in row["why"]


def test_a_setting_that_fails_is_passed_over(entrants):
    other = run_cell(replace(CELL, entrant="choosy"))
    assert other["settings"][0] == {"request": 0.02, "why": "ValueError: it broke"}
    assert [line["request"] for line in aggregate([other]) if "request" in line] == [0.2]
    row = run_cell(replace(CELL, entrant="own-choosy"))
    assert row["rows"][0]["request"] == row["settings"][0]["request"] == 0.2
    failed, taken = row["tried"]
    assert failed == {"request": 0.02, "why": "ValueError: it broke"}
    assert taken["utility"] == pytest.approx(0.5, abs=0.01)


def unlabelled(train: Train, limit: float):
    return lambda table: np.full(len(table), float(table.target is None))


def signs(train: Train, limit: float):
    return lambda table: np.resize([-1.0, 1.0], len(table))


def one_number(train: Train, limit: float):
    return lambda table: 0.5


@pytest.mark.parametrize(
    ("fit", "why"),
    [
        (by_group, "'gender' when"),
        (signs, "0 to 1"),
        (one_number, "does not decide each of"),
        (unlabelled, ""),
    ],
)
def test_what_an_entrant_says_of_itself_is_checked(fit, why, entrants, monkeypatch):
    monkeypatch.setitem(ENTRANTS, "coin", Entrant("coin", fit, "", asks=False))
    row = run_cell(CELL)
    assert why in row.get("why", "")
    if not why:  # no label is shown where it decides: it decides positively, always
        assert row["settings"][0]["test"]["positive_rate"] == 1


@pytest.mark.parametrize(
    ("one_request", "named"),
    [
        ({"datasets": ["iris"]}, "'iris'"),
        ({"entrants": ["me"]}, "'me'"),
        ({"protocols": ["north"]}, "'north'"),
        ({"seeds": [20]}, "seed 20.*neither"),
        ({"protocols": ["promise"]}, "nothing is left"),
        ({"limits": [0.0]}, "limit 0.0"),
        ({"seeds": []}, "nothing is left"),
    ],
)
def test_cells_that_cannot_be_are_refused(one_request, named):
    with pytest.raises(SettingsError, match=named):
        cells(**{"datasets": ["adult"], "seeds": [0], "entrants": ["fl"], **one_request})


def test_an_absent_data_set_is_skipped_with_its_reason(tmp_path):
    found, absent = here(["adult", "law"], str(tmp_path))
    assert found == ["adult"]
    assert "law_school_clean.csv" in absent["law"]


def test_the_command_skips_what_is_absent_and_says_why(tmp_path, call, entrants):
    words = (
        "bench",
        "--quick",
        "--entrants",
        "coin",
        "--protocols",
        "balanced",
        "--jobs",
        "1",
        "--out",
        str(tmp_path / "out"),
    )
    words += ("--data-folder", str(tmp_path), "--datasets")
    code, out, _ = call(*words, "oulad,law")
    assert code == 0
    assert "law_school_clean.csv" in out
    code, _, error = call(*words, "law")
    assert (code, error.count("\n")) == (2, 1)
    assert "error: no law_school_clean.csv in" in error


@pytest.mark.parametrize(
    "words", [("--seeds", "20"), ("--entrants", "me"), ("--protocols", "north")]
)
def test_nothing_is_loaded_for_words_that_make_no_sense(words, tmp_path, call, monkeypatch):
    def loaded(*_):
        raise AssertionError("loaded")

    monkeypatch.setattr(benchmark, "load_dataset", loaded)
    assert call("bench", *words, "--out", str(tmp_path / "out"))[0] == 2


def test_reported_seeds_are_for_a_commit_without_changes():
    changed, clean = store.Code("abc", False, ""), store.Code("abc", True, "")
    store.authorise(range(20), changed)
    store.authorise(range(60), clean)
    with pytest.raises(SettingsError, match=r"seed 40.*commit"):
        store.authorise([3, 45, 40], changed)
    with pytest.raises(SettingsError, match="no commit"):
        store.authorise([40], store.Code(None, None, ""))


def test_cells_are_taken_up_of_the_same_settings_and_on_reported_seeds_of_the_same_code(tmp_path):
    code = store.Code("abc", True, "source")
    other = replace(code, source="other")
    for seed in (0, 40):
        cell = replace(CELL, seed=seed)
        head = {k: getattr(cell, k) for k in ("dataset", "seed", "protocol", "entrant")}
        store.append(tmp_path, code, cell, head | {"rows": [1]})
        (row,) = [r for r in store.read(tmp_path / store.FILE) if r["seed"] == seed]
        assert store.usable(row, cell, code)
        assert store.usable(row, cell, other) == (seed == 0)
        assert not store.usable(row, replace(cell, limits=(0.2,)), code)
        assert not store.usable(row | {"why": "not installed"}, cell, code)
        assert not store.usable(None, cell, code)


def test_a_line_that_was_cut_off_is_run_again_and_a_broken_one_is_said(tmp_path):
    path = tmp_path / store.FILE
    head = {"dataset": "oulad", "seed": 0, "protocol": "rate", "entrant": "fl"}
    path.write_text(json.dumps(head) + '\n{"dataset": "oul')
    assert [row["entrant"] for row in store.read(path)] == ["fl"]
    packed = tmp_path / "cells.jsonl.xz"
    packed.write_bytes(lzma.compress(path.read_bytes()))
    assert store.read(packed) == store.read(path)
    store.mend(path)
    store.append(tmp_path, store.Code(None, None, ""), CELL, head | {"entrant": "rule"})
    assert [row["entrant"] for row in store.read(path)] == ["fl", "rule"]
    path.write_text("{\n" + json.dumps(head) + "\n")
    with pytest.raises(SettingsError, match="line 1"):
        store.read(path)


def test_a_run_that_was_stopped_is_taken_up_again(entrants, tmp_path, call):
    out = tmp_path / "out"
    words = ("bench", "--datasets", "oulad", "--entrants", "coin,absent", "--seeds", "0")
    words += ("--protocols", "balanced", "--jobs", "1", "--out", str(out))
    code, printed, _ = call(*words)
    assert code == 0
    assert "2 cells in" in printed
    assert "no_such_package is not installed" in (out / "bench.md").read_text()
    lines = (out / store.FILE).read_text().splitlines()
    (out / store.FILE).write_text(lines[0] + "\n" + lines[1][:20])
    assert "1 cells in" in call(*words)[1]  # of the two, the one that failed
    again = store.read(out / store.FILE)
    assert [row["rows"] for row in again] == [json.loads(line)["rows"] for line in lines]
    assert "## Verdict" in (out / "bench.md").read_text()


def test_no_cell_is_begun_after_the_budget(entrants, tmp_path):
    wanted = cells(["oulad"], [0], ["coin"], limits=(0.1,), request=(0.02,))
    code = store.Code(None, None, "")
    rows, ran = store.run_stored(wanted, tmp_path, code, 1, lambda key: None, budget=0.0)
    assert (rows, ran) == ([], 0)


def test_one_command_gives_a_cell_of_the_tables_again(entrants, tmp_path, call):
    words = ("bench", "--datasets", "oulad", "--entrants", "coin", "--seeds", "0", "--jobs", "1")
    words += ("--protocols", "balanced", "--out", str(tmp_path))
    assert call(*words)[0] == 0
    again = ("bench", "--cell", "oulad-00-balanced-coin", "--out", str(tmp_path))
    assert "The same numbers as stored." in call(*again)[1]
    path = tmp_path / store.FILE
    path.write_text(path.read_text().replace('"count": ', '"count": 1'))
    assert "Other numbers than stored." in call(*again)[1]


OUTSIDE = """
import numpy as np
from agnosticfair_research.entrants import Entrant

def fit(train, limit):
    return lambda table: np.full(len(table), 0.5)

ENTRANT = Entrant("mine", fit, "a coin")
"""


@pytest.mark.slow
def test_an_entrant_is_entered_by_its_file(tmp_path, call):
    file, out = tmp_path / "mine.py", tmp_path / "out"
    file.write_text(OUTSIDE)
    words = ("bench", "--quick", "--datasets", "oulad", "--entrants", str(file), "--out", str(out))
    words += ("--jobs", "1", "--protocols", "balanced")
    assert "1 cells in" in call(*words)[1]
    (row,) = store.read(out / store.FILE)
    assert (row["entrant"], row["note"]) == ("mine", "a coin")
    assert row["file"] == digest(str(file))
    assert row["settings"][0]["test"]["accuracy"] == pytest.approx(0.5, abs=1e-5)
    assert "0 cells in" in call(*words)[1]
    file.write_text(OUTSIDE + "# another\n")
    from_file.cache_clear()
    assert "1 cells in" in call(*words)[1]


@pytest.mark.parametrize(
    ("words", "note"), [('"""A coin.\n\nMore."""', "A coin"), ("", "of a file")]
)
def test_a_file_with_nothing_but_fit_is_an_entrant(words, note, tmp_path):
    file = tmp_path / "coin.py"
    file.write_text(words + OUTSIDE.split("ENTRANT")[0])
    entrant = from_file(str(file))
    assert (entrant.name, entrant.note, entrant.sees, entrant.ours) == ("coin", note, False, False)
    assert entrant.fit(None, 0.1)([1, 2]).tolist() == [0.5, 0.5]


@pytest.mark.slow
def test_the_example_of_an_entrant_runs():
    file = Path(__file__).parents[2] / "examples" / "entrant.py"
    (cell,) = cells(["oulad"], [0], [str(file)], limits=(0.1,), request=(0.05,))
    row = run_cell(cell)
    assert "why" not in row
    assert row["settings"][0]["test"]["accuracy"] > 0.6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "'.*mine.py'.*entrant"),
        ("x = 1", "needs fit"),
        ("1 / 0", "cannot be run"),
        (OUTSIDE.replace("mine", "fl"), "entrant.*'fl'"),
    ],
)
def test_a_file_that_holds_no_entrant_is_refused(text, said, tmp_path):
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=said):
        cells(["oulad"], [0], [str(file)])


def test_reported_seeds_want_an_entrant_s_file_committed(tmp_path):
    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=tmp_path, check=True
        )

    file, clean = tmp_path / "mine.py", store.Code("abc", True, "")
    file.write_text(OUTSIDE)
    store.authorise([3], clean, [str(file)])
    git("init", "-q")
    with pytest.raises(SettingsError, match=r"mine.py.*commit"):
        store.authorise([40], clean, [str(file)])
    git("add", "mine.py")
    git("commit", "-qm", "Enter")
    store.authorise([40], clean, [str(file)])
    file.write_text(OUTSIDE + "# another\n")
    with pytest.raises(SettingsError, match=r"take.*seeds 0"):
        store.authorise([40], clean, [str(file)])


def test_seeds_in_words():
    assert parsed("0-2,7") == [0, 1, 2, 7]
    with pytest.raises(SettingsError, match=r"'0-x'.*numbers"):
        parsed("0-x")
