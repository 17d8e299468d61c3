"""What messages reveal under masks and under noise, before anything is sent."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.cli import main
from agnosticfair.commands.messages import _supposed
from agnosticfair.data.schema import schema_of
from agnosticfair.data.summary import merge, summary_statistics
from agnosticfair.federation import fit, in_process
from agnosticfair.methods import method
from agnosticfair.privacy.fit import Budget, fit_private
from agnosticfair.protocol.engines.in_process import InProcess
from agnosticfair.protocol.messages import pack
from agnosticfair.report.messages import UNSAID, explain, explain_audit, explain_secure
from agnosticfair.server.plan import consents
from agnosticfair.site.guard import rehearsed

TABLES = dealt(small_table(300, 4), 3)


def test_every_message_of_a_secure_fit_is_explained_with_its_bytes():
    chosen_method = method("agnosticfair", max_rounds=2, centres="kmeans", kernels=8)
    statistics = merge({k: summary_statistics(t, k) for k, t in TABLES.items()})
    explaineds = explain_secure(
        explain(chosen_method, statistics, tuple(TABLES), 1 / 3), statistics, 3, chosen_method
    )
    engine, roster = rehearsed(in_process(TABLES), consents=consents(chosen_method))
    sizes: dict[str, int] = {}

    class Weighed:
        clients = engine.clients

        def exchange(self, step, payload, keys, deadline):
            answers = engine.exchange(step, payload, keys, deadline)
            sizes[step] = max(len(pack(answer)) for answer in answers.values())
            return answers

    fit(Weighed(), chosen_method, positive="yes", secure=roster)
    from_site = {message.step: message for message in explaineds if message.sender == "site"}
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
    assert {"keys", "outline", "counts", "program"} <= {message["step"] for message in secure}
    private = run(
        ["explain-messages", "--epsilon", "3", "--method", "agnosticfair", "--json"], capsys
    )
    sent = [m["step"] for m in json.loads(private) if m["sender"] == "site"]
    assert sent == [
        "keys",
        *(f"private_{k}" for k in ("plan", "counts", "moments", "gradients", "decisions")),
    ]
    assert "delta 1e-05" in run(
        ["explain-messages", "--epsilon", "3", "--method", "agnosticfair"], capsys
    )
    whole = ["explain-messages", "--epsilon", "3", "--method", "fairfl", "--site-rows", "50"]
    assert "a whole" in run(whole, capsys)


def test_a_file_under_a_schema_is_explained_with_the_bins_of_the_schema(files, capsys):
    columns = ["--target", "income", "--sensitive-features", "sex"]
    run(["schema", *map(str, files), *columns, "--bins", "8"], capsys)
    request = ["explain-messages", str(files[0]), *columns, "--learner", "trees", "--json"]
    messages = json.loads(run([*request, "--schema", "schema.json"], capsys))
    assert not {"histograms", "fine_counts"} & {message["step"] for message in messages}
    shapes = [m["fields"]["hist"] for m in messages if m["step"] == "level" and m["reveals"]]
    # eight bins and three jobs, each with a code for none; five folds and all rows, of label and group
    assert shapes == ["12 x 13 x 3", "96 x 13 x 3"]


def weighed(monkeypatch) -> dict[str, tuple[int, int]]:
    """The largest request and answer of every step that goes over an in-process engine, in bytes."""
    sizes: dict[str, tuple[int, int]] = {}
    true = InProcess.exchange

    def exchange(self, step, payload, keys, deadline):
        answers = true(self, step, payload, keys, deadline)
        sent = (
            0 if payload is None else len(pack(payload))
        )  # summary statistics is asked for by its name
        found = sent, max(len(pack(answer)) for answer in answers.values())
        sizes[step] = tuple(map(max, found, sizes.get(step, found)))
        return answers

    monkeypatch.setattr(InProcess, "exchange", exchange)
    return sizes


@pytest.mark.parametrize("name", ["fl", "fairfl", "agnosticfair", "rule"])
def test_every_message_of_a_private_fit_is_explained_with_its_bytes(
    name, monkeypatch, capsys, tmp_path
):
    """Of every method that noise leaves something of."""
    pytest.importorskip("opendp")
    rows = small_table(4000, 5)
    cut = tuple(np.quantile(rows.numeric["age"], (0.3, 0.6)))
    schema = replace(schema_of(summary_statistics(rows, "all"), "y"), bins={"age": cut})
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema.to_json()))
    request = ["explain-messages", "--method", name, "--schema", str(path), "--epsilon", "50"]
    content = json.loads(run([*request, "--rows", "4000", "--json"], capsys))
    told = {(m["step"], m["sender"]): m for m in content}
    sizes = weighed(monkeypatch)
    fitted = fit_private(dealt(rows, 2), name, budget=Budget(50.0), schema=schema, positive="yes")
    steps = [step for step, sender in told if sender == "site" and step != "keys"]
    assert {*steps} == sizes.keys() - {"keys", "agree"}
    for step in steps:
        for size, sender in zip(sizes[step], ("server", "site"), strict=True):
            # a setting may have more digits than the one that is shown
            assert size - 64 <= told[step, sender]["size"] <= 1.2 * size + 800
    places = len(fitted.subgroups.agreed[1]) + 1 if fitted.subgroups else 1
    assert (places > 1) == (name in ("agnosticfair", "rule"))
    hat = told["private_decisions", "site"]["fields"]["hat"]
    assert hat == f"{6 + 1 if fitted.subgroups else 1} x 2"  # three jobs and three bins


@pytest.mark.parametrize("learner", ["additive", "trees"])
def test_every_message_of_a_rule_is_explained_and_none_is_larger(learner, monkeypatch):
    chosen_method = method("rule", learner=learner, tau=0.02, min_people=2)
    statistics = merge({k: summary_statistics(t, k) for k, t in TABLES.items()})
    told: dict[tuple[str, str], int] = {}
    for message in explain(chosen_method, statistics, tuple(TABLES), 1 / 3):
        assert UNSAID not in message.reveals.values()
        key = message.step, message.sender
        told[key] = max(message.size, told.get(key, 0))
    sizes = weighed(monkeypatch)
    fit(TABLES, chosen_method, positive="yes")
    assert sizes.keys() - {"hello"} <= {step for step, sender in told if sender == "site"}
    for step in sizes.keys() - {"hello", "statistics"}:
        for size, sender in zip(sizes[step], ("server", "site"), strict=True):
            assert size <= told[step, sender] + 300, (step, sender)


def test_the_messages_of_an_audit_are_small_and_explained():
    audit = explain_audit(method("agnosticfair"), _supposed(34, 2, 30000))
    assert [m.step for m in audit] == ["decisions", "histograms", *["subgroup_decisions"] * 3]
    assert audit[0].size < 1_000_000
    assert all({*m.reveals} == {*m.fields} for m in audit)
    assert UNSAID not in {words for m in audit for words in m.reveals.values()}
