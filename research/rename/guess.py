"""Names for what the dialect calls found, made, told ...: from annotations, and from what called functions return."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

DIALECT = set("found own made told said says kept held given those taken".split())

NOUNS = {  # class (by its new name) -> what a variable of it is called
    "Fit": "fitted",
    "SummaryStatistics": "statistics",
    "CountedSubgroups": "counted",
    "SubgroupSet": "subgroup_set",
    "Subgroups": "subgroups_spec",
    "SubgroupRecord": "subgroup",
    "SubgroupNow": "subgroup",
    "Broadcast": "broadcast",
    "RequestT": "request",
    "Figure": "figure",
    "Path": "path",
    "Table": "table",
    "Decided": "decided",
    "CertifiedLimit": "certified_limit",
    "Estimates": "estimates",
    "Decision": "decision",
    "Optimum": "optimum",
    "Rows": "rows",
    "Gauges": "gauges",
    "Axis": "axis",
    "DataFrame": "frame",
    "Namespace": "arguments",
    "Grid": "grid",
    "Encoding": "encoding",
}
NONE = set(
    "Any object str int float bool bytes None ndarray Array Tensor Mapping dict list tuple Sequence Callable Iterator Iterable set "
    "frozenset Counter Json type T Self ArrayLike Made Task1 slice Exception BaseException Text Command Group Element X".split()
)
CALLED = {  # called function (its old name) -> what a variable for its result is called
    "audit": "certificate",
    "audit_clients": "certificate",
    "fit": "fitted",
    "loads": "content",
    "safe_load": "content",
    "parse_args": "arguments",
    "ArgumentParser": "parser",
    "AgnosticFairClassifier": "classifier",
    "readouterr": "output",
    "run": "finished",
    "sealed": "seal",
    "certificate": "one_certificate",
    "certificates": "all_certificates",
    "question": "one_request",
    "question_of": "one_request",
    "scores": "measures",
    "measure_all": "measures",
    "explain": "messages",
    "axes": "some_axes",
    "default_rng": "rng",
    "array": "values",
    "zeros": "values",
    "ones": "values",
    "mean": "mean",
    "LogisticRegression": "regression",
    "deepcopy": "changed",
    "total": "total_reply",
    "dealt_apart": "halves",
    "out_of_fold": "predictions",
    "verdict": "one_verdict",
    "differences": "all_differences",
    "predict": "predictions",
    "predict_proba": "probabilities",
    "read_text": "text",
    "probabilities": "probability",
    "splitlines": "lines",
    "sorted": "ordered",
    "planned": "one_plan",
    "plan": "one_plan",
    "quick": "fitted",
    "verify": "problems",
    "searched": "counted",
    "exchange": "answers",
    "small_table": "rows",
    "support": "columns",
    "trained": "estimates",
    "method": "chosen_method",
    "invoke": "result",
    "stdout": "output",
}
MANY = {"list", "Sequence", "Iterable", "Iterator", "tuple", "set", "frozenset"}
BY_KEY = {"dict", "Mapping", "MutableMapping"}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip("_")).lower()


def plural(noun: str) -> str:
    if noun.endswith(("s", "fitted", "counted")):
        return {"axis": "axes", "fitted": "fits"}.get(noun, noun)
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def noun_of(node: ast.AST | None, word) -> str | None:
    """The noun for a value of an annotated type."""
    if node is None:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return noun_of(ast.parse(node.value, mode="eval").body, word)
        except SyntaxError:
            return None
    if isinstance(node, ast.BinOp):
        sides = [x for x in (node.left, node.right) if not (isinstance(x, ast.Constant) and x.value is None)]
        return noun_of(sides[0], word) if len(sides) == 1 else None
    if isinstance(node, ast.Subscript):
        outer = last(node.value)
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if outer in MANY:
            if outer == "tuple" and not (len(inner) == 2 and isinstance(inner[1], ast.Constant)):
                return None
            one = noun_of(inner[0], word)
            return one and plural(one)
        if outer in BY_KEY:
            one = noun_of(inner[1], word) if len(inner) > 1 else None
            return one and plural(one)
        return noun_of(node.value, word)
    name = last(node)
    if not name or name in NONE or len(name) < 3:
        return None
    new = word(name)
    if new in NOUNS:
        return NOUNS[new]
    return snake(new) if new[:1].isupper() or new[:1] == "_" else None


def last(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def returns(sources) -> dict[str, ast.AST | None]:
    """Function's name -> its return annotation, where all functions of the name have the same; class -> itself."""
    seen: dict[str, dict[str, ast.AST]] = defaultdict(dict)
    for s in sources.values():
        for node in ast.walk(s.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                seen[node.name][ast.dump(node.returns) if node.returns else ""] = node.returns
            elif isinstance(node, ast.ClassDef):
                seen[node.name]["class"] = ast.Name(node.name)
    return {k: next(iter(v.values())) for k, v in seen.items() if len(v) == 1}


def guesses(s, known, word):
    """(qual, old, new) for names of the dialect that this file's functions bind, and those without a guess."""
    done, open_ = {}, {}
    for scope in s.scopes:
        if scope.kind != "def" and scope.kind != "module":
            continue
        names = [n for n, kind in scope.bound.items() if n in DIALECT and kind in ("param", "=", "lambda")]
        for name in names:
            new, line = None, 0
            if scope.kind == "def":
                a = scope.node.args
                for p in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]:
                    if p and p.arg == name:
                        new, line = noun_of(p.annotation, word), p.lineno
            if not line:
                for node in walk_own(scope.node):
                    value = bound_value(node, name)
                    if value is not None:
                        annotation, value, line = value
                        new = noun_of(annotation, word)
                        if new is None and isinstance(value, ast.Call):
                            called = last(value.func)
                            if called in known:
                                new = noun_of(known[called], word)
                            if new is None:
                                new = CALLED.get(called)
                        break
                    if not line and binds(node, name):
                        line = node.lineno if hasattr(node, "lineno") else node.target.lineno
            if new and new not in DIALECT:
                done[scope.qual, name] = new
            else:
                open_[scope.qual, name] = line
    return done, open_


def walk_own(node):
    """Nodes of a scope, without those of functions inside it."""
    todo = list(ast.iter_child_nodes(node))
    while todo:
        n = todo.pop(0)
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield n
        todo = list(ast.iter_child_nodes(n)) + todo


def bound_value(node, name):
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
        return node.annotation, node.value, node.lineno
    if isinstance(node, (ast.Assign, ast.NamedExpr)):
        for t in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(t, ast.Name) and t.id == name:
                return None, node.value, node.lineno
            if isinstance(t, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(t.elts) == len(node.value.elts):
                for x, v in zip(t.elts, node.value.elts):
                    if isinstance(x, ast.Name) and x.id == name:
                        return None, v, node.lineno
    return None


def binds(node, name):
    targets = []
    if isinstance(node, (ast.For, ast.comprehension)):
        targets = [node.target]
    elif isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.With):
        targets = [i.optional_vars for i in node.items if i.optional_vars]
    elif isinstance(node, ast.Lambda):
        return any(a.arg == name for a in node.args.args)
    return any(isinstance(x, ast.Name) and x.id == name for t in targets for x in ast.walk(t))
