"""Data for every test. Nothing is downloaded here: what is absent skips, and says why."""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # as many processes as cores: more threads wait for each other

import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from helpers import client_rows, write
from hypothesis import settings

from agnosticfair.cli import main
from agnosticfair.commands import output
from agnosticfair.data.datasets import load_dataset
from agnosticfair.data.table import Table
from agnosticfair.mathematics.boosting import Boosting
from agnosticfair.privacy import ledger
from agnosticfair.privacy.ledger import VARIABLE as LEDGERS

# a busy machine is no failure; few examples, the same in every run, unless all is asked for
EVERY = "AGNOSTICFAIR_EVERY" in os.environ
settings.register_profile(
    "steady", deadline=None, derandomize=not EVERY, max_examples=200 if EVERY else 25
)
settings.load_profile("steady")


SHARED = Path(__file__).resolve().parents[1] / "shared" / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of original data files next to the checkout."""
    if not (SHARED / "adult" / "adult.test").is_file():
        pytest.skip(f"no original data files in {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def adult() -> Table:
    """UCI Adult, as shipped."""
    return load_dataset("adult")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Test files have no doctests; to look for some imports each file a second time."""
    collectors = yield
    if "tests" in file_path.parts:
        return [c for c in collectors if not isinstance(c, DoctestModule)]
    return collectors


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests that start servers go to one worker, which shares them; all others to whoever is free.

    By a scheduler, since the mark ``xdist_group`` has no effect under pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            starts = any(name in nodeid for name in ("test_end_to_end.py", "test_wire.py"))
            return "servers" if starts else nodeid

    return Scheduling(config, log)


def pytest_collection_modifyitems(config, items):
    """A browser takes seconds to start.  Where several processes share the tests, long ones come first: the short ones
    then fill both to the end."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture
def seeded_noise(monkeypatch):
    """Noise of differential privacy that is the same in every run, in the place of the system's."""
    rng = np.random.default_rng(0)

    def sampler(scale: float):
        return lambda zeros: np.rint(rng.normal(size=len(zeros)) * scale).astype(np.int64)

    monkeypatch.setattr(ledger, "_sampler", sampler)


@pytest.fixture(scope="session")
def ledgers(tmp_path_factory):
    """Folders for ledgers, none of them there yet."""
    top = tmp_path_factory.mktemp("state")
    return (top / str(k) for k in count())


@pytest.fixture(autouse=True)
def own_ledgers(ledgers, monkeypatch):
    """Every test has its own place for ledgers, which is empty."""
    monkeypatch.setenv(LEDGERS, str(next(ledgers)))


@pytest.fixture(autouse=True, scope="session")
def silent_progress():
    """How far the work is, is told by the clock: a busy machine must not add to what a test reads. And no file of a
    test has to outlast the machine: nothing waits for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "FIRST", 86_400.0)
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture
def few_trees(monkeypatch):
    """Where trees are grown at all, and not how many or how well, is tested."""
    most = Boosting.__init__.__defaults__
    monkeypatch.setattr(Boosting.__init__, "__defaults__", (4, 3, *most[2:]))


@pytest.fixture
def call(capsys):
    """Run a command: its exit code, what it printed, and what it said on stderr."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two clients' files in a folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return [write(Path(f"{name}.csv"), client_rows(k)) for k, name in enumerate(("north", "south"))]


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM:
        pytest.skip("no Chromium here: install 'chromium'")
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def accessible(browser, tmp_path):
    """A function that asserts that axe-core finds no violation in a page, light and dark, wide and on a phone, and that
    its scripts raise nothing."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    def check(text: str) -> None:
        file = tmp_path / "looked-at.html"
        file.write_text(text, encoding="utf-8")
        for scheme, width in (("light", 1400), ("dark", 390)):
            send = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
            page = browser.new_page(**send, bypass_csp=True)  # axe is no script of the page's
            raised: list[str] = []
            page.on("pageerror", lambda error, raised=raised: raised.append(str(error)))
            page.goto(file.as_uri())
            assert raised == []
            found = axe.run(page).response["violations"]
            told = [(v["id"], v["nodes"][0]["html"][:120]) for v in found]
            assert not told, (scheme, width, told)
            page.close()

    return check
