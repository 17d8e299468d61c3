"""``agnosticfair export``: a model in a form that other programs run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from agnosticfair.commands.options import Force, ModelFile, example
from agnosticfair.commands.output import check_file, write_files


@example("export model.safetensors --onnx model.onnx")
def export(
    model: ModelFile,
    onnx: Annotated[Path, Option(help="The ONNX file to write.")],
    force: Force = False,
) -> None:
    """Write a model as an ONNX file that takes raw columns: its encoding is part of the graph."""
    from agnosticfair.model import load_model
    from agnosticfair.runs.export import to_onnx

    check_file(onnx, (model,), force, option="--onnx")
    made = to_onnx(load_model(model))
    write_files(onnx.parent, {onnx.name: made.SerializeToString()})
    inputs, outputs = ([v.name for v in part] for part in (made.graph.input, made.graph.output))
    print(f"Written: {onnx}; inputs {', '.join(inputs)}; outputs {', '.join(outputs)}.")
