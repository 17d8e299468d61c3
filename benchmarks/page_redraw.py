"""The shift explorer's redraw in Chromium after a slider moves, against the 50 ms it may take.

Counted: the sums over the table of counts, every number, the chart, and the layout that follows; for a
run of the shift suite on Adult with all of its methods.

    python benchmarks/page_redraw.py [--run shifts] [--repeats 100]

Without --run, such a run is made first (a minute or two).
"""

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import sync_playwright

ALLOWED = 50.0  # milliseconds
MOVE = """async ([times]) => {
  const sliders = [...document.querySelectorAll("input[type=range]")], found = [];
  for (let k = 0; k < times; k += 1) {
    const slider = sliders[k % sliders.length];
    slider.value = String((k * 7 % 50) / 10);
    const begin = performance.now();
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    document.body.getBoundingClientRect();
    found.push(performance.now() - begin);
    await new Promise((next) => requestAnimationFrame(next));
  }
  return found;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--repeats", type=int, default=100)
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours, run = [sys.executable, "-m", "agnosticfair"], asked.run or place / "run"
        if asked.run is None:
            made = ("shifts", "--seeds", "1", "--no-frontier", "--out", str(run))
            subprocess.run([*ours, *made], check=True, stdout=subprocess.DEVNULL)
        page_file = place / "report.html"
        subprocess.run([*ours, "report", str(run), "--out", str(page_file)], check=True)
        driver = stack.enter_context(sync_playwright())
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for width in (1280, 390):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.goto(page_file.as_uri())
            times = page.evaluate(MOVE, [asked.repeats])
            rows = page.evaluate(
                "JSON.parse(document.getElementById('data').textContent).studies[0].rows"
            )
            told = f"{median(times):.1f} ms (from {min(times):.1f} to {max(times):.1f})"
            print(
                f"{rows} rows, {width} px wide: {told}; {median(times) / ALLOWED:.2f} of what is allowed"
            )
        browser.close()


if __name__ == "__main__":
    main()
