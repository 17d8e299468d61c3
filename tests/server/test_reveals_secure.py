"""What messages reveal under masks and under noise, before anything is sent."""

import json

import pytest
from helpers import dealt, small_table

from agnosticfair.cli import main
from agnosticfair.data.census import merge, take_census
from agnosticfair.federation import fit, in_process
from agnosticfair.methods import method
from agnosticfair.protocol.messages import pack
from agnosticfair.protocol.secure.rehearsal import rehearsed
from agnosticfair.server.reveals import explain, explain_secure

TABLES = dealt(small_table(300, 4), 3)


def test_every_message_of_a_secure_fit_is_explained_with_its_bytes():
    recipe = method("agnosticfair", max_rounds=2, centres="kmeans", kernels=8)
    census = merge({k: take_census(t, k) for k, t in TABLES.items()})
    told = explain_secure(explain(recipe, census, tuple(TABLES), 1 / 3), census, 3)
    engine, roster = rehearsed(in_process(TABLES))
    sizes: dict[str, int] = {}

    class Weighed:
        clients = engine.clients

        def exchange(self, step, payload, keys, deadline):
            answers = engine.exchange(step, payload, keys, deadline)
            sizes[step] = max(len(pack(answer)) for answer in answers.values())
            return answers

    fit(Weighed(), recipe, positive="yes", secure=roster)
    from_site = {message.step: message for message in told if message.sender == "site"}
    assert sizes.keys() - {"agree"} <= from_site.keys()
    for step in sizes.keys() - {"agree", "keys", "outline"}:
        assert sizes[step] <= from_site[step].size <= 1.2 * sizes[step] + 800
        says = from_site[step].reveals.values()
        assert all(text.startswith("of this site nothing") for text in says)


def run(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_command_explains_both(capsys):
    secure = json.loads(run(["explain-messages", "--secure", "--json"], capsys))
    assert {"keys", "outline", "counts", "part_sums"} <= {message["step"] for message in secure}
    private = run(["explain-messages", "--epsilon", "3", "--json"], capsys)
    steps = [message["step"] for message in json.loads(private)]
    assert steps == ["private_counts", "private_moments", "private_slopes", "private_decisions"]
    assert "cost epsilon 3 at delta 1e-05" in run(["explain-messages", "--epsilon", "3"], capsys)
