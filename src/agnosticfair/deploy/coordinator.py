"""The coordinator's side of a run over sites: greets them, fits, certifies, and leaves the files of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agnosticfair.auditing.fits import as_content, certificates
from agnosticfair.auditing.limit import CertifiedLimit, fit_within, limit_content
from agnosticfair.auditing.proof import sealed
from agnosticfair.data.schema import Schema, load_schema
from agnosticfair.data.summary import check_groups_known, check_labels_known, check_statistics
from agnosticfair.deploy.secrets import BRING, read_key_list
from agnosticfair.federation import Fit, counts_of_all, fit, statistics_of_all, summaries
from agnosticfair.methods import Method, method
from agnosticfair.privacy.fit import Budget, fit_private
from agnosticfair.protocol.engines.remote import RemoteEngine
from agnosticfair.protocol.engines.seam import HELLO
from agnosticfair.protocol.faults import Coordinator, Missing, Policy, policy
from agnosticfair.protocol.messages import digest
from agnosticfair.protocol.secure.keys import Roster
from agnosticfair.runs import provenance as record
from agnosticfair.runs.provenance import as_json
from agnosticfair.settings import from_config, names_of
from agnosticfair.threads import one_thread


def results(
    engine: RemoteEngine,
    config: Mapping[str, Any],
    run: str,
    on_round: Callable[[dict[str, Any]], None] = lambda entry: None,
) -> dict[str, bytes]:
    """The files of a run: its fit over the sites, or of a check what the sites said.  on_round: is given every round's
    entry of the history."""
    about = Coordinator(engine, engine.clients(), policy_of(config), float(config["deadline"]))
    joined = greet(about, engine)
    bring_list(about, joined, config)
    if config.get("check"):
        return {"check.json": as_json({"run": run, "sites": checked(about, joined, config)})}
    fitted, certified_limit = run_fit(engine, config, on_round)
    if certified_limit is None:
        certificate = {"run": run, **certify(fitted, engine, config)}
    else:
        certificate = sealed({"run": run, **limit_content(certified_limit)})
    files = {"model.safetensors": fitted.model.to_bytes(), "certificate.json": as_json(certificate)}
    history = {"run": run, **record.history(fitted), **record.provenance({}), "sites": joined}
    history |= {"traffic": engine.traffic, "certificate": certificate["sentence"]}
    history["events"] = [*about.events, *history["events"]]
    history["command"] = config.get("command") or history["command"]
    history["files"] = record.digests(files)
    return files | {"history.json": as_json(history)}


def greet(coordinator: Coordinator, engine: RemoteEngine) -> dict[str, Any]:
    """What every site says of itself, before it is asked for anything; who is left out stays out."""
    while True:
        try:
            return coordinator.send(HELLO, None)
        except Missing as missing:
            coordinator.drop(missing)
            engine.sites = coordinator.keys


def bring_list(
    coordinator: Coordinator, joined: Mapping[str, Any], config: Mapping[str, Any]
) -> None:
    """Give the folder's list of masking keys to all sites, where one of them holds another version of it."""
    if not config.get("masking"):
        return
    now = read_key_list(str(config["masking"]))
    if any(
        about.get("keys") != [now.version, digest(now.sites).hex()] for about in joined.values()
    ):
        coordinator.send(BRING, now)


def checked(
    coordinator: Coordinator, joined: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """Every site's versions and rows, if their files and keys fit together; nothing is trained. Under masks no
    site's rows are counted, but all of them together are."""
    method_of(config), sensitive_features_of(config)
    schema, secure = schema_of(config), replace(coordinator, secure=masks_of(config))
    hidden = {key: {**about, "rows": None} for key, about in joined.items()}
    if config.get("epsilon"):
        return hidden  # every count would cost some of the budget
    if schema is not None:
        check_statistics(counts_of_all(secure, schema.outline()))
        return hidden
    all_statistics = summaries(secure)
    check_labels_known(all_statistics, config.get("positive") or None)
    check_groups_known(all_statistics)
    check_statistics(statistics_of_all(secure, all_statistics))
    if secure.secure is not None:
        return hidden
    return {key: {**joined[key], "rows": all_statistics[key].n} for key in all_statistics}


def method_of(config: Mapping[str, Any]) -> Method:
    return method(str(config["method"]), **from_config(config))


def sensitive_features_of(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The sensitive columns of a run's configuration, which has commas between them."""
    return names_of(str(config.get("sensitive-features", ""))) or None


def policy_of(config: Mapping[str, Any]) -> Policy:
    """What is done about a missing answer; no question is asked for longer than ``patience`` in all."""
    named = policy(str(config["on-failure"]))
    return replace(
        named, min_clients=int(config.get("min-sites", 1)), patience=float(config["patience"])
    )


def run_fit(
    engine: RemoteEngine, config: Mapping[str, Any], on_round: Any
) -> tuple[Fit, CertifiedLimit | None]:
    """The fit of a run's settings, and what it promises where there is a limit."""
    names, chosen = sensitive_features_of(config), method_of(config)
    how = {**_arguments(config), "positive": config["positive"] or None, "on_round": on_round}
    if config.get("epsilon"):  # each site adds its share of the noise, and has a ledger of its own
        budget = Budget(config["epsilon"], config["delta"], max_rows=config.get("site-rows", 0))
        del how["seed"]
        return fit_private(engine, chosen, budget=budget, sensitive_features=names, **how), None
    if config.get("limit"):
        limit: dict[str, Any] = {
            name: float(config[name]) for name in ("limit", "confidence", "precision")
        }
        with one_thread():
            return fit_within(engine, chosen, sensitive_features=names or (), **limit, **how)
    how |= {"checkpoint": config.get("checkpoint")}
    return fit(engine, chosen, sensitive_features=names, **how), None


def _arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """What fits and certificates are both told."""
    return {
        "seed": int(config["seed"]),
        "deadline": float(config["deadline"]),
        "on_failure": policy_of(config),
        "secure": masks_of(config) or False,
        "schema": schema_of(config),
    }


def schema_of(config: Mapping[str, Any]) -> Schema | None:
    """The schema that the sites agreed on, if they did."""
    return load_schema(str(config["schema"])) if config.get("schema") else None


def masks_of(config: Mapping[str, Any]) -> Roster | None:
    """The sites' public keys, where sums are to be masked."""
    return read_key_list(str(config["masking"])).sites if config.get("masking") else None


def certify(fitted: Fit, engine: RemoteEngine, config: Mapping[str, Any]) -> dict[str, Any]:
    """The certificate of the model over the sites that made it, unless it is not wanted."""
    if not config["certify"] and fitted.model.privacy is None:
        return {"sentence": ""}
    dropped = {key for event in fitted.events for key in event.get("without", ())}
    engine = replace(engine, sites=tuple(key for key in engine.sites if key not in dropped))
    with one_thread():
        return as_content(*certificates(fitted, engine, **_arguments(config)))
