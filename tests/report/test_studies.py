"""The report without a browser: what runs keep, what is read of them, and what is refused."""

import csv
import json
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers import ROLES, client_rows, decided, refused, weights_of, write
from hypothesis import given
from hypothesis import strategies as st

from agnosticfair.commands.rows import labelled
from agnosticfair.data.storage import read_decided
from agnosticfair.data.table import Column
from agnosticfair.errors import DataError, ModelError, SettingsError
from agnosticfair.mathematics import scoring
from agnosticfair.report.page import as_text
from agnosticfair.report.page import page_data as data
from agnosticfair.report.page import report_page as html
from agnosticfair.report.studies import MIN_SHARE, counts, read_run, values
from agnosticfair.runs.provenance import COMMAND, provenance


def at(table, by_column, name):
    """Accuracy and risk difference from the counts, as the page computes them."""
    w = np.prod([np.asarray(w)[c] for w, c in zip(by_column, table["codes"], strict=True)], axis=0)
    n, y = (np.array(table[k], float) for k in ("rows", "label"))
    a = np.array(table["positive"][name])
    rates = [
        (w * a)[g].sum() / (w * n)[g].sum()
        for g in (np.array(table["group"]) == k for k in range(len(table["groups"])))
    ]
    right = np.where(y == 1, a, n - a)
    return (w * right).sum() / (w * n).sum(), max(rates) - min(rates)


@given(st.integers(0, 50))
def test_counts_give_what_the_rows_give(seed):
    rows = decided(seed=seed)
    table, rng = counts(rows), np.random.default_rng(seed)
    by_column = [rng.uniform(0.1, 5, len(c["values"])) for c in table["columns"]]
    w = weights_of(rows, table, by_column)
    for name, p in rows.decisions.items():
        right, gap = at(table, by_column, name)
        assert right == pytest.approx(scoring.positive_rate(1 - np.abs(rows.y - p), w), abs=1e-8)
        assert gap == pytest.approx(scoring.risk_difference(p, rows.s.codes, w), abs=1e-8)


def test_the_worst_corner_is_the_worst_of_all_subgroups():
    rows = decided()
    table = counts(rows)
    columns = [values(rows.columns[c["name"]]) for c in table["columns"]]
    for name, p in rows.decisions.items():
        found = []
        for only in product(*((None, *range(len(c.categories))) for c in columns)):
            subgroup = np.ones(len(rows.y), bool)
            for column, k in zip(columns, only, strict=True):
                subgroup &= True if k is None else column.codes == k
            sizes = np.bincount(rows.s.codes[subgroup], minlength=2)
            if (
                subgroup.sum() >= table["min_rows"]
                and sizes.min() >= MIN_SHARE * subgroup.sum() > 0
            ):
                found.append((scoring.risk_difference(p[subgroup], rows.s.codes[subgroup]), only))
        worst = table["corners"][name]
        assert worst["difference"] == pytest.approx(max(found)[0], abs=1e-9)
        assert worst["tried"] == len(found)


def test_columns_come_in_few_values():
    many = values(Column.of([f"t{k % 30:02d}" for k in range(100)]))
    assert len(many.categories) == 12
    assert many.categories[-1] == "19 others"
    assert values(np.array([1.0, 2.0, 1.0])).categories == ("1", "2")
    skewed = values(np.array([0.0] * 90 + [*range(1, 11)]))
    assert np.bincount(skewed.codes).min() > 0
    gaps = values(np.array([np.nan, *range(20)]))
    assert (gaps.categories[gaps.codes[0]], len(gaps.categories)) == ("missing", 5)


def test_columns_to_mix_by_must_be_there():
    assert [c["name"] for c in counts(decided(), ["job", "hours"])["columns"]] == ["job", "hours"]
    with pytest.raises(SettingsError, match=r"'town'.*age.*job"):
        counts(decided(), ["town"])
    with pytest.raises(SettingsError, match="5 columns"):
        counts(decided(), ["job"] * 5)
    with pytest.raises(DataError, match="no test rows"):
        counts(decided(0))


def test_rows_survive_their_file(tmp_path):
    rows = decided()
    (tmp_path / "rows.parquet").write_bytes(rows.to_bytes())
    decided_here = read_decided(tmp_path / "rows.parquet")
    assert counts(decided_here) == counts(rows)
    assert decided_here.columns["age"].tolist() == rows.columns["age"].tolist()
    (tmp_path / "rows.parquet").write_bytes(rows.to_bytes()[:-9])
    with pytest.raises(ModelError, match=r"rows\.parquet"):
        read_decided(tmp_path / "rows.parquet")


# --- the commands ---


@pytest.fixture
def run(call, files):
    code, _, err = call("fit", *files, *ROLES, "--method", "fairfl", "--run", "run")
    assert (code, err) == (0, "")
    return Path("run")


def page_data(path):
    text = Path(path).read_text()
    begin = text.index('id="data">') + len('id="data">')
    return json.loads(text[begin : text.index("</script>", begin)])


def test_a_fit_keeps_its_run_and_is_reported_on_test_rows(call, run):
    assert {p.name for p in run.iterdir()} == {
        "model.safetensors",
        "history.json",
        "certificate.json",
    }
    history = json.loads((run / "history.json").read_text())
    assert history["command"].startswith("agnosticfair fit north.csv south.csv --target income")
    write(Path("east.csv"), client_rows(5))
    write(Path("west.csv"), client_rows(6))
    code, out, _ = call("report", run, "--test", "east.csv", "--test", "west.csv")
    assert code == 0
    assert "report.html" in out
    study = page_data("report.html")["studies"][0]
    _, out, _ = call(
        "evaluate",
        run / "model.safetensors",
        "east.csv",
        "west.csv",
        "--target",
        "income",
        "--json",
    )
    for told, shown in zip(json.loads(out), study["clients"], strict=True):
        assert (told["client"], told["rows"]) == (shown["client"], shown["rows"])
        assert told["accuracy"] == pytest.approx(shown["accuracy"], abs=1e-12)
        assert told["risk_difference"] == pytest.approx(shown["risk_difference"], abs=1e-12)
    certificate = json.loads((run / "certificate.json").read_text())
    assert study["methods"][0]["certified"] is None
    assert certificate["sentence"] in study["sentences"]
    assert [c["name"] for c in study["explorer"]["columns"]] == ["age", "site", "job"]
    assert "certified here. Measured" in study["no_set"]
    code, _, _ = call("report", run, "--test", "east.csv", "--mix", "job")
    assert [c["name"] for c in page_data("report.html")["studies"][0]["explorer"]["columns"]] == [
        "job"
    ]


def test_a_fit_without_test_rows_says_so(call, run):
    assert call("report", run)[0] == 0
    study = page_data("report.html")["studies"][0]
    assert study["explorer"] is None
    assert "trained on" in study["warnings"][0]


def test_weak_claims_are_warned_of(call, files):
    run = Path("run")
    assert call("fit", *files, *ROLES, "--method", "agnosticfair", "--run", "run")[0] == 0
    for name, changes in (
        ("history.json", {"events": [{"event": "no answer", "client": "north"}], "files": {}}),
        ("certificate.json", {"notes": ["A note of the certificate."]}),
    ):
        content = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps(content | changes))
    content = " ".join(data([read_run(run)])["studies"][0]["warnings"])
    for words in (
        "Replies were missing: event no answer, client north.",
        "A note of the certificate.",
        "trained on",
    ):
        assert words in content
    (run / "certificate.json").write_text('{"sentence": "There is no certificate: north refused."}')
    study = data([read_run(run)])["studies"][0]
    assert any("north refused" in warning for warning in study["warnings"])
    assert "Nothing is certified" in " ".join(study["sentences"])


def test_two_fits_stand_side_by_side(call, run, files):
    call("fit", *files, *ROLES, "--method", "fairfl", "--tau", "0.3", "--run", "lax")
    call("fit", *files, *ROLES, "--method", "fairfl", "--max-rounds", "2", "--run", "short")
    assert call("report", "run", "lax", "short", "--test", files[0])[0] == 0
    (study,) = page_data("report.html")["studies"]
    names = [m["name"] for m in study["methods"]]
    assert names == ["fairfl (run)", "fairfl (lax)", "fairfl (short)"]
    assert list(study["explorer"]["positive"]) == names
    assert any("short" in text and "not converged" in text for text in study["warnings"])


def test_an_audit_is_reported(call, run, files):
    model = run / "model.safetensors"
    request = ("--target", "income", "--sensitive-features", "sex")
    assert call("audit", files[0], *request, "--model", model, "--keep-rows")[0] == 0
    assert call("report", "audit", run)[0] == 0
    study, other = page_data("report.html")["studies"]
    certificate = json.loads(Path("audit/certificate.json").read_text())
    assert study["methods"][0]["certified"] == certificate["upper"]
    assert study["methods"][0]["subgroups"]["counts"][0] == 1  # overall; no subgroup of so few rows
    assert study["rows"] == 150
    right = next(c for c in study["clients"] if c["client"] == "all rows")["accuracy"]
    assert right == pytest.approx(certificate["accuracy"])
    assert other["kind"] == "fit"


SEX_AND_TOWN = (
    "--target=income",
    "--sensitive-features=sex",
    "--sensitive-features=town",
    "--tau=0.3",
)


def test_any_metric_and_several_features_are_reported(call, files):
    for k, path in enumerate(files):
        write(path, client_rows(k), town=lambda i, r: "xyz"[i % 3])
    request = (*SEX_AND_TOWN, "--metric", "equalized_odds", "--run", "run")
    assert call("fit", *files, *request)[0] == 0
    certificate = json.loads(Path("run/certificate.json").read_text())
    shown = certificate["sensitive_feature"]
    assert {shown, *certificate["others"]} == {"sex", "town"}
    assert call("report", "run", "--test", files[0])[0] == 0
    (study,) = page_data("report.html")["studies"]
    assert study["metric"]["quantity"] == "difference of true or false positive rates"
    assert study["explorer"]["sensitive_feature"] == shown
    assert any("By '" in text for text in study["warnings"])
    model, table = read_run(Path("run")).model, study["explorer"]
    rows = labelled(model, files[:1], "income", (shown,), None)["north"]
    y, p, s = rows.labels("yes"), model.predict(rows), rows.column(shown).codes
    assert study["methods"][0]["difference"] == pytest.approx(
        scoring.gap("equalized_odds", y, p, s)
    )
    assert table["metric"]["name"] == "equalized_odds"
    assert call("report", "run")[0] == 0
    (alone,) = page_data("report.html")["studies"]
    assert alone["methods"][0]["difference"] == certificate["difference"]


# --- what is refused ---


def test_what_is_no_run_is_refused(call, run):
    Path("empty").mkdir()
    assert "'absent'" in refused(call, "report", "absent")
    assert "no results of agnosticfair" in refused(call, "report", "empty")
    (run / "model.safetensors").unlink()
    assert "incomplete: 'model.safetensors'" in refused(call, "report", run)


def test_a_run_of_another_version_or_damaged_is_refused(call, run):
    content_here = json.loads((run / "history.json").read_text())
    for content, named in (
        ({**content_here, "format": "agnosticfair-history-0"}, "'agnosticfair-history-0'"),
        ({k: v for k, v in content_here.items() if k != "events"}, "KeyError: 'events'"),
        ([1], "damaged, or not ours"),
    ):
        (run / "history.json").write_text(json.dumps(content))
        assert named in refused(call, "report", run)
    (run / "history.json").write_text("{")
    assert "damaged, or not ours" in refused(call, "report", run)


def test_a_run_that_failed_or_was_changed_is_refused(call, run):
    text = (run / "certificate.json").read_text()
    (run / "certificate.json").write_text(text + "\n")
    assert "'certificate.json'" in refused(call, "report", run)
    (run / "certificate.json").write_text(text)
    (run / "error.json").write_text('{"error": "site north is gone"}')
    later = (run / "history.json").stat().st_mtime + 1
    os.utime(run / "error.json", (later, later))
    assert "site north is gone" in refused(call, "report", run)


def test_test_rows_are_for_fits(call, run, files):
    model = run / "model.safetensors"
    call("audit", files[0], *ROLES, "--model", model, "--keep-rows")
    assert "--test" in refused(call, "report", "audit", "--test", files[0])
    assert "'town'" in refused(call, "report", "audit", "--mix", "town")
    with Path("none.csv").open("w") as file:
        csv.DictWriter(file, [*next(client_rows(0, 1))]).writeheader()
    assert "none" in refused(call, "report", run, "--test", "none.csv")


# --- the page as text ---


def test_data_cannot_leave_its_element():
    text = as_text({"</script><script>alert(1)</script>": "<!--\u2028&"})
    assert not {"<", ">", "&", "\u2028"} & {*text}
    assert json.loads(text) == {"</script><script>alert(1)</script>": "<!--\u2028&"}


def test_a_page_forbids_every_request(call, run):
    content = data([read_run(run)])
    text = html(content | {"title": "{{DATA}} </script>"})
    policy = text.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("sha256-") == 3
    assert "src=" not in text.replace("default-src", "").partition("<script>")[0]
    assert text.count("</script>") == 3


def test_intersections_are_reported(call, files):
    for k, path in enumerate(files):
        write(path, client_rows(k), town=lambda i, r: "xy"[i // 2 % 2])
    assert (
        call("fit", *files, *SEX_AND_TOWN, "--method", "fairfl", "--intersections", "--run", "run")[
            0
        ]
        == 0
    )
    assert call("report", "run", "--test", files[1])[0] == 0
    (study,) = page_data("report.html")["studies"]
    assert study["explorer"]["sensitive_feature"] == "sex & town"
    assert study["explorer"]["groups"] == ["F & x", "F & y", "M & x", "M & y"]


def test_fits_in_folders_of_one_name_are_told_apart(call, run, files):
    call("fit", *files, *ROLES, "--method", "fairfl", "--tau", "0.5", "--run", "other/run")
    request = ("report", run, "other/run", run, "--test", files[0], "--out", "two.html")
    assert call(*request)[0] == 0
    (study,) = page_data("two.html")["studies"]
    found = {m["name"]: m["accuracy"] for m in study["methods"]}
    assert [*found] == ["fairfl (run)", "fairfl (other/run)"] == [*study["explorer"]["positive"]]
    tables = {name: read_run(Path(name)).model for name in ("run", "other/run")}
    for name, model in tables.items():
        (rows,) = labelled(model, files[:1], "income", ("sex",), None).values()
        right = scoring.accuracy(rows.labels("yes"), model.predict(rows))
        assert found[f"fairfl ({name})"] == pytest.approx(right)


def test_a_column_that_cannot_be_mixed_is_not_called_a_damaged_run(call, run, files):
    told = refused(call, "report", run, "--test", files[0], "--mix", "colour")
    assert told.startswith("error: no column 'colour' to mix by")


def test_a_password_in_the_command_is_kept_nowhere():
    token = COMMAND.set(("agnosticfair", "fit", "https://me:p@ss@host/a.csv"))
    try:
        assert provenance({})["command"] == "agnosticfair fit https://host/a.csv"
    finally:
        COMMAND.reset(token)
