"""States under masks: the bits of plain addition, one answer a session, and refusals."""

from pathlib import Path

import numpy as np
import pytest
from helpers import small_table

from agnosticfair.errors import DataError, FederationError, ModelError
from agnosticfair.federation import fit
from agnosticfair.monitoring.baseline import baseline_of
from agnosticfair.monitoring.masked import share, together
from agnosticfair.monitoring.monitor import Monitor
from agnosticfair.protocol.messages import unpack
from agnosticfair.protocol.secure.keys import new_identity

MODEL = fit({"a": small_table(400, seed=2)}, "fl", positive="yes").model
BASELINE = baseline_of(MODEL, small_table(800, seed=3), limit=0.5, least=0.1)
SITES = [new_identity(name) for name in ("east", "north", "south")]
ROSTER = {one.site: one.public for one in SITES}


def state_of(seed):
    monitor = Monitor(MODEL, BASELINE)
    monitor.update(small_table(200 + seed, seed=seed))
    return monitor.state


@pytest.fixture
def meeting(tmp_path):
    """A folder where sites meet, their own folders, and their states."""
    (tmp_path / "meeting").mkdir()
    for one in SITES:
        (tmp_path / one.site).mkdir()
    states = {one.site: state_of(10 + k) for k, one in enumerate(SITES)}

    def step(identity, **changed):
        own = {"state": states[identity.site], "baseline": BASELINE, "roster": ROSTER, **changed}
        return share(
            tmp_path / "meeting",
            own["state"],
            own["baseline"],
            identity,
            own["roster"],
            tmp_path / identity.site,
        )

    return tmp_path / "meeting", step, states


def everybody(step):
    for one in SITES:
        step(one)
    return [step(one) for one in SITES]


def test_masked_states_add_up_to_the_bits_of_plain_addition(meeting):
    folder, step, states = meeting
    assert step(SITES[0]) == ("north", "south")
    assert everybody(step) == [(), (), ()]
    found, plain = together(folder, BASELINE, ROSTER), sum_of(states)
    np.testing.assert_array_equal(found.counts, plain.counts)
    np.testing.assert_array_equal(found.values, plain.values)
    assert (found.rows, found.undecided, found.baseline) == (plain.rows, 0, plain.baseline)
    monitors = [Monitor(MODEL, BASELINE) for _ in range(2)]
    for monitor, state in zip(monitors, (found, plain), strict=True):
        monitor.state = state
    assert monitors[0].verdict().parts == monitors[1].verdict().parts


def sum_of(states):
    first, *rest = states.values()
    for state in rest:
        first = first + state
    return first


def test_one_sites_counts_do_not_show(meeting):
    folder, step, _states = meeting
    everybody(step)
    sent = unpack((folder / "north.masked").read_bytes()).values
    assert sent.min() > 2**30  # counts would be small; under a mask none is
    assert len(np.unique(sent >> np.uint64(56))) > 100  # and high bytes of all sizes occur
    assert {path.suffix for path in folder.iterdir()} == {"", ".key", ".masked"}


def test_a_session_is_answered_once_however_the_state_goes_on(meeting):
    folder, step, _states = meeting
    everybody(step)
    before = (folder / "north.masked").read_bytes()
    (folder / "north.masked").unlink()
    assert step(SITES[1], state=state_of(40)) == ()
    assert (folder / "north.masked").read_bytes() == before


def test_what_does_not_belong_is_refused(meeting):
    folder, step, _states = meeting
    with pytest.raises(DataError, match="no site has shared"):
        together(folder, BASELINE, ROSTER)
    with pytest.raises(DataError, match="make it first"):
        together(folder / "absent", BASELINE, ROSTER)
    other = baseline_of(MODEL, small_table(800, seed=4), limit=0.5, least=0.1)
    with pytest.raises(ModelError, match="another baseline"):
        step(SITES[0], baseline=other)
    stranger = new_identity("north")
    with pytest.raises(FederationError, match="north"):
        step(stranger)
    for one in SITES[:2]:
        step(one)
    with pytest.raises(DataError, match="has not shared"):
        together(folder, BASELINE, ROSTER)
    everybody(step)
    content = bytearray((folder / "south.masked").read_bytes())
    content[-1] ^= 1
    (folder / "south.masked").write_bytes(content)
    with pytest.raises(FederationError, match="'south'"):
        together(folder, BASELINE, ROSTER)
    Path(folder / "session").write_text("no")
    with pytest.raises(DataError, match="no session"):
        together(folder, BASELINE, ROSTER)
