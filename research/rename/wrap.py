#!/usr/bin/env python3
"""Break docstrings, comments and string literals that a rename made longer than 120 characters.

    python research/rename/wrap.py ROOT FILE...      # after ruff format; says which lines it could not break
"""

import io
import re
import sys
import tokenize
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from pysource import Source  # noqa: E402

LIMIT = 120


def wrapped(text: str) -> tuple[str, list[int]]:
    skip: set[str] = set()
    for _ in range(100):
        lines = text.split("\n")
        k = next((k for k, line in enumerate(lines) if len(line) > LIMIT and line not in skip), None)
        if k is None:
            break
        new = broken(text, lines, k)
        if new is None or new == text:
            skip.add(lines[k])
        else:
            text = new
    return text, [k + 1 for k, line in enumerate(text.split("\n")) if len(line) > LIMIT]


def broken(text: str, lines: list[str], k: int) -> str | None:
    line, indent = lines[k], len(lines[k]) - len(lines[k].lstrip())
    start = sum(len(x) + 1 for x in lines[:k])
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type == tokenize.COMMENT and t.start[0] == k + 1:
            if not line.lstrip().startswith("#"):
                lines[k : k + 1] = [" " * indent + t.string, line[: t.start[1]].rstrip()]
                return "\n".join(lines)
            cut = line.rfind(" ", 0, LIMIT)
            rest = line[cut + 1 :]
            after = lines[k + 1] if k + 1 < len(lines) else ""
            if after.startswith(" " * indent + "# "):
                lines[k : k + 2] = [line[:cut], " " * indent + "# " + rest + after[indent + 1 :]]
            else:
                lines[k : k + 1] = [line[:cut], " " * indent + "# " + rest]
            return "\n".join(lines)
        if t.type == tokenize.STRING and t.start[0] <= k + 1 <= t.end[0]:
            if re.match(r"[a-zA-Z]*(\"\"\"|\'\'\')", t.string):
                if indent > 30:
                    return None
                return document(lines, k, indent, last=t.end[0] == k + 1)
            cut = literal(text, start, t, line)
            if cut is not None:
                return cut
    at = line.rfind(", ", 0, LIMIT)  # code that ruff was told to leave alone
    if at > indent and "# fmt: skip" in "".join(lines[k : k + 12]):
        lines[k : k + 1] = [line[: at + 1], " " * indent + line[at + 2 :]]
        return "\n".join(lines)
    return None


def document(lines: list[str], k: int, indent: int, last: bool) -> str | None:
    line = lines[k]
    first = line.lstrip()
    if first.startswith((">>>", "...", "| ")):
        return None
    cut = line.rfind(" ", indent + 20, LIMIT)
    if cut < 0:
        return None
    rest = line[cut + 1 :]
    after = lines[k + 1] if k + 1 < len(lines) else ""
    same = after.strip() and len(after) - len(after.lstrip()) == indent
    same = same and not after.lstrip().startswith(("-", "* ", ">>>", '"""', "| ", "==="))
    if same and not last:
        lines[k : k + 2] = [line[:cut].rstrip(), " " * indent + rest + " " + after.lstrip()]
    else:
        lines[k : k + 1] = [line[:cut].rstrip(), " " * indent + rest]
    return "\n".join(lines)


def literal(text: str, start: int, t: tokenize.TokenInfo, line: str) -> str | None:
    s = Source(text)
    a, b = s.at[t.start[0] - 1] + t.start[1], s.at[t.end[0] - 1] + t.end[1]
    own = [x for x in s.tokens if x.kind == "TEXT" and a <= x.start and x.end <= b and x.whole != x.inf]
    before = [x for x in s.tokens if x.kind in ("OP", "NAME") and x.end <= a and not x.inf and x.text != "'"]
    if not own or not before:
        return None
    alone = before[-1].depth <= 0
    if alone and (before[-1].text not in ("return", "=") or text[b : b + 1] != "\n"):
        return None
    m = re.match(r"([a-zA-Z]*)([\"'])", t.string)
    spaces = [start + i for i, c in enumerate(line[: LIMIT - 2]) if c == " "]
    spaces = [p for p in spaces if any(x.start < p < x.end for x in own) and p > start + 40 and b - p > 6]
    if not spaces:
        return None
    at = spaces[-1] + 1
    if b - at < 3:
        return None
    prefix = m[1]
    if alone:
        text = text[:a] + "(" + text[a:b] + ")" + text[b:]
        at += 1
    return text[:at] + m[2] + "\n" + " " * t.start[1] + prefix + m[2] + text[at:]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        new, left = wrapped(path.read_text())
        path.write_text(new)
        for k in left:
            print(f"{name}:{k}: still longer than {LIMIT}")
