"""``agnosticfair methods``: what is known by name."""

from __future__ import annotations

import json
from math import isfinite

from agnosticfair.commands.options import Json, example
from agnosticfair.commands.output import grid, show


@example("methods --json")
def list_methods(as_json: Json = False) -> None:
    """List the methods by name, with what each minimises and its main values."""
    from dataclasses import asdict

    from agnosticfair.auditing.certificate import plain
    from agnosticfair.mathematics.basis import is_centred
    from agnosticfair.methods import METHODS

    if as_json:
        return print(json.dumps([plain(asdict(m)) for m in METHODS.values()], indent=1))
    lines = []
    for m in METHODS.values():
        tau = (
            m.fairness.tau
            if m.fairness
            else m.averaging.tau
            if m.averaging and m.averaging.penalty
            else ""
        )
        kernels = f" {m.basis.kernels}" if is_centred(m.basis) else ""
        bound = f"{m.bound:g}" if isfinite(m.bound) else ""
        values = (f"{m.basis.kind}{kernels}", bound, f"{tau}", f"{m.max_rounds}")
        lines.append((m.name, m.summary, *values))
    return show(grid("", ("method", "what it does", "basis", "B", "tau", "rounds"), lines))
