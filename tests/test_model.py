"""A model file loads back to the same predictions, and nothing else loads."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table
from safetensors.numpy import save, save_file

from agnosticfair.data.table import Column
from agnosticfair.errors import DataError, ModelError
from agnosticfair.federation import fit
from agnosticfair.model import check_labels, load_model, sealed

ROWS = small_table(200, 4)
MODEL = fit(dealt(ROWS, 2), "fairfl", positive="yes").model


def test_save_and_load_give_the_same_predictions(tmp_path):
    MODEL.save(tmp_path / "m.safetensors")
    again = load_model(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.decision(ROWS), MODEL.decision(ROWS))
    assert (again.encoding, again.positive, again.groups) == (MODEL.encoding, "yes", ("g0", "g1"))
    assert again.method["fairness"]["tau"] == MODEL.method["fairness"]["tau"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.safetensors", "m.trained-on.json"]


def test_probabilities_agree_with_predictions():
    p = MODEL.probabilities(ROWS)
    assert ((p > 0.5) == (MODEL.predict(ROWS) == 1)).all()


@pytest.mark.parametrize("cut", [0, 5, 40, -1])
def test_a_damaged_file_is_refused(tmp_path, cut):
    path = tmp_path / "m.safetensors"
    MODEL.save(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ModelError, match="model of agnosticfair"):
        load_model(path)


def test_a_foreign_file_is_refused(tmp_path):
    save_file({"layer": np.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelError, match="model of agnosticfair"):
        load_model(tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        {"format": "agnosticfair-model-99"},
        {"encoding": {"numeric": [], "categorical": [], "scale": True}},
        {"positive": 3},
        {"method": []},
        {"rows": "many"},
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, change):
    path = tmp_path / "m.safetensors"
    MODEL.save(path)
    from safetensors import safe_open

    with safe_open(str(path), framework="numpy") as file:
        header = json.loads(file.metadata()["agnosticfair"])
    forged = {**header, "model": {**header["model"], **change}, **change}
    about = {"agnosticfair": json.dumps(forged), "sha256": "0" * 64}
    path.write_bytes(sealed(save({"w": MODEL.w}, about)))
    with pytest.raises(ModelError) as error:
        load_model(path)
    assert "checksum" not in str(error.value)


def test_any_changed_byte_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    content = MODEL.to_bytes()
    for place in range(0, len(content), 7):
        for bit in (0x01, 0x20, 0xFF):
            changed = bytes([*content[:place], content[place] ^ bit, *content[place + 1 :]])
            path.write_bytes(changed)
            with pytest.raises(ModelError):
                load_model(path)
    path.write_bytes(content)
    assert load_model(path).positive == "yes"


def test_a_file_without_a_checksum_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"w": MODEL.w}, path, {"agnosticfair": "{}"})
    with pytest.raises(ModelError, match="its checksum differs"):
        load_model(path)


def test_a_missing_file_and_an_unwritable_place_are_sentences(tmp_path):
    with pytest.raises(ModelError, match="model file"):
        load_model(tmp_path / "none")
    with pytest.raises(ModelError, match="cannot write"):
        MODEL.save(tmp_path / "no" / "such" / "folder")


@pytest.mark.parametrize(
    ("labels", "joined"), [(("hired", "not hired"), False), (("hired", "kept", "left"), True)]
)
def test_only_more_than_two_labels_are_joined(labels, joined):
    table = small_table(300)
    codes = np.arange(300) % len(labels)
    rows = replace(table, target=Column(codes.astype(np.int32), labels))
    made = fit({"a": rows}, "fl", positive="hired").model
    assert made.joined is joined
    if not joined:
        with pytest.raises(DataError, match="unknown to"):
            check_labels(made, ["hired", "maybe"])
