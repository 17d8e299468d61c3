"""``agnosticfair fit``: a model over clients' files, with its card."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Option

from agnosticfair.commands import reading
from agnosticfair.commands.measuring import labelled, scores, show_scores
from agnosticfair.commands.options import (
    NONE,
    Encoding,
    Force,
    Json,
    MethodName,
    Positive,
    Roles,
    Seed,
    Separator,
    Settings,
    with_roles,
    with_settings,
)
from agnosticfair.commands.output import cell, check_file, check_folder, progress, write_files
from agnosticfair.commands.private import private_fit

if TYPE_CHECKING:
    from agnosticfair.auditing.certificate import Certificate
    from agnosticfair.auditing.limit import Promise
    from agnosticfair.data.reading import Dialect
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.table import Table
    from agnosticfair.federation import Fit
    from agnosticfair.methods import Method
    from agnosticfair.model import Model

EPILOG = "Example: agnosticfair fit north.csv south.csv --target income --sensitive-features sex"


@with_roles
@with_settings()
def fit(
    files: Annotated[
        list[Path],
        Argument(
            help="A CSV or Parquet file, or a folder of Parquet, per client; or one file for all."
        ),
    ],
    roles: Roles,
    positive: Positive = None,
    method: MethodName = "auto",
    settings: Settings = NONE,
    limit: Annotated[
        float | None,
        Option(help="Instead of tau: largest difference of decisions, certified for named parts."),
    ] = None,
    confidence: Annotated[float, Option(help="Of the limit's certificate.")] = 0.95,
    precision: Annotated[
        float, Option(help="Parts known no better than +- this do not count for the limit.")
    ] = 0.1,
    seed: Seed = 0,
    strict: Annotated[bool, Option("--strict", help="Fail if it does not converge.")] = False,
    checkpoint: Annotated[
        Path | None, Option(help="Folder for the state after each round; a killed fit goes on.")
    ] = None,
    workers: Annotated[int, Option(help="Processes that answer for the clients.")] = 1,
    device: Annotated[
        str | None,
        Option(help="Add up the rows, or train a network, there: 'cuda' (needs PyTorch)."),
    ] = None,
    track: Annotated[
        str | None, Option(help="mlflow:URI to log the fit there: mlflow:sqlite:///runs.db.")
    ] = None,
    run: Annotated[
        Path | None, Option(help="Folder for what 'report' and 'watch' show; adds a certificate.")
    ] = None,
    secure: Annotated[
        bool, Option("--secure", help="Mask every client's sums, so that only totals are seen.")
    ] = False,
    schema: Annotated[
        Path | None, Option(help="What all clients agree on: see 'agnosticfair schema'.")
    ] = None,
    test: Annotated[
        list[Path] | None, Option(help="Labelled rows held out, to measure on; may be repeated.")
    ] = None,
    separator: Separator = None,
    encoding: Encoding = None,
    epsilon: Annotated[
        float | None, Option(help="Differential privacy of rows: 1 to 10. Needs a schema.")
    ] = None,
    delta: Annotated[float, Option(help="Of differential privacy.")] = 1e-5,
    ledgers: Annotated[
        Path | None, Option(help="Folder for what each client's rows have spent, over all fits.")
    ] = None,
    site_rows: Annotated[
        int, Option(help="Hide whole clients, of which each adds no more rows; 0 hides rows.")
    ] = 0,
    out: Annotated[Path, Option(help="The model's file.")] = Path("model.safetensors"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train one model over clients whose rows stay with them: only sums are added up.

    Beside the model a card is written, as Markdown and HTML: what it is for, what was measured and
    certified, and its limits. The options numeric, categorical, drop and sensitive-features may be repeated.
    """
    from agnosticfair.data.encoding import Encoding as Unread
    from agnosticfair.data.files import read_rows, read_sources
    from agnosticfair.data.reading import Dialect
    from agnosticfair.data.schema import load_schema, under
    from agnosticfair.private import Budget
    from agnosticfair.runs import provenance as record
    from agnosticfair.runs.tracking import parameters, results, tracker

    for path in (out, *(out.parent / f"{out.stem}-card.{kind}" for kind in ("md", "html"))):
        check_file(path, (*files, *(test or ())), force)
    for folder, option in ((run, "--run"), (checkpoint, "--checkpoint")):
        if folder is not None:
            check_folder(folder, option=option)
    chosen, device = _recipe(method, settings, device, limit)
    target, names = roles.target, roles.sensitive_features
    assert target is not None  # its option is required
    dialect = Dialect(separator, encoding)
    clients = read_sources(files, roles, dialect=dialect)
    for path in test or ():  # before the work, not after it
        read_rows(path, Unread((), ()), target=target, dialect=dialect)
    if not as_json:
        reading.tell(clients, target, positive)
    columns = reading.columns_of(clients)
    agreed = None if schema is None else load_schema(schema)
    if epsilon is not None:
        budget = Budget(epsilon, delta, ledgers=ledgers, most_rows=site_rows)
        columns_of = (target, names, positive)
        return private_fit(clients, chosen, budget, agreed, columns_of, out, as_json)
    if agreed is not None:
        clients = {k: under(agreed, rows, f"client {k!r}") for k, rows in clients.items()}
    how: dict[str, Any] = {"positive": positive, "seed": seed, "strict": strict}
    how |= {"sensitive_features": names, "checkpoint": checkpoint}
    how |= {"secure": secure, "schema": agreed}
    ask = {"limit": limit, "confidence": confidence, "precision": precision}
    promised = None if limit is None else ask
    with tracker(track) as tell:
        held = {key: len(table) for key, table in clients.items()}
        tell("parameters", parameters(chosen, seed=seed, rows=held))
        fitted, promise = _fitted(clients, chosen, workers, device, run, tell, how, promised)
        if promise is not None:
            write_files(out.parent, _promised(promise, out.stem, clients))
        fitted.model.save(out)
        found = scores(fitted.model, clients)
        tested = _tested(fitted.model, test, target, dialect)
        certified: Any = ({}, {})
        kept: dict[str, bytes] = {}
        asked_for = run is not None or track is not None
        if asked_for or not any(source.streamed for source in clients.values()):
            certified = record.certificates(fitted, clients, seed=seed)
        if asked_for:  # each is another pass over the rows
            told = {"target": target, "training_rows": found}
            kept = record.run_files(fitted, clients, record.certified(*certified), **told)
        if run is not None:
            write_files(run, kept)
        cards = _cards(fitted, clients, certified, target, out.stem)
        write_files(out.parent, cards)
        if track is not None:
            tell("results", results(fitted, certified[0]))
            pages = _pages(fitted, certified[0], kept)
            tell("files", {out.name: out.read_bytes(), **cards, **pages})
    return _present(fitted, found, tested, columns, out, cards, as_json)


def _recipe(
    name: str, settings: Settings, device: str | None, limit: float | None
) -> tuple[Method, str | None]:
    """The method, and the device on which rows are added up; a network is trained on the device instead."""
    from agnosticfair.auditing.limit import within
    from agnosticfair.methods import DEFAULT, Network, default_for
    from agnosticfair.methods import method as recipe

    name = default_for(settings) if name == DEFAULT else name
    chosen = recipe(name) if limit is None else within(recipe(name), settings.get("tau"))
    if "network" not in settings:
        return recipe(chosen, **settings), device
    network = Network(settings["network"], device=device or "cpu")
    return recipe(chosen, **{**settings, "network": network}), None


def _fitted(
    clients: Mapping[str, Table | Stream],
    chosen: Method,
    workers: int,
    device: str | None,
    run: Path | None,
    tell: Any,
    how: Mapping[str, Any],
    promised: Mapping[str, Any] | None,
) -> tuple[Fit, Promise | None]:
    """The fit, told of round by round on the terminal, to the tracker and in the folder of the run; and what it
    promises, where there is a limit."""
    from agnosticfair import federation
    from agnosticfair.auditing.limit import fit_within
    from agnosticfair.runs import provenance as record
    from agnosticfair.server.checkpoints import FILE

    resume = how["checkpoint"] is not None and (how["checkpoint"] / FILE).exists()
    add = None if run is None else record.rounds(run, chosen, len(clients), resume)
    with progress(chosen.max_rounds, "rounds", at_most=True) as advance:

        def on_round(entry: dict) -> None:
            advance(f"loss {entry['loss']:.4f}")
            tell("round", entry)
            if add is not None:
                add(entry)

        if promised is None:
            engine = federation.in_process(clients, workers, device)
            return federation.fit(engine, chosen, on_round=on_round, **how), None
        kept = {k: how[k] for k in ("sensitive_features", "positive", "seed", "strict")}
        return fit_within(cast("Any", clients), chosen, on_round=on_round, **kept, **promised)


def _present(
    fitted: Fit,
    found: list[dict[str, Any]],
    tested: Any,
    columns: Any,
    out: Path,
    cards: Mapping[str, bytes],
    as_json: bool,
) -> None:
    """Say how the fit ended, and what was written."""
    from agnosticfair.server.plan import centres_kind

    if as_json:
        names = ("outcome", "rounds", "outcomes", "seconds", "events")
        ended = {k: getattr(fitted, k) for k in names}
        about: dict[str, Any] = {"model": str(out), "method": fitted.method.name}
        about["positive"] = fitted.model.positive
        about["warnings"] = _warnings(fitted, found, out)
        about |= {"columns": columns, "held_out_rows": tested}
        return print(json.dumps({**about, **ended, "training_rows": found}, indent=1))
    show_scores("Training rows", found)
    if tested:
        print()
        show_scores("Held-out rows", tested)
    how = "converged" if fitted.converged else f"did not converge (outcome {fitted.outcome!r})"
    rounds = f"{fitted.rounds} round{'s' * (fitted.rounds != 1)}"
    print(f"\n{fitted.method.name} {how} after {rounds} in {fitted.seconds:.1f} s.")
    for text in _warnings(fitted, found, out):
        print("Warning:", text)
    if fitted.centres is not None and centres_kind(fitted.method) == "rows":
        print(
            f"Note: the kernels' centres are {len(fitted.centres)} rows of the clients, without label and group, "
            "which every client is shown; k-means, ranges and named parts show none."
        )
    for event in fitted.events:
        print("Note:", ", ".join(f"{key} {cell(value)}" for key, value in event.items()))
    beside = ", ".join(str(out.parent / name) for name in cards) or "no card, for rows are streamed"
    return print(f"Written: {out}, which predicts {fitted.model.positive!r}; {beside}.")


def _tested(
    model: Model, files: list[Path] | None, target: str, dialect: Dialect
) -> list[dict[str, Any]]:
    """What the model does on rows held out, if there are any."""
    if not files:
        return []
    return scores(model, labelled(model, files, target, model.sensitive_features, None, dialect))


def _promised(
    promise: Promise, stem: str, clients: Mapping[str, Table | Stream]
) -> dict[str, bytes]:
    """The certificates of a limit, by file name, for 'verify'."""
    from agnosticfair.auditing.proof import sealed
    from agnosticfair.runs.provenance import provenance

    told = {"limit": promise.limit, "kept": promise.kept, "says": str(promise)}
    print(promise, file=sys.stderr)
    return {
        f"{stem}-{name}-certificate.json": json.dumps(
            sealed(made.to_json() | told | provenance(clients)), indent=1
        ).encode()
        for name, made in promise.certificates.items()
    }


def _warnings(fitted: Fit, found: list[dict[str, Any]], out: Path) -> list[str]:
    """What a user should know before using the model."""
    from agnosticfair.data.encoding import shown

    said = reading.warned(found, tau=fitted.method.fairness is not None)
    if fitted.collapsed is not None:
        said.append(fitted.collapsed)
    if not fitted.converged:
        said.append(
            "it did not converge: more rounds (--max-rounds) may change the model, and --strict fails."
        )
    if fitted.model.negative.startswith("not "):
        said.append(
            f"more than two labels: all but {fitted.model.positive!r} were taken together as negative."
        )
    if fitted.under_floor:
        said.append(
            f"not protected, being too small to compare: {shown(fitted.under_floor)}; join groups."
        )
    if out.suffix != ".safetensors":
        said.append(
            f"{out.name!r} holds safetensors whatever its ending says: read it with load_model."
        )
    return said


def _cards(
    fitted: Fit, sources: Mapping[str, Table | Stream], certified: Any, target: str, stem: str
) -> dict[str, bytes]:
    """The model's card, in both forms, by file name. It is made of rows in memory: where some are
    streamed there is none."""
    from agnosticfair.report import card

    if any(source.streamed for source in sources.values()):
        return {}
    clients = cast("Mapping[str, Table]", sources)
    made, reasons = certified
    sections = card.card(fitted, clients, {**made, **reasons}, target)
    texts = {"md": card.markdown(sections), "html": card.html(sections)}
    return {f"{stem}-card.{kind}": text.encode() for kind, text in texts.items()}


def _pages(
    fitted: Fit, certificates: Mapping[str, Certificate], kept: Mapping[str, bytes]
) -> dict[str, bytes]:
    """What a tracker keeps besides model and card: the certificates, and the report of the run."""
    from agnosticfair.report.page import data, html
    from agnosticfair.report.runs import fit_run

    told = json.dumps({name: made.to_json() for name, made in certificates.items()}, indent=1)
    report = html(data([fit_run(kept, fitted.model)], None, ()))
    return {"certificates.json": told.encode(), "report.html": report.encode()}
