"""One site's sums over 1e7 rows on a Ray cluster of this machine: two workers beside one.

python benchmarks/ray_workers.py [--rows 10000000] [--repeats 3]
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray
from pyarrow import parquet

from agnosticfair.client.partitions import makers
from agnosticfair.data.files import Roles
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.protocol.engines.ray import RayEngine
from agnosticfair.protocol.engines.relay import Relay

FEATURES, FILES, ROUNDS = 8, 8, 4


def write(folder: Path, rows: int) -> None:
    """A site's rows in files of one size."""
    rng = np.random.default_rng(0)
    for k in range(FILES):
        n = rows // FILES
        x = rng.random((n, FEATURES), dtype=np.float32)
        sex = rng.integers(0, 2, n)
        y = x.sum(axis=1) + 0.5 * sex + rng.normal(0, 1, n) > FEATURES / 2
        columns = {f"x{j}": x[:, j] for j in range(FEATURES)}
        columns |= {"sex": np.array(["F", "M"])[sex], "y": np.array(["no", "yes"])[y.astype(int)]}
        parquet.write_table(pa.table(columns), folder / f"{k}.parquet")


def measured(folder: Path, workers: int) -> tuple[float, bytes]:
    """The median seconds of a round with so many workers, and the model's bits."""
    engine, ends = RayEngine(makers(folder, Roles("y", ("sex",)), workers)), []
    fitted = fit(
        Relay({"site": engine}),
        method("fairfl", max_rounds=ROUNDS),
        positive="yes",
        on_round=lambda entry: ends.append(time.perf_counter()),
    )
    engine.close()
    return statistics.median(np.diff(ends)), fitted.model.w.tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    request = parser.parse_args()
    ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), request.rows)
        found = [[measured(Path(place), n) for n in (1, 2)] for _ in range(request.repeats)]
    one, two = (min(pair[k][0] for pair in found) for k in (0, 1))
    same = len({bits for pair in found for _, bits in pair}) == 1
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, {request.rows:,} rows")
    print(
        f"a round: one worker {one:.2f} s, two {two:.2f} s, ratio {one / two:.2f}; same bits: {same}"
    )


if __name__ == "__main__":
    main()
