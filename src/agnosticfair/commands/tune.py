"""``agnosticfair tune``: accuracy against the worst difference over a set, and the model of the point picked."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from agnosticfair.commands import options
from agnosticfair.commands.leaving import leave, note_rows, sentences_of
from agnosticfair.commands.output import check_folder, deliver, progress, write_files
from agnosticfair.commands.rows import tell, with_subgroup_set
from agnosticfair.errors import SettingsError
from agnosticfair.settings import DEFAULT, TAUS
from agnosticfair.threads import cpus

if TYPE_CHECKING:
    from agnosticfair.tuning import Frontier

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
    from agnosticfair.report import frontier as drawn
    from agnosticfair.report.figures import png

    record = {"format": "agnosticfair-frontier-1", "knee": path.knee, "metric": path.metric}
    record |= {"folds": path.folds, "points": [vars(p) for p in path.points]}
    record |= {"references": {name: vars(p) for name, p in path.references.items()}, "tau": tau}
    text = json.dumps(record, indent=1)
    files = {
        "frontier.json": f"{text}\n".encode(),
        "frontier.png": png(drawn.frontier_figure(path)),
    }
    beside = ", ".join(str(out / name) for name in written)
    closing = "\n".join((*about, f"The model is that of tau {tau:g}; beside it: {beside}."))
    deliver(out, files, [drawn.frontier_grid(path)], closing, text if as_json else None)


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise SettingsError(f"taus {text!r} are not numbers: write them as 0.02,0.05,0.1") from None
