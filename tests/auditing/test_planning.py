"""The rows that a plan asks for are those at which an audit is estimable."""

from pathlib import Path

import numpy as np
from helpers import ROLES

from agnosticfair import audit
from agnosticfair.auditing.subgroups import rows_needed


def test_with_the_rows_of_the_plan_the_interval_is_as_narrow_as_planned_and_with_fewer_not():
    need = rows_needed(0.5, 0.5, 0.1)
    for n, able in ((need + 2, True), (int(0.6 * need), False)):
        n += n % 2
        group = np.arange(n) % 2
        decided = np.random.default_rng(0).random(n) < 0.4
        overall = audit(decided, np.zeros((n, 1)), sensitive_features=group).subgroups[0]
        assert overall.estimable  # always: the interval says how little is known
        assert (overall.high - overall.difference <= 0.1) == able


def test_smaller_groups_more_subgroups_and_more_precision_need_more_rows():
    assert rows_needed(0.1, 0.9, 0.1) > rows_needed(0.5, 0.5, 0.1)
    assert rows_needed(0.5, 0.5, 0.05) > 3.9 * rows_needed(0.5, 0.5, 0.1)
    assert rows_needed(0.1, 0.1, 0.1, subgroups=100) > rows_needed(0.1, 0.1, 0.1, subgroups=10)


def test_the_command_says_how_many_rows_an_audit_needs(call, files):
    assert Path(files[0]).exists()
    code, out, err = call("plan-audit", files[0], *ROLES)
    assert (code, err) == (0, "")
    assert "95% confidence" in out
    assert "every value of job" in out


def test_a_value_that_one_group_alone_has_is_named_and_said_why(call, files):
    lines = Path(files[0]).read_text().splitlines()
    head = lines[0].split(",")
    sex = head.index("sex")
    with_role = [f"{line},{'x' if line.split(',')[sex] == 'F' else 'y'}" for line in lines[1:]]
    Path("alone.csv").write_text("\n".join([f"{lines[0]},role", *with_role]))
    code, out, _ = call("plan-audit", "alone.csv", *ROLES)
    assert code == 0
    assert "Left out, as only one group has rows there" in " ".join(out.split())
    assert "'role = x', 'role = y'" in " ".join(out.split())
