"""The additive learner, and the whole fit of the rule, against scikit-learn's LogisticRegression on the same features.

Both targets; seconds of the processor, rounds, bytes, held-out log loss. Every fold is in the learner's time.

    python -P benchmarks/learners.py [adult bank]
"""

from __future__ import annotations

import sys
from time import process_time

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.encoding import encode
from agnosticfair.data.summary import summary_statistics
from agnosticfair.data.table import Table
from agnosticfair.federation import fit
from agnosticfair.learners.estimates import of_all_rows, predict, targets
from agnosticfair.methods import method
from agnosticfair.protocol.messages import Broadcast, Reply, pack
from agnosticfair.protocol.requests import step_of
from agnosticfair.server import learning, rule
from agnosticfair.server.plan import Plan, plan, trained_heads
from agnosticfair_research.datasets import load_dataset

REPEATS, SEED = 3, 0


def learn(table: Table) -> tuple[Plan, learning.Learning, float, int]:
    """The plan, the learner's last state, its seconds, and the bytes of its largest message."""
    client, largest = Client("all", table), 0

    def send(broadcast: Broadcast) -> Reply:
        reply = answer(client, step_of(broadcast.request), broadcast)
        assert isinstance(reply, Reply)
        return reply

    statistics = summary_statistics(table, "the rows")
    stated = plan(
        method("rule", learner="additive"), statistics, ("all",), sensitive_features=SENSITIVE
    )
    begin = process_time()
    binned = rule.agreed(stated, statistics, send)
    state = learning.begun(binned, "additive", trained_heads(binned), SEED)
    while state.outcome == "running":
        reply = send(Broadcast(state.round + 1, binned.task, learning.request(state)))
        largest = max(largest, len(pack(reply)))
        state = learning.step(state, reply)
    return binned, state, process_time() - begin, largest


def regress(X: np.ndarray, t: np.ndarray, counts: np.ndarray) -> tuple[list, float]:
    """scikit-learn's fits of all heads, and their seconds."""
    from sklearn.linear_model import LogisticRegression

    begin = process_time()
    classifiers = [
        LogisticRegression(max_iter=1000).fit(X[on], y[on]) for y, on in zip(t, counts, strict=True)
    ]
    return classifiers, process_time() - begin


def log_loss(p: np.ndarray, t: np.ndarray) -> float:
    """Mean over rows."""
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return float(-np.mean(np.where(t, np.log(p), np.log(1 - p))))


def compare(name: str) -> str:
    """One line of the table."""
    table = load_dataset(name)
    train = np.random.default_rng(SEED).random(len(table)) < 0.7
    rows, rest = table.take(train), table.take(~train)
    runs = [learn(rows) for _ in range(REPEATS)]
    binned, state, _, largest = runs[0]
    task, heads = binned.task, state.heads
    t, counts = targets(heads, rows.labels(task.positive), rows.sensitive_features)
    X = encode(task.encoding, rows)
    fits = [regress(X, t, counts) for _ in range(REPEATS)]
    ours, theirs = min(run[2] for run in runs), min(fit[1] for fit in fits)
    begin = process_time()
    fit({"all": rows}, method("rule", learner="additive"), sensitive_features=SENSITIVE)
    whole = process_time() - begin
    estimates = of_all_rows(learning.estimates_of(state, binned))
    P, (t_rest, _) = (
        predict(estimates, task.encoding, 0, rest),
        targets(heads, rest.labels(task.positive), rest.sensitive_features),
    )
    Q = [fit.predict_proba(encode(task.encoding, rest))[:, 1] for fit in fits[0][0]]
    losses = " ".join(
        f"{log_loss(p, y):.4f}/{log_loss(q, y):.4f}" for p, q, y in zip(P, Q, t_rest, strict=True)
    )
    return (
        f"{name:8} {len(rows):7} rows {task.encoding.width:5} features {state.round:3} rounds {largest / 1e3:7.0f} kB "
        f"{ours:6.2f} s  scikit-learn {theirs:6.2f} s  ratio {ours / theirs:4.2f}  "
        f"whole fit {whole:5.2f} s, {whole / theirs:4.2f}  held-out loss {losses}"
    )


SENSITIVE: str | None = None

if __name__ == "__main__":
    for dataset in sys.argv[1:] or ["adult", "bank"]:
        columns = sorted(load_dataset(dataset).sensitive_features)
        SENSITIVE = columns[0]
        print(compare(dataset))
