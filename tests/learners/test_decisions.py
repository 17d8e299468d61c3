"""How a rule decides, and its model file: what is read is checked, and runs no code."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table
from safetensors import safe_open
from safetensors.numpy import save

from agnosticfair.data.axes import bin_axis, codes_of
from agnosticfair.data.encoding import encode
from agnosticfair.errors import DataError, ModelError
from agnosticfair.federation import fit
from agnosticfair.learners.decisions import Decision, Kernels, of_probabilities, scores
from agnosticfair.learners.estimates import Estimates, heads, joint, predict
from agnosticfair.mathematics.basis import by_client, design, gaussian
from agnosticfair.mathematics.subgroups import Axis, SubgroupSet, members
from agnosticfair.methods import Method, Rule
from agnosticfair.model import load_model, sealed

ROWS = small_table(300, 4)
PLAIN = fit(dealt(ROWS, 2), Method("plain", rule=Rule("linear")), positive="yes").model
HEADS = heads([("sex", ("g0", "g1"))])
AXES = (Axis("job", ("a", "b", "c")), bin_axis("age", (0.0,)), Axis("site", ("north", "south")))
SUBGROUPS = [((0, 1),), ((0, 2), (1, 0)), ((0, 0), (1, 1), (2, 0))]


def named():
    none = ((-1, -1),)
    rows = np.array([subgroup + none * (3 - len(subgroup)) for subgroup in SUBGROUPS], float)
    return SubgroupSet(tuple((a.name, a.values, a.edges) for a in AXES), rows)


def ruled(seed=0):
    """A model with a rule over three subgroups."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(1, 2, PLAIN.encoding.width + 1))
    estimates = Estimates("linear", HEADS, 0, 0, {"w": w})
    decision = Decision((1.0, 2.0), rng.normal(size=(4, 2)), 0.1, named())
    return replace(PLAIN, estimates=estimates, rule=decision)


def test_the_score_is_the_formula():
    model = ruled()
    P = predict(model.estimates, model.encoding, 0, ROWS)
    pi, A = joint(HEADS, P), model.rule.coefficients
    rows = replace(ROWS, other={})
    for client, site in (("north", 0), ("", -1)):
        codes = np.column_stack([codes_of(rows, AXES[:2]), np.full(len(rows), site)])
        b = np.array(
            [*(members(codes, subgroup) for subgroup in SUBGROUPS), np.ones(len(rows))], float
        )
        true = 2 * P[0] - (1 - P[0]) - 0.1 - np.einsum("sn,kn,ks->n", pi, b, A)
        measures = scores(model.rule, model.estimates, model.encoding, rows, client=client)
        np.testing.assert_allclose(measures, true, atol=1e-6)
        np.testing.assert_array_equal(
            measures, of_probabilities(model.rule, model.estimates, P, codes)
        )


KERNELS = {
    "gaussian": Kernels(gaussian(4, 0.7), (), np.random.default_rng(3).random((4, 5))),
    "clients": Kernels(by_client(), ("north", "south")),
    "both": Kernels(
        replace(gaussian(2, 0.7), split=True),
        ("north", "south"),
        np.random.default_rng(3).random((2, 5)),
    ),
}


def of_kernels(name, seed=0):
    own, model = KERNELS[name], ruled(seed)
    A = np.random.default_rng(seed).normal(size=(own.size + 1, 2))
    return replace(model, rule=Decision((1.0, 2.0), A, 0.1, None, own))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("client", ["south", ""])
def test_kernels_and_clients_decide_by_the_formula(name, client):
    model, own = of_kernels(name), KERNELS[name]
    P = predict(model.estimates, model.encoding, 0, ROWS)
    b = np.zeros((len(ROWS), own.size))
    if client or name == "gaussian":
        X = encode(model.encoding, ROWS)
        b = design(own.basis, X, own.centres, client, own.clients)
    b, A = np.column_stack([b, np.ones(len(ROWS))]), model.rule.coefficients
    true = 2 * P[0] - (1 - P[0]) - 0.1 - np.einsum("sn,nk,ks->n", joint(HEADS, P), b, A)
    measures = scores(model.rule, model.estimates, model.encoding, ROWS, client=client)
    np.testing.assert_allclose(measures, true, atol=1e-3)
    some = np.random.default_rng(1).permutation(len(ROWS))[:50]
    one = scores(model.rule, model.estimates, model.encoding, ROWS.take(some), client=client)
    np.testing.assert_array_equal(one, measures[some])
    np.testing.assert_allclose(model.explain(ROWS).score, model.decision(ROWS), atol=1e-9)


def test_the_worst_subgroup_counts_in_the_score_and_the_file(tmp_path):
    W, plain = np.array([0.5, 1.0, 0.0, 0.25]), ruled()
    model = replace(plain, rule=replace(plain.rule, weights=W))
    P = predict(model.estimates, model.encoding, 0, ROWS)
    c = 2 * P[0] - (1 - P[0])
    codes = np.column_stack([codes_of(ROWS, AXES[:2]), np.full(len(ROWS), -1)])
    w = (
        np.array(
            [*(members(codes, subgroup) for subgroup in SUBGROUPS), np.ones(len(ROWS))], float
        ).T
        @ W
    )
    np.testing.assert_allclose(model.decision(ROWS) - plain.decision(ROWS), c * (w - 1), atol=1e-5)
    np.testing.assert_allclose(model.explain(ROWS).score, model.decision(ROWS), atol=1e-9)
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    np.testing.assert_array_equal(again.decision(ROWS), model.decision(ROWS))
    assert again.digest == model.digest != plain.digest


@pytest.mark.parametrize("name", KERNELS)
def test_a_file_with_kernels_decides_alike(tmp_path, name):
    model, path = of_kernels(name), tmp_path / "m.safetensors"
    model.save(path)
    again = load_model(path)
    np.testing.assert_array_equal(again.decision(ROWS), model.decision(ROWS))
    assert again.digest == model.digest
    assert again.rule.kernels.clients == model.rule.kernels.clients


HOSTILE_KERNELS = {
    "kind": lambda told, arrays: told["rule"]["kernels"]["basis"].update(kind="function"),
    "sigma": lambda told, arrays: told["rule"]["kernels"]["basis"].update(sigma="median"),
    "clients": lambda told, arrays: told["rule"]["kernels"].update(clients=[1]),
    "no centres": lambda told, arrays: arrays.pop("rule.kernels.centres"),
    "nan": lambda told, arrays: arrays["rule.kernels.centres"].__setitem__((0, 0), np.nan),
    "shape": lambda told, arrays: arrays.update({"rule.kernels.centres": np.zeros((4, 2))}),
    "no basis": lambda told, arrays: told["rule"]["kernels"].pop("basis"),
    "no kernels": lambda told, arrays: told["rule"].pop("kernels"),
}


@pytest.mark.parametrize("change", HOSTILE_KERNELS)
def test_kernels_that_lie_are_refused(tmp_path, change):
    path = tmp_path / "m.safetensors"
    of_kernels("gaussian").save(path)
    refused(path, HOSTILE_KERNELS[change])


def test_an_explanation_adds_up_to_the_score():
    model = ruled()
    rows = replace(ROWS, other={})
    messages = model.explain(rows)
    np.testing.assert_allclose(messages.score, model.decision(rows), atol=1e-12)
    assert messages.names == (
        "job = b",
        "job = c and age = under 0",
        "job = a and age = 0 or more and site = north",
    )
    assert messages.subgroups.shape == (len(rows), 3)
    assert not messages.subgroups[:, 2].any(), "nobody's site is known"
    i = int(np.flatnonzero(rows.categorical["job"].values() == "b")[0])
    assert messages.of_row(i) == {"job = b": messages.subgroups[i, 0]}
    assert replace(model, rule=replace(model.rule, subgroups=None)).further_columns == ()
    with pytest.raises(ModelError, match=r"'fl'.*explain"):
        replace(model, rule=None, method={"name": "fl"}).explain(rows)


def test_the_columns_that_a_rule_reads_beside_the_features():
    model = ruled()
    assert model.further_columns == ()
    town = (("town", ("a", "b"), ()), *model.rule.subgroups.axes[1:])
    other = replace(model.rule, subgroups=replace(model.rule.subgroups, axes=town))
    aware = replace(model.estimates, aware=True)
    assert replace(model, rule=other, estimates=aware).further_columns == ("sex", "town")


def test_a_row_s_score_hangs_on_the_row_alone():
    model, some = ruled(), np.random.default_rng(1).permutation(len(ROWS))[:50]
    np.testing.assert_array_equal(model.decision(ROWS.take(some)), model.decision(ROWS)[some])


def test_save_and_load_give_the_same_decisions(tmp_path):
    model, path = ruled(), tmp_path / "m.safetensors"
    model.save(path)
    again = load_model(path)
    np.testing.assert_array_equal(again.decision(ROWS), model.decision(ROWS))
    np.testing.assert_array_equal(again.probabilities(ROWS), model.probabilities(ROWS))
    assert again.digest == model.digest != ruled(1).digest
    assert again.estimates.heads == HEADS


def test_any_changed_byte_is_refused(tmp_path):
    path, content = tmp_path / "m.safetensors", ruled().to_bytes()
    for place in range(0, len(content), 41):
        path.write_bytes(bytes([*content[:place], content[place] ^ 0x01, *content[place + 1 :]]))
        with pytest.raises(ModelError):
            load_model(path)


HOSTILE = {
    "kind": lambda told, arrays: told["estimates"].update(kind="os.system"),
    "heads": lambda told, arrays: told["estimates"].update(heads=[]),
    "head label": lambda told, arrays: told["estimates"]["heads"][0].update(label=7),
    "head group": lambda told, arrays: told["estimates"]["heads"][1].update(group=[1]),
    "columns": lambda told, arrays: told["estimates"].update(columns=["a"]),
    "aware": lambda told, arrays: told["estimates"].update(aware="yes"),
    "error_costs": lambda told, arrays: told["rule"].update(error_costs=[1.0]),
    "shift": lambda told, arrays: told["rule"].update(shift=float("inf")),
    "axes": lambda told, arrays: told["rule"]["subgroups"].update(axes=[["job", ["a"]]]),
    "no axes": lambda told, arrays: told["rule"]["subgroups"].update(axes=None),
    "subgroup": lambda told, arrays: arrays["rule.subgroups.values"].__setitem__((0, 0, 1), 9.0),
    "half a value": lambda told, arrays: arrays["rule.subgroups.values"].__setitem__(
        (0, 0, 1), 0.5
    ),
    "w": lambda told, arrays: arrays.update({"estimates.arrays.w": np.zeros((1, 2, 3))}),
    "nan": lambda told, arrays: arrays["estimates.arrays.w"].__setitem__((0, 0, 0), np.nan),
    "coefficients": lambda told, arrays: arrays.update({"rule.coefficients": np.zeros((2, 2))}),
    "another array": lambda told, arrays: arrays.update(more=np.zeros(2)),
    "none": lambda told, arrays: arrays.pop("rule.coefficients"),
}


@pytest.mark.parametrize("change", HOSTILE)
def test_a_header_that_lies_is_refused(tmp_path, change):
    path = tmp_path / "m.safetensors"
    ruled().save(path)
    refused(path, HOSTILE[change])


def refused(path, change):
    with safe_open(str(path), framework="numpy") as file:
        header = json.loads(file.metadata()["agnosticfair"])
        arrays = {name: file.get_tensor(name).copy() for name in file.keys()}  # noqa: SIM118
    change(header["model"], arrays)
    about = {"agnosticfair": json.dumps(header), "sha256": "0" * 64}
    path.write_bytes(sealed(save(arrays, about)))
    with pytest.raises(ModelError) as error:
        load_model(path)
    assert "checksum" not in str(error.value)


def test_an_unseen_category_is_a_sentence():
    job = replace(ROWS.categorical["job"], categories=("a", "b", "new"))
    with pytest.raises(DataError, match=r"'new'.*unseen"):
        ruled().decision(replace(ROWS, categorical={"job": job}))


def test_encoded_rows_are_not_enough():
    with pytest.raises(ModelError, match="from a table"):
        ruled().scores(np.zeros((2, 3)))
