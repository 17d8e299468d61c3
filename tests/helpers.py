"""Small tables and clients that several tests share."""

import csv
import importlib.util
import os
import select
from dataclasses import replace
from pathlib import Path

import numpy as np

from agnosticfair.client.steps import answer
from agnosticfair.data.datasets import Split, by_client
from agnosticfair.data.storage import Decided
from agnosticfair.data.table import Column, Table
from agnosticfair.federation import in_process
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.protocol.engines import Failure
from agnosticfair.protocol.messages import Reply
from agnosticfair.report.studies import values
from agnosticfair.server import plan as server
from agnosticfair.server import solvers


def script(name):
    """A module of benchmarks/."""
    path = Path(__file__).resolve().parents[1] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def open_fifo(path, seconds=60.0):
    """A pipe to read from, once something was written to it; fails where nothing comes."""
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    assert select.select([pipe], [], [], seconds)[0], "nothing was written"
    os.set_blocking(pipe, True)
    return os.fdopen(pipe)


def small_table(n: int = 300, seed: int = 0, groups: int = 2) -> Table:
    """Rows with two numeric and one categorical feature, whose label and group depend on them."""
    rng = np.random.default_rng(seed)
    age, hours = rng.normal(size=n), rng.uniform(size=n)
    job = rng.integers(0, 3, n)
    s = (
        (rng.uniform(size=n) < 0.3 + 0.2 * (job == 1)).astype(int)
        if groups == 2
        else rng.integers(0, groups, n)
    )
    y = (age + 0.8 * s + 0.7 * job + rng.logistic(size=n) > 1.0).astype(int)
    return Table(
        numeric={"age": age, "hours": hours},
        categorical={"job": Column(job.astype(np.int32), ("a", "b", "c"))},
        target=Column(y.astype(np.int32), ("no", "yes")),
        sensitive_features={
            "sex": Column(s.astype(np.int32), tuple(f"g{j}" for j in range(groups)))
        },
    )


def held(n=4000, seed=1, groups=2):
    """Rows, and decisions that favour a group more where the job is 'b'."""
    table = small_table(n, seed, groups)
    rng = np.random.default_rng(seed)
    s, job = table.column("sex").codes, table.column("job").codes
    return table, rng.random(n) < 0.3 + 0.1 * s + 0.25 * s * (job == 1)


def certificate_on(model, rows, minimum=0.05, columns=None):
    """A certificate of a model of which every subgroup is estimable."""
    from agnosticfair import audit
    from agnosticfair import subgroups as subgroups_by

    subgroups = subgroups_by(columns, 2, minimum)
    return audit(model, rows, sensitive_features="sex", subgroups=subgroups, precision=5.0)


def dealt(table: Table, clients: int, seed: int = 0) -> dict[str, Table]:
    """The same rows at random over some clients; all clients non-empty."""
    subgroup = np.random.default_rng(seed).permutation(np.arange(len(table)) % clients)
    return {f"c{k:03d}": table.take(subgroup == k) for k in range(clients)}


def adult_split(adult: Table, clients: int = 2, seed: int = 0) -> Split:
    """Clients who differ, as in the paper: 80% of the private sector's rows train at the first half of the clients, 20%
    of all others at the second; the rest is the test set."""
    private, rng = adult.column("workclass").values() == "Private", np.random.default_rng(seed)
    train, test = [], []
    for group, rate in ((private, 0.8), (~private, 0.2)):
        rows = rng.permutation(np.flatnonzero(group))
        cut = round(rate * len(rows))
        train.append(rows[:cut])
        test.append(rows[cut:])
    half = (clients + 1) // 2
    shares = np.array_split(train[0], half) + np.array_split(train[1], max(clients - half, 1))
    shares = [np.concatenate(shares)] if clients == 1 else shares
    held_out = np.sort(np.concatenate(test))
    subgroup = (~private)[held_out].astype(np.int64)
    return Split(
        by_client(adult, shares), adult.take(held_out), subgroup, ("Private", "not Private")
    )


def client_rows(seed, n=150):
    rng = np.random.default_rng(seed)
    for i in range(n):
        sex = "MF"[i % 2]
        age = rng.uniform(20, 60)
        score = 0.1 * (age - 40) + (sex == "M") + rng.normal()
        job = "abc"[rng.integers(3)]
        yield {"age": f"{age:.2f}", "job": job, "sex": sex, "income": "yes" if score > 0 else "no"}


def write(path, rows, **changes):
    """A CSV file of these rows with columns changed: to one value, or by a function of the row."""
    made = []
    for i, r in enumerate(rows):
        made.append(r | {k: v(i, r) if callable(v) else v for k, v in changes.items()})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*(made or [*client_rows(0, 1)])[0]])
        writer.writeheader()
        writer.writerows(made)
    return path


ROLES = ("--target", "income", "--sensitive-features", "sex")


ROWS = small_table(300, 3)


TABLES = dealt(ROWS, 3)


class Faulty:
    """An engine whose client c001 fails as told, in some askings of one step."""

    def __init__(self, how, askings, step="sums"):
        self.inner, self.how, self.askings, self.step = in_process(TABLES), how, askings, step
        self.request, self.log = 0, []

    def clients(self):
        return self.inner.clients()

    def exchange(self, step, payload, keys, deadline):
        answers = dict(self.inner.exchange(step, payload, keys, deadline))
        self.log.append((step, sorted(answers)))
        if step == self.step and "c001" in answers:
            self.request += 1
            if self.request in self.askings:
                answers["c001"] = self.how(answers["c001"])
        return answers


def nan(reply):
    return Reply(reply.round, {k: v * np.nan for k, v in reply.sums.items()})


WAYS = {
    "failure": lambda reply: Failure("its process died"),
    "nan": nan,
    "stale": lambda reply: Reply(reply.round - 1, reply.sums),
    "shape": lambda reply: Reply(reply.round, {**reply.sums, "H": np.zeros(1)}),
    "foreign": lambda reply: "hello",
}


def decided(n=300, seed=0):
    """Rows with the decisions of two methods, one of which decides by lot."""
    table, rng = small_table(n, seed), np.random.default_rng(seed)
    p = {"hard": (rng.uniform(size=n) < 0.4).astype(float), "soft": rng.uniform(size=n)}
    site = Column(rng.integers(0, 2, n), ("north", "south"))
    return Decided.of(table, "sex", "yes", p, site)


def weights_of(rows, table, by_column):
    """(n,) the weight of every row where each value of a mixed column has one."""
    values_here = np.ones(len(rows.y))
    for column, w in zip(table["columns"], by_column, strict=True):
        values_here *= np.asarray(w)[values(rows.columns[column["name"]]).codes]
    return values_here


def row(method="fl", seed=0, **changes):
    """A row made by hand."""
    made = {
        "dataset": "adult",
        "setting": "shift",
        "method": method,
        "seed": seed,
        "clients": 2,
        "train_accuracy": 0.85,
        "train_risk_difference": 0.17,
        "test_accuracy": 0.82,
        "test_risk_difference": 0.21,
        "test_balanced_accuracy": 0.75,
        "client_risk_differences": [0.16, 0.23],
        "majority_rate": 0.7187,
        "label_risk_difference": 0.21,
        "rounds": 7,
        "seconds": 0.1,
        "outcome": "converged",
        "outcomes": {"step kept": 7},
    }
    assert {*changes} <= {*made}
    return made | changes


KINDS = [Surrogate("sigmoid", 0.7), Surrogate("loss")]


def refused(call, *arguments):
    """The one line said by a command that ends with code 2 and leaves no file."""
    before = sorted(Path().rglob("*"))
    code, out, err = call(*arguments)
    assert code == 2
    assert not out or out.startswith("Numeric: ")  # how columns were read is said before the work
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before, set(Path().rglob("*")) ^ set(before)
    return err


class Requests:
    """An engine that remembers its requests."""

    def __init__(self, tables):
        self.inner, self.request = in_process(tables), {}

    def clients(self):
        return self.inner.clients()

    def exchange(self, step, payload, keys, deadline):
        self.request.setdefault(step, []).append(payload)
        return self.inner.exchange(step, payload, keys, deadline)


def request_of(clients, method):
    """A broadcast of the first round, at a random w."""
    statistics = [answer(c, "statistics", None) for c in clients]
    plan = server.plan(method, sum(statistics[1:], statistics[0]), tuple(c.key for c in clients))
    send = server.centres_request(plan, 0)
    if send is not None:
        offers = [answer(c, "centres", send) for c in clients]
        plan = server.with_centres(plan, sum(offers[1:], offers[0]))
    broadcast = solvers.request(solvers.init(plan))
    rng, request = np.random.default_rng(0), broadcast.request
    arrays = {k: rng.uniform(size=getattr(request, k).shape) for k in ("w", "alpha", "C")}
    return replace(broadcast, request=replace(request, **arrays))


def streamed(clients: dict[str, Table], folder: Path) -> dict:
    """The clients' rows in Parquet files, read a batch at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from agnosticfair.data.files import Roles, read_source

    found = {}
    for key, table in clients.items():
        columns = {**table.numeric, **{k: c.values() for k, c in table.categorical.items()}}
        columns |= {k: c.values() for k, c in table.sensitive_features.items()}
        columns["label"] = table.target.values()
        pq.write_table(pa.table(columns), folder / f"{key}.parquet", row_group_size=len(table) // 2)
        found[key] = read_source(folder / f"{key}.parquet", Roles("label", ("sex",)))
    assert all(rows.streamed for rows in found.values())
    return found
