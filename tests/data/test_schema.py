"""A schema: what fits is read as it says, what does not is named; and no site need show a range."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import ROLES, client_rows, dealt, small_table, write

from agnosticfair.cli import main
from agnosticfair.data.schema import applied, load_schema, schema_of
from agnosticfair.data.summary import summary_statistics
from agnosticfair.data.table import Column
from agnosticfair.errors import DataError, FederationError
from agnosticfair.federation import fit, in_process
from agnosticfair.site.guard import rehearsed

ROWS = small_table(300, 1)
DRAFT = schema_of(summary_statistics(ROWS, "all"), "y")


def written(tmp_path, **changes):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({**DRAFT.to_json(), **changes}))
    return path


def test_a_schema_may_say_which_columns_are_dates(tmp_path):
    assert "dates" not in DRAFT.to_json(), "a file from before comes back with the same digest"
    read = load_schema(written(tmp_path, dates=["age"]))
    assert read.dates == read.outline().dates == ("age",)


def test_a_file_comes_back_with_the_same_digest(tmp_path):
    read = load_schema(written(tmp_path))
    assert read == DRAFT
    assert read.digest == DRAFT.digest
    assert replace(read, outside="clip").digest != DRAFT.digest


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"outside": "drop"}, "'outside'.*'drop'"),
        ({"format": "x"}, "not agnosticfair-schema-1"),
        ({"numeric": {"age": [2, 1]}}, "'age'"),
        ({"numeric": {"age": [1]}}, "list of 2"),
        ({"labels": ["no", "no"]}, "'labels'.*entry"),
        ({"categorical": {"age": ["a"]}}, "'age'.*categorical"),
        ({"bins": {"age": [3, 2]}}, "'age'.*ascend"),
        ({"extra": 1}, "'extra'"),
        ({"dates": 3}, "'dates'.*should"),
    ],
)
def test_a_bad_file_is_a_sentence(tmp_path, changes, said):
    with pytest.raises(DataError, match=said):
        load_schema(written(tmp_path, **changes))


def test_values_outside_are_named_or_brought_inside():
    narrow = replace(DRAFT, numeric={**DRAFT.numeric, "hours": (0.2, 0.8)})
    with pytest.raises(DataError, match=r"'hours'.*'north'"):
        applied(narrow, ROWS, "client 'north'")
    clipped = applied(replace(narrow, outside="clip"), ROWS, "client 'north'").numeric["hours"]
    np.testing.assert_array_equal(clipped, np.clip(ROWS.numeric["hours"], 0.2, 0.8))
    fewer = replace(DRAFT, categorical={"job": ("a", "b", "other")})
    with pytest.raises(DataError, match=r"'c'.*declare"):
        applied(fewer, ROWS, "client 'north'")
    other = applied(replace(fewer, outside="clip"), ROWS, "client 'north'").categorical["job"]
    was = ROWS.categorical["job"].values()
    np.testing.assert_array_equal(other.values() == "other", was == "c")


def test_labels_and_groups_are_never_changed():
    one = replace(DRAFT, labels=("no",), outside="clip")
    with pytest.raises(DataError, match=r"'north'.*'yes'"):
        applied(one, ROWS, "client 'north'")
    with pytest.raises(DataError, match=r"categorical.*'race'"):
        applied(replace(DRAFT, sensitive_features={"race": ("x", "y")}), ROWS, "client 'north'")


def test_a_fit_under_a_drawn_up_schema_asks_for_no_summary_and_is_the_same():
    tables = dealt(ROWS, 3)
    plain = fit(tables, "fairfl", positive="yes")
    under = fit(tables, "fairfl", positive="yes", schema=DRAFT)
    secure = fit(tables, "fairfl", positive="yes", schema=DRAFT, secure=True)
    np.testing.assert_array_equal(plain.model.w, under.model.w)
    np.testing.assert_array_equal(plain.model.w, secure.model.w)
    assert plain.history == under.history == secure.history


def test_a_site_counts_under_its_own_schema_only():
    wider = replace(DRAFT, numeric={**DRAFT.numeric, "hours": (-1.0, 2.0)})
    engine, roster = rehearsed(in_process(dealt(ROWS, 2)), schema=DRAFT)
    with pytest.raises(FederationError, match="does not answer"):
        fit(engine, "fl", positive="yes", secure=roster, schema=wider)
    with pytest.raises(FederationError, match="masked sums only"):
        fit(engine, "fl", positive="yes", secure=roster)
    assert fit(engine, "fl", positive="yes", secure=roster, schema=DRAFT).converged


def test_the_command_drafts_and_checks(tmp_path, capsys):
    north, out = write(tmp_path / "north.csv", client_rows(0)), tmp_path / "schema.json"
    run(["schema", str(north), *ROLES, "--out", str(out)])
    run(["schema", str(north), *ROLES, "--check", str(out)])
    assert load_schema(out).digest in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["schema", str(north), *ROLES, "--out", str(out)])
    assert "is there already" in capsys.readouterr().err
    south = write(tmp_path / "south.csv", client_rows(0), job="z")
    with pytest.raises(SystemExit):
        main(["schema", str(south), *ROLES, "--check", str(out)])
    assert "has 'z' in 150 rows" in capsys.readouterr().err


def run(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


def test_a_column_with_other_codes_is_aligned():
    job = Column.of(["c", "a", "c"])
    table = replace(ROWS.take(np.arange(3)), categorical={"job": job})
    got = applied(DRAFT, table, "client 'north'").categorical["job"]
    assert got.categories == ("a", "b", "c")
    assert list(got.values()) == ["c", "a", "c"]


@pytest.mark.usefixtures("seeded_noise")
def test_a_private_fit_from_the_command_line(tmp_path, capsys):
    files = [str(write(tmp_path / f"{name}.csv", client_rows(k))) for k, name in enumerate("ab")]
    schema, model = tmp_path / "schema.json", tmp_path / "model.safetensors"
    run(["schema", *files, *ROLES, "--out", str(schema)])
    request = ["fit", *files, *ROLES, "--method", "fairfl", "--epsilon", "20", "--out", str(model)]
    with pytest.raises(SystemExit):
        main(request)
    assert "differential privacy needs --schema" in capsys.readouterr().err
    held = str(write(tmp_path / "held.csv", client_rows(2)))
    with pytest.raises(SystemExit):
        main([*request, "--schema", str(schema), "--test", held])
    assert "--test" in capsys.readouterr().err
    ledgers = tmp_path / "ledgers"
    ledgers.mkdir()
    run([*request, "--schema", str(schema), "--ledgers", str(ledgers)])
    assert "delta 1e-05" in " ".join(capsys.readouterr().out.split())
    run(
        [*request, "--schema", str(schema), "--ledgers", str(ledgers)]
    )  # the same requests cost once
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*request, "--schema", str(schema), "--ledgers", str(ledgers), "--tau", "0.3"])
    assert "site 'a'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*request[:-4], "--epsilon", "0", "--schema", str(schema)])
    assert "epsilon is 0" in capsys.readouterr().err
