"""The wire form: what is packed comes back bit for bit, and nothing else gets in."""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.numpy import save

from agnosticfair.data.encoding import Encoding
from agnosticfair.data.records import taken_apart
from agnosticfair.data.summary import SummaryStatistics
from agnosticfair.errors import FederationError
from agnosticfair.mathematics.basis import by_client, constant, gaussian
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.protocol import requests
from agnosticfair.protocol.messages import (
    FORMAT,
    Broadcast,
    Candidates,
    Reply,
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
FINITE = st.floats(allow_nan=False, allow_infinity=False)
ENCODING = Encoding((("age", 17.0, 90.0),), (("job", ("b", "å")),))
TASK = requests.Task(
    ENCODING, "ja", (("sex", ("F", "M")),), True, 7, ("a", "b"), by_client(), gaussian(3, 2.0)
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


@given(st.none() | NUMBERS, st.text(), NUMBERS, FINITE, st.none() | st.integers(1, 9))
def test_a_broadcast_comes_back(centres, positive, w, share, batch):
    network = requests.Architecture("mlp", (3, 4))
    task = replace(TASK, centres=centres, positive=positive, network=network)
    before = None if batch is None else requests.Trained(w, w, w, w)
    request = [
        requests.Moments(),
        requests.Sums(Surrogate("sigmoid", 0.5), share, w, w, w),
        requests.Average(batch, 1.0, 0.0, 0.05, 1e-5, 7.0, 0.5, w, w, w),
        requests.TrainNetwork(
            Surrogate(), share, 3, 0.1, 5, batch, 0.9, "cpu", w, w, w, w, w, before
        ),
    ]
    for broadcast in request:
        back = unpack(pack(Broadcast(7, task, broadcast)))
        assert (back.round, back.task.id, type(back.request)) == (7, task.id, type(broadcast))
        for one, two in ((task, back.task), (broadcast, back.request)):
            (plain, arrays), (other, others) = map(taken_apart, (one, two))
            assert other == plain
            same(others, arrays)


def test_the_task_s_id_is_a_digest_of_all_that_it_says():
    others = [replace(TASK, n=8), replace(TASK, centres=np.zeros((1, 3)))]
    others += [replace(TASK, centres=np.ones((1, 3))), replace(TASK, basis=constant())]
    assert len({task.id for task in (TASK, *others)}) == 5
    assert replace(TASK, n=7).id == TASK.id


@given(st.integers(0, 5), st.integers(1, 3))
def test_candidates_come_back(size, width):
    sent = Candidates(np.arange(size) / 7, np.ones((size, width)) / 3)
    same(vars(unpack(pack(sent))), vars(sent))


def test_a_statistics_comes_back():
    sent = SummaryStatistics(
        3, {"no": 1, "ja": 2}, {"sex": {"F": 3}}, {"age": (0.1, 90.0)}, {"job": ("b", "å")}
    )
    assert unpack(pack(sent)) == sent


def test_the_layout_of_an_array_does_not_reach_the_wire():
    wide = np.arange(12.0).reshape(3, 4)
    assert pack(Reply(1, {"a": wide[:, 1:]})) == pack(Reply(1, {"a": wide[:, 1:].copy()}))
    assert pack(Reply(1, {"a": wide.T})) == pack(Reply(1, {"a": wide.T.copy(order="C")}))


@given(st.binary(max_size=200))
def test_noise_is_refused(content):
    with pytest.raises(FederationError, match=r"'x'.*damaged"):
        unpack(content, "client 'x'")


SUMS = requests.Sums(Surrogate(), 0.5, np.ones(2), np.ones(3), np.ones((4, 4)))
GOOD = pack(Broadcast(1, replace(TASK, centres=np.ones((3, 3))), SUMS))


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_gives_a_whole_message(place, byte):
    with contextlib.suppress(FederationError):
        assert isinstance(unpack(GOOD[:place] + bytes([byte]) + GOOD[place + 1 :]), Broadcast)


def forged(header, tensors=None):
    return save(tensors or {}, {"agnosticfair": json.dumps(header)})


def request(**changes):
    """A request as it travels, with some entries of the header changed."""
    plain, _ = taken_apart(TASK)
    header = {"format": FORMAT, "kind": "broadcast", "round": 1, "id": TASK.id, "step": "centres"}
    header |= {"session": ""}
    header |= {"task": plain, "request": {"seed": 3, "share": 0.5}}
    return forged(header | {"task": plain | changes.pop("of_task", {})} | changes)


def test_a_request_made_by_hand_is_read():
    assert unpack(request()).request == requests.Centres(3, 0.5)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (forged({"format": "other", "kind": "reply", "round": 1}), "its format"),
        (forged({"format": FORMAT, "kind": "shell", "round": 1}), "no kind"),
        (forged({"format": FORMAT, "kind": "reply", "round": 1}), "the entries"),
        (forged({"format": FORMAT, "kind": "reply", "record": [1]}), "a record"),
        (
            forged({"format": FORMAT, "kind": "reply", "record": {"round": "1", "sums": []}}),
            "'round'.*should",
        ),
        (forged([1, 2]), "its format"),
        (forged({"format": FORMAT, "kind": "statistics", "statistics": {"n": -1}}), "statistics"),
        (
            forged({"format": FORMAT, "kind": "reply", "round": 1}, {"a": np.zeros(2, np.float32)}),
            "is float32",
        ),
        (request(id="x"), "id says"),
        (request(of_task={"n": 8}), "id says"),
        (request(of_task={"n": "7"}), "'n'.*should"),
        (request(of_task={"clients": "ab"}), "'clients'.*should"),
        (
            request(of_task={"sensitive_features": [["sex", "F"]]}),
            "'sensitive_features'.*should",
        ),
        (request(of_task={"code": "x"}), "Task.*'code'"),
        (request(of_task={"basis": {"kind": "exec", "kernels": 1}}), "'sigma' is missing"),
        (request(of_task={"encoding": {"numeric": []}}), "encoding is damaged"),
        (request(step="shell"), "'shell'.*known"),
        (request(request={"seed": True, "share": 0.5}), "'seed'.*should"),
        (request(request={"seed": 3}), "'share' is missing"),
        (request(request={"seed": 3, "share": 0.5, "path": "/"}), "Centres.*'path'"),
        (request(request=[3, 0.5]), "a record"),
        (request(step="sums"), "Sums.*'seed'"),
        (save({}, {"agnosticfair": "[" * 100_000}), "damaged"),
        (save({}), "damaged"),
    ],
)
def test_a_forged_message_is_refused_by_what_is_wrong(content, said):
    with pytest.raises(FederationError, match=said):
        unpack(content)


def test_a_broadcast_that_is_not_finite_is_refused():
    sent = Broadcast(1, TASK, replace(SUMS, w=np.array([np.nan])))
    with pytest.raises(FederationError, match=r"request\.w is"):
        unpack(pack(sent))


def test_what_is_no_message_is_not_packed():
    with pytest.raises(FederationError, match="dict is"):
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
