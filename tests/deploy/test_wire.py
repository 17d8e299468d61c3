"""What crosses the line of real sites: every request that they send, written down before TLS, and searched."""

import sys

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from deployed import SITES, Deployed, here, rows_by_site, site_rows, write_files
from scipy.stats import chisquare

from agnosticfair.federation import fit, in_process
from agnosticfair.methods import method
from agnosticfair.protocol.messages import Masked, Reply, bits, pack, unpack
from agnosticfair.protocol.secure.masks import integers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(adult):
    return rows_by_site(adult)


EAR = """
import sys
from pathlib import Path
from agnosticfair.deploy import node

inner = node.frame

def frame(head, body=b""):
    made = inner(head, body)
    with open(sys.argv[2], "ab") as file:
        file.write(made)
    return made

node.frame = frame
node.serve_site(Path(sys.argv[1]))
"""
"""A site as it is, with somebody who listens to what it sends."""


def listened(bank, name):
    """Let the site be started with an ear on its line; the file of what was heard."""
    (bank.folder / "ear.py").write_text(EAR)
    heard = bank.folder / f"{name}.wire"
    file = bank.folder / "sites" / f"{name}.toml"
    bank.commands[name] = [sys.executable, bank.folder / "ear.py", file, heard]
    return heard


def messages(heard):
    """The messages of ours in recorded bytes."""
    found, first = [], heard.find(b'{"__metadata__":{"agnosticfair":')
    while first >= 0:
        begin = first - 8
        size = int.from_bytes(heard[begin:first], "little")
        header = heard[first : first + size]
        arrays = header.count(b'"dtype"')
        ends = [
            int(subgroup.split(b"]")[0].split(b",")[1])
            for subgroup in header.split(b'"data_offsets":[')[1:]
        ]
        assert arrays == len(ends)
        found.append(unpack(heard[begin : first + size + max(ends, default=0)]))
        first = heard.find(b'{"__metadata__":{"agnosticfair":', first + size)
    return found


class Plain:
    """An engine that keeps every client's sums as they would be in the open."""

    def __init__(self, engine):
        self.engine, self.seen = engine, []

    def clients(self):
        return self.engine.clients()

    def exchange(self, step, payload, *more):
        answers = self.engine.exchange(step, payload, *more)
        self.seen += [(payload, answer) for answer in answers.values() if isinstance(answer, Reply)]
        return answers


def numbers(seen):
    """The numbers of all plain sums, as float64 and as the integers that would be masked; those with few bytes
    other than zero, such as counts, could stand anywhere by chance, and are left out."""
    found = []
    for payload, reply in seen:
        for name, value in reply.sums.items():
            whole = integers(value, bits(name, payload.task)).ravel()
            found += [whole, np.array(value, np.float64).ravel().view(np.uint64)]
    unique = np.unique(np.concatenate(found))
    return unique[(unique.view(np.uint8).reshape(-1, 8) != 0).sum(axis=1) >= 5]


def windows(heard):
    """All eight bytes in a row that were heard, as numbers."""
    return np.concatenate(
        [np.frombuffer(heard[k : k + (len(heard) - k) // 8 * 8], "<u8") for k in range(8)]
    )


def plain_total(seen, number):
    """The plain total of a round, as integers in the order in which they are masked."""
    request = [(p, r) for p, r in seen if getattr(p, "round", 0) == number and r.sums]
    flat = [
        np.concatenate(
            [integers(r.sums[n], bits(n, p.task), n).ravel() for n in sorted(r.sums)]
        ).view(np.int64)
        for p, r in request
    ]
    return np.sum(flat, axis=0)


def test_no_plain_sum_of_any_site_crosses_the_wire_and_what_does_is_uniform(rows, tmp_path):
    bank = Deployed(tmp_path / "bank", rows)
    files = {name: listened(bank, name) for name in SITES}
    try:
        bank.start(*SITES)
        bank.prepare(max_rounds=6)
        bank.ends(bank.run())
        model = bank.weights()
    finally:
        bank.close()
    heard = {name: file.read_bytes() for name, file in files.items()}
    open_wire = Plain(in_process(site_rows(bank.files.values())))
    fit(open_wire, method("fairfl", max_rounds=6))
    assert model == here(bank.files.values(), max_rounds=6).model.w.tobytes()
    sought = numbers(open_wire.seen)
    assert len(sought) > 5000
    for name in SITES:
        assert not np.isin(windows(heard[name]), sought).any()
    # no other message has a sum, or a count
    for message in (m for content in heard.values() for m in messages(content)):
        assert not getattr(message, "sums", None)
        assert not getattr(message, "n", 0)
    # that it was the replies that were heard: together they are the totals, of every round
    masked = {k: [m for m in messages(v) if isinstance(m, Masked)] for k, v in heard.items()}
    rounds = {k: {m.round: m.values for m in v if m.round} for k, v in masked.items()}
    assert {*rounds["north"]} == {*rounds["south"]} == {1, 2, 3, 4, 5, 6}
    for k, values in rounds["north"].items():
        added = (values + rounds["south"][k]).view(np.int64)
        np.testing.assert_array_equal(added, plain_total(open_wire.seen, k))
    # and one site's own replies are uniform, byte by byte
    seen = np.concatenate([m.values for m in masked["south"]]).view(np.uint8)
    assert seen.size > 50_000
    for place in range(8):
        assert chisquare(np.bincount(seen[place::8], minlength=256)).pvalue > 1e-5


def test_the_search_would_find_a_plain_sum(rows, tmp_path):
    """The same search over the messages that the sites would send in the open."""
    files = write_files(rows, tmp_path).values()
    wire = Plain(in_process(site_rows(files)))
    fit(wire, method("fairfl", max_rounds=3))
    heard = b"x" + b"".join(pack(reply) for _, reply in wire.seen)
    assert np.isin(windows(heard), numbers(wire.seen)).sum() > 1000
    assert len(messages(heard)) == len(wire.seen)
