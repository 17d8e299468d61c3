"""What messages reveal, in the open, under masks and under noise, by a dry run."""

import csv
import json

import pytest
from helpers import small_table

from agnosticfair.cli import main
from agnosticfair.data.schema import schema_of
from agnosticfair.data.summary import summary_statistics
from agnosticfair.methods import METHODS, method
from agnosticfair.privacy.fit import Budget
from agnosticfair.privacy.messages import UNSAID, drawn_rows, dry_run

ROWS = small_table(300, 4)
SCHEMA = schema_of(summary_statistics(ROWS, "all"), "y")


def from_site(messages):
    return {message.step: message for message in messages if message.sender == "site"}


@pytest.mark.parametrize(
    "chosen",
    [
        *METHODS.values(),
        method("agnosticfair", centres="rows"),
        method("fl", network="mlp"),
        *(method("rule", learner=name, min_people=2) for name in ("additive", "trees")),
    ],
    ids=lambda chosen: f"{chosen.name} {chosen.rule.learner if chosen.rule else ''}",
)
def test_every_field_of_every_method_is_explained(chosen):
    if chosen.network:
        pytest.importorskip("torch")
        chosen = method(chosen, max_rounds=2)
    messages = dry_run(chosen, ROWS, 3, positive="yes")
    sent = from_site(messages)
    assert {"statistics", "subgroup_decisions"} <= {*sent}
    assert ("centres" in sent) == (
        chosen.basis.centres == "rows" and chosen.basis.kind == "gaussian"
    )
    for message in sent.values():
        assert {*message.reveals} == {*message.fields}
        assert UNSAID not in message.reveals.values()
        assert message.size > 100
        assert message.first <= message.last
        assert message.times >= 1


def test_some_rows_send_every_message_that_all_rows_do(monkeypatch):
    monkeypatch.setattr("agnosticfair.privacy.messages.TREES_FROM", 500)
    monkeypatch.setattr("agnosticfair.server.solvers.TREES_FROM", 500)
    chosen = method("rule", min_people=2, max_rounds=4)
    heard = []
    some = dry_run(chosen, ROWS, 2, positive="yes", sample=150, on_message=heard.append)
    every = dry_run(chosen, ROWS, 2, positive="yes", sample=None)
    kinds = [
        {(m.step, m.sender, *m.fields) for m in messages if m.step in ("learn", "level")}
        for messages in (some, every)
    ]
    assert kinds[0] == kinds[1]
    assert {m.step for m in some} == {m.step for m in every} == {*heard}
    steps = [m.step for m in some]
    assert steps.index("learn") < steps.index("fine_counts") < steps.index("program")


def test_masked_sums_say_nothing_of_a_site_but_by_consent():
    pytest.importorskip("cryptography")
    sent = from_site(
        dry_run(
            method("agnosticfair", kernels=8, max_rounds=2), ROWS, 3, secure=True, positive="yes"
        )
    )
    for step in {*sent} - {"agree", "keys", "outline"}:
        assert all(text.startswith("of this site nothing") for text in sent[step].reveals.values())
    sent = from_site(dry_run(method("afl", max_rounds=2), ROWS, 3, secure=True, positive="yes"))
    assert sent["sums"].reveals["psi_L"].startswith("OF THIS SITE")


@pytest.mark.parametrize("name", ["fl", "fairfl", "rule"])
def test_noise_is_stated_for_every_field_of_a_private_fit(name):
    pytest.importorskip("opendp")
    sent = from_site(
        dry_run(method(name), ROWS, 2, schema=SCHEMA, budget=Budget(50.0), positive="yes")
    )
    private = {step: message for step, message in sent.items() if step.startswith("private_")}
    assert {*sent} - {*private} == {"keys", "agree"}
    for step in {*private} - {"private_plan"}:
        assert all("noise of deviation" in text for text in private[step].reveals.values())


def said(arguments, capsys, code=0):
    with pytest.raises(SystemExit) as ended:
        main(["explain-messages", *arguments])
    assert (ended.value.code or 0) == code
    captured = capsys.readouterr()
    return captured.out if not code else captured.err


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "north.csv"
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(("age", "hours", "job", "sex", "y"))
        texts = (ROWS.categorical["job"], ROWS.sensitive_features["sex"], ROWS.target)
        columns = [*ROWS.numeric.values(), *(column.values() for column in texts)]
        writer.writerows(zip(*columns, strict=True))
    return [str(path), "--target", "y", "--sensitive-features", "sex"]


def test_the_command_explains_a_site_s_file(file, capsys):
    told = said([*file, "--method", "agnosticfair", "--centres", "rows"], capsys)
    assert "WHOLE ROWS" in told
    assert "site-2's" not in told
    messages = json.loads(said([*file, "--method", "fl", "--json"], capsys))
    assert [m["step"] for m in messages if m["sender"] == "site"] == [
        "statistics",
        "sums",
        "histograms",
        "subgroup_decisions",
    ]
    assert messages[1]["rounds"].startswith("1 to")
    assert "Who learns what" in said([*file, "--method", "fl", "--secure"], capsys)


def test_the_command_explains_a_schema_without_a_file(tmp_path, capsys):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA.to_json()))
    rows = drawn_rows(SCHEMA)
    assert {*rows.numeric} == {*SCHEMA.numeric}
    private = ["--schema", str(path), "--epsilon", "3", "--method", "fairfl"]
    assert "delta 1e-05" in said(private, capsys)
    assert "a whole" in said([*private, "--site-rows", "50"], capsys)
    assert "name a site's file" in said([], capsys, code=2)
    assert "by --target" in said([str(path)], capsys, code=2)
    assert "sites" in said(["--schema", str(path), "--sites", "0"], capsys, code=2)


def test_a_file_under_a_schema_is_explained_with_the_bins_of_the_schema(files, capsys):
    columns = ["--target", "income", "--sensitive-features", "sex"]
    with pytest.raises(SystemExit):
        main(["schema", *map(str, files), *columns, "--bins", "8"])
    capsys.readouterr()
    request = [str(files[0]), *columns, "--learner", "trees", "--schema", "schema.json", "--json"]
    messages = json.loads(said(request, capsys))
    assert not {"histograms", "fine_counts"} & {message["step"] for message in messages}
    (shape,) = [m["fields"]["hist"] for m in messages if m["step"] == "level" and m["reveals"]]
    # eight bins and three jobs, each with a code for none
    assert shape.endswith(" x 13 x 3")
