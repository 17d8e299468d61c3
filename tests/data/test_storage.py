"""Which rows a model was fitted on: told to its owner by a secret file beside the model, and to nobody by the model."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import client_rows, small_table, write

import agnosticfair
from agnosticfair import audit
from agnosticfair.auditing.repeats import UNTOLD
from agnosticfair.data.storage import beside, trained_on
from agnosticfair.errors import DataError


def test_a_model_file_is_a_function_of_the_fit_alone(tmp_path):
    """Its header had a digest of the rows: who knew all of them but one told 8 times of 8 whether that was there."""
    table = small_table(2000)
    models = [agnosticfair.fit({"a": table}, "fl").model for _ in range(2)]
    assert len({model.to_bytes() for model in models for _ in range(5)}) == 1
    assert models[0].training.key != models[1].training.key
    # other rows that give the same weights give the same file
    other = trained_on(models[0].reading, [small_table(2000, 7)])
    assert replace(models[0], training=other).to_bytes() == models[0].to_bytes()
    path = tmp_path / "model.safetensors"
    models[0].save(path)
    header = path.read_bytes()
    content = json.loads(beside(path).read_text())
    for secret in (content["key"], content["digest"], content["sketch"]):
        assert secret.encode() not in header
    assert beside(path).stat().st_mode & 0o077 == 0


def test_some_rows_of_the_fit_are_known_again_and_others_are_not(tmp_path):
    table = small_table(4000)
    seen, new = table.take(np.arange(2000)), table.take(np.arange(2000, 4000))
    path = tmp_path / "model.safetensors"
    agnosticfair.fit({"a": seen}, "fl").model.save(path)
    back = agnosticfair.load_model(path)
    mixed = table.take(np.arange(1000, 3000))  # half of them were seen
    with pytest.raises(DataError, match=r"about [0-9,]+ of these 2,000 are rows that the model"):
        audit(back, mixed, sensitive_features="sex")
    certificate = audit(back, new, sensitive_features="sex")
    assert certificate.upper > 0
    assert UNTOLD not in certificate.notes


def test_a_model_that_came_alone_cannot_tell_and_says_so(tmp_path):
    table, path = small_table(2000), tmp_path / "model.safetensors"
    model = agnosticfair.fit({"a": table}, "fl").model
    path.write_bytes(model.to_bytes())
    alone = agnosticfair.load_model(path)
    assert alone.training is None
    certificate = audit(alone, table, sensitive_features="sex")
    assert UNTOLD in certificate.notes
    assert UNTOLD in certificate.to_json()["notes"]
    # what is beside it is of another model, or damaged
    model.save(path)
    text = beside(path).read_text()
    for wrong in (text.replace(model.digest, "0" * 64), text[:-20], "{}"):
        beside(path).write_text(wrong)
        assert agnosticfair.load_model(path).training is None


def test_without_its_key_a_sketch_knows_nobody():
    """Nobody who lacks the key can tell of a row: under another key the same rows are others."""
    table = small_table(2000)
    model = agnosticfair.fit({"a": table}, "fl").model
    training = model.training
    assert training.among(model.reading, [table]) == 2000
    guessed = replace(training, key=bytes(32))
    assert guessed.among(model.reading, [table]) == 0
    assert training.key.hex() not in repr(model) + repr(training)


def test_rows_are_known_again_whatever_feature_is_called_sensitive(call, tmp_path, monkeypatch):
    """Fitted for sex, audited for the job: the rows of the fit were 'certified with 95% confidence'."""
    monkeypatch.chdir(tmp_path)
    rows = [row | {"town": "xy"[k % 2]} for k, row in enumerate(client_rows(1, 600))]
    write(tmp_path / "train.csv", rows)
    write(tmp_path / "new.csv", [r | {"town": "x"} for r in client_rows(2, 600)])
    roles = ("--target", "income", "--sensitive-features")
    code, out, _ = call("fit", "train.csv", *roles, "sex", "--method", "fl")
    assert code == 0
    assert "model.trained-on.json" in out
    send = ("--model", "model.safetensors", "--precision", 0.5)
    for name in ("sex", "job", "town"):
        code, _, err = call("audit", "train.csv", *roles, name, *send)
        assert code == 2
        assert "model was fitted" in err
    code, out, _ = call("audit", "new.csv", *roles, "sex", *send)
    assert code == 0
    assert "nobody can tell" not in out
    (tmp_path / "model.trained-on.json").unlink()
    code, out, _ = call("audit", "train.csv", *roles, "job", *send)
    assert code == 0
    assert "nobody can tell" in " ".join(out.split())
