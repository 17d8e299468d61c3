"""``agnosticfair tune``: accuracy against the certified worst case, and the model of the point picked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Option

from agnosticfair.commands.options import (
    NONE,
    Files,
    Json,
    MethodName,
    OutFolder,
    Positive,
    Roles,
    Seed,
    Settings,
    with_roles,
    with_settings,
)
from agnosticfair.commands.output import check_folder, deliver, progress
from agnosticfair.errors import SettingsError
from agnosticfair.settings import TAUS

EPILOG = "Example: agnosticfair tune north.csv south.csv --target income --sensitive-features sex --out tune"

PATH = ",".join(f"{tau:g}" for tau in TAUS)


@with_roles
@with_settings(without=("tau",))
def tune(
    files: Files,
    roles: Roles,
    positive: Positive = None,
    method: MethodName = "agnosticfair",
    settings: Settings = NONE,
    taus: Annotated[str, Option(help="The path, with commas between.")] = PATH,
    tau: Annotated[float | None, Option(help="The point to take; by default the knee.")] = None,
    folds: Annotated[int, Option(help="Folds of the cross-validation.")] = 3,
    seed: Seed = 0,
    out: OutFolder = Path("tune"),
    as_json: Json = False,
) -> None:
    """Draw accuracy against the certified worst difference along tau, and save the model of one point.

    Writes frontier.json, frontier.png and model.safetensors: the knee's model, or that of --tau.
    """
    from agnosticfair.data.files import read_clients
    from agnosticfair.methods import method as recipe
    from agnosticfair.report import frontier as report
    from agnosticfair.report.figures import png
    from agnosticfair.tuning import trace

    check_folder(out)
    path = _numbers(taus)
    if tau is not None and tau not in path:
        raise SettingsError(f"tau {tau:g} is not on the path {taus}: add it by --taus")
    chosen = recipe(method, **settings, tau=path[0])
    clients = read_clients(files, roles)
    with progress((folds + 1) * len(path), "fits") as advance:
        found = trace(
            clients,
            chosen,
            sensitive_features=roles.sensitive_features,
            positive=positive,
            taus=path,
            folds=folds,
            seed=seed,
            on_progress=lambda done, total: advance(""),
        )
    points = [{k: v for k, v in vars(p).items() if k != "fit"} for p in found.points]
    told = {"format": "agnosticfair-frontier-1", "knee": found.knee, "notion": found.notion}
    text = json.dumps({**told, "points": points}, indent=1)
    files_out = {"frontier.json": f"{text}\n".encode(), "frontier.png": png(report.figure(found))}
    files_out["model.safetensors"] = found.pick(tau).model.to_bytes()
    taken = found.points[found.knee].tau if tau is None else tau
    said = f"The model is that of tau {taken:g}."
    deliver(out, files_out, [report.grid(found)], said, text if as_json else None)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingsError(f"taus {text!r} are not numbers: write them as 0.02,0.05,0.1") from None
