"""``agnosticfair monitor`` through ``main``: verdicts, exit codes, files, and refusals."""

import csv
import json
import sys
from pathlib import Path

import pytest
from helpers import ROLES, certificate_on, client_rows, refused, write

from agnosticfair.data.files import read_rows
from agnosticfair.model import load_model


@pytest.fixture
def watch(call, files):
    """A model, the baseline of its rows, and the words that watch it."""
    code, _, _ = call("fit", *files, *ROLES, "--method", "fl")
    assert code == 0
    model = load_model("model.safetensors")
    write(Path("held.csv"), client_rows(7, 600))
    table = read_rows("held.csv", model.encoding, target="income", sensitive_features=("sex",))
    made = certificate_on(model, table, 0.1).to_json()
    Path("certificate.json").write_text(json.dumps(made))
    return ("monitor", "model.safetensors", "--certificate", "certificate.json", "--limit", 0.9)


def test_batches_are_counted_and_remembered(call, watch):
    write(Path("one.csv"), client_rows(8, 200))
    write(Path("two.csv"), client_rows(9, 200))
    code, out, err = call(*watch, "--rows", "one.csv", "--state", "s.json")
    assert (code, err) == (0, "")
    assert "after 200 rows" in out
    files = ("--page", "page.html", "--prometheus", "metrics.prom")
    code, out, _ = call(*watch, "--rows", "two.csv", "--state", "s.json", "--json", *files)
    content = json.loads(out)
    assert (code, content["rows"], content["grouped"]) == (0, 400, 400)
    assert "monitor" in Path("page.html").read_text()
    assert "agnosticfair_rows 400.0" in Path("metrics.prom").read_text()
    write(Path("three.csv"), client_rows(10, 150))
    _, out, _ = call(*watch, "--rows", "three.csv", "--state", "s.json")
    assert "The last batch alone, 150 rows," in out


def test_a_certificate_that_does_not_hold_is_not_watched(call, watch):
    content = json.loads(Path("certificate.json").read_text())
    content["subgroups"][0]["high"] = 0.99
    Path("certificate.json").write_text(json.dumps(content))
    write(Path("one.csv"), client_rows(8, 200))
    code, _, err = call(*watch, "--rows", "one.csv", "--state", "s.json")
    assert (code, "high" in err, Path("s.json").exists()) == (2, True, False)


def test_the_page_is_accessible(call, watch, accessible):
    write(Path("one.csv"), client_rows(8, 200))
    call(*watch, "--rows", "one.csv", "--page", "page.html")
    accessible(Path("page.html").read_text())


def test_an_alarm_has_its_exit_code_and_its_hook(call, watch):
    write(Path("odd.csv"), client_rows(8, 300), job="robot")
    hook = f'{sys.executable} -c \'import sys; open("heard", "w").write(sys.stdin.read())\''
    code, out, _ = call(*watch, "--rows", "odd.csv", "--alert", hook)
    assert code == 3
    assert "job = 'robot'" in out
    assert "The model decides nothing on 300 of 300 rows" in " ".join(out.split())
    assert "Groups are known" not in out
    assert json.loads(Path("heard").read_text())["where"] == "outside"
    code, _, err = call(*watch, "--rows", "odd.csv", "--alert", "there-is-no-such-command")
    assert (code, "could not be given: FileNotFoundError" in err) == (3, True)


def test_two_sites_watch_together(call, watch):
    for k, site in enumerate(("north", "south")):
        write(Path(f"{site}-today.csv"), client_rows(20 + k, 200))
        call(*watch, "--rows", f"{site}-today.csv", "--state", f"{site}.json")
    code, out, _ = call(*watch, "--state", "north.json", "--add", "south.json", "--json")
    assert (code, json.loads(out)["rows"]) == (0, 400)


def test_late_labels_are_joined_by_key(call, watch):
    rows = [{"id": str(i), **r} for i, r in enumerate(client_rows(8, 100))]
    write(Path("rows.csv"), [{k: v for k, v in r.items() if k != "income"} for r in rows])
    with Path("labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("id", "income"), *((r["id"], r["income"]) for r in rows)])
    call(*watch, "--rows", "rows.csv", "--state", "s.json")  # counted when it came
    late = (*watch, "--key", "id", "--labels", "labels.csv", "--target", "income")
    request = (*late, "--rows", "rows.csv", "--state", "s.json", "--json")
    code, out, err = call(*request)
    assert (code, err, json.loads(out)["rows"]) == (0, "", 100)
    assert "very content" in refused(call, *request)
    assert "by --rows" in refused(call, *late, "--state", "s.json")
    counts = json.loads(Path("s.json").read_text())["state"]["counts"]
    assert sum(sum(map(sum, group)) for group in counts[0]) == 100
    assert sum(sum(group[0]) for group in counts[0]) == 0  # none is without its label


def test_what_makes_no_sense_is_refused(call, watch):
    write(Path("one.csv"), client_rows(8, 50))
    assert "'absent.json'" in refused(call, *watch[:3], "absent.json", "--rows", "one.csv")
    assert "nothing to watch" in refused(call, *watch)
    assert "both --labels and --key" in refused(call, *watch, "--rows", "one.csv", "--key", "id")
    assert "'absent.csv'" in refused(call, *watch, "--rows", "absent.csv")
    call(*watch, "--rows", "one.csv", "--state", "s.json")
    assert "very content" in refused(call, *watch, "--rows", "one.csv", "--state", "s.json")
    Path("s.json").write_text("{}")
    request = (*watch, "--rows", "one.csv", "--state", "s.json")
    assert "no state of a monitor" in refused(call, *request)
    assert "confidence is 2" in refused(call, *watch, "--rows", "one.csv", "--confidence", 2)


def test_a_sample_with_groups_and_the_time_of_a_batch(call, watch):
    rows = [*client_rows(8, 300)]
    write(Path("all.csv"), [{k: v for k, v in r.items() if k != "sex"} for r in rows])
    write(Path("some.csv"), rows[::3])
    at = ("--state", "s.json", "--json", "--when")
    code, out, _ = call(*watch, "--rows", "all.csv", *at, "2026-01-02T08:00+00:00")
    assert (code, json.loads(out)["grouped"]) == (0, 0)
    write(Path("less.csv"), [{k: v for k, v in r.items() if k != "sex"} for r in rows[:-1]])
    assert "in common" in refused(call, *watch, "--rows", "less.csv", *at, "2026-01-02T07:00")
    assert "'noon' is no time" in refused(call, *watch, "--rows", "all.csv", *at, "noon")
    code, out, _ = call(*watch, "--sample", "some.csv", *at, "2026-01-03")
    assert (code, json.loads(out)["rows"], json.loads(out)["grouped"]) == (0, 300, 100)


def test_labels_that_have_not_all_come_are_waited_for(call, watch):
    rows = [{"id": str(i), **r} for i, r in enumerate(client_rows(8, 20))]
    write(Path("rows.csv"), rows)
    Path("labels.csv").write_text(f"id,income\n0,{rows[0]['income']}\n")
    request = (*watch, "--rows", "rows.csv", "--key", "id", "--labels", "labels.csv")
    assert "19 of 20 rows" in refused(call, *request, "--target", "income")


def test_groups_may_be_unknown_of_some_rows_and_new_ones_are_named(call, watch):
    rows = [*client_rows(8, 200)]
    some = [{**r, "sex": ("", "X", r["sex"])[min(k // 50, 2)]} for k, r in enumerate(rows)]
    write(Path("one.csv"), some)
    code, out, _ = call(*watch, "--rows", "one.csv", "--json")
    content = json.loads(out)
    assert (code, content["rows"], content["grouped"]) == (0, 200, 100)
    assert content["strange"]["sex"] == ["X"]


@pytest.mark.slow
def test_columns_under_other_names_are_told_and_wrong_ones_refused(call, watch):
    rows = [*client_rows(8, 100)]
    write(Path("one.csv"), [{"gender" if k == "sex" else k: v for k, v in r.items()} for r in rows])
    own = (*watch, "--rows", "one.csv", "--json")
    assert json.loads(call(*own)[1])["grouped"] == 0
    assert json.loads(call(*own, "--sensitive-features", "gender")[1])["grouped"] == 100
    assert "no column 'sex'" in refused(call, *own, "--sensitive-features", "sex")
    two = ("--sensitive-features", "gender", "--sensitive-features", "job")
    assert "names 2 columns" in refused(call, *own, *two)
    assert "no column 'wage'" in refused(call, *own, "--target", "wage")
    write(Path("two.csv"), rows, income="maybe")
    strange = (*watch, "--rows", "two.csv", "--target", "income")
    assert "'maybe', unknown to the model" in refused(call, *strange)
