"""A Python file as a flat list of code names and pieces of text, each with its place; f-strings are taken apart."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field

FSTRING = re.compile(r"^[rRbBuU]*[fF][rRbB]*$")
PREFIX = re.compile(r"^([A-Za-z]*)('''|\"\"\"|'|\")")


@dataclass
class Tok:
    kind: str  # NAME, OP, TEXT (inside of a string), COMMENT
    text: str
    start: int
    end: int
    prev: str = ""
    prev2: str = ""
    next: str = ""
    whole: bool = False  # TEXT: the whole literal
    doc: bool = False
    inf: bool = False  # inside an f-string
    depth: int = 0


@dataclass
class Scope:
    qual: str
    kind: str  # module, class, def
    node: ast.AST
    start: int
    end: int
    outside: list[tuple[int, int]] = field(default_factory=list)  # defaults, decorators, annotations
    bound: dict[str, str] = field(default_factory=dict)  # name -> kind of binding
    foreign: set[str] = field(default_factory=set)  # global / nonlocal
    parent: "Scope | None" = None
    name: str = ""


class Source:
    def __init__(self, text: str):
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.at = [0]
        for line in self.lines:
            self.at.append(self.at[-1] + len(line))
        self.tree = ast.parse(text)
        self.tokens: list[Tok] = []
        self._tokens(text, 0, False)
        self._link()
        self.scopes: list[Scope] = []
        module = Scope("", "module", self.tree, 0, len(text) + 1)
        self.scopes.append(module)
        self._scopes(self.tree, module, "")
        self.scopes.sort(key=lambda s: (s.start, -s.end))

    # -- places
    def place(self, line: int, col_bytes: int) -> int:
        text = self.lines[line - 1]
        if text.isascii():
            return self.at[line - 1] + col_bytes
        return self.at[line - 1] + len(text.encode()[:col_bytes].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.place(node.lineno, node.col_offset), self.place(node.end_lineno, node.end_col_offset)

    # -- tokens
    def _tokens(self, text: str, base: int, inf: bool) -> None:
        lines = text.splitlines(keepends=True)
        at = [0]
        for line in lines:
            at.append(at[-1] + len(line))
        depth = 0
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        except (tokenize.TokenError, IndentationError):
            if not inf:
                raise
            return
        for t in tokens:
            start, end = at[t.start[0] - 1] + t.start[1] + base, at[min(t.end[0], len(at)) - 1] + t.end[1] + base
            if t.type == tokenize.NAME:
                self.tokens.append(Tok("NAME", t.string, start, end, inf=inf, depth=depth))
            elif t.type == tokenize.STRING:
                self._string(t.string, start, inf)
            elif t.type == tokenize.COMMENT:
                self.tokens.append(Tok("COMMENT", t.string, start, end))
            elif t.type in (tokenize.OP, tokenize.NUMBER):
                depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(t.string, 0)
                self.tokens.append(Tok("OP", t.string, start, end, depth=depth, inf=inf))
            elif t.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT) and not inf:
                self.tokens.append(Tok("OP", "\n", start, start))

    def _string(self, literal: str, start: int, inf: bool) -> None:
        prefix, quote = PREFIX.match(literal).groups()
        first, last = len(prefix) + len(quote), len(literal) - len(quote)
        self.tokens.append(Tok("OP", "'", start, start))
        if not FSTRING.match(prefix):
            self.tokens.append(
                Tok("TEXT", literal[first:last], start + first, start + last, whole=True, inf=inf)
            )
            self.tokens.append(Tok("OP", "'", start + last, start + last))
            return
        k, piece = first, first
        while k < last:
            if literal[k] == "{":
                if literal[k + 1 : k + 2] == "{":
                    k += 2
                    continue
                if k > piece:
                    self.tokens.append(Tok("TEXT", literal[piece:k], start + piece, start + k, inf=True))
                k = self._expression(literal, k + 1, last, start)
                piece = k
            else:
                k += 1
        if last > piece:
            self.tokens.append(Tok("TEXT", literal[piece:last], start + piece, start + last, inf=True))
        self.tokens.append(Tok("OP", "'", start + last, start + last))

    def _expression(self, literal: str, k: int, last: int, start: int) -> int:
        """From behind `{` to behind its `}`; the expression's names become tokens."""
        first, depth, quote = k, 0, ""
        while k < last:
            c = literal[k]
            if quote:
                if literal.startswith(quote, k):
                    k += len(quote)
                    quote = ""
                    continue
            elif c in "'\"":
                quote = literal[k : k + 3] if literal[k : k + 3] in ("'''", '"""') else c
                k += len(quote)
                continue
            elif c in "([{":
                depth += 1
            elif c in ")]" or (c == "}" and depth):
                depth -= 1
            elif depth == 0 and (c == "}" or c == ":" or (c == "!" and literal[k + 1] != "=")):
                break
            k += 1
        self._tokens(literal[first:k].strip() and _pad(literal[first:k]), start + first, True)
        if literal[k] == "!":
            k += 2
        if literal[k] == ":":
            k += 1
            while literal[k] != "}":
                if literal[k] == "{":
                    k = self._expression(literal, k + 1, last, start)
                else:
                    k += 1
        return k + 1

    def _link(self) -> None:
        code = [t for t in self.tokens if t.kind != "COMMENT"]
        for i, t in enumerate(code):
            t.prev = code[i - 1].text if i and code[i - 1].kind != "TEXT" else ""
            t.prev2 = code[i - 2].text if i > 1 and code[i - 2].kind != "TEXT" else ""
            t.next = code[i + 1].text if i + 1 < len(code) else ""
        docs = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                docs.add(self.span(node.value))
        for t in self.tokens:
            if t.kind == "TEXT":
                t.doc = any(a <= t.start < b for a, b in docs) if docs else False

    # -- scopes
    def _scopes(self, node: ast.AST, scope: Scope, qual: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                scope.bound.setdefault(child.name, "def" if not isinstance(child, ast.ClassDef) else "class")
                inner = f"{qual}.{child.name}" if qual else child.name
                start, end = self.span(child)
                own = Scope(inner, "class" if isinstance(child, ast.ClassDef) else "def", child, start, end)
                own.name, own.parent = child.name, scope
                for d in child.decorator_list:
                    own.outside.append(self.span(d))
                    own.start = min(own.start, self.span(d)[0])
                # the name itself belongs to the outer scope
                match = re.compile(r"(?:async\s+)?(?:def|class)\s+(\w+)").match(self.text, start)
                if match:
                    own.outside.append(match.span(1))
                if isinstance(child, ast.ClassDef):
                    for b in [*child.bases, *(k.value for k in child.keywords)]:
                        own.outside.append(self.span(b))
                else:
                    a = child.args
                    for p in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]:
                        if p:
                            own.bound[p.arg] = "param"
                            if p.annotation:
                                own.outside.append(self.span(p.annotation))
                    for d in [*a.defaults, *a.kw_defaults]:
                        if d:
                            own.outside.append(self.span(d))
                            self._binds(d, scope)
                    if child.returns:
                        own.outside.append(self.span(child.returns))
                self.scopes.append(own)
                for part in child.body:
                    self._one(part, own, inner)
            else:
                self._one(child, scope, qual, True)

    def _one(self, node: ast.AST, scope: Scope, qual: str, is_child: bool = False) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            holder = ast.Module(body=[node], type_ignores=[])
            self._scopes(holder, scope, qual)
            return
        self._binds(node, scope)
        self._scopes(node, scope, qual)

    def _binds(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            scope.bound.setdefault(node.id, "=")
        elif isinstance(node, ast.arg):
            scope.bound.setdefault(node.arg, "lambda")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for a in node.names:
                scope.bound.setdefault((a.asname or a.name).split(".")[0], "import")
        elif isinstance(node, ast.ExceptHandler) and node.name:
            scope.bound.setdefault(node.name, "=")
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            scope.foreign.update(node.names)
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            scope.bound.setdefault(node.name, "=")

    def chain(self, place: int) -> list[Scope]:
        """Scopes around a place, innermost first; a signature's defaults belong to the outer one."""
        around = [s for s in self.scopes if s.start <= place < s.end or s.kind == "module"]
        around = [s for s in around if not any(a <= place < b for a, b in s.outside)]
        return sorted(around, key=lambda s: (s.start, -s.end), reverse=True)

    def owner(self, tok: Tok) -> Scope | None:
        """The scope that binds a plain name."""
        chain = self.chain(tok.start)
        for i, s in enumerate(chain):
            if s.kind == "class" and i > 0:
                continue
            if tok.text in s.bound and tok.text not in s.foreign:
                return s
        return None


def _pad(text: str) -> str:
    """An expression inside an f-string may begin with spaces: tokenise needs brackets around it; keep the places."""
    return text if not text[:1].isspace() else text.lstrip().rjust(0) if False else _lead(text)


def _lead(text: str) -> str:
    n = len(text) - len(text.lstrip())
    return "(" * min(n, 1) + " " * (n - 1) + text[n:] + ")" if n else text
