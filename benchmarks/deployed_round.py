"""A deployed round beside the bare engine: Adult over some sites, on this machine, in one run.

python benchmarks/deployed_round.py [--sites 2] [--method agnosticfair] [--network mlp] [--port 18700]
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from agnosticfair.data.files import Roles, read_clients
from agnosticfair.deploy.node import serve_site
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair_research.datasets import load_dataset
from agnosticfair_research.splits import iid

ROUNDS = 12


def write_sites(folder: Path, sites: int) -> dict[str, Path]:
    """Adult's rows, a file per site."""
    found = {}
    train = iid(load_dataset("adult"), sites, 0).train
    for number, table in enumerate(train.values()):
        key = f"s{number:03}"
        columns: dict = {**table.numeric, "income": table.target.values()}
        for kept in (table.categorical, table.sensitive_features):
            columns |= {name: column.values() for name, column in kept.items()}
        found[key] = folder / f"{key}.csv"
        csv.write_csv(pa.table({k: pa.array(v) for k, v in columns.items()}), found[key])
    return found


def processor_seconds(named: dict[str, int]) -> dict[str, float]:
    """What each of these processes, and those that it started, has used so far."""
    own, above = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            after = path.read_text().rpartition(")")[2].split()
            above[int(path.parent.name)] = int(after[1])
            own[int(path.parent.name)] = sum(map(int, after[11:13])) / os.sysconf("SC_CLK_TCK")
    found = dict.fromkeys(named, 0.0)
    for pid, seconds in own.items():
        at = pid
        while at in above and at not in named.values():
            at = above[at]
        for name, root in named.items():
            found[name] += seconds if root == at else 0.0
    return found


def watch_rounds(bank: Path, named: dict[str, int], told: dict[Any, dict[str, float]]) -> None:
    """Write down what every process has used by the end of each round."""
    while "ended" not in told:
        with suppress(OSError, ValueError, KeyError):
            round_ = json.loads((bank / "state" / "run.json").read_text())["round"]["round"]
            told.setdefault(round_, processor_seconds(named) | {"at": time.monotonic()})
        time.sleep(0.1)


def deployed(
    folder: Path, files: dict[str, Path], more: list[str]
) -> tuple[float, list[float], dict[str, float]]:
    """Seconds for all of it, and between a site's answers in the rounds; processors' seconds a round by process."""
    own = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    bank, begin = folder / "bank", time.perf_counter()
    sites = ",".join(f"{key}={path}" for key, path in files.items())
    named = ["--target", "income", "--sensitive-features", "sex", "--sites", sites]
    command = ["agnosticfair", "deploy"]
    subprocess.run([*command, "init", str(bank), *named, *more], check=True, env=own)
    settings = bank / "federation.toml"
    settings.write_text(settings.read_text().replace("certify = true", "certify = false"))
    context = multiprocessing.get_context("forkserver")  # the package is imported once for all
    context.set_forkserver_preload(["agnosticfair.deploy.node", "agnosticfair.deploy.site"])
    started = [
        context.Process(target=serve_site, args=(bank / "sites" / f"{name}.toml",))
        for name in files
    ]
    for process in started:
        process.start()
    run = subprocess.Popen([*command, "run", str(bank)], env=own, stdout=subprocess.DEVNULL)
    used: dict[Any, dict[str, float]] = {}
    pids = {name: p.pid for name, p in zip(("run", *files), (run, *started), strict=True)}
    watching = threading.Thread(target=watch_rounds, args=(bank, pids, used))
    watching.start()
    try:
        assert run.wait() == 0
    finally:
        used["ended"] = {}
        watching.join()
        for process in started:
            process.terminate()
        for process in started:
            process.join()
    log = bank / "state" / f"{next(iter(files))}.log"
    events = map(json.loads, log.read_text().splitlines())
    times = [
        datetime.fromisoformat(event["time"]).timestamp()
        for event in events
        if event.get("step") in ("sums", "subgroup_sums", "train")
    ]
    total = time.perf_counter() - begin
    first, *_, last = sorted(number for number in used if number != "ended")
    each = {k: (used[last][k] - used[first][k]) / (last - first) for k in pids}
    return total, [after - before for before, after in pairwise(times)], each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=2)
    parser.add_argument("--method", default="agnosticfair")
    parser.add_argument("--network")
    parser.add_argument("--port", default="18700")
    request = parser.parse_args()
    more = ["--port", request.port, "--method", request.method, "--max-rounds", str(ROUNDS)]
    more += ["--network", request.network] if request.network else []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = write_sites(folder, request.sites)
        total, rounds, each = deployed(folder, files, more)
        chosen = method(request.method, network=request.network, max_rounds=ROUNDS)
        tables = read_clients(files.values(), Roles("income", ("sex",)))
        ends: list[float] = []
        spent = time.process_time()
        fit(tables, chosen, on_round=lambda entry: ends.append(time.perf_counter()))
        spent = time.process_time() - spent
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    bare = [after - before for before, after in pairwise(ends)]
    here, there = statistics.median(bare), statistics.median(rounds)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(
        f"from nothing to a model of {request.sites} sites: {total:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of "
        f"processors over all processes; the bare engine's fit {spent:.1f} s"
    )
    own = each.pop("run")
    print(
        f"processors' seconds a round: coordinator {own:.3f}, a site {statistics.mean(each.values()):.3f}"
    )
    print("messages a round: one request and one answer for each site")
    print(
        f"median round: deployed {there:.2f} s, bare engine {here:.2f} s, ratio {there / here:.1f}"
    )


if __name__ == "__main__":
    main()
