#!/usr/bin/env python3
"""After rename.py: what mypy knows of classes.  A field that a table renames for one class only is looked up by type:
where mypy says that the class has no attribute of the general new name, the special one is put there.

    python research/rename/repair.py          # in the root of the checkout, PYTHONPATH=src; asks .venv/bin/mypy
"""

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from rename import Tables, by_words  # noqa: E402

t = Tables()


def word(name):
    return t.names.get(name) or by_words(name, t.words, t.prefixes)


special = defaultdict(dict)  # new class -> wrong attribute -> right one
for file, table in t.locals.items():
    for qual, pairs in table.items():
        for old, new in pairs.items():
            if old.startswith(".") and re.match(r"^[_A-Z]\w*$", qual.split(".")[-1]) and qual != "*":
                name = table.get("", {}).get(qual) or word(qual)
                special[name][t.attributes.get(old[1:]) or word(old[1:])] = new
                special[name][old[1:]] = new
for _ in range(4):
    out = subprocess.run(
        [".venv/bin/mypy", "--show-column-numbers", "--no-error-summary", *sys.argv[1:]], capture_output=True, text=True
    ).stdout
    edits = defaultdict(set)
    for line in out.splitlines():
        m = re.match(r'(.+?):(\d+):(\d+): error: (?:Item )?"(\w+)(?:\[.*\])?"(?: of ".*")? has no attribute "(\w+)"', line)
        if m and m[5] in special.get(m[4], ()):
            edits[m[1]].add((int(m[2]), int(m[3]), m[5], special[m[4]][m[5]], "."))
        m = re.match(r'(.+?):(\d+):(\d+): error: Unexpected keyword argument "(\w+)" for "(?:replace" of )?"(\w+)"', line)
        if m and m[4] in special.get(m[5], ()):
            edits[m[1]].add((int(m[2]), int(m[3]), m[4], special[m[5]][m[4]], "="))
    if not edits:
        break
    for file, some in edits.items():
        path = Path(file)
        lines = path.read_text().split("\n")
        for line, column, wrong, right, kind in sorted(some, reverse=True):
            text = "\n".join(lines[line - 1 :])
            pattern = rf"\.{wrong}\b" if kind == "." else rf"\b{wrong}(?==[^=])"
            m = re.compile(pattern).search(text, column - 1)
            if m and kind == "." and text.startswith(f".{wrong}.{wrong}", m.start()):
                m = re.compile(pattern).search(text, m.end())
            if m:
                text = text[: m.start()] + ("." if kind == "." else "") + right + text[m.end() :]
                lines[line - 1 :] = text.split("\n")
                print(f"{file}:{line}: {wrong} -> {right}")
        path.write_text("\n".join(lines))
