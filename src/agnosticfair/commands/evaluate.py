"""``agnosticfair evaluate``: what a saved model does on labelled rows."""

from __future__ import annotations

import json
from typing import Annotated

from typer import Option

from agnosticfair.commands.measuring import labelled, scores, show_scores
from agnosticfair.commands.options import Client, Files, Json, ModelFile, Target

EPILOG = "Example: agnosticfair evaluate model.safetensors test.csv --target income"


def evaluate(
    model: ModelFile,
    files: Files,
    target: Target,
    sensitive_features: Annotated[
        list[str] | None, Option(help="Column with groups; else the model's. May be repeated.")
    ] = None,
    client_column: Client = None,
    as_json: Json = False,
) -> None:
    """Measure a model on labelled rows: accuracy, and how its decisions differ between groups."""
    from agnosticfair.model import load_model

    loaded = load_model(model)
    named = tuple(sensitive_features or loaded.sensitive_features)
    clients = labelled(loaded, files, target, named, client_column)
    found = scores(loaded, clients, named)
    if as_json:
        return print(json.dumps(found, indent=1))
    return show_scores(f"{model}, a model by {loaded.method['name']}", found)
