"""The command line. Commands read, call the library and draw; what is heavy is imported in them."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer import Argument, Option

import agnosticfair
from agnosticfair.commands import audit as audit_command
from agnosticfair.commands import deploy, messages
from agnosticfair.commands import export as export_command
from agnosticfair.commands import report as report_command
from agnosticfair.commands import shifts as shifts_command
from agnosticfair.commands import tune as tune_command
from agnosticfair.commands.options import (
    Bound,
    Categorical,
    Client,
    Drop,
    Files,
    Intersections,
    Json,
    MethodName,
    NetworkName,
    Notion,
    Numeric,
    Positive,
    Sensitive,
    Target,
    Tau,
)
from agnosticfair.errors import AgnosticFairError, DataError, SettingsError
from agnosticfair.record import COMMAND
from agnosticfair.threads import cpus

if TYPE_CHECKING:
    from agnosticfair.certificate import Certificate
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.table import Table
    from agnosticfair.federation import Fit
    from agnosticfair.model import Model

app = typer.Typer(
    help="Federated classifiers that stay accurate and fair on a deployment nobody has seen.",
    epilog="Begin with: agnosticfair reproduce --dataset adult --setting shift --seeds 2",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(deploy.deploy, name="deploy")
app.command("explain-messages", epilog=messages.EPILOG)(messages.explain_messages)

Folder = Annotated[
    Path | None, Option(help="Where the Dutch census is; else $AGNOSTICFAIR_DATA, else downloaded.")
]
ModelFile = Annotated[Path, Argument(help="A model written by 'fit'.")]
Sources = Annotated[
    list[Path],
    Argument(
        help="A CSV or Parquet file, or a folder of Parquet, per client; or one file for all."
    ),
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; what is wrong with the input ends in one sentence and exit code 2."""
    COMMAND.set(tuple(sys.argv[1:] if arguments is None else arguments))
    try:
        app(arguments, prog_name="agnosticfair")
    except AgnosticFairError as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _version(asked: bool) -> None:
    if asked:
        print(f"agnosticfair {agnosticfair.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: agnosticfair reproduce --dataset adult --methods fl,fairfl --seeds 5")
def reproduce(
    dataset: Annotated[str, Option(help="adult, dutch or all.")] = "adult",
    setting: Annotated[
        str, Option(help="shift (Tables 1, 2, Figure 2), iid (Table 3), clients (Figure 3) or all.")
    ] = "all",
    methods: Annotated[str, Option(help="Names with commas between, or all.")] = "all",
    seeds: Annotated[int, Option(help="Runs of each method, each on a split of its own.")] = 20,
    jobs: Annotated[int | None, Option(help="Processes; by default one per processor.")] = None,
    data_folder: Folder = None,
    out: Annotated[Path, Option(help="Folder for the results.")] = Path("results"),
    as_json: Json = False,
) -> None:
    """Run the paper's experiments and show its tables and figures beside the paper's own numbers.

    Writes results.json (a row per data set, setting, method and seed), tables.md and PNG figures.
    The numbers do not depend on the number of processes.
    """
    from agnosticfair.data.datasets import DATASETS, load
    from agnosticfair.experiments.detail import decided_files
    from agnosticfair.experiments.reproduce import SETTINGS, cells, run
    from agnosticfair.methods import METHODS
    from agnosticfair.record import provenance

    _check_folder(out)
    folder = None if data_folder is None else str(data_folder)
    tasks = cells(
        _listed(dataset, DATASETS),
        _listed(setting, SETTINGS),
        _listed(methods, METHODS),
        seeds,
        folder,
    )
    begin = perf_counter()
    with _progress(len(tasks), "fits") as advance:
        rows = run(tasks, cpus() if jobs is None else jobs, lambda row: advance(row["method"]))
    kept = decided_files(rows, 2, folder)
    results = {
        "format": "agnosticfair-results-1",
        **provenance({name: load(name, folder) for name in _listed(dataset, DATASETS)}),
        "asked": {"dataset": dataset, "setting": setting, "methods": methods, "seeds": seeds},
        "rows": rows,
    }
    _present(results, out, kept, perf_counter() - begin, as_json)


def _present(
    results: Mapping[str, Any], out: Path, kept: Mapping[str, bytes], seconds: float, as_json: bool
) -> None:
    """Write the results, tables and figures; then show the tables and say where the rest is."""
    from agnosticfair.report import figures, tables

    summaries = tables.summarise(results["rows"])
    drawn = figures.figures(summaries)
    asked = " ".join(f"--{key} {value}" for key, value in results["asked"].items())
    made_by = f"Made by `agnosticfair reproduce {asked}`, version {agnosticfair.__version__}."
    captions = {name: text for name, (_, text) in drawn.items()}
    document = tables.document(tables.grids(summaries), captions, made_by)
    text = json.dumps(results, indent=1, allow_nan=False)
    files = {"results.json": f"{text}\n".encode(), "tables.md": document.encode(), **kept}
    write_files(out, files | {name: figures.png(figure) for name, (figure, _) in drawn.items()})
    if as_json:
        return print(text)
    for grid in tables.grids(summaries, digits=3):
        _print(grid)
        print()
    print(f"{len(results['rows'])} fits in {seconds:.0f} s; mean±standard deviation over seeds.")
    return print("Written:", *(str(out / name) for name in (*files, *drawn)), sep="\n  ")


@app.command(epilog="Example: agnosticfair fit north.csv south.csv --target income --sensitive sex")
def fit(
    files: Sources,
    target: Target,
    sensitive: Sensitive,
    client_column: Client = None,
    numeric: Numeric = None,
    categorical: Categorical = None,
    drop: Drop = None,
    positive: Positive = None,
    method: MethodName = "agnosticfair",
    model: NetworkName = "linear",
    notion: Notion = None,
    intersections: Intersections = None,
    tau: Tau = None,
    bound: Bound = None,
    rounds: Annotated[int | None, Option(help="Most rounds.")] = None,
    seed: Annotated[int, Option(help="Draws the kernels' centres.")] = 0,
    strict: Annotated[bool, Option("--strict", help="Fail if it does not converge.")] = False,
    checkpoint: Annotated[
        Path | None, Option(help="Folder for the state after each round; a killed fit goes on.")
    ] = None,
    workers: Annotated[int, Option(help="Processes that answer for the clients.")] = 1,
    device: Annotated[
        str | None, Option(help="Add up the rows there, in float32: 'cuda' (needs PyTorch).")
    ] = None,
    track: Annotated[
        str | None, Option(help="mlflow:URI to log the fit there: mlflow:sqlite:///runs.db.")
    ] = None,
    run: Annotated[
        Path | None, Option(help="Folder for what 'report' and 'watch' show; adds a certificate.")
    ] = None,
    out: Annotated[Path, Option(help="The model's file.")] = Path("model.safetensors"),
    as_json: Json = False,
) -> None:
    """Train one model over clients whose rows stay with them: only sums are added up.

    Beside the model a card is written, as Markdown and HTML: what it is for, what was measured and
    certified, and its limits. The options numeric, categorical, drop and sensitive may be repeated.
    """
    from agnosticfair import federation, record
    from agnosticfair.checkpoints import FILE as CHECKPOINT
    from agnosticfair.data.files import Roles, read_sources
    from agnosticfair.methods import method as recipe
    from agnosticfair.tracking import parameters, results, tracker

    _check_folder(out.parent, needed=True)
    if run is not None:
        _check_folder(run)
    changes = {"tau": tau, "bound": bound, "rounds": rounds, "notion": notion}
    changes["intersections"] = intersections
    changes["network"] = None if model == "linear" else model
    chosen = recipe(method, **{k: v for k, v in changes.items() if v is not None})
    kinds = (tuple(names or ()) for names in (numeric, categorical, drop))
    clients = read_sources(files, Roles(target, tuple(sensitive), client_column, *kinds))
    resume = checkpoint is not None and (checkpoint / CHECKPOINT).exists()
    with tracker(track) as tell:
        held = {key: len(table) for key, table in clients.items()}
        tell("parameters", parameters(chosen, seed=seed, rows=held))
        add = None if run is None else record.rounds(run, chosen, len(clients), resume)
        with _progress(chosen.rounds, "rounds") as advance:

            def on_round(entry: dict) -> None:
                advance(f"loss {entry['loss']:.4f}")
                tell("round", entry)
                if add is not None:
                    add(entry)

            fitted = federation.fit(
                federation.in_process(clients, workers, device),
                chosen,
                attribute=tuple(sensitive),
                positive=positive,
                seed=seed,
                strict=strict,
                checkpoint=checkpoint,
                on_round=on_round,
            )
        fitted.model.save(out)
        found = scores(fitted.model, clients)
        certified: Any = ({}, {})
        kept: dict[str, bytes] = {}
        asked_for = run is not None or track is not None
        if asked_for or not any(source.streamed for source in clients.values()):
            certified = record.certificates(fitted, clients, seed=seed + 1)
        if asked_for:  # each is another pass over the rows
            told = {"target": target, "training_rows": found}
            kept = record.run_files(fitted, clients, record.certified(*certified), **told)
        if run is not None:
            fitted.model.save(run / "model.safetensors")
            write_files(run, kept)
        cards = _cards(fitted, clients, certified, target, out.stem)
        write_files(out.parent, cards)
        if track is not None:
            tell("results", results(fitted, certified[0]))
            tell(
                "files", {out.name: out.read_bytes(), **cards, **_pages(fitted, certified[0], kept)}
            )
    if as_json:
        names = ("outcome", "rounds", "outcomes", "seconds", "events")
        ended = {k: getattr(fitted, k) for k in names}
        about = {"model": str(out), "method": chosen.name, "positive": fitted.model.positive}
        return print(json.dumps({**about, **ended, "training_rows": found}, indent=1))
    _print_scores("Training rows", found)
    how = "converged" if fitted.converged else f"ended with outcome {fitted.outcome!r}"
    print(f"\n{chosen.name} {how} after {fitted.rounds} rounds in {fitted.seconds:.1f} s.")
    for event in fitted.events:
        print("Note:", ", ".join(f"{key} {_text(value)}" for key, value in event.items()))
    beside = ", ".join(str(out.parent / name) for name in cards) or "no card, for rows are streamed"
    return print(f"Written: {out}, which predicts {fitted.model.positive!r}; {beside}.")


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


@app.command(epilog="Example: agnosticfair predict model.safetensors new.csv --out predictions.csv")
def predict(
    model: ModelFile,
    file: Annotated[Path, Argument(help="CSV or Parquet; needs no label and no groups.")],
    out: Annotated[Path, Option(help="CSV to write.")] = Path("predictions.csv"),
) -> None:
    """Predict every row of a file: its label, and the probability of the positive one."""
    from agnosticfair.data.files import read_rows
    from agnosticfair.model import load_model

    _check_folder(out.parent, needed=True)
    loaded = load_model(model)
    table = read_rows(file, loaded.encoding)
    labels, positive = (loaded.negative, loaded.positive), loaded.predict(table, str(file))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("prediction", "probability"))
    for k, probability in zip(positive, loaded.probabilities(table), strict=True):
        writer.writerow((labels[k], float(probability)))
    write_files(out.parent, {out.name: text.getvalue().encode()})
    print(f"Written: {out}; {positive.sum()} of {len(table)} rows are {loaded.positive!r}.")


@app.command(epilog="Example: agnosticfair evaluate model.safetensors test.csv --target income")
def evaluate(
    model: ModelFile,
    files: Files,
    target: Target,
    sensitive: Annotated[
        list[str] | None, Option(help="Column with groups; else the model's. May be repeated.")
    ] = None,
    client_column: Client = None,
    as_json: Json = False,
) -> None:
    """Measure a model on labelled rows: accuracy, and how its decisions differ between groups."""
    from agnosticfair.model import load_model

    loaded = load_model(model)
    attributes = tuple(sensitive or loaded.attributes)
    clients = labelled(loaded, files, target, attributes, client_column)
    found = scores(loaded, clients, attributes)
    if as_json:
        return print(json.dumps(found, indent=1))
    return _print_scores(f"{model}, a model by {loaded.method['name']}", found)


@app.command("methods", epilog="Example: agnosticfair methods --json")
def list_methods(as_json: Json = False) -> None:
    """List the methods by name, with what each minimises and its main values."""
    from dataclasses import asdict

    from agnosticfair.methods import METHODS

    if as_json:
        return print(json.dumps([_finite(asdict(m)) for m in METHODS.values()], indent=1))
    lines = []
    for m in METHODS.values():
        tau = m.fairness.tau if m.fairness else m.local.tau if m.local and m.local.penalty else ""
        kernels = f" {m.basis.kernels}" if m.basis.kind == "gaussian" else ""
        bound = f"{m.bound:g}" if isfinite(m.bound) else ""
        values = (f"{m.basis.kind}{kernels}", bound, f"{tau}", f"{m.rounds}")
        lines.append((m.name, m.summary, *values))
    return _print(_grid("", ("method", "what it does", "basis", "B", "tau", "rounds"), lines))


@app.command("data", epilog="Example: agnosticfair data --data-folder ~/data")
def list_data(data_folder: Folder = None, as_json: Json = False) -> None:
    """List the data sets known by name, and whether they are here."""
    from agnosticfair.data.datasets import DATASETS

    found = [describe(name, data_folder) for name in DATASETS]
    if as_json:
        return print(json.dumps(found, indent=1))
    for entry in found:
        lines = [(key, _text(value)) for key, value in entry.items() if key != "name"]
        _print(_grid(entry["name"], ("", ""), lines))
        print()
    return None


app.command("audit", epilog=audit_command.EPILOG)(audit_command.audit)
app.command("shifts", epilog=shifts_command.EPILOG)(shifts_command.shifts)
app.command("export", epilog=export_command.EPILOG)(export_command.export)
app.command("report", epilog=report_command.EPILOG)(report_command.report)
app.command("watch", epilog=report_command.WATCH_EPILOG)(report_command.watch)
app.command("tune", epilog=tune_command.EPILOG)(tune_command.tune)


LICENCES = {"adult": "CC BY 4.0", "dutch": "not stated by its source, so not shipped"}


def describe(name: str, folder: Path | None) -> dict[str, Any]:
    """A data set in words and numbers; nothing is downloaded to know them."""
    from agnosticfair.data import dutch
    from agnosticfair.data.census import encoding_of, take_census
    from agnosticfair.data.datasets import dataset, load

    source, named = dataset(name), folder or os.environ.get(dutch.VARIABLE)
    shift = f"{source.shift_column} {source.shift_value}, then all others"
    entry = {"name": name, "about": source.note, "licence": LICENCES.get(name, ""), "shift": shift}
    entry["positive"] = source.positive
    place = named or dutch.cache_folder()
    path = "in this package" if name == "adult" else dutch.find_dutch(place)
    if path is None:
        remedy = "put it there from" if named else "a first use downloads it from"
        return entry | {"here": False, "where": f"not in {place}: {remedy} {dutch.URL}"}
    try:
        census = take_census(load(name, folder), who=name)
    except DataError as error:
        return entry | {"here": False, "where": str(error)}
    counts = {"rows": census.n, "features": encoding_of(census).width, "labels": census.labels}
    groups = census.groups[source.sensitive]
    return entry | counts | {"groups": groups, "here": True, "where": str(path)}


def labelled(
    model: Model, files: Sequence[Path], target: str, attributes: Sequence[str], client: str | None
) -> dict[str, Table]:
    """The clients' rows to measure on, all with a group and a label that the model knows."""
    from agnosticfair.data.encoding import shown
    from agnosticfair.data.files import read_rows

    if client is not None and len(files) > 1:
        raise SettingsError(f"{len(files)} files and a client column {client!r}: name one file")
    clients: dict[str, Table] = {}
    for file in files:
        who = f"file {file.name!r}"
        table = read_rows(
            file, model.encoding, target=target, sensitive=tuple(attributes), client=client
        )
        there = {target: table.target, **table.sensitive, **table.other}
        named = [(target, "target"), *((name, "sensitive") for name in attributes)]
        named += [] if client is None else [(client, "client-column")]
        for name, option in named:
            if there.get(name) is None:
                raise DataError(f"{who} has no column {name!r}: name another by --{option}")
        known = (model.negative, model.positive)
        strange = sorted({*(table.target.values() if table.target else ())} - {*known})
        if strange and model.negative != f"not {model.positive}":
            raise DataError(
                f"column {target!r} of {who} has the label {shown(strange)}, unknown to the model: "
                f"write {shown(known)}"
            )
        parts = {file.stem: table}
        if client is not None:
            column = table.column(client)
            parts = {v: table.take(column.values() == v) for v in column.categories}
        if {*parts} & {*clients}:
            raise DataError(f"two files would be client {file.stem!r}: rename one")
        clients |= parts
    return clients


def scores(
    model: Model, clients: Mapping[str, Table | Stream], attributes: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """What the model does on all rows together, then at every client where there are several; for each
    attribute, by default the model's.

    A number that a lack of rows leaves without meaning is None.
    """
    named = model.attributes if attributes is None else attributes
    return [entry for name in named for entry in _scores(model, clients, name)]


def _scores(
    model: Model, clients: Mapping[str, Table | Stream], attribute: str
) -> list[dict[str, Any]]:
    import numpy as np

    from agnosticfair import metrics

    def counts(table: Table) -> Counter[tuple[str, int, int]]:
        column = table.sensitive[attribute]
        y, y_hat = table.labels(model.positive).astype(int), model.predict(table)
        cells, rows = np.unique((column.codes * 2 + y) * 2 + y_hat, return_counts=True)
        names = [(column.categories[c // 4], c // 2 % 2, c % 2) for c in cells.tolist()]
        return Counter(dict(zip(names, rows.tolist(), strict=True)))

    parts = {k: table.added_up(counts, cpus()) for k, table in clients.items()}
    total = sum(parts.values(), Counter[tuple[str, int, int]]())
    groups = tuple(sorted({group for group, _, _ in total}))
    found = []
    for key, part in {"all rows": total, **parts}.items():
        s = np.array([groups.index(group) for group, _, _ in part], int)
        y, y_hat = (np.array([cell[i] for cell in part]) for i in (1, 2))
        rows = np.array([*part.values()], float)
        rates = metrics.positive_rates(y_hat, s, rows, len(groups))
        values = {
            "accuracy": metrics.accuracy(y, y_hat, rows),
            "majority_rate": metrics.majority_rate(y, rows),
            "balanced_accuracy": metrics.balanced_accuracy(y, y_hat, rows),
            "risk_difference": metrics.risk_difference(y_hat, s, rows),
            "label_risk_difference": metrics.risk_difference(y, s, rows),
            "positive_rates": dict(zip(groups, rates.tolist(), strict=True)),
        }
        found.append(
            {"attribute": attribute, "client": key, "rows": part.total(), **_finite(values)}
        )
    return found if len(parts) > 1 else found[:1]


def _print_scores(title: str, found: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(entry["attribute"] for entry in found))
    for name in names:
        own = f"{title}, by {name}" if len(names) > 1 else title
        _print(_score_grid(own, [entry for entry in found if entry["attribute"] == name]))


def _score_grid(title: str, found: Sequence[Mapping[str, Any]]) -> Any:
    groups = tuple(found[0]["positive_rates"])
    header = ["client", "rows", "acc.", "maj. rate", "bal. acc.", "RD", "label RD"]
    lines = []
    for entry in found:
        rates = [entry["positive_rates"][group] for group in groups]
        values = [v for k, v in entry.items() if k not in ("attribute", "positive_rates")]
        lines.append([_text(value) for value in (*values, *rates)])
    return _grid(title, (*header, *(f"rate {group}" for group in groups)), lines)


def _grid(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> Any:
    from agnosticfair.report.tables import Grid

    return Grid(title, "", (*header,), tuple(map(tuple, lines)), (*range(len(header)),))


def _text(value: Any) -> str:
    """A value as a cell of a table.

    >>> _text(45222), _text(0.5), _text(None), _text({"Male": 2000, "Female": 1000})
    ('45,222', '0.5000', 'none', 'Male 2,000, Female 1,000')
    """
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(inner)}" for key, inner in value.items())
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _finite(value: Any) -> Any:
    """The same with None for every number that JSON cannot say.

    >>> _finite({"bound": float("inf"), "rounds": 3})
    {'bound': None, 'rounds': 3}
    """
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value


def _print(grid: Any) -> None:
    from rich.console import Console

    from agnosticfair.report.tables import terminal

    width = None if sys.stdout.isatty() else 160  # a pipe has no width to wrap at
    Console(width=width, highlight=False).print(terminal(grid))


@contextmanager
def _progress(total: int, what: str) -> Iterator[Callable[[str], None]]:
    """A bar on stderr with counts and time left; a line now and then where that is no terminal."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        counts = (progress.MofNCompleteColumn(), progress.TimeRemainingColumn())
        texts = progress.TextColumn(what), progress.TextColumn("{task.description}")
        columns = (texts[0], progress.BarColumn(), *counts, texts[1])
        with progress.Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda text: bar.update(task, advance=1, description=text)
        return
    begin = said = perf_counter()
    done = 0

    def advance(text: str) -> None:
        nonlocal done, said
        done, now = done + 1, perf_counter()
        if now - said > 10:
            left = (now - begin) / done * (total - done)
            print(f"{done} of {total} {what}, about {left:.0f} s left", file=sys.stderr)
            said = now

    yield advance


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files, none before all are on the disk under another name."""
    parts = {name: folder / f".{name}.{os.getpid()}.part" for name in files}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            parts[name].write_bytes(content)
        for name, part in parts.items():
            part.replace(folder / name)
    except OSError as error:
        why = f"{error.strerror}; name another place by --out"
        raise SettingsError(f"cannot write to {str(folder)!r}: {why}") from None
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _check_folder(folder: Path, needed: bool = False) -> None:
    """Say before the work, not after it, that its results cannot be written."""
    place = folder
    while not place.exists() and not needed and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise SettingsError(f"cannot write to {str(folder)!r}: name another place by --out")


def _listed(text: str, known: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Names with commas between them; 'all' is all there are.

    >>> _listed("fl, afl", ["fl", "afl", "qffl"]), _listed("all", ["x", "y"])
    (['fl', 'afl'], ['x', 'y'])
    """
    return list(known) if text.strip() == "all" else [name.strip() for name in text.split(",")]
