"""Rows that are not independent are noticed, and certified by cluster."""

import json

import numpy as np
import pytest
from helpers import ROLES, client_rows, held, small_table, write

from agnosticfair import audit, load_dataset
from agnosticfair.auditing import proof
from agnosticfair.auditing.proof import verify
from agnosticfair.auditing.repeats import one_of_each, repeated
from agnosticfair.data.rows import row_hashes


@pytest.mark.parametrize("times", [2, 3, 8])
def test_people_on_several_lines_each_are_noticed(times):
    assert repeated(np.repeat(np.arange(1250), times)) == 1250 * (times - 1)


def test_a_few_people_on_two_lines_are_noticed():
    assert repeated(np.r_[np.arange(9500), np.arange(700)]) == 700


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_are_equal_by_chance_are_not(seed):
    rng = np.random.default_rng(seed)
    values = 10 ** rng.integers(1, 5)
    weights = rng.dirichlet(np.full(values, rng.choice([0.05, 0.5, 5.0])))
    assert repeated(rng.choice(values, rng.integers(500, 6000), p=weights)) == 0


def test_real_rows_and_coarse_ones_are_not_blamed():
    assert repeated(row_hashes(small_table(3000))) == 0
    adult = load_dataset("adult").take(np.arange(20_000))
    assert repeated(row_hashes(adult)) == 0


def test_a_certificate_says_that_rows_repeat_and_verifies():
    table, decided = held(600)
    eight = np.repeat(np.arange(600), 8)
    certificate = audit(decided[eight], table.take(eight), sensitive_features="sex", precision=0.2)
    assert "4,800 rows repeat" in str(certificate)
    assert verify(proof.sealed(json.loads(json.dumps(certificate.to_json())))) == ()
    once = audit(decided, table, sensitive_features="sex", precision=0.2)
    assert "repeat" not in str(once)


@pytest.mark.slow
def test_by_cluster_the_bounds_hold_where_rows_repeat():
    """1,250 people on 8 equal lines each: by rows nearly every audit is wrong, by cluster few are."""
    rates, missed = np.array([0.3, 0.45]), {"rows": 0, "clusters": 0}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sex = rng.integers(0, 2, 1250)
        job = rng.integers(0, 3, 1250)
        decided = rng.random(1250) < rates[sex]
        lines = np.repeat(np.arange(1250), 8)
        some = lines[one_of_each(lines, len(lines), seed)]
        for name, rows in (("rows", lines), ("clusters", some)):
            X = np.column_stack([job[rows], rows % 97])
            certificate = audit(decided[rows], X, sensitive_features=sex[rows], precision=0.3)
            able = [subgroup for subgroup in certificate.subgroups if subgroup.estimable]
            missed[name] += any(not subgroup.low <= 0.15 <= subgroup.high for subgroup in able)
    assert missed["rows"] >= 10
    assert missed["clusters"] <= 2


def test_the_command_audits_one_row_of_each_cluster(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{**row, "who": str(k)} for k, row in enumerate(client_rows(3, 200)) for _ in range(3)]
    write(tmp_path / "rows.csv", [{**row, "guess": row["income"]} for row in rows])
    send = ("audit", "rows.csv", *ROLES, "--predictions", "guess", "--precision", 0.9)
    code, out, _ = call(*send, "--cluster", "who")
    assert code == 0
    assert "200 clusters among" in " ".join(out.split())
    assert json.loads((tmp_path / "audit/certificate.json").read_text())["n"] == 200
    assert call("verify", "audit/certificate.json", "--rows", "rows.csv")[0] == 0
    code, out, _ = call(*send, "--drop", "who")
    assert "rows repeat another one" in " ".join(out.split())
    write(tmp_path / "fit.csv", client_rows(4))
    assert call("fit", "fit.csv", *ROLES, "--method", "fl")[0] == 0
    code, out, _ = call(
        *send[:-4], "--model", "model.safetensors", "--precision", 0.9, "--cluster", "who"
    )
    assert code == 0  # the model needs no --drop for a column that it does not read
    assert "200 clusters among" in " ".join(out.split())
