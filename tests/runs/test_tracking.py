"""A fit told to a function, and to a real MLflow store on disk."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from helpers import ROLES, dealt, small_table

from agnosticfair import audit_clients
from agnosticfair.errors import SettingsError
from agnosticfair.federation import fit
from agnosticfair.methods import METHODS
from agnosticfair.runs.tracking import mlflow_run, parameters, results, tracker

CLIENTS = dealt(small_table(), 2)


def test_a_function_of_ones_own_hears_every_round():
    heard = []
    fitted = fit(
        CLIENTS, "fairfl", on_round=partial(lambda kind, v: heard.append((kind, v)), "round")
    )
    assert [v["round"] for _, v in heard] == [*range(1, fitted.rounds + 1)]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_told(name):
    told = parameters(METHODS[name], rows={"north": 3})
    assert told["name"] == name
    assert told["rows.north"] == "3"
    assert all(isinstance(value, str) for value in told.values())


def test_results_are_finite_numbers():
    fitted = fit(CLIENTS, "agnosticfair-printed")
    told = results(fitted, {"sex": audit_clients(fitted.model, CLIENTS, held_out=False)})
    assert "worst_surrogate" not in told  # which this method has none of
    assert told["converged"] == 0.0
    assert 0.0 <= told["certificate.sex.worst_difference"] <= 1.0


@pytest.mark.parametrize("where", ["mlflow", "mlflow:", "tensorboard:runs", ""])
def test_an_unknown_tracker_is_refused(where):
    with pytest.raises(SettingsError, match="write mlflow:URI"):
        tracker(where)


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow.entities", None)
    with (
        pytest.raises(SettingsError, match=r"agnosticfair\[mlflow\]"),
        mlflow_run("sqlite:///x.db"),
    ):
        pass


@pytest.mark.slow
def test_the_command_fills_a_store_on_disk(call, files):
    pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    from mlflow.tracking import MlflowClient

    store = f"sqlite:///{files[0].parent.resolve()}/runs.db"
    request = (*ROLES, "--method", "fairfl", "--track", f"mlflow:{store}", "--run", "run")
    code, _, err = call("fit", *files, *request)
    assert code == 0, err
    assert call("fit", *files, *request, "--max-rounds", 1, "--strict")[0] == 2
    client = MlflowClient(tracking_uri=store)
    place = client.get_experiment_by_name("agnosticfair").experiment_id
    failed, run = client.search_runs([place], order_by=["attributes.start_time DESC"])
    assert (run.info.status, failed.info.status) == ("FINISHED", "FAILED")
    assert (run.data.params["name"], run.data.params["rows.north"]) == ("fairfl", "150")
    assert run.data.metrics["converged"] == 1.0
    assert "certificate.sex.worst_difference" in run.data.metrics
    losses = client.get_metric_history(run.info.run_id, "loss")
    assert [m.step for m in losses] == [*range(1, int(run.data.metrics["rounds"]) + 1)]
    kept = {file.path for file in client.list_artifacts(run.info.run_id)}
    cards = {"model-card.md", "model-card.html"}
    assert kept == {"model.safetensors", "certificates.json", "report.html", *cards}
    text = client.download_artifacts(run.info.run_id, "model-card.md", str(files[0].parent))
    assert "Model card: income by fairfl" in Path(text).read_text()


def test_a_store_that_fails_for_a_while_does_not_end_a_fit(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    def fail(*one_request, **named):
        raise MlflowException("no answer")

    with mlflow_run(f"sqlite:///{tmp_path}/runs.db") as track:
        monkeypatch.setattr(MlflowClient, "log_batch", fail)
        track("round", {"round": 1, "loss": 0.5})
        with pytest.raises(MlflowException):
            track("results", {"accuracy": 0.8})


def test_what_mlflow_refuses_is_one_sentence_without_the_password():
    pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    sentence = "unsupported URI 'xyz://host/db'"
    with pytest.raises(SettingsError, match=sentence), mlflow_run("xyz://me:secret@host/db"):
        pass


def test_nothing_is_told_to_others():
    pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    code = (
        "from agnosticfair.runs.tracking import mlflow_run\n"
        "try:\n  mlflow_run('xyz://').__enter__()\nexcept Exception: pass\n"
        "from mlflow.telemetry.utils import is_telemetry_disabled\nprint(is_telemetry_disabled())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"
