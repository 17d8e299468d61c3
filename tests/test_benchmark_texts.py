"""README's table and docs/benchmark.md are what the script makes of docs/benchmark.json: never typed."""

import importlib.util
import json
from pathlib import Path

from agnosticfair.report.bench import document, readme

ROOT = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("write", ROOT / "benchmarks" / "write_benchmark.py")
write = importlib.util.module_from_spec(spec)
spec.loader.exec_module(write)


def test_texts_come_from_the_results():
    summary = json.loads((ROOT / "docs" / "benchmark.json").read_text())
    assert (ROOT / "docs" / "benchmark.md").read_text() == document(summary)
    text = (ROOT / "README.md").read_text()
    assert write.with_table(text, readme(summary)) == text


def test_the_table_goes_between_its_marks():
    text = f"before\n{write.BEGIN}old\n{write.END}after\n"
    assert write.with_table(text, "new\n") == f"before\n{write.BEGIN}new\n{write.END}after\n"
