"""Regions add up before the server: the same bits, and a server whose work does not grow with the clients."""

from collections import Counter

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.federation import fit, in_process
from agnosticfair.methods import method
from agnosticfair.protocol.engines.relay import Relay
from agnosticfair.protocol.engines.seam import Failure, InProcess
from agnosticfair.protocol.faults import Policy
from agnosticfair.protocol.messages import Masked, Reply, together
from agnosticfair.protocol.secure.keys import relays
from agnosticfair.site.guard import rehearsed

ROWS = small_table(300, 3)


def regions(subgroups, size):
    """A region per ``size`` clients."""
    keys = sorted(subgroups)
    groups = [keys[k : k + size] for k in range(0, len(keys), size)]
    return {f"r{k}": in_process({key: subgroups[key] for key in g}) for k, g in enumerate(groups)}


@pytest.mark.parametrize("name", ["agnosticfair", "fairfl", "fl"])
def test_relays_have_the_bits_of_the_clients_without_them(name):
    subgroups = dealt(ROWS, 12)
    chosen = method(name, max_rounds=6)
    flat = fit(subgroups, chosen, positive="yes")
    fitted = fit(Relay(regions(subgroups, 4)), chosen, positive="yes")
    assert fitted.model.digest == flat.model.digest
    assert [e["loss"] for e in fitted.history] == [e["loss"] for e in flat.history]


def masked_regions(tables):
    """An engine of relays over sites under masks, by the part of a name after '@'; their public keys."""
    consents = ("shares_cluster_means", "shares_site_totals")
    engine, roster = rehearsed(in_process(tables), consents=consents)
    below = {
        relay: InProcess({site: engine.handlers[site] for site in sites})
        for relay, sites in relays(roster).items()
    }
    return Relay(below), roster


def named(parts, size):
    """The parts as sites of relays, ``size`` each, in the order in which they are."""
    return {f"{k % size}@r{k // size}": rows for k, rows in enumerate(parts.values())}


@pytest.mark.parametrize("name", ["fairfl", "rule", "agnosticfair", "afl"])
@pytest.mark.parametrize("count", [6, 7])
def test_masks_cancel_within_and_across_relays_to_the_same_bits(name, count):
    tables = named(dealt(ROWS, count), 3)
    chosen = method(name, **({} if name == "rule" else {"max_rounds": 4}))
    flat = fit(tables, chosen, positive="yes")
    engine, roster = masked_regions(tables)
    fitted = fit(engine, chosen, positive="yes", secure=roster)
    assert fitted.model.to_bytes() == flat.model.to_bytes()
    assert fitted.history == flat.history


def test_no_relay_s_sum_can_be_read_only_that_of_all():
    tables = named(dealt(ROWS, 6), 3)
    seen, (engine, roster) = [], masked_regions(tables)
    inner = engine.exchange

    class Watched(Relay):
        def exchange(self, step, payload, keys, deadline):
            answers = inner(step, payload, keys, deadline)
            seen.extend(a for a in answers.values() if isinstance(a, Masked))
            return answers

    fit(Watched(engine.regions), "fl", positive="yes", secure=roster)
    assert {answer.site for answer in seen} == {"r0", "r1"}
    for answer in seen:  # below 2^53 in the open, here any number
        assert (answer.values >> np.uint64(56)).any()


def test_a_relay_cannot_leave_out_a_site_of_its_own_nor_bring_another():
    engine, roster = masked_regions(named(dealt(ROWS, 6), 3))
    handlers = {**engine.regions["r0"].handlers}
    del handlers["2@r0"]
    short = Relay({**engine.regions, "r0": InProcess(handlers)})
    with pytest.raises(FederationError, match="'r0' sent no masking key"):
        fit(short, "fl", positive="yes", secure=roster)


class Counting:
    """An engine that counts what the server gets."""

    def __init__(self, inner):
        self.inner, self.answers, self.numbers = inner, Counter(), Counter()

    def clients(self):
        return self.inner.clients()

    def exchange(self, step, payload, keys, deadline):
        answers = self.inner.exchange(step, payload, keys, deadline)
        self.answers[step] += len(answers)
        self.numbers[step] += sum(r.nbytes for r in answers.values() if isinstance(r, Reply))
        return answers


def test_what_the_server_gets_does_not_grow_with_the_clients():
    seen = {}
    for count in (20, 200):
        engine = Counting(Relay(regions(dealt(ROWS, count), count // 5)))
        fit(engine, method("fairfl", max_rounds=3), positive="yes")
        seen[count] = (len(engine.clients()), engine.numbers["sums"] / engine.answers["sums"])
        assert seen[count][0] == 5
    assert seen[20][1] == seen[200][1]


@pytest.mark.slow
def test_four_hundred_sites_below_twenty_relays_have_the_same_bits_under_masks():
    """``benchmarks/relays.py`` does it with more."""
    tables = named(dealt(small_table(2000, 3), 400), 20)
    chosen = method("fl", max_rounds=2)
    engine, roster = masked_regions(tables)
    fitted = fit(engine, chosen, positive="yes", secure=roster)
    assert len(engine.clients()) == 20
    assert fitted.model.to_bytes() == fit(tables, chosen, positive="yes").model.to_bytes()


def test_ten_thousand_clients_below_a_hundred_relays_add_up_to_the_same_bits():
    """Numbers on a grid, as replies are: any order of additions has the same bits, and few answers arrive."""
    draws = np.random.default_rng(0).integers(-(2**30), 2**30, (10_000, 8)) * 2.0**-20

    def client(k):
        return lambda step, payload: Reply(1, {"v": draws[k], "n": np.array(1.0)})

    handlers = {f"{k:05}": client(k) for k in range(10_000)}
    below = {
        f"r{r}": InProcess({k: handlers[k] for k in sorted(handlers)[r::100]}) for r in range(100)
    }
    answers = Relay(below).exchange("sums", None, sorted(below))
    assert len(answers) == 100
    total = together(answers)
    assert total.sums["v"].tobytes() == draws.sum(axis=0).tobytes()
    assert total.sums["n"] == 10_000


def test_a_client_that_fails_is_named_with_its_region():
    def broken(step, payload):
        raise FederationError("out of order")

    sound = in_process(dealt(ROWS, 2))
    engine = Relay({"north": sound, "south": Relay({"deep": InProcess({"x": broken})})})
    with pytest.raises(FederationError, match=r"'south'.*'deep'.*'x'"):
        fit(engine, "fl", positive="yes")
    rest = fit(engine, "fl", positive="yes", on_failure=Policy(then="drop"))
    assert rest.model.digest == fit(dealt(ROWS, 2), "fl", positive="yes").model.digest


def test_what_does_not_add_up_is_a_failure_with_a_sentence():
    class Odd:
        def clients(self):
            return ("a", "b")

        def exchange(self, step, payload, keys, deadline):
            return {"a": Reply(1, {"n": np.ones(1)}), "b": Reply(2, {"n": np.ones(1)})}

    found = Relay({"r": Odd()}).exchange("sums", None, ["r"])["r"]
    assert isinstance(found, Failure)
    assert "do not add up" in found.reason
    with pytest.raises(FederationError, match="add up Reply"):
        together({"a": Reply(1, {}), "b": "?"})


def test_relays_that_make_no_sense_are_refused():
    with pytest.raises(SettingsError, match=r"'r'.*clients"):
        Relay({"r": InProcess({})})
