"""``agnosticfair fit``: a model over clients' files, with its card; ``tune``: accuracy against the worst
difference over a set, and the model of the point picked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from agnosticfair.commands import options
from agnosticfair.commands.leaving import (
    certificate_name,
    check_alone,
    leave,
    note_rows,
    present,
    private_fit,
    sentences_of,
)
from agnosticfair.commands.output import (
    UNCLAIMED,
    check_file,
    check_folder,
    deliver,
    progress,
    round_words,
    write_files,
)
from agnosticfair.commands.rows import columns_of, labelled, scores, tell, with_subgroup_set
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.settings import DEFAULT, TAUS
from agnosticfair.threads import cpus

if TYPE_CHECKING:
    from agnosticfair.auditing.limit import CertifiedLimit
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.table import Table
    from agnosticfair.federation import Fit
    from agnosticfair.methods import Method
    from agnosticfair.model import Model
    from agnosticfair.tuning import Frontier


@options.with_roles
@options.with_dialect
@options.with_settings()
@options.example("fit north.csv south.csv --target income --sensitive-features sex")
def fit(
    files: Annotated[
        list[Path],
        Argument(
            help="A CSV or Parquet file, or a folder of Parquet, per client; or one file for all."
        ),
    ],
    roles: options.Roles,
    dialect: options.Dialect,
    positive: options.Positive = None,
    method: options.MethodName = DEFAULT,
    settings: options.Settings = options.NONE,
    limit: options.Limit = None,
    confidence: options.LimitConfidence = 0.95,
    precision: options.LimitPrecision = 0.1,
    cluster: Annotated[
        str | None, Option(help="Column that says which rows are one person, for --limit.")
    ] = None,
    seed: options.Seed = 0,
    strict: Annotated[bool, Option("--strict", help="Fail if it does not converge.")] = False,
    checkpoint: Annotated[
        Path | None, Option(help="Folder for the state after each round; a killed fit goes on.")
    ] = None,
    device: Annotated[
        str | None,
        Option(help="Where a rule's rows are added up, or a network is trained: 'cpu' or 'cuda'."),
    ] = None,
    run: Annotated[
        Path | None, Option(help="Folder for what 'report' shows; adds a certificate.")
    ] = None,
    secure: Annotated[
        bool, Option("--secure", help="Mask every client's sums, so that only totals are seen.")
    ] = False,
    schema: options.SchemaFile = None,
    test: Annotated[
        list[Path] | None, Option(help="Labelled rows held out, to measure on; may be repeated.")
    ] = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = 1e-5,
    ledgers: Annotated[
        Path | None,
        Option(help="Folder for what each client's rows have spent, not the standard one."),
    ] = None,
    site_rows: options.SiteRows = 0,
    out: Annotated[Path, Option(help="The model's file.")] = Path("model.safetensors"),
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Train one model over clients whose rows stay with them: only sums are added up.

    Beside the model a card is written, as Markdown and HTML: what it is for, what was measured and
    certified, and its limits. The options numeric, categorical, drop and sensitive-features may be repeated.
    """
    from agnosticfair.data.schema import load_schema, under
    from agnosticfair.privacy.fit import Budget

    promised = () if limit is None else roles.sensitive_features
    beside = [certificate_name(out.stem, name) for name in promised]
    folders = {"--run": run, "--checkpoint": checkpoint}
    _check_places(out, beside, (*files, *(test or ())), force, folders)
    chosen = _method(method, settings, device, limit)
    roles = _clustered(with_subgroup_set(roles, chosen), cluster, limit, device is not None)
    target, names = roles.target, roles.sensitive_features
    assert target is not None  # its option is required
    clients = _read(files, test or (), roles, dialect)
    if not as_json:
        tell(clients, target, positive)
        note_rows(chosen)
    columns = columns_of(clients)
    agreed = None if schema is None else load_schema(schema)
    if epsilon is not None:
        check_alone(test=test, limit=limit, run=run, checkpoint=checkpoint)
        budget = Budget(epsilon, delta, ledgers=ledgers, max_rows=site_rows)
        return private_fit(clients, chosen, budget, agreed, (target, names, positive), out, as_json)
    if agreed is not None:
        clients = {k: under(agreed, rows, f"client {k!r}") for k, rows in clients.items()}
    how: dict[str, Any] = {"positive": positive, "seed": seed, "strict": strict, "secure": secure}
    how |= {"sensitive_features": names, "checkpoint": checkpoint, "schema": agreed}
    limits: dict[str, Any] = {"limit": limit, "confidence": confidence, "precision": precision}
    limits["cluster"] = cluster
    fitted, certified_limit = _fitted(clients, chosen, device, how, limits)
    left = leave(fitted, clients, out, target=target, run=run, certified_limit=certified_limit)
    try:
        tested = _tested(fitted.model, test, target, dialect)
    except DataError as error:
        present(fitted, left, [], columns, out, as_json)
        raise DataError(f"{error}; {str(out)!r} is written, and not measured on --test") from None
    present(fitted, left, tested, columns, out, as_json)
    return _claimed(certified_limit)


def _claimed(certified_limit: CertifiedLimit | None) -> None:
    """Ends with an exit code of its own where there is a limit that cannot be claimed."""
    if certified_limit is not None and not certified_limit.holds:
        raise Exit(UNCLAIMED)


def _check_places(
    out: Path,
    beside: Sequence[str],
    inputs: Sequence[Path],
    force: bool,
    folders: Mapping[str, Path | None],
) -> None:
    """Say before the work that its results cannot be written, or would be written over something."""
    cards = (f"{out.stem}-card.{kind}" for kind in ("md", "html"))
    for path in (out, *(out.parent / name for name in (*cards, *beside))):
        check_file(path, inputs, force)
    for option, folder in folders.items():
        if folder is not None:
            check_folder(folder, option=option)


def _read(
    files: Sequence[Path], test: Sequence[Path], roles: options.Roles, dialect: options.Dialect
) -> Mapping[str, Table | Stream]:
    """The clients' rows; that the test files can be read is looked at before the work, not after it."""
    from agnosticfair.data.encoding import Encoding as Unread
    from agnosticfair.data.files import read_rows, read_sources

    for path in test:
        read_rows(path, Unread((), ()), target=roles.target, dialect=dialect)
    return read_sources(files, roles, dialect=dialect)


def _clustered(
    roles: options.Roles, cluster: str | None, limit: float | None, apart: bool
) -> options.Roles:
    """The roles of columns, with the one that names clusters."""
    if cluster is None:
        return roles
    if limit is None or apart:
        raise SettingsError(
            "--cluster deals the rows of --limit, in one process: give a limit, or audit the model with --cluster"
        )
    return replace(roles, subgroups=(*roles.subgroups, cluster))


def _method(
    name: str, settings: options.Settings, device: str | None, limit: float | None
) -> Method:
    from agnosticfair.auditing.limit import within
    from agnosticfair.methods import Network, default_for
    from agnosticfair.methods import method as build_method

    name = default_for(settings) if name == DEFAULT else name
    chosen = (
        build_method(name) if limit is None else within(build_method(name), settings.get("tau"))
    )
    if "network" in settings:
        settings = {**settings, "network": Network(settings["network"], device=device or "cpu")}
    chosen = build_method(chosen, **settings)
    if device is not None and "network" not in settings and chosen.rule is None:
        raise SettingsError(
            f"--device is for rules and networks, and method {chosen.name!r} is neither: leave it out"
        )
    return chosen


def _fitted(
    clients: Mapping[str, Table | Stream],
    chosen: Method,
    device: str | None,
    how: Mapping[str, Any],
    promised: Mapping[str, Any],
) -> tuple[Fit, CertifiedLimit | None]:
    """The fit, its rounds shown on the terminal; and what it promises, where there is a limit."""
    from agnosticfair import federation
    from agnosticfair.auditing.limit import fit_within

    max_rounds = (
        chosen.max_rounds if chosen.rule is None else 0
    )  # learners have rounds of their own
    with progress(max_rounds, "rounds", at_most=True) as advance:

        def on_round(entry: dict) -> None:
            advance(round_words(entry))

        engine = federation.in_process(clients, device if chosen.rule else None)
        if promised["limit"] is None:
            fitted = federation.fit(engine, chosen, on_round=on_round, **how)
            return replace(fitted, model=federation.knowing(fitted.model, clients)), None
        if how["checkpoint"] is not None:
            raise SettingsError(
                "a limit is found by several fits, which no checkpoint holds: leave out --checkpoint"
            )
        options = {k: v for k, v in how.items() if k != "checkpoint"}
        rows_source = engine if device else clients
        return fit_within(rows_source, chosen, on_round=on_round, **options, **promised)


def _tested(
    model: Model, files: list[Path] | None, target: str, dialect: options.Dialect
) -> list[dict[str, Any]]:
    """What the model does on rows held out, if there are any."""
    if not files:
        return []
    return scores(model, labelled(model, files, target, model.sensitive_features, None, dialect))


MODEL = "model.safetensors"
PATH = ",".join(f"{tau:g}" for tau in TAUS)


@options.with_roles
@options.with_dialect
@options.with_settings(without=("tau",))
@options.example("tune north.csv south.csv --target income --sensitive-features sex --out tune")
def tune(
    files: options.Files,
    roles: options.Roles,
    dialect: options.Dialect,
    positive: options.Positive = None,
    method: options.MethodName = DEFAULT,
    settings: options.Settings = options.NONE,
    taus: Annotated[str, Option(help="The path, with commas between.")] = PATH,
    tau: Annotated[float | None, Option(help="The point to take; by default the knee.")] = None,
    folds: Annotated[int, Option(help="Folds of the cross-validation.")] = 2,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    out: options.OutFolder = Path("tune"),
    as_json: options.Json = False,
) -> None:
    """Draw accuracy against the worst difference on held-out rows along tau, and save the model of one point.

    Beside the path stand 'fl', where it would end without a limit, and 'fairfl'. Writes frontier.json,
    frontier.png and, as 'fit --run' does, the model of the knee or of --tau with its card: 'report' shows it.
    """
    from agnosticfair.data.files import read_clients
    from agnosticfair.methods import method as build_method
    from agnosticfair.tuning import trace

    check_folder(out)
    path = _numbers(taus)
    if tau is not None and tau not in path:
        raise SettingsError(f"tau {tau:g} is not on the path {taus}: add it by --taus")
    chosen, names = build_method(method, **settings, tau=path[0]), roles.sensitive_features
    target = str(roles.target)
    roles = with_subgroup_set(roles, chosen)
    clients = read_clients(files, roles, dialect=dialect)
    if not as_json:
        tell(clients, target, positive)
        note_rows(chosen)
    options: dict[str, Any] = {"taus": path, "folds": folds, "seed": seed}
    options |= {"jobs": cpus() if jobs is None else jobs, "positive": positive}
    with progress(folds * len(path), "fits") as advance:
        frontier = trace(
            clients,
            chosen,
            sensitive_features=names,
            on_progress=lambda done, total: advance(""),
            **options,
        )
    with progress(1, "fit of the point picked") as advance:
        picked = frontier.pick(tau)
        advance("")
    write_files(out, {})
    left = leave(picked, clients, out / MODEL, target=target, run=out)
    written = dict.fromkeys((MODEL, *left.cards, *left.extra_files))
    sentences = sentences_of(picked, left, out / MODEL)
    _deliver(frontier, picked.method.fairness.tau, out, written, sentences, as_json)


def _deliver(
    path: Frontier,
    tau: float,
    out: Path,
    written: Iterable[str],
    about: Iterable[str],
    as_json: bool,
) -> None:
    """Write the frontier beside what the picked fit left, and show it."""
    from agnosticfair.report import figures

    record = {"format": "agnosticfair-frontier-1", "knee": path.knee, "metric": path.metric}
    record |= {"folds": path.folds, "points": [vars(p) for p in path.points]}
    record |= {"references": {name: vars(p) for name, p in path.references.items()}, "tau": tau}
    text = json.dumps(record, indent=1)
    files = {
        "frontier.json": f"{text}\n".encode(),
        "frontier.png": figures.png(figures.frontier_figure(path)),
    }
    beside = ", ".join(str(out / name) for name in written)
    closing = "\n".join((*about, f"The model is that of tau {tau:g}; beside it: {beside}."))
    deliver(out, files, [figures.frontier_grid(path)], closing, text if as_json else None)


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise SettingsError(f"taus {text!r} are not numbers: write them as 0.02,0.05,0.1") from None
