"""A fit that is killed after any round and resumed is the fit that was never interrupted."""

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.errors import ModelError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.methods import Method, Rule, method
from agnosticfair.protocol.faults import Policy
from agnosticfair.server import checkpoints

ROWS = small_table(300, 3)
TABLES = dealt(ROWS, 3)
ODDS = method("agnosticfair", metric="equalized_odds", centres="kmeans", kernels=20)
LEARNER = Method("learner", rule=Rule("additive"))
RULE = method("rule", learner="additive", tau=0.05)
METHODS = ("agnosticfair", "agnosticfair-printed", "afl", ODDS, LEARNER, RULE)


class Killed(Exception):
    pass


def kill_after(rounds):
    def on_round(entry):
        if entry["round"] == rounds:
            raise Killed

    return on_round


def killed(folder, rounds, name="fairfl", **changes):
    with pytest.raises(Killed):
        fit(
            TABLES,
            name,
            **{"positive": "yes", "checkpoint": folder, "on_round": kill_after(rounds), **changes},
        )


@pytest.mark.parametrize("name", METHODS)
def test_killed_at_every_round_and_resumed_is_the_same_bit_for_bit(name, tmp_path):
    whole = fit(TABLES, name, positive="yes")
    for rounds in range(1, whole.rounds + 1):
        killed(tmp_path, rounds, name)  # each goes on from the one before
    result = fit(TABLES, name, positive="yes", checkpoint=tmp_path)
    assert result.model.digest == whole.model.digest
    assert result.history == whole.history
    assert (result.outcome, result.rounds) == (whole.outcome, whole.rounds)
    resumed = [e["round"] for e in result.events if e["event"] == "resumed"]
    assert resumed == [*range(1, whole.rounds + 1)]


def test_one_client_alone_resumes_to_the_same_bits(tmp_path):
    whole = fit({"a": ROWS}, "agnosticfair", positive="yes")
    with pytest.raises(Killed):
        fit(
            {"a": ROWS}, "agnosticfair", positive="yes", checkpoint=tmp_path, on_round=kill_after(3)
        )
    result = fit({"a": ROWS}, "agnosticfair", positive="yes", checkpoint=tmp_path)
    assert result.model.digest == whole.model.digest


@pytest.mark.parametrize("place", [0, 40, 4000, -1])
def test_a_damaged_checkpoint_is_told_and_kept(place, tmp_path):
    killed(tmp_path, 2)
    path = tmp_path / checkpoints.FILE
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match="remove it"):
        fit(TABLES, "fairfl", positive="yes", checkpoint=tmp_path)
    assert path.read_bytes() == content


def test_a_checkpoint_that_was_cut_short_is_damaged(tmp_path):
    killed(tmp_path, 1)
    path = tmp_path / checkpoints.FILE
    for size in (0, 10, 1000):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(ModelError, match="damaged"):
            fit(TABLES, "fairfl", positive="yes", checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 4}, "differs in seed"),
        ({"scale": False}, "differs in scale"),
        ({"method": method("fairfl", tau=0.3)}, "differs in method"),
        ({"clients": dealt(ROWS, 2)}, "differs in clients:"),
        ({"clients": {**TABLES, "c001": TABLES["c002"]}}, "differs in the clients' rows"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(changes, said, tmp_path):
    killed(tmp_path, 1)
    request = {"clients": TABLES, "method": "fairfl", "positive": "yes", "checkpoint": tmp_path}
    with pytest.raises(SettingsError, match=said):
        fit(**(request | changes))


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises((SettingsError, ModelError), match="cannot"):
        fit(TABLES, "fl", positive="yes", checkpoint=tmp_path / "file")


def test_a_restated_problem_takes_the_place_of_the_old_and_is_resumed(tmp_path):
    from helpers import WAYS, Faulty

    ways = {"positive": "yes", "checkpoint": tmp_path, "on_failure": Policy(then="drop")}
    engine = Faulty(WAYS["failure"], range(3, 99))
    result = fit(engine, "fairfl", **ways)
    rest = {k: v for k, v in TABLES.items() if k != "c001"}
    again = fit(rest, "fairfl", **ways)
    alone = fit(rest, "fairfl", positive="yes")
    assert result.model.digest == alone.model.digest == again.model.digest
    assert again.events[-1]["event"] == "resumed"


def test_only_known_types_are_made():
    for name in (
        "os:system",
        "os.system",
        "agnosticfair.federation:fit",
        "agnosticfair.client.client:Client",
        "dataclasses:field",
    ):
        with pytest.raises(KeyError):
            checkpoints.thaw({"is": name, "of": {"command": "true"}}, {})


def test_numbers_keep_their_type_and_bits():
    kept: dict = {}
    value = {"a": np.float64(0.1), "b": np.bool_(True), "c": float("inf"), "d": (1, [None, "x"])}
    back = checkpoints.thaw(checkpoints.freeze(value, kept), kept)
    assert back == value
    assert [type(v) for v in back.values()] == [type(v) for v in value.values()]


def test_the_command_line_goes_on_from_a_checkpoint(tmp_path, capsys):
    from agnosticfair.cli import main

    path = tmp_path / "rows.csv"
    lines = [
        f"{a},{h},{j},{y},{s}"
        for a, h, j, y, s in zip(
            *ROWS.numeric.values(),
            ROWS.categorical["job"].values(),
            ROWS.target.values(),
            ROWS.sensitive_features["sex"].values(),
            strict=True,
        )
    ]
    path.write_text("age,hours,job,y,sex\n" + "\n".join(lines) + "\n")
    command = [
        "fit",
        str(path),
        "--target",
        "y",
        "--sensitive-features",
        "sex",
        "--method",
        "fairfl",
    ]
    command += ["--checkpoint", str(tmp_path / "state"), "--out", str(tmp_path / "model")]
    for said in ("Written", "event resumed, round"):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code in (0, None)
        assert said in capsys.readouterr().out
