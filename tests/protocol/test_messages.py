"""The wire form: what is packed comes back bit for bit, and nothing else gets in."""

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.numpy import save

from agnosticfair.data.census import Census
from agnosticfair.errors import FederationError
from agnosticfair.protocol.messages import (
    FORMAT,
    Broadcast,
    Candidates,
    Reply,
    Task,
    check_candidates,
    pack,
    unpack,
)

NUMBERS = arrays(
    np.float64,
    array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    elements=st.floats(allow_nan=False, allow_infinity=False),
)
NAMED = st.dictionaries(st.text("abc_", min_size=1, max_size=4), NUMBERS, max_size=4)
SETTINGS = st.dictionaries(
    st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False) | st.text() | st.none()
)


def same(one, two):
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].shape == two[name].shape
        assert one[name].tobytes() == two[name].tobytes()


@given(NAMED, st.integers(0, 10**6))
def test_a_reply_comes_back(sums, round):
    back = unpack(pack(Reply(round, sums)))
    assert back.round == round
    same(back.sums, sums)


@given(NAMED, NAMED, SETTINGS, SETTINGS)
def test_a_broadcast_comes_back(of_task, of_round, settings, task_settings):
    sent = Broadcast(7, Task.of(task_settings, of_task), settings, of_round)
    back = unpack(pack(sent))
    assert (back.round, back.settings, back.task.id) == (7, settings, sent.task.id)
    assert back.task.settings == task_settings
    same(back.arrays, of_round)
    same(back.task.arrays, of_task)


@given(st.integers(0, 5), st.integers(1, 3))
def test_candidates_come_back(size, width):
    sent = Candidates(np.arange(size) / 7, np.ones((size, width)) / 3)
    same(vars(unpack(pack(sent))), vars(sent))


def test_a_census_comes_back():
    sent = Census(
        3, {"no": 1, "ja": 2}, {"sex": {"F": 3}}, {"age": (0.1, 90.0)}, {"job": ("b", "å")}
    )
    assert unpack(pack(sent)) == sent


def test_the_layout_of_an_array_does_not_reach_the_wire():
    wide = np.arange(12.0).reshape(3, 4)
    assert pack(Reply(1, {"a": wide[:, 1:]})) == pack(Reply(1, {"a": wide[:, 1:].copy()}))
    assert pack(Reply(1, {"a": wide.T})) == pack(Reply(1, {"a": wide.T.copy(order="C")}))


@given(st.binary(max_size=200))
def test_noise_is_refused(content):
    with pytest.raises(FederationError, match="the message of client 'x' is damaged"):
        unpack(content, "client 'x'")


GOOD = pack(Broadcast(1, Task.of({"k": 1}, {"c": np.ones(3)}), {"s": 2}, {"w": np.ones(2)}))


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_gives_a_whole_message(place, byte):
    with contextlib.suppress(FederationError):
        assert isinstance(unpack(GOOD[:place] + bytes([byte]) + GOOD[place + 1 :]), Broadcast)


def forged(header, tensors=None):
    return save(tensors or {}, {"agnosticfair": json.dumps(header)})


TASK = {"id": "x", "settings": {}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (forged({"format": "other", "kind": "reply", "round": 1}), "its format is not"),
        (forged({"format": FORMAT, "kind": "shell", "round": 1}), "it has no kind"),
        (forged({"format": FORMAT, "kind": "reply", "round": "1"}), "not the entries of its kind"),
        (forged([1, 2]), "its format is not"),
        (forged({"format": FORMAT, "kind": "census", "census": {"n": -1}}), "census"),
        (
            forged({"format": FORMAT, "kind": "reply", "round": 1}, {"a": np.zeros(2, np.float32)}),
            "a is float32, not float64",
        ),
        (
            forged(
                {"format": FORMAT, "kind": "broadcast", "round": 1, "settings": {}, "task": TASK}
            ),
            "its task is not what its id says",
        ),
        (save({}, {"agnosticfair": "[" * 100_000}), "damaged"),
        (save({}), "damaged"),
    ],
)
def test_a_forged_message_is_refused_by_what_is_wrong(content, said):
    with pytest.raises(FederationError, match=said):
        unpack(content)


def test_a_broadcast_that_is_not_finite_is_refused():
    sent = Broadcast(1, Task.of({}, {}), {}, {"w": np.array([np.nan])})
    with pytest.raises(FederationError, match=r"round\.w is not finite"):
        unpack(pack(sent))


def test_what_is_no_message_is_not_packed():
    with pytest.raises(FederationError, match="dict is no message"):
        pack({"a": 1})


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        (Reply(1, {}), "answered with Reply"),
        (Candidates(np.zeros(2), np.zeros((2, 3))), r"shape \(2, 3\); asked was \(2, 4\)"),
        (Candidates(np.zeros(2), np.full((2, 4), np.inf)), "not finite"),
    ],
)
def test_bad_candidates_are_refused_by_name(offered, said):
    with pytest.raises(FederationError, match=f"client 'x' .*{said}"):
        check_candidates(offered, "x", 4)
