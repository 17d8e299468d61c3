#!/usr/bin/env python3
"""Turn the dialect of a checkout into the field's words: names, keys, options, file names, messages, documents.

    python research/rename/rename.py ROOT            # rewrites the files in place, moves files with git mv
    python research/rename/rename.py ROOT --check    # says what it would do, and what it could not decide

Tables beside this file: words.toml (words, whole names, attributes, moves, prose), locals.txt (names of one function
of one file), attributes by file in there too.  A second run changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import guess  # noqa: E402
from pysource import Scope, Source, Tok  # noqa: E402

HERE = Path(__file__).parent
PIECES = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|_+|[^A-Za-z0-9_]+")
NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
KEBAB = re.compile(r"^(--[a-z][a-z0-9]*(-[a-z0-9]+)*|[a-z][a-z0-9]*(-[a-z0-9]+)+)$")
PACKAGES = ("agnosticfair", "agnosticfair_research")


class Tables:
    def __init__(self) -> None:
        t = tomllib.loads((HERE / "words.toml").read_text())
        self.words: dict[str, str] = t["words"]
        self.prefixes: dict[str, str] = t["prefixes"]
        self.names: dict[str, str] = t["names"]
        self.attributes: dict[str, str] = t["attributes"]
        self.keys: dict[str, str] = t["keys"]
        self.fallback: dict[str, str] = t["fallback"]
        self.keep: set[str] = set(t["keep"]["names"])
        self.keep_files: list[str] = t["keep"]["files"]
        self.keep_text: list[str] = t["keep"]["text_files"]
        self.keep_strings: list[tuple[str, str]] = [tuple(x) for x in t["keep"]["strings"]]
        self.moves: dict[str, str] = t["moves"]
        self.prose = [(re.compile(p), r) for p, r in t["prose"]["rules"]]
        self.late_prose = [(re.compile(p), r) for p, r in t["prose"].get("late", [])]
        self.protect = [re.compile(p) for p in t["prose"]["protect"]]
        self.file_prose = [(g, re.compile(p), r) for g, p, r in t["prose"].get("file_rules", [])]
        self.locals: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
        self.used: set[tuple[str, str, str]] = set()
        files = []
        for source in sorted(HERE.glob("locals*.txt")):
            for number, line in enumerate(source.read_text().splitlines(), 1):
                line = line.split(" #")[0].strip()
                if not line or line.startswith("#"):
                    continue
                if line.startswith("@"):
                    files = line[1:].split()
                    continue
                qual, _, rest = line.partition(":")
                for pair in rest.split():
                    old, _, new = pair.rpartition("=")
                    if not new:
                        sys.exit(f"{source.name}:{number}: {pair!r} is no old=new")
                    for f in files:
                        for q in qual.split(","):
                            self.locals[f][q.strip()][old] = new

    def entry(self, file: str, qual: str, old: str) -> str | None:
        """What locals.txt says of a name in a function of a file; '*' is any function of it."""
        for key in keys_of(file):
            table = self.locals.get(key)
            if not table:
                continue
            for q in (qual, "*"):
                if old in table.get(q, ()):
                    self.used.add((key, q, old))
                    return table[q][old]
        return None


def keys_of(file: str) -> list[str]:
    """The names by which a table may call a file: its path, the path within the package, and folders with /*."""
    short = re.sub(r"^(research/)?src/agnosticfair(_research)?/", "", file)
    found = [file] if short == file else [file, short]
    folder = file
    while "/" in folder:
        folder = folder.rsplit("/", 1)[0]
        found.append(folder + "/*")
    return [*found, "*"]


def styled(new: str, like: str) -> str:
    """A word (or words with _) in the style of another: lower, UPPER or Camel."""
    if like.isupper() and (len(like) > 1):
        return new.upper()
    if like[:1].isupper():
        return "".join(w[:1].upper() + w[1:] for w in new.split("_"))
    return new


def by_words(name: str, words: dict[str, str], prefixes: dict[str, str]) -> str:
    pieces = PIECES.findall(name)
    plain = [p for p in pieces if p.strip("_")]
    out, first = [], True
    for p in pieces:
        low = p.lower()
        if first and p.strip("_") and low in prefixes and len(plain) > 1:
            out.append(styled(prefixes[low], p))
        elif low in words:
            out.append(styled(words[low], p))
        else:
            out.append(p)
        if p.strip("_"):
            first = False
    return "".join(out)


class Renamer:
    def __init__(self, root: Path, tables: Tables) -> None:
        self.root, self.t = root, tables
        listed = subprocess.check_output(["git", "-C", str(root), "ls-files"], text=True).split("\n")
        self.files = [f for f in listed if f and (root / f).is_file()]
        self.files = [f for f in self.files if not f.startswith("research/rename/")]
        self.files = [f for f in self.files if not any(fnmatch(f, g) for g in tables.keep_files)]
        self.py = [f for f in self.files if f.endswith(".py")]
        self.reports: dict[str, list[str]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.sources = {f: Source((root / f).read_text()) for f in self.py}
        self.modules = {m: f for f in self.py if (m := module_of(f))}
        self.moves = self._moves()
        self.members = self._members()
        self._places: dict[str, dict[int, Scope]] = {}
        self.options = {
            node.value
            for s in self.sources.values()
            for node in ast.walk(s.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEBAB.match(node.value)
        }
        self.parameters: dict[str, dict[str, str]] = defaultdict(dict)
        self.imports = {f: self._imports(f) for f in self.py}

    # -- files
    def _moves(self) -> dict[str, str]:
        """Old path -> new path."""
        moves = {}
        there = set(self.files)
        for f in self.files:
            new = self.t.moves.get(f)
            if new and "?" in new:  # only while another file is still there
                new, needs = new.split("?")
                new = new if needs in there else f
            if new is None and f.endswith((".py", ".md")):
                stem = Path(f).stem
                plain = by_words(stem, self.t.words, {}) if not self.kept_text(f) else stem
                new = str(Path(f).with_name(plain + Path(f).suffix)) if plain != stem else None
            if new and new != f:
                moves[f] = new
        for old, new in list(moves.items()):
            if new in there and new not in moves:
                self.reports["moves whose target exists already, not done"].append(f"{old} -> {new}")
                del moves[old]
        return moves

    def kept_text(self, f: str) -> bool:
        return any(fnmatch(f, g) for g in self.t.keep_text)

    def _members(self) -> set[str]:
        """All names that the project itself defines."""
        names: set[str] = set()
        for s in self.sources.values():
            for scope in s.scopes:
                names.update(n for n, kind in scope.bound.items() if kind != "import")
            for node in ast.walk(s.tree):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    names.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.match(node.value):
                    names.add(node.value)
        return names

    def _imports(self, file: str) -> dict[str, tuple[str, str | None]]:
        """Local name -> (module, name in it or None where the module itself is bound), of our packages only."""
        found: dict[str, tuple[str, str | None]] = {}
        for node in ast.walk(self.sources[file].tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for a in node.names:
                    whole = f"{node.module}.{a.name}"
                    local = a.asname or a.name
                    if whole in self.modules:
                        found[local] = (whole, None)
                    elif node.module in self.modules:
                        found[local] = (node.module, a.name)
                    else:
                        found.setdefault(local, ("", a.name))
            elif isinstance(node, ast.Import):
                for a in node.names:
                    if a.asname and a.name in self.modules:
                        found[a.asname] = (a.name, None)
                    else:
                        found.setdefault((a.asname or a.name).split(".")[0], ("", None))
        return found

    # -- names
    def word(self, name: str, file: str = "") -> str:
        """A name by the tables of whole names and of words; those of a file (~ in locals.txt) come first."""
        if name in self.t.keep:
            return name
        if file:
            for key in keys_of(file):
                if more := self.t.locals.get(key, {}).get("~"):
                    self.t.used.update((key, "~", w) for w in more)
                    if name in more:
                        return more[name]
                    return by_words(name, self.t.words | more, {} if name.startswith("test_") else self.t.prefixes) if not (name in self.t.names and not any(p.lower() in more for p in PIECES.findall(name))) else self.t.names[name]
        if name in self.t.names:
            return self.t.names[name]
        if name.startswith("test_"):
            return by_words(name, self.t.words, {})
        return by_words(name, self.t.words, self.t.prefixes)

    def attribute(self, name: str, file: str = "") -> str:
        if name in self.t.keep:
            return name
        return self.t.attributes.get(name) or self.word(name, file)

    def key(self, name: str) -> str:
        """A whole string that looks like a name or an option."""
        if name in self.t.keep:
            return name
        if name in self.t.keys:
            return self.t.keys[name]
        if KEBAB.match(name):
            dashes = re.match("-*", name)[0]
            inner = name[len(dashes) :].replace("-", "_")
            new = self.t.keys.get(inner) or self.attribute(inner)
            return dashes + new.replace("_", "-") if new != inner else name
        if NAME.match(name):
            return self.attribute(name)
        return name

    def module_name(self, module: str, name: str) -> str:
        """The new name of what a module defines at its top."""
        file = self.modules[module]
        found = self.t.entry(file, "", name)
        if found:
            return found
        origin = self.imports[file].get(name) if file in self.imports else None
        if origin and origin[0] and origin[1] and origin[0] != module:
            return self.module_name(origin[0], origin[1])
        if origin and not origin[0]:
            return name
        return self.word(name, file)

    # -- a Python file
    def python(self, file: str) -> str:
        s = self.sources[file]
        edits: list[tuple[int, int, str]] = []
        done: set[int] = set()
        keywords = self._keywords(s)
        # import statements: their module paths
        for node in ast.walk(s.tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module in self.modules:
                a, b = s.span(node)
                match = re.compile(r"from\s+([\w.]+)\s+import").match(s.text, a)
                if match:
                    self._dotted(s, match.span(1), edits, done)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] in PACKAGES and "." in alias.name:
                        a, b = s.span(alias)
                        self._dotted(s, (a, a + len(alias.name)), edits, done)
        scopes_new: dict[int, dict[str, set[tuple[str, int]]]] = {}
        imported = self.imports[file]
        in_import = self._import_names(s)
        for i, t in enumerate(s.tokens):
            if t.kind == "NAME" and t.start not in done:
                new = self._name(file, s, t, imported, in_import, keywords, i)
                if new != t.text:
                    edits.append((t.start, t.end, new))
                if t.prev != "." and t.start not in keywords and not (t.next == "=" and t.prev in "(,"):
                    owner = s.owner(t)
                    for scope in s.chain(t.start):
                        table = scopes_new.setdefault(id(scope), {"": scope})  # type: ignore[dict-item]
                        table.setdefault(new, set()).add((t.text, id(owner) if owner else 0))
            elif t.kind == "TEXT":
                new = self._text(file, t)
                if new != t.text:
                    edits.append((t.start, t.end, new))
            elif t.kind == "COMMENT":
                new = self.prose(t.text, file)
                if new != t.text:
                    edits.append((t.start, t.end, new))
        for table in scopes_new.values():
            scope = table.pop("")
            for new, olds in table.items():
                if len({o for o, _ in olds}) > 1 and scope.kind in ("def", "module"):
                    if scope.kind == "module" and not all(own == id(scope) for _, own in olds):
                        continue
                    by_id = {id(x): x for x in s.scopes}
                    for old, own in olds:
                        place = (file, by_id[own].qual, old) if own in by_id else None
                        if place in self.guessed:  # a guess gives way
                            del self.guessed[place]
                            self.t.locals[file][place[1]].pop(old, None)
                            self.undecided.append((*place, 0, f"(not {new}, which is there)"))
                            self.again = True
                            break
                    mended = False
                    for old, own in sorted(olds):
                        if own not in by_id or by_id[own].kind != "def" or by_id[own].bound.get(old) == "import":
                            continue
                        place = self.t.locals[file][by_id[own].qual]
                        for second in (self.t.fallback.get(old), {"method": "chosen_method"}.get(new), f"{new}_here"):
                            if second and old != new and second not in table and place.get(old) != second:
                                place[old] = second
                                self.reports["second choices, because the first was taken"].append(
                                    f"{file} {by_id[own].qual}: {old} -> {second} (not {new})"
                                )
                                self.again = mended = True
                                break
                        if mended:
                            break
                    self.reports["two names would become one"].append(
                        f"{file} {scope.qual or '<module>'}: {' and '.join(sorted(o for o, _ in olds))} -> {new}"
                    )
        return apply(s.text, edits)

    def _import_names(self, s: Source) -> dict[int, tuple[str, str]]:
        """Places of names in `from module import name`: place -> (module, name)."""
        places: dict[int, tuple[str, str]] = {}
        for node in ast.walk(s.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    places[s.span(alias)[0]] = (node.module, alias.name)
        return places

    def _dotted(self, s: Source, span: tuple[int, int], edits: list, done: set[int]) -> None:
        a, b = span
        done.update(t.start for t in s.tokens if a <= t.start < b)
        new = self.dotted(s.text[a:b])
        if new != s.text[a:b]:
            edits.append((a, b, new))

    def dotted(self, module: str) -> str:
        """A dotted module's new name."""
        file = self.modules.get(module)
        if file is None:
            return module
        new = self.moves.get(file)
        return module_of(new) if new else module

    def _keywords(self, s: Source) -> dict[int, tuple[str, str]]:
        """Places of keyword names in calls: place -> (called name, keyword)."""
        places = {}
        for node in ast.walk(s.tree):
            if isinstance(node, ast.Call):
                called = called_name(node.func)
                if called == "partial" and node.args:
                    called = called_name(node.args[0])
                for k in node.keywords:
                    if k.arg:
                        try:
                            places[s.place(k.lineno, k.col_offset)] = (called, k.arg)
                        except IndexError:
                            continue
        return places

    def _name(self, file, s: Source, t: Tok, imported, in_import, keywords, i) -> str:
        name = t.text
        if name in self.t.keep:
            return name
        chain = None
        if t.prev == "." and t.prev2 != "\n":
            base = t.prev2
            if NAME.match(base or "") and base in imported and imported[base][1] is None and imported[base][0]:
                # an attribute of one of our modules
                return self.module_name(imported[base][0], name)
            if base in imported and not imported[base][0] and imported[base][1] is None:
                return name  # of somebody else's module
            found = self.t.entry(file, "", f"{base}.{name}")
            if found:
                return found
            for scope in s.chain(t.start):
                found = self.t.entry(file, scope.qual, "." + name)
                if found:
                    return found
            return self.attribute(name, file) if name in self.members else name
        if t.start in in_import:
            module, original = in_import[t.start]
            whole = f"{module}.{original}"
            if whole in self.modules:
                return self.dotted(whole).rsplit(".", 1)[-1]
            if module in self.modules:
                return self.module_name(module, original)
            return name
        if t.start in keywords and keywords[t.start][1] == name:
            return self._keyword(file, s, t, keywords[t.start][0])
        if t.inf and t.next == "=" and t.prev in ("(", ","):
            return self._keyword(file, s, t, "")
        owner = s.owner(t)
        if owner is None:
            if name in imported:
                return name
            return self.word(name) if name in self.members and not is_builtin(name) else name
        if owner.bound[name] == "import":
            origin = imported.get(name)
            if origin is None or not origin[0]:
                return name
            if origin[1] is None:
                return self.dotted(origin[0]).rsplit(".", 1)[-1] if origin[0].endswith("." + name) else name
            if origin[1] != name:  # imported under another name
                return self.t.entry(file, owner.qual, name) or self.word(name, file)
            return self.module_name(origin[0], origin[1])
        if owner.kind == "class":
            found = self.t.entry(file, owner.qual, "." + name)
            return found or self.attribute(name, file)
        found = self.t.entry(file, owner.qual, name)
        if found:
            return found
        return self.word(name, file)

    def _keyword(self, file: str, s: Source, t: Tok, called: str) -> str:
        for scope in s.chain(t.start):
            found = self.t.entry(file, scope.qual, "=" + t.text)
            if found:
                return found
        if called == "given":
            scope = self._decorated(file, t.start)
            if scope is not None and t.text in scope.bound:
                return self._parameter(file, scope, t.text)
        table = self.parameters.get(called, {})
        if t.text in table:
            return table[t.text]
        return self.attribute(t.text) if t.text in self.members else t.text

    def collect_parameters(self) -> None:
        """For each function (or class: its fields) the new names of its parameters, for calls by keyword."""
        seen: dict[tuple[str, str], set[str]] = defaultdict(set)
        for file, s in self.sources.items():
            for scope in s.scopes:
                if scope.kind == "def":
                    called = scope.name
                    if called in ("__init__", "__call__", "__post_init__") and scope.parent is not None:
                        called = scope.parent.name
                    for name, kind in scope.bound.items():
                        if kind == "param":
                            new = self.t.entry(file, scope.qual, name) or self.word(name, file)
                            seen[called, name].add(new)
                elif scope.kind == "class":
                    for name, kind in scope.bound.items():
                        if kind == "=":
                            new = self.t.entry(file, scope.qual, "." + name) or self.attribute(name)
                            seen[scope.name, name].add(new)
        for (called, name), news in seen.items():
            if len(news) == 1:
                self.parameters[called][name] = next(iter(news))
            else:
                self.reports["keyword of several functions of one name"].append(f"{called}({name}=): {sorted(news)}")

    def _documented(self, file: str, t: Tok, text: str) -> str:
        """A docstring whose parameters and fields have other names now: `name:`, ``name`` and numpydoc's `name : type`."""
        scope = next(iter(self.sources[file].chain(t.start)))
        for old, kind in scope.bound.items():
            if scope.kind == "class" and kind == "=":
                new = self.t.entry(file, scope.qual, "." + old) or self.attribute(old, file)
            elif scope.kind == "def" and kind == "param":
                new = self.t.entry(file, scope.qual, old) or self.word(old, file)
            else:
                continue
            if new != old and len(old) > 2:
                text = re.sub(rf"(?<![\w.`'-]){old}(?=(?:, \w+)*\s?:(?!:))", f"\x02{new}\x02", text)
                text = re.sub(rf"(?<=, ){old}(?=:)", f"\x02{new}\x02", text)
                text = re.sub(rf"(?<=``){old}(?=``)|(?<=`){old}(?=`)", f"\x02{new}\x02", text)
        return text

    def _decorated(self, file: str, place: int) -> "Scope | None":
        """The function whose decorators stand at a place."""
        for scope in self.sources[file].scopes:
            if scope.kind == "def":
                for d in scope.node.decorator_list:
                    a, b = self.sources[file].span(d)
                    if a <= place < b:
                        return scope
        return None

    def _parametrized(self, file: str) -> dict[int, Scope]:
        """Places of the names in pytest's parametrize -> the function that has them as parameters."""
        if file not in self._places:
            found = self._places[file] = {}
            s = self.sources[file]
            for scope in s.scopes:
                for d in scope.node.decorator_list if scope.kind == "def" else ():
                    if isinstance(d, ast.Call) and called_name(d.func) == "parametrize" and d.args:
                        a, b = s.span(d.args[0])
                        found.update({t.start: scope for t in s.tokens if t.kind == "TEXT" and a <= t.start < b})
        return self._places[file]

    def _parameter(self, file: str, scope, name: str) -> str:
        return self.t.entry(file, scope.qual, name) or self.word(name, file)

    def _text(self, file: str, t: Tok) -> str:
        text = t.text
        if t.whole and re.fullmatch(r"\w+(,\s*\w+)*", text):
            scope = self._parametrized(file).get(t.start)
            if scope is not None:
                return re.sub(r"\w+", lambda m: self._parameter(file, scope, m[0]), text)
        if any(fnmatch(file, g) and text == s for g, s in self.t.keep_strings):
            return text
        for scope_key in (f'"{text}"',):
            for scope in self.sources[file].chain(t.start):
                found = self.t.entry(file, scope.qual, scope_key)
                if found:
                    return found
        if t.doc:
            text = self._documented(file, t, text)
        if t.whole and not t.doc and (NAME.match(text) or KEBAB.match(text)):
            return self.key(text) if (text.replace("-", "_").lstrip("_") and True) else text
        return self.prose(text, file).replace("\x02", "")

    # -- prose
    CODE = re.compile(r"``[^`\n]+``|`[^`\n]+`|--[a-z][a-z0-9-]+|\b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+_?\b|\b[a-z]+(?:/[a-z_]+)+(?:\.\w+)?|\bagnosticfair(?:\.\w+)+")

    def prose(self, text: str, file: str, code_blocks: bool = True) -> str:
        lines = text.split("\n")
        out, fenced = [], False
        doctest = False
        for line in lines:
            if line.lstrip().startswith("```"):
                fenced = not fenced
                out.append(line)
                continue
            stripped = line.lstrip()
            if fenced and file.endswith((".md",)):
                out.append(self.loose_code(line, file))
            elif stripped.startswith((">>> ", "... ")):
                out.append(self.loose_code(line, file))
            else:
                out.append(self.sentence(line, file))
        text = "\n".join(out)
        for p, r in self.t.late_prose:
            text = p.sub(r, text)
        return text

    def sentence(self, line: str, file: str) -> str:
        """Code inside a line by the names, everything else by the prose's rules."""
        out, last = [], 0
        for m in self.CODE.finditer(line):
            out.append(self.plain(line[last : m.start()], file))
            out.append(self.loose_code(m[0], file))
            last = m.end()
        out.append(self.plain(line[last:], file))
        return "".join(out)

    def plain(self, text: str, file: str) -> str:
        if not text.strip():
            return text
        held: list[str] = []

        def hold(m: re.Match) -> str:
            held.append(m[0])
            return f"\x00{len(held) - 1}\x00"

        text = re.sub("\x02[^\x02]*\x02", hold, text)
        for p in self.t.protect:
            text = p.sub(hold, text)
        text = re.sub(r"(?<![\w-])[a-z]+(?:-[a-z]+)+(?![\w-])", self._option, text)
        for g, p, r in self.t.file_prose:
            if any(fnmatch(k, g) for k in keys_of(file)):
                text = p.sub(r, text)
        for p, r in self.t.prose:
            text = p.sub(lambda m: like(m[0], m.expand(r)), text)
        return re.sub("\x00(\\d+)\x00", lambda m: held[int(m[1])], text)

    def _option(self, m: re.Match) -> str:
        """An option in a sentence, without its dashes, where the project has one of that name."""
        inner = m[0].replace("-", "_")
        return self.key(m[0]) if inner in self.members or m[0] in self.t.keys or m[0] in self.options else m[0]

    def loose_code(self, text: str, file: str) -> str:
        """Code of which only the words are known: paths, dotted modules, options, names."""
        for old, new in self.path_words:
            text = re.sub(rf"(?<![\w/.-]){re.escape(old)}(?![\w])", new, text)

        def one(m: re.Match) -> str:
            w = m[0]
            if "-" in w:
                return self.key(w)
            if m.start() and text[m.start() - 1] == "." and w in self.t.attributes:
                return self.t.attributes[w]
            if m.end() < len(text) and text[m.end()] == "=" and text[m.end() + 1 : m.end() + 2] != "=" and w in self.t.attributes:
                return self.t.attributes[w]
            if (m.start() and text[m.start() - 1] == '"') and w in self.t.keys:
                return self.t.keys[w]
            if w in ("least", "most"):
                return self.attribute(w)
            return self.word(w) if w in self.members or w in self.t.names else w

        if "\x02" in text:
            return text
        return re.sub(r"--[a-z][a-z0-9]*(?:-[a-z0-9]+)*|[a-z][a-z0-9]*(?:-[a-z0-9]+)+|[A-Za-z_][A-Za-z0-9_]*", one, text)

    # -- other files
    def json_file(self, text: str) -> str:
        return re.sub(r'"([A-Za-z_][\w-]*)"(\s*:)', lambda m: f'"{self.key(m[1])}"{m[2]}', text)

    def script(self, text: str, file: str) -> str:
        """JavaScript: names and keys by the tables, wherever they stand."""
        return self.prose_or_code(text, file)

    def prose_or_code(self, text: str, file: str) -> str:
        def one(m: re.Match) -> str:
            w = m[0]
            if "-" in w:
                return self.key(w)
            if text[m.end() : m.end() + 5] in (".html", ".css\"") or text[m.end() : m.end() + 3] == ".js":
                return w
            found = self.t.entry(file, "", w)
            if found:
                return found
            after_dot = m.start() and text[m.start() - 1] == "."
            return self.attribute(w) if after_dot else self.word(w)

        return re.sub(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+|[A-Za-z_][A-Za-z0-9_]*", one, text)

    def settings_file(self, text: str, file: str) -> str:
        """TOML, YAML, units: options with dashes, keys, and comments."""
        out = []
        for line in text.split("\n"):
            code, hash_, comment = line.partition("#")
            for old, new in self.path_words:
                code = re.sub(rf"(?<![\w/.-]){re.escape(old)}(?![\w])", new, code)
            code = re.sub(r"(?<![\w.-])[a-z][a-z0-9]*(?:-[a-z0-9]+)+(?![\w])", lambda m: self.key(m[0]), code)
            out.append(code + hash_ + (self.prose(comment, file) if hash_ else ""))
        return "\n".join(out)

    def guess(self) -> None:
        """Names of the dialect that no table knows: by annotations and by what called functions return."""
        known = guess.returns(self.sources)
        self.guessed: dict[tuple[str, str, str], str] = {}
        for file, s in self.sources.items():
            if self.kept_text(file):
                continue
            done, undecided = guess.guesses(s, known, self.word)
            for (qual, old), new in done.items():
                if not self.t.entry(file, qual, old):
                    self.guessed[file, qual, old] = new
                    self.t.locals[file][qual][old] = new
            for (qual, old), line in undecided.items():
                if not self.t.entry(file, qual, old):
                    text = s.lines[line - 1].strip()[:130] if line else ""
                    self.undecided.append((file, qual, old, line, text))

    def run(self, write: bool) -> None:
        self.undecided: list[tuple[str, str, str, int, str]] = []
        self.guess()
        for file in self.py:  # pytest has a fixture `request` of its own
            if "tests/" in file:
                for scope in self.sources[file].scopes:
                    for old, kind in scope.bound.items():
                        if scope.kind == "def" and kind == "param" and old != "request":
                            if self._parameter(file, scope, old) == "request":
                                self.t.locals[file][scope.qual][old] = "one_request"
        self.collect_parameters()
        words = []
        for old, new in self.moves.items():
            words.append((old, new))
            a = re.sub(r"^(research/)?src/agnosticfair(_research)?/", "", old)
            b = re.sub(r"^(research/)?src/agnosticfair(_research)?/", "", new)
            if a != old:
                words += [(a, b), (a.removesuffix(".py"), b.removesuffix(".py"))]
            if module_of(old):
                words.append((module_of(old), module_of(new)))
                short = module_of(old).split(".", 1)[-1]
                if "." in short:
                    words.append((short, module_of(new).split(".", 1)[1]))
        self.path_words = sorted(set(words), key=lambda w: -len(w[0]))
        for _ in range(8):  # once more where two names met and one of them has a second choice
            self.again = False
            reports = {k: [*v] for k, v in self.reports.items()}
            self.parameters.clear()
            self.reports.pop("keyword of several functions of one name", None)
            self.collect_parameters()
            for f in self.py:
                if not self.kept_text(f):
                    self.python(f)
            if not self.again:
                break
            reports["second choices, because the first was taken"] = self.reports["second choices, because the first was taken"]
            self.reports = defaultdict(list, reports)
        self.reports.pop("two names would become one", None)
        results: dict[str, str] = {}
        for f in self.files:
            path = self.root / f
            if self.kept_text(f):
                continue
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue
            if f.endswith(".py"):
                new = self.python(f)
            elif f.endswith(".json"):
                new = self.json_file(text)
            elif f.endswith((".js", ".html", ".css")):
                new = self.script(text, f)
            elif f.endswith((".toml", ".yml", ".yaml", ".service", ".conf", ".cff", "Makefile", "Dockerfile")):
                new = self.settings_file(text, f)
            elif f.endswith((".md", ".txt", ".rst")):
                new = self.prose(text, f)
            else:
                continue
            if new != text:
                results[f] = new
        for f, entry in ((f, q) for f, q in self.t.locals.items()):
            for q, table in entry.items():
                for old in table:
                    if (f, q, old) not in self.t.used and not old.startswith(("=", '"')):
                        self.reports["entries of locals.txt that met nothing"].append(f"{f} {q}: {old}={table[old]}")
        if write:
            for f, new in results.items():
                (self.root / f).write_text(new)
            self._move()
        (HERE / "undecided.txt").write_text(
            "\n".join(f"{f} | {q} | {o} {n}: {x}" for f, q, o, n, x in sorted(set(self.undecided))) + "\n"
        )
        print(f"{len(self.guessed)} names by type, {len(set(self.undecided))} undecided (undecided.txt)")
        print(f"{len(results)} files changed, {len(self.moves)} moved")
        for what, lines in self.reports.items():
            print(f"\n== {what}: {len(lines)}")
            print("\n".join(sorted(set(lines))))

    def _move(self) -> None:
        temporary = []
        for old, new in self.moves.items():
            (self.root / new).parent.mkdir(parents=True, exist_ok=True)
            subprocess.check_call(["git", "-C", str(self.root), "mv", old, new + ".moved"])
            temporary.append(new)
        for new in temporary:
            subprocess.check_call(["git", "-C", str(self.root), "mv", new + ".moved", new])


def like(old: str, new: str) -> str:
    """The replacement with a capital where the old text had one."""
    return new[:1].upper() + new[1:] if old[:1].isupper() and new[:1].islower() else new


def called_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return ""


def is_builtin(name: str) -> bool:
    import builtins

    return hasattr(builtins, name)


def module_of(file: str) -> str:
    m = re.match(r"(?:research/)?src/((?:agnosticfair|agnosticfair_research)/.*)\.py$", file)
    if m:
        return m[1].replace("/", ".").removesuffix(".__init__")
    m = re.match(r"(tests|research/tests)/(.*)\.py$", file)
    if m:
        return f"tests.{m[2]}".replace("/", ".") if "/" in m[2] else m[2]
    return ""


def apply(text: str, edits: list[tuple[int, int, str]]) -> str:
    out, last = [], 0
    for a, b, new in sorted(edits):
        if a < last:
            continue
        out += [text[last:a], new]
        last = b
    return "".join(out) + text[last:]


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    Renamer(given.root, Tables()).run(not given.check)
