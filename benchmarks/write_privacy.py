"""Write what was measured of privacy into two pages: tables between marks, from benchmarks/privacy.json.

    python benchmarks/write_privacy.py

The file is kept by benchmarks/private.py, privacy_audit.py, membership.py and secure_cost.py with --keep: each writes
its own entry, with the command that made it. `--check` compares the page with the file, and writes nothing.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from write_readme import write

ROOT = Path(__file__).parents[1]
FILE = ROOT / "benchmarks" / "privacy.json"
PAGES = {
    ROOT / "docs" / "privacy.md": ("fairfl", "audit"),
    ROOT / "research" / "docs" / "measured.md": ("membership", "cost"),
}
"""The tables of each page."""


def keep(name: str, entry: dict[str, Any]) -> None:
    """Keep what was measured under a name, with the command that measured it."""
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    kept[name] = {**entry, "command": command}
    FILE.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")


COLUMNS = {
    "fairfl": {
        "epsilon": "{epsilon:g}",
        "seeds": "{seeds}",
        "accuracy": "{accuracy:.3f}",
        "test risk difference": "{difference:.4f}",
        "certified on the training rows": "{at_most:.4f}",
    },
    "audit": {
        "noise": "{noise}",
        "epsilon is at least": "{at_least:.2f}",
        "claimed": "{claimed:g}",
    },
    "membership": {
        "fit": "{fit}",
        "area under the curve": "{area:.3f} ± {area_spread:.3f}",
        "best advantage": "{advantage:.3f}",
    },
    "cost": {
        "sites": "{sites}",
        "method": "`{method}`",
        "a site's answer, ms": "{site[0]:.1f} → {site[1]:.1f}",
        "coordinator, ms": "{coordinator[0]:.0f} → {coordinator[1]:.0f}",
        "round": "{apart:.2f}",
    },
}
"""The page's tables by the names of their marks: headers, and how an entry's values are written."""


def entries(kept: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """What was kept for a table, in the table's order."""
    if name in kept:
        return kept[name]["found"]
    found = [entry for key, entry in kept.items() if key.split()[0] == name]
    order = ("sites", "method") if name == "cost" else ("tau", "epsilon")
    return sorted(found, key=lambda entry: tuple(entry[key] for key in order))


def table(kept: dict[str, Any], name: str) -> str:
    """A table in Markdown."""
    columns = COLUMNS[name]
    lines = [[form.format(**entry) for form in columns.values()] for entry in entries(kept, name)]
    rows = [[*columns], ["---"] * len(columns), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def written(page: str, names: tuple[str, ...], kept: dict[str, Any]) -> str:
    """The page with its tables as the file has them."""
    for name in names:
        text = table(kept, name)
        marks = f"<!-- measured: {name} -->", "<!-- end -->"
        pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.S)
        page, times = pattern.subn(lambda _, t=text, m=marks: f"{m[0]}\n{t}\n{m[1]}", page)
        assert times == 1, name
    return page


if __name__ == "__main__":
    kept = json.loads(FILE.read_text())
    write({page: written(page.read_text(), names, kept) for page, names in PAGES.items()})
