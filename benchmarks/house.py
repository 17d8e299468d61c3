"""Counts of the house: lines, files, words, names, parameters, and the time of the suite.

    python benchmarks/house.py                        # of this checkout
    python -m pytest --junitxml=suite.xml; python benchmarks/house.py --junit suite.xml --write
    python benchmarks/house.py --src /some/src/name --docs /some/docs    # of another package

A file's lines are all of its lines, blank ones and docstrings too. A name of ours is a binding (a function, a class, an
argument, a variable, a field) one of whose words says nothing of the thing: found, own, told, made, asked, kept, those,
everybody.
"""

import argparse
import ast
import inspect
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[1]
OURS = {"found", "own", "told", "made", "asked", "kept", "those", "everybody"}


def lines_of(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def words_of(paths: list[Path]) -> int:
    return sum(len(path.read_text().split()) for path in paths)


def bindings(tree: ast.AST) -> Iterator[str]:
    """Every name that a module binds, as often as it does."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                yield name


def functions(trees: list[ast.Module]) -> list[int]:
    """The lines of every function."""
    nodes = (node for tree in trees for node in ast.walk(tree))
    return [n.end_lineno - n.lineno + 1 for n in nodes if isinstance(n, ast.FunctionDef)]


def suite(junit: Path) -> str:
    """Tests and seconds of a run of pytest; with several processes the seconds are those of its clock."""
    root = ET.parse(junit).getroot()
    (run,) = [root] if root.tag == "testsuite" else root
    return f"{int(run.attrib['tests'])} tests in {float(run.attrib['time']):.0f} s"


def sentences_matched(paths: list[Path], words: int = 4) -> int:
    """Patterns of more than so many words that tests look for: in ``match=``, and left of ``in``."""
    patterns: list[str] = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.keyword(arg="match", value=ast.Constant() | ast.JoinedStr() as pattern):
                    patterns.append(ast.unparse(pattern))
                case ast.Compare(left=ast.Constant() | ast.JoinedStr() as text, ops=[ast.In()]):
                    patterns.append(ast.unparse(text))
    return sum(len(pattern.split()) > words for pattern in patterns)


def of_this_package() -> dict[str, object]:
    import agnosticfair
    from agnosticfair import AgnosticFairClassifier
    from agnosticfair.settings import SETTINGS

    parameters = inspect.signature(AgnosticFairClassifier.__init__).parameters
    return {
        "public names": len(dir(agnosticfair)),
        "estimator's parameters": len(parameters) - 1,
        "settings of a method": len(SETTINGS),
    }


def count(src: Path, docs: Path) -> dict[str, object]:
    paths = sorted(src.rglob("*.py"))
    trees = [ast.parse(path.read_text()) for path in paths]
    names = [name for tree in trees for name in bindings(tree)]
    ours = [name for name in names if OURS & {*re.split(r"_+", name.lower())}]
    sizes = sorted(functions(trees))
    nodes = [node for tree in trees for node in ast.walk(tree)]
    constants = [
        target.id
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in ast.walk(node)
        if isinstance(target, ast.Name)
        and isinstance(target.ctx, ast.Store)
        and target.id.isupper()
    ]
    return {
        "lines": lines_of(paths),
        "files": len(paths),
        "longest file": max(map(lines_of, ([path] for path in paths))),
        "functions": len(sizes),
        "median function's lines": sizes[len(sizes) // 2],
        "functions over 40 lines": sum(size > 40 for size in sizes),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "module constants": len(constants),
        "bindings": len(names),
        "of them names of ours": f"{len(ours)} ({len(ours) / len(names):.2%})",
        "words of documents": words_of(sorted(docs.glob("*.md"))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--src", type=Path, default=TOP / "src" / "agnosticfair")
    parser.add_argument("--docs", type=Path, default=TOP / "docs")
    parser.add_argument("--junit", type=Path, help="what pytest wrote by --junitxml")
    parser.add_argument("--rooms", action="store_true", help="lines and files of each room, too")
    parser.add_argument("--write", action="store_true", help="into the table of CONTRIBUTING")
    given = parser.parse_args()
    counts = count(given.src, given.docs)
    if given.src == TOP / "src" / "agnosticfair":
        counts |= of_this_package()
        tests = sorted((TOP / "tests").rglob("*.py"))
        counts["lines of tests"] = lines_of(tests)
        counts["tests that match a sentence"] = sentences_matched(tests)
        counts["lines of research"] = lines_of(sorted((TOP / "research" / "src").rglob("*.py")))
    if given.junit is not None:
        counts["suite"] = suite(given.junit)
    if given.rooms:
        for room in sorted(path for path in given.src.iterdir() if path.is_dir()):
            if paths := sorted(room.rglob("*.py")):
                counts[f"{room.name}/"] = f"{lines_of(paths)} in {len(paths)}"
        counts["beside them"] = lines_of(sorted(given.src.glob("*.py")))
    rows = [f"| {what} | {f'{v:,}' if isinstance(v, int) else v} |" for what, v in counts.items()]
    table = "\n".join(["| what | count |", "|---|---:|", *rows])
    print(table)
    if given.write:
        page = TOP / "CONTRIBUTING.md"
        before, begin, rest = page.read_text().partition("<!-- begin: house -->\n")
        _, end, after = rest.partition("<!-- end: house -->")
        page.write_text(f"{before}{begin}\n{table}\n\n{end}{after}")


if __name__ == "__main__":
    main()
