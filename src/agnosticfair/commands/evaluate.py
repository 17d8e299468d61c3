"""``agnosticfair evaluate``: what a saved model does on labelled rows."""

from __future__ import annotations

import json
from typing import Annotated

from typer import Option

from agnosticfair.commands import options
from agnosticfair.commands.measuring import labelled, scores, show_scores
from agnosticfair.commands.reading import warned


@options.with_dialect
@options.example("evaluate model.safetensors test.csv --target income")
def evaluate(
    model: options.ModelFile,
    files: options.Files,
    target: options.Target,
    dialect: options.Dialect,
    sensitive_features: Annotated[
        list[str] | None, Option(help="Column with groups; else the model's. May be repeated.")
    ] = None,
    client_column: options.Client = None,
    notion: options.Notion = None,
    as_json: options.Json = False,
) -> None:
    """Measure a model on labelled rows: accuracy, and how its decisions differ between groups."""
    from agnosticfair.mathematics.notions import NOTIONS
    from agnosticfair.model import load_model
    from agnosticfair.settings import require_name

    if notion is not None:
        require_name("notion", notion, NOTIONS)
    loaded = load_model(model)
    named = tuple(sensitive_features or loaded.sensitive_features)
    clients = labelled(loaded, files, target, named, client_column, dialect)
    found = scores(loaded, clients, named, notion)
    if as_json:
        return print(json.dumps(found, indent=1))
    show_scores(f"{model}, a model by {loaded.method['name']}", found)
    for text in warned(found, tau=bool(loaded.method.get("fairness"))):
        print("Warning:", text)
    return None
