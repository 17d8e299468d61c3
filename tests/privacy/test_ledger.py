"""The ledger: paid before it is computed, once for a request, by the rows and not by a name, a whole fit at a time."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from private_requests import ROWS, send, site, task_of

from agnosticfair.data.table import concatenate
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.privacy.ledger import Ledger, ledger_folder, ledger_of, multiplier, spent
from agnosticfair.privacy.requests import PrivatePlan
from agnosticfair.protocol.messages import Broadcast, unpack

ENDS = """
import os, pickle, signal, sys
sys.path[:0] = sys.argv[4:]
from pathlib import Path
from agnosticfair.privacy.ledger import Ledger
from private_requests import send, site, task_of

name, path = sys.argv[1], Path(sys.argv[2])
true = getattr(Ledger, name)

def killed(*given, **more):
    if sys.argv[3] == "after":
        true(*given, **more)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(Ledger, name, killed)
request = send("private_counts", task_of(), z=5.0)
site(Ledger(3.0, 1e-5, path=path), rows="of monday")("private_counts", request)
"""
"""A site that is killed right before or after a step of its answer."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "when", "paid", "kept"),
    [
        ("spend", "before", 0, 0),
        ("spend", "after", 1, 0),
        ("_store", "before", 1, 0),
        ("_store", "after", 1, 1),
    ],
)
def test_a_site_that_is_killed_gives_the_same_noisy_answer_and_pays_once(
    step, when, paid, kept, tmp_path
):
    path = tmp_path / "north.ledger.json"
    here = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ENDS, step, str(path), when, here]
    assert subprocess.run(command, env=env, check=False).returncode == -signal.SIGKILL
    request = send("private_counts", task_of(), z=5.0)
    anew = Ledger(3.0, 1e-5, path=path)
    assert len(anew.multipliers) == paid
    answers = [file.read_bytes() for file in tmp_path.glob("north.ledger.answers/*")]
    assert len(answers) == kept
    first = site(anew, rows="of monday")("private_counts", request).sums["groups"]
    if kept:
        np.testing.assert_array_equal(first, unpack(answers[0]).sums["groups"])
    later = Ledger(3.0, 1e-5, path=path)
    again = site(later, rows="of monday")("private_counts", request).sums["groups"]
    np.testing.assert_array_equal(first, again)
    assert later.multipliers == [5.0]
    for private in (path, *tmp_path.glob("north.ledger.answers/*")):
        assert private.stat().st_mode & 0o077 == 0


def test_other_rows_or_a_lost_answer_are_paid_for_again(tmp_path):
    path = tmp_path / "north.ledger.json"
    request = send("private_counts", task_of(), z=5.0)
    first = site(Ledger(3.0, 1e-5, path=path), rows="of monday")("private_counts", request)
    site(Ledger(3.0, 1e-5, path=path), rows="of tuesday")("private_counts", request)
    assert len(Ledger(3.0, 1e-5, path=path).multipliers) == 2
    for file in tmp_path.glob("north.ledger.answers/*"):
        file.unlink()
    again = site(Ledger(3.0, 1e-5, path=path), rows="of monday")("private_counts", request)
    assert not np.array_equal(first.sums["groups"], again.sums["groups"])
    assert len(Ledger(3.0, 1e-5, path=path).multipliers) == 3


def test_what_another_process_spends_meanwhile_counts(tmp_path):
    path = tmp_path / "north.ledger.json"
    one, other = (Ledger(1.0, 1e-5, path=path) for _ in range(2))
    one.spend("one", multiplier(1.0, 1e-5), "site 'north'")
    with pytest.raises(FederationError, match="is spent"):
        other.spend("other", 50.0, "site 'north'")


def test_a_budget_ends_and_stays_ended(tmp_path):
    path = tmp_path / "north.ledger.json"
    ledger = Ledger(1.0, 1e-5, path=path)
    z = multiplier(1.0, 1e-5)
    ledger.spend("one", z, "site 'north'")
    assert path.stat().st_mode & 0o077 == 0
    for book in (ledger, Ledger(1.0, 1e-5, path=path)):
        with pytest.raises(FederationError, match=r"'north'.*spent"):
            book.spend("other", 50.0, "site 'north'")
    assert Ledger(1.0, 1e-5, path=path).spent == pytest.approx(1.0)
    with pytest.raises(SettingsError, match=r"kept.*delta 1e-05"):
        Ledger(1.0, 1e-6, path=path)
    path.write_text("{}")
    with pytest.raises(FederationError, match="nothing is answered"):
        Ledger(1.0, 1e-5, path=path)


WHO = "site 'north'"


def plan(*multipliers: float, fit: str = "one", ends: bool = False) -> Broadcast:
    return Broadcast(int(ends), task_of(), PrivatePlan(fit, ends, np.array(multipliers)))


def test_a_fit_without_room_is_refused_before_its_first_request():
    """It was refused at its last step, with 28 of 30 gone."""
    private, z = site(Ledger(3.0, 1e-5)), multiplier(3.0, 1e-5)
    with pytest.raises(FederationError, match="fit would make"):
        private("private_plan", plan(z, z))
    assert private.ledger.spent == 0
    private("private_plan", plan(2 * z, 2 * z))
    assert private.ledger.spent == 0 < private.ledger.reserved < 3.0


def test_what_is_reserved_is_nobody_elses_until_the_fit_ends():
    """A fit that fails has spent what it ran; the rest waits for it, and is free again once it ends properly."""
    ledger, z = Ledger(3.0, 1e-5), np.sqrt(2) * multiplier(3.0, 1e-5)
    private = site(ledger)
    for _ in range(2):  # asked again, it is reserved once
        private("private_plan", plan(z, z))
    private("private_counts", send("private_counts", task_of(), z=z))
    assert ledger.spent == pytest.approx(spent([z], 1e-5))  # it fails here
    with pytest.raises(FederationError, match="ended reserved"):
        private("private_plan", plan(z, fit="another"))
    with pytest.raises(FederationError, match="is spent"):
        private("private_counts", send("private_counts", task_of(), z=50.0))
    private("private_plan", plan(z, z))  # the same fit goes on
    private("private_moments", send("private_moments", task_of(), z=z))
    assert ledger.spent == ledger.reserved == pytest.approx(3.0, rel=1e-6)
    other = Ledger(3.0, 1e-5)
    private = site(other)
    private("private_plan", plan(z, z))
    private("private_plan", plan(ends=True))
    assert other.reserved == 0


def test_an_answer_is_paid_for_before_it_is_computed():
    """Whatever the computation does with the rows, it was paid for; and only once."""
    private = site()
    private.answer = lambda step, request: 1 / 0
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            private("private_counts", send("private_counts", task_of(), z=5.0))
    assert private.ledger.multipliers == [5.0]


def test_a_budget_belongs_to_rows_and_not_to_a_name(tmp_path):
    """Another order, another column called sensitive, one row more: the budget is the one that was spent."""
    z = multiplier(1.0, 1e-5)
    ledger_of(ROWS, 1.0, 1e-5).spend("one", z, WHO)
    order = np.random.default_rng(0).permutation(len(ROWS))
    other = replace(
        ROWS,
        categorical=ROWS.sensitive_features,
        sensitive_features=ROWS.categorical,
    )
    older = replace(ROWS, numeric={**ROWS.numeric, "age": ROWS.numeric["age"] + 1})
    for rows in (ROWS, ROWS.take(order), other):
        assert ledger_of(rows, 1.0, 1e-5).multipliers == [z]
    for rows in (
        ROWS.take(np.arange(len(ROWS) - 1)),
        concatenate([ROWS, older.take(np.arange(50))]),
        ROWS.take(order[:30]),
    ):
        ledger = ledger_of(rows, 1.0, 1e-5)
        assert ledger.multipliers == []
        with pytest.raises(FederationError, match="is spent"):
            ledger.spend("two", 50.0, WHO)
    ledger_of(older, 1.0, 1e-5).spend("two", z, WHO)  # other people: another budget
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot keep"):
        ledger_of(ROWS, 1.0, 1e-5, folder=tmp_path / "file")


def test_what_was_spent_later_on_mostly_the_same_rows_counts_too():
    first = ledger_of(ROWS, 1.0, 1e-5)
    later = ledger_of(ROWS.take(np.arange(len(ROWS) - 1)), 1.0, 1e-5)
    later.spend("one", multiplier(1.0, 1e-5), WHO)
    with pytest.raises(FederationError, match="is spent"):
        first.spend("two", 50.0, WHO)


def test_a_ledgers_name_and_marks_are_made_with_a_secret_key(tmp_path):
    """Who sees the names of ledgers cannot tell whose rows they are of."""
    ledgers = [ledger_of(ROWS, 1.0, 1e-5, folder=tmp_path / name) for name in "ab"]
    assert ledgers[0].path.name != ledgers[1].path.name
    for ledger in (*ledgers, ledger_of(ROWS, 1.0, 1e-5)):
        for path in ledger.path.parent.iterdir():
            assert path.stat().st_mode & 0o077 == 0 or path.name.endswith(".lock")
    key = ledger_folder() / "rows.key"
    key.write_bytes(b"short")
    with pytest.raises(SettingsError, match="is damaged"):
        ledger_of(ROWS, 1.0, 1e-5)
