"""``agnosticfair deploy``: a federation of real sites over Flower, from a folder that a person can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from agnosticfair.commands.options import (
    NONE,
    Categorical,
    Drop,
    Json,
    MethodName,
    Numeric,
    Seed,
    SensitiveFeatures,
    Settings,
    Target,
    with_settings,
)
from agnosticfair.errors import SettingsError
from agnosticfair.settings import from_config, to_config

EPILOG = (
    "Example: agnosticfair deploy init bank --sites north=north.csv,south=south.csv "
    "--target income --sensitive-features sex"
)
ROUND = ("sums", "average", "train", "average_network")
"""The steps of which every round has one."""

deploy = typer.Typer(
    help="Train over real sites with Flower: each has its own file, and only messages travel.",
    no_args_is_help=True,
)


@deploy.command(epilog=EPILOG)
@with_settings()
def init(
    folder: Annotated[Path, Argument(help="A new folder.")],
    sites: Annotated[str, Option(help="NAME=FILE of each site, with commas between.")],
    target: Target,
    sensitive_features: SensitiveFeatures,
    numeric: Numeric = None,
    categorical: Categorical = None,
    drop: Drop = None,
    positive: Annotated[str, Option(help="The label that counts as 1.")] = "",
    method: MethodName = "agnosticfair",
    settings: Settings = NONE,
    seed: Seed = 0,
    on_failure: Annotated[str, Option(help="stop, retry, wait or drop.")] = "wait",
    deadline: Annotated[float, Option(help="Seconds a site has for an answer.")] = 120.0,
    least_rows: Annotated[int, Option(help="Rows per group, or a site does not answer.")] = 10,
    host: Annotated[str, Option(help="The SuperLink's address.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Its port; the SuperNodes take the next ones.")] = 8000,
) -> None:
    """Write a folder with the Flower app, TLS certificates for a test, a key pair per site and start scripts."""
    from agnosticfair.data.files import Roles
    from agnosticfair.flower.folder import Federation, write_folder
    from agnosticfair.methods import method as recipe
    from agnosticfair.protocol.faults import policy

    if "network" in settings:
        from agnosticfair.networks import factory

        factory(
            settings["network"]
        )  # as are the next ones: refused now rather than at the first run
    recipe(method, **settings), policy(on_failure)
    kinds = {"numeric": numeric, "categorical": categorical, "drop": drop}
    columns: dict[str, Any] = {k: tuple(v or ()) for k, v in kinds.items()}
    roles = Roles(target, tuple(sensitive_features), **columns)
    run = {"method": method, "seed": seed, "positive": positive, "deadline": deadline}
    run |= {"on-failure": on_failure, **to_config(settings)}
    write_folder(folder, Federation(_sites(sites), roles, run, host, port, least_rows))
    print(f"Written: {folder}. Start the SuperLink and the sites, each in a terminal of its own:")
    for name in ("superlink", *sorted(_sites(sites))):
        print(f"  sh {folder}/start-{name}.sh")
    print(f"then train:\n  agnosticfair deploy run {folder}")


@deploy.command(epilog="Example: agnosticfair deploy run bank")
def run(
    folder: Annotated[Path, Argument(help="A folder written by 'deploy init'.")],
    timeout: Annotated[float, Option(help="Most seconds to wait for the run.")] = 3600.0,
    as_json: Json = False,
) -> None:
    """Submit a run, follow it to its end, and fetch model, history and certificate.

    A run that was interrupted goes on from its last checkpoint.
    """
    from agnosticfair.commands.output import progress
    from agnosticfair.flower.runner import read_config, run_federation
    from agnosticfair.methods import method as recipe

    config = read_config(folder)
    most = recipe(str(config["method"]), **from_config(config)).max_rounds
    with progress(most, "rounds") as advance:

        def tell(seen: dict[str, Any]) -> None:
            advance(f"loss {seen['round']['loss']:.4f}")

        done = run_federation(folder, tell, timeout)
    told = {"run": done.run, "folder": str(done.folder), **done.history}
    if as_json:
        return print(json.dumps(told, indent=1))
    return _show(told)


def _show(told: dict[str, Any]) -> None:
    """The rounds and their bytes, what went wrong on the way, and where the results are."""
    from agnosticfair.commands.output import cell, grid, show

    rounds = [t for t in told["traffic"] if t["step"] in ROUND]
    lines = []
    for entry in told["history"]:
        bytes_of = [t for t in rounds if t["round"] == entry["round"]]
        size = max((t["sent"] + t["received"] for t in bytes_of), default=None)
        values = (entry["round"], entry["loss"], entry["worst"], entry["accuracy"], size)
        lines.append([cell(value) for value in values])
    header = ("round", "loss", "worst difference", "accuracy", "bytes per site")
    show(grid(f"Run {told['run']}", header, lines))
    for event in told["events"]:
        print("Note:", ", ".join(f"{key} {cell(value)}" for key, value in event.items()))
    print(
        f"\nIt ended as {told['outcome']!r} after {told['rounds']} rounds, {told['seconds']:.0f} s."
    )
    if told.get("certificate"):
        print(told["certificate"])
    print(f"Written: model.safetensors, history.json and certificate.json in {told['folder']}")


def _sites(text: str) -> dict[str, Path]:
    """Sites from NAME=FILE texts; the files may lie on the sites' own machines.

    >>> _sites("north=a.csv, south=b.csv")
    {'north': PosixPath('a.csv'), 'south': PosixPath('b.csv')}
    """
    found: dict[str, Path] = {}
    for part in text.split(","):
        key, sign, file = part.strip().partition("=")
        if not (key and sign and file) or key in found:
            raise SettingsError(f"--sites has {part.strip()!r}: write NAME=FILE, each name once")
        found[key] = Path(file)
    return found
