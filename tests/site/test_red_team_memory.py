"""What a site remembers, and for how long: a coordinator that waits for another process or another file, asks again, or
asks for so much that memory ends."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from town import ROWS, Town, refusal, written

from agnosticfair.client import client as room
from agnosticfair.client.client import MAX_CACHED, Client
from agnosticfair.client.steps import answer
from agnosticfair.data.rows import Fold
from agnosticfair.data.summary import summary_statistics
from agnosticfair.deploy import site as at_site
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.methods import method
from agnosticfair.protocol.engines.seam import Failure
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import UNCOUNTED, SubgroupCounts, SubgroupSet, Sums
from agnosticfair.server import plan as server


def axes(*known):
    return SubgroupSet(known, np.zeros((0, 3, 2)))


def another_process():
    """Flower's own SuperNode starts one for every message."""
    for function in (at_site._handler, at_site._client, at_site._rows):
        function.cache_clear()


def cut(town, edge):
    return town.task(subgroups=axes(("age", ("under", "over"), (edge,))))


def test_cuts_that_differ_by_one_person_are_known_to_the_next_process(tmp_path):
    """Each process knew the cuts that it had answered for itself."""
    town = Town(tmp_path / "town", schema=False)
    middle = float(np.median(town.tables["north"].numeric["age"]))
    tasks = [cut(town, edge) for edge in (middle, middle + 0.05)]
    session = town.coordinator.session.session
    first, second = (
        Broadcast(k, task, SubgroupCounts(), session) for k, task in enumerate(tasks, 1)
    )
    assert not isinstance(town.one("north", "subgroup_counts", first), Failure)
    another_process()
    assert town.one("north", "subgroup_counts", second) == Failure(refusal(), True)
    another_process()
    assert town.one("north", "subgroup_counts", second) == Failure(
        refusal(), True
    )  # refused for good
    (town.folder / "keys" / "north.bins").write_text("{}")
    another_process()
    found = town.one("north", "subgroup_counts", replace(first, round=9))
    assert "nothing is" in found.reason  # what is not known counts as answered


def test_a_request_that_is_asked_again_does_not_tell_which_rows_have_changed(tmp_path):
    """A site refused what it would answer otherwise now: of a subgroup, whether anybody in it came or went."""
    town = Town(tmp_path / "town")
    job = ("job", ("a", "b", "c"), ())
    subgroups = np.full((1, 3, 2), -1.0)
    requests = []
    for value in range(3):
        subgroups[0, 0] = 0, value
        task = town.task(subgroups=replace(axes(job), values=subgroups.copy()))
        requests.append(Broadcast(value + 1, task, SubgroupCounts()))
    session = town.coordinator.session.session
    requests = [replace(request, session=session) for request in requests]
    for request in requests:
        assert not isinstance(town.one("north", "subgroup_counts", request), Failure)
    rows = town.tables["north"]
    gone = int(np.argmax(rows.categorical["job"].codes == 0))
    written(tmp_path / "town" / "north.csv", rows.take(np.arange(len(rows)) != gone))
    said = [town.one("north", "subgroup_counts", request) for request in requests]
    assert all(isinstance(found, Failure) for found in said)
    assert len({found.reason for found in said}) == 1


def made(client, task, number):
    return number


def test_requests_do_not_fill_the_memory():
    """Whatever was made for a request stayed until the task was another one, and every fold for good."""
    client = Client("north", ROWS)
    for number in range(10 * MAX_CACHED):
        assert client.cached(UNCOUNTED, made, number) == number
        client.of(Fold(number % 7, 7, number))
    assert len(client.cache.values) == MAX_CACHED
    assert len(client.folds) == MAX_CACHED


def test_an_answer_does_not_hang_on_what_was_forgotten(monkeypatch):
    task = server.plan(
        method("fairfl"), summary_statistics(ROWS, "all"), ("north",), positive="yes"
    ).task
    request = Sums(Surrogate(), 0.5, np.ones(task.encoding.width + 1), np.ones(1), np.zeros((2, 2)))
    replies = []
    for size in (MAX_CACHED, 1):
        monkeypatch.setattr(room, "MAX_CACHED", size)
        replies.append(answer(Client("north", ROWS), "sums", Broadcast(1, task, request)).sums)
    for name, value in replies[0].items():
        np.testing.assert_array_equal(value, replies[1][name])
