"""The benchmark: its rule, its seeds, its cells on the disk, and that one failure is one row."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from agnosticfair_research.sceptic import as_accurate, moved

from agnosticfair.errors import SettingsError
from agnosticfair_research import benchmark, kept
from agnosticfair_research.benchmark import Cell, Tried, cells, chosen, here, parsed, run_cell
from agnosticfair_research.entrants import ENTRANTS, Entrant, Train, digest, from_file

CELL = Cell("oulad", "shift", 0, "coin", limits=(0.1,), request=(0.02, 0.2))


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
    with pytest.raises(SettingsError, match="every fit failed, the last one so: it broke"):
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
    assert [Tried(0.1, right).as_accurate_as(best) for right in shifted] == [False, True]


def test_a_cell_chooses_on_training_rows_and_measures_on_others(entrants):
    (row,) = run_cell(CELL)["rows"]
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert row["request"] == 0.02
    assert row["kept"]
    assert row["cross_worst"] == pytest.approx(0.02)
    assert row["all"]["max"] == pytest.approx(0.02)
    assert row["all"]["beyond"] == 0
    assert row["train"]["risk_difference"] == pytest.approx(0.02)
    counts = [told["count"] for told in row["kinds"].values()]
    assert sum(counts) == row["all"]["count"] == len(row["deployments"])
    assert np.mean(row["deployment_errors"]) == pytest.approx(row["all"]["error"], abs=1e-4)
    assert {"natural", "pair", "triple", "mixture"} <= {*row["kinds"]}
    lax = run_cell(replace(CELL, limits=(0.3,)))["rows"][0]
    assert lax["request"] in (0.02, 0.2)


def test_the_same_cell_gives_the_same_numbers(entrants):
    one, two = (run_cell(CELL)["rows"][0] for _ in range(2))
    for row in (one, two):
        del row["seconds"], row["ratio"]
    assert one == two


def test_no_entrant_is_shown_a_test_row(entrants, monkeypatch):
    seen = []

    def spy(train, limit):
        seen.append(train)
        return by_group(train, limit)

    monkeypatch.setitem(ENTRANTS, "coin", replace(ENTRANTS["coin"], fit=spy))
    run_cell(CELL)
    held = benchmark.prepared("oulad", "shift", 0, None)
    maximum = sum(map(len, held.split.train.values()))
    sizes = [sum(map(len, train.clients.values())) for train in seen]
    assert max(sizes) == maximum
    assert sizes.count(maximum) == 1  # the final fit; all others lack a fold
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
    row = run_cell(replace(CELL, entrant="choosy"))
    assert row["rows"][0]["request"] == 0.2
    failed, taken = row["tried"]
    assert failed == {"request": 0.02, "why": "ValueError: it broke"}
    assert taken["accuracy"] == row["rows"][0]["cross_accuracy"]
    assert taken["behind"] == []  # the other one failed


def test_what_was_tried_says_how_sure_its_differences_are():
    """Of 1,000 rows 30 are right by one alone, and 20 by the other."""
    one, two, failed = tried(0.2, 700, 0.09), tried(0.05, 690, 0.02, 30), Tried(0.1, why="it broke")
    ((other, less, error),) = two.told([one, two, failed])["behind"]
    assert (other, less) == (0.2, pytest.approx(0.01))
    assert error == pytest.approx(np.sqrt((50 / 1000 - 0.01**2) / 1000))
    ((_, ahead, same),) = one.told([one, two, failed])["behind"]
    assert (ahead, same) == (pytest.approx(-0.01), pytest.approx(error))


def unlabelled(train: Train, limit: float):
    return lambda table: np.full(len(table), float(table.target is None))


def signs(train: Train, limit: float):
    return lambda table: np.resize([-1.0, 1.0], len(table))


def one_number(train: Train, limit: float):
    return lambda table: 0.5


@pytest.mark.parametrize(
    ("fit", "why"),
    [
        (by_group, "looks at 'gender' when it decides: say sees=True"),
        (signs, "by a number from 0 to 1"),
        (one_number, "does not decide each of"),
        (unlabelled, ""),
    ],
)
def test_what_an_entrant_says_of_itself_is_checked(fit, why, entrants, monkeypatch):
    monkeypatch.setitem(ENTRANTS, "coin", Entrant("coin", fit, "", asks=False))
    row = run_cell(CELL)
    assert why in row.get("why", "")
    if not why:  # no label is shown where it decides: it decides positively, always
        assert row["rows"][0]["test"]["positive_rate"] == 1


@pytest.mark.parametrize(
    ("one_request", "named"),
    [
        ({"datasets": ["iris"]}, "'iris'"),
        ({"entrants": ["me"]}, "'me'"),
        ({"splits": ["north"]}, "'north'"),
        ({"seeds": [40]}, "seed 40 is neither"),
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
        "--jobs",
        "1",
        "--out",
        str(tmp_path / "out"),
    )
    words += ("--data-folder", str(tmp_path), "--datasets")
    code, out, _ = call(*words, "oulad,law")
    assert code == 0
    assert "Left out: law: no law_school_clean.csv in" in out
    assert "Not here, so left out: law." in (tmp_path / "out" / "bench.md").read_text()
    code, _, error = call(*words, "law")
    assert (code, error.count("\n")) == (2, 1)
    assert "error: no law_school_clean.csv in" in error


@pytest.mark.parametrize("words", [("--seeds", "40"), ("--entrants", "me"), ("--splits", "north")])
def test_nothing_is_loaded_for_words_that_make_no_sense(words, tmp_path, call, monkeypatch):
    def loaded(*_):
        raise AssertionError("loaded")

    monkeypatch.setattr(benchmark, "load_dataset", loaded)
    assert call("bench", *words, "--out", str(tmp_path / "out"))[0] == 2


def test_reported_seeds_are_for_a_commit_without_changes():
    changed, clean = kept.Code("abc", False, ""), kept.Code("abc", True, "")
    kept.authorise(range(20), changed)
    kept.authorise(range(40), clean)
    kept.authorise([20], kept.Code("abc", None, ""))  # stated: source_of checks it elsewhere
    with pytest.raises(SettingsError, match="seed 20 is for reporting, and the code differs"):
        kept.authorise([3, 25, 20], changed)
    with pytest.raises(SettingsError, match="no repository to tell the commit"):
        kept.authorise([20], kept.Code(None, None, ""))


def test_the_code_s_digest_is_that_of_its_commit():
    code = kept.code()
    if code.commit is None:
        pytest.skip("no repository here")
    assert (kept.source_of(code.commit, kept.PACKAGE) == code.source) == code.clean
    with pytest.raises(SettingsError, match="leave --commit out"):
        kept.code("0123456789")


def test_cells_are_kept_for_the_same_code_and_settings(tmp_path):
    code = kept.Code("abc", True, "source")
    kept.write_cell(tmp_path, CELL, code, {"rows": [1]})
    assert kept.read_cell(tmp_path, CELL, code) == {"rows": [1]}
    assert kept.read_cell(tmp_path, CELL, replace(code, source="other")) is None
    assert kept.read_cell(tmp_path, replace(CELL, limits=(0.2,)), code) is None
    assert kept.read_cell(tmp_path, replace(CELL, seed=1), code) is None
    kept.write_cell(tmp_path, CELL, code, {"rows": [], "why": "not installed"})
    assert kept.read_cell(tmp_path, CELL, code) is None  # it may be by now
    (tmp_path / f"{CELL.key}.json").write_text("{")
    assert kept.read_cell(tmp_path, CELL, code) is None


def test_another_machine_s_results_become_cells(tmp_path):
    code = kept.Code("abc", True, "source")
    head = {"dataset": "oulad", "split": "shift", "entrant": "fl"}
    rows = [head | {"seed": k, "rows": [{"limit": 0.1, "deployments": [0.1]}]} for k in (3, 4)]
    results = kept.results_of(rows, code, {})
    assert [row["rows"][0]["deployments"] for row in results["cells"]] == [[0.1], []]
    kept.unpack(json.loads(json.dumps(results)), tmp_path)
    row_here = kept.read_cell(tmp_path / "cells", Cell("oulad", "shift", 3, "fl"), code)
    assert row_here == rows[0]


def test_a_run_that_was_stopped_is_taken_up_again(entrants, tmp_path, call):
    words = (
        "bench",
        "--datasets",
        "oulad",
        "--entrants",
        "coin,absent",
        "--seeds",
        "0",
        "--jobs",
        "1",
    )
    words += ("--out", str(tmp_path / "out"))
    code, out, _ = call(*words)
    assert code == 0
    assert "2 cells in" in out
    assert "no_such_package is not installed" in (tmp_path / "out" / "bench.md").read_text()
    first = (tmp_path / "out" / "results.json").read_text()
    (tmp_path / "out" / "cells" / "oulad-shift-00-absent.json").unlink()
    assert "1 cells in" in call(*words)[1]  # of the two, the one that failed
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == json.loads(first)
    assert "<table" in (tmp_path / "out" / "bench.html").read_text()
    assert "## Verdict" in (tmp_path / "out" / "bench.md").read_text()


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
    words += ("--jobs", "1")
    assert "1 cells in" in call(*words)[1]
    (row,) = json.loads((out / "results.json").read_text())["cells"]
    assert (row["entrant"], row["note"]) == ("mine", "a coin")
    assert row["file"] == digest(str(file))
    assert row["rows"][0]["test"]["accuracy"] == pytest.approx(0.5)
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
def test_a_file_that_crashes_ends_its_own_process_only(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        OUTSIDE.replace("    return lambda", "    import os; os.abort()\n    return lambda")
    )
    (cell,) = cells(["oulad"], [0], [str(file)])
    row = run_cell(cell)
    assert (row["rows"], row["why"]) == ([], "in its own process: exit -6")


@pytest.mark.slow
def test_the_example_of_an_entrant_runs():
    file = Path(__file__).parents[2] / "examples" / "entrant.py"
    (cell,) = cells(["oulad"], [0], [str(file)], limits=(0.1,), request=(0.05,))
    row = run_cell(cell)
    assert "why" not in row
    assert row["rows"][0]["test"]["accuracy"] > 0.6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no file '.*mine.py' with an entrant"),
        ("x = 1", "has no entrant: it needs fit"),
        ("1 / 0", "cannot be run: ZeroDivisionError"),
        (OUTSIDE.replace("mine", "fl"), "not the only entrant 'fl'"),
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

    file, clean = tmp_path / "mine.py", kept.Code("abc", True, "")
    file.write_text(OUTSIDE)
    kept.authorise([3], clean, [str(file)])
    git("init", "-q")
    with pytest.raises(SettingsError, match=r"mine.py' is not as its repository's commit has it"):
        kept.authorise([20], clean, [str(file)])
    git("add", "mine.py")
    git("commit", "-qm", "Enter")
    kept.authorise([20], clean, [str(file)])
    file.write_text(OUTSIDE + "# another\n")
    with pytest.raises(SettingsError, match="take seeds 0 to 19"):
        kept.authorise([20], clean, [str(file)])


def test_seeds_in_words():
    assert parsed("0-2,7") == [0, 1, 2, 7]
    with pytest.raises(SettingsError, match="'0-x' are no numbers"):
        parsed("0-x")


def test_the_sceptic_moves_towards_the_other_s_rate():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    d = 2.0 * y - 1 + rng.normal(size=2000)
    plain = ((d > 0) == y).mean()
    for rate, fewer in ((0.2, True), (0.8, False)):
        found = moved(d, *as_accurate(d, y, plain - 0.1, rate))
        assert (found == y).mean() == pytest.approx(plain - 0.1, abs=2e-3)
        assert (found.mean() < (d > 0).mean()) == fewer
