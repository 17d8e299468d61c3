"""The Flower app: a ClientApp that answers for its site, a ServerApp that runs the fit.

The folder that ``deploy init`` writes imports ``client_app`` and ``server_app`` from here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from agnosticfair.errors import AgnosticFairError
from agnosticfair.federation import Fit, fit
from agnosticfair.flower.site import reason, respond, site_of
from agnosticfair.methods import Method, method
from agnosticfair.protocol.engines.flower import HELLO, FlowerEngine
from agnosticfair.protocol.faults import Policy, policy
from agnosticfair.runs import provenance as record
from agnosticfair.server import checkpoints
from agnosticfair.server.reveals import AUDITED
from agnosticfair.settings import from_config
from agnosticfair.threads import one_thread

client_app, server_app = ClientApp(), ServerApp()


@client_app.query()
def reply(message: Message, context: Context) -> Message:
    """Answer one question; whatever goes wrong travels as a sentence, never as a stack trace."""
    config, question = context.node_config, message.content.config_records["question"]
    told: dict[str, Any] = {"site": str(config.get("site", ""))}
    try:
        step, content = str(question["step"]), question["content"]
        if step == HELLO:
            told["site"] = site_of(config).key
        else:
            told["content"] = respond(config, step, content if isinstance(content, bytes) else b"?")
    except Exception as error:
        told["failure"] = reason(error)
    return Message(RecordDict({"answer": ConfigRecord(told)}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the fit that the run's configuration asks for; write model and history, or the error."""
    config = context.run_config
    out = Path(str(config["out"]))
    out.mkdir(parents=True, exist_ok=True)
    run = {"run": str(context.run_id)}
    try:
        sites = tuple(part.strip() for part in str(config["sites"]).split(","))
        engine = FlowerEngine(grid, sites)
        kept = Path(str(config.get("checkpoint") or out)) / checkpoints.FILE
        add = record.rounds(out, method_of(config), len(sites), kept.exists())

        def tell(entry: dict) -> None:
            last = engine.traffic[-1] if engine.traffic else {}
            write(out / "progress.json", run | {"round": entry, "traffic": last})
            add(entry)

        fitted = run_fit(engine, config, tell)
        certificate = certify(fitted, engine, config)
    except AgnosticFairError as error:
        write(out / "error.json", run | {"error": " ".join(str(error).split())})
        raise
    fitted.model.save(out / "model.safetensors")
    write(out / "certificate.json", run | certificate)
    told = run | record.history(fitted) | record.provenance({}) | {"traffic": engine.traffic}
    write(out / "history.json", told | {"certificate": certificate["says"]})
    if config.get("checkpoint"):  # the fit is done: the next run is a new one
        (Path(str(config["checkpoint"])) / checkpoints.FILE).unlink(missing_ok=True)


def method_of(config: Mapping[str, Any]) -> Method:
    """The method of a run's configuration."""
    return method(str(config["method"]), **from_config(config))


def sensitive_features_of(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The sensitive columns of a run's configuration, which has commas between them."""
    names = (part.strip() for part in str(config.get("sensitive-features", "")).split(","))
    return tuple(name for name in names if name) or None


def run_fit(engine: FlowerEngine, config: Mapping[str, Any], on_round: Any) -> Fit:
    """The fit of a run's configuration."""
    named = policy(str(config.get("on-failure", "stop")))
    least = int(config.get("least-clients") or 1)
    return fit(
        engine,
        method_of(config),
        sensitive_features=sensitive_features_of(config),
        positive=config.get("positive") or None,
        seed=int(config.get("seed", 0)),
        deadline=float(config["deadline"]),
        on_failure=Policy(named.retries, named.pause, named.then, least),
        checkpoint=config.get("checkpoint") or None,
        on_round=on_round,
    )


def certify(fitted: Fit, engine: FlowerEngine, config: Mapping[str, Any]) -> dict[str, Any]:
    """The certificate of the model over the sites that made it, unless it is not wanted."""
    if not config.get("certify", True):
        return {"says": ""}
    dropped = {key for event in fitted.events for key in event.get("without", ())}
    engine = replace(engine, sites=tuple(key for key in engine.sites if key not in dropped))
    own = fitted.centres
    basis = AUDITED if own is None else replace(AUDITED, centres="given")
    asked = {"seed": int(config.get("seed", 0)), "deadline": float(config["deadline"])}
    with one_thread():
        made = record.certificates(fitted, engine, basis=basis, centres=own, **asked)
    return record.certified(*made)


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(content, indent=1, default=float) + "\n")
    part.replace(path)
