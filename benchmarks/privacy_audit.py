"""An audit of the privacy claim: a canary, all totals of a fit, many runs, noise as stated and halved.

    python benchmarks/privacy_audit.py --runs 2500 --epsilon 3

The observer sees every noisy total of one site, knows all rows but the canary, and scores by the likelihood
ratio: nobody who sees the messages or the model can do better. Epsilon is bounded from below at confidence
0.95 (``canary.py``); a claim under that bound would be refuted, as halved noise is.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from canary import epsilon_of, least_mu
from write_privacy import keep

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.summary import summary_statistics
from agnosticfair.data.table import concatenate
from agnosticfair.methods import method
from agnosticfair.privacy.fit import Budget
from agnosticfair.privacy.ledger import Ledger, PrivateSite, discrete_gaussian
from agnosticfair.privacy.requests import (
    PrivateCounts,
    PrivateDecisions,
    PrivateGradients,
    PrivateMoments,
    deviations,
)
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.server.plan import plan
from agnosticfair_research.datasets import load_dataset

ROUNDS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2500)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--keep", action="store_true", help="in benchmarks/privacy.json")
    payload, found = parser.parse_args(), []
    budget, adult = Budget(payload.epsilon, colluding=0), load_dataset("adult")
    few = {"numeric": {"age": adult.numeric["age"]}, "categorical": {}}
    rows = replace(adult, **few).take(np.arange(2000))
    task = plan(method("fairfl"), summary_statistics(rows, "adult"), ("a",), positive=">50K").task
    z = budget.multipliers(ROUNDS)
    # where the canary's smoothed gradient is steepest, and its decision positive
    w = np.full((ROUNDS, task.encoding.width + 1), 1e-3) * np.arange(1, ROUNDS + 1)[:, None]
    requests = [PrivateCounts(z["private_counts"], 0)]
    requests += [PrivateMoments(z["private_moments"], 0)]
    requests += [PrivateGradients(z["private_gradients"], 0, 1.0, w[k]) for k in range(ROUNDS)]
    requests += [PrivateDecisions(z["private_decisions"], 0, w[-1])]
    oldest = int(np.argmax(rows.numeric["age"]))
    base, canary = rows.take(np.arange(20)), rows.take(np.array([oldest]))

    def sums(table, k):
        return answer(Client("a", table), requests[k].step, Broadcast(k, task, requests[k]))

    without = [sums(base, k) for k in range(len(requests))]
    with_row = [sums(concatenate([base, canary]), k) for k in range(len(requests))]

    def score(made, halved):
        """Along what the canary adds, each field in units of its noise."""
        found = 0.0
        for k, request in enumerate(requests):
            site = PrivateSite(
                "a",
                lambda *_, reply=made[k]: reply,
                Ledger(1e3, budget.delta),
                sampler=lambda scale, size: discrete_gaussian(scale * halved, size),
            )
            noisy = site(request.step, Broadcast(k, task, request)).sums
            for name, sigma in deviations(request, task).items():
                adds = with_row[k].sums[name] - without[k].sums[name]
                found += float(np.sum(adds * noisy[name])) / sigma**2
        return found

    for halved, said in ((1.0, "as stated"), (0.5, "wrongly halved")):
        scores = [
            np.array([score(made, halved) for _ in range(payload.runs)])
            for made in (with_row, without)
        ]
        mu = least_mu(*scores)
        minimum = epsilon_of(mu, budget.delta)
        found.append({"noise": said, "at_least": minimum, "claimed": payload.epsilon})
        print(
            f"noise {said}: epsilon is at least {minimum:.2f} (mu {mu:.3f}) by {payload.runs} runs "
            f"each way; claimed {payload.epsilon:g} at delta {budget.delta:g}",
            flush=True,
        )
    if payload.keep:
        keep("audit", {"runs": payload.runs, "found": found})


if __name__ == "__main__":
    main()
