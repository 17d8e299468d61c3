"""Every message of a fit, before it runs: fields, shapes, bytes, and what a field could reveal.

The messages are made and packed as in a fit, with zeros for the numbers, so the sizes are real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from agnosticfair.data.census import Census, encoding_of
from agnosticfair.mathematics.basis import gaussian
from agnosticfair.methods import Method, Network
from agnosticfair.protocol.messages import Broadcast, Candidates, Message, Reply, pack
from agnosticfair.server import plan as server

AUDITED = gaussian(200, 1.0, "ranges")
"""The kernels of a deployment's certificate: around the fit's own centres, or else around a draw from the
agreed ranges and categories, so that a certificate asks nobody for a row."""

REVEALS = {
    "n": "how many rows the site has",
    "labels": "how many rows have each label",
    "groups": "how many rows each sensitive group has",
    "numeric": "the smallest and the largest value of every numeric column, each of one person",
    "categorical": "which categories occur",
    "weight": "what the site's rows weigh together",
    "count": "how many rows are nearest to each centre",
    "total": "the sum of these rows: with few of them, what they look like",
    "rows": "WHOLE ROWS of the site's features (no label, no group), which all sites then see",
    "priorities": "nothing beyond the rows: a hash of each",
    "loss": "the site's total loss under w",
    "J_1": "the loss's slope: with few rows, what these rows look like",
    "psi_L": "losses weighted by nearness to each centre: how well w does around it",
    "psi_theta_L": "how many rows lie around each centre",
    "J_L": "slopes around each centre: with few rows near it, what they look like",
    "psi_g": "positive decisions (smoothed) per group around each centre",
    "psi_theta": "how many rows of each group lie around each centre",
    "psi_hat": "positive decisions per group around each centre",
    "J_g": "their slopes: with few rows of a group near a centre, what they look like",
    "H": "second moments of the features: with few rows, what they look like",
    "correct": "how many rows w decides rightly",
    "w": "a model trained on the site's rows alone: more than sums reveal",
    "clients": "nothing: a one",
    "psi_C": "how decisions go along with the sensitive group around each centre",
    "phi_C": "how features go along with the sensitive group",
    "psi": "decisions per group and label around each centre, also over resamples",
    "psi_x": "sums of the features around each centre",
    "x_squares": "sums of the squared features",
    "mass": "what the site's rows weigh together: how many there are, where all weigh the same",
    "x": "sums of the features: what the site's mean row looks like",
    "gram": "how many rows of each group lie around two centres at once: with few, what they look like",
    "gradient": "the objective's slope at w, a sum over rows for every weight: of one row, THAT ROW and "
    "its label; of few rows, or over many rounds, it may be solved for what they look like",
    "moved": "where training on the site's rows alone led from w: as gradient, over some steps of it",
    "squares": "the mean square of these steps' slopes: how much the rows differ",
    "C": "how w's outputs go along with the sensitive group",
}


@dataclass(frozen=True)
class Explained:
    """One message: who sends it in which round, its fields with their shapes, and its bytes."""

    step: str
    rounds: str
    sender: str
    fields: Mapping[str, str]
    size: int
    reveals: Mapping[str, str]


def explain(method: Method, census: Census, sites: Sequence[str], share: float) -> list[Explained]:
    """The messages of a fit, in their order.

    census: what the sites' summaries add up to, as far as it is known.  share: this site's part of all
    rows, on which only the number of candidate rows depends.
    """
    plan = server.plan(method, census, tuple(sites), sensitive_features=tuple(census.groups))
    summary = {k: _size(v) for k, v in census.to_json().items()}
    found = [
        Explained("hello", "0", "site", {"site": "its name"}, len(sites[0]), {"site": "its name"}),
        Explained("census", "0", "site", summary, len(pack(census)), _revealed(summary)),
    ]
    kind, wanted = server.centres_kind(method), server.kernels_wanted(method)
    ask, d = server.centres_question(plan, 0), encoding_of(census).width
    b = np.zeros((wanted, d))
    if kind == "rows" and ask is not None:
        offered = ceil(ask.settings["share"] * census.n * share)
        candidates = Candidates(np.zeros(offered), np.zeros((offered, d)))
        again = "0, again with four times the rows where too few differ"
        found += [_message("centres", again, ask), _message("centres", again, candidates)]
    if kind == "kmeans":
        steps, sums = f"0, {server.KMEANS_ROUNDS} times", {"count": np.zeros(wanted), "total": b}
        found += [_message("clusters", steps, server.clusters_question(plan, b, 1))]
        found += [_message("clusters", steps, Reply(1, sums))]
    if kind is not None:
        plan = server.centred(plan, b)
    rounds, later = f"1 to {method.max_rounds}, until it converges", ""
    if method.network is None:
        state = server.init(plan)
        step, broadcast = server.question(state)
    else:
        state, messages = _drawn(method.network, plan)
        step, broadcast = server.question(state)
        found, broadcast = found + messages, _later(step, broadcast)
        later = "; the fields '_before' from the second on"
    reply = Reply(1, {name: np.zeros(shape) for name, shape in server.shapes(state).items()})
    found += [_message(step, rounds + later, broadcast), _message(step, rounds, reply)]
    return found


def _drawn(network: Network, plan: server.Plan) -> tuple[server.State, list[Explained]]:
    """The state before a network's first round, and the messages by which its inputs are scaled."""
    from agnosticfair.networks import initial

    w, pulled = initial(network.name, network.hidden, server.features(plan), 0)
    plan = server.with_network(plan)
    question, shapes = server.moments_question(plan)
    moments = Reply(0, {name: np.ones(shape) for name, shape in shapes.items()})
    state = server.init_network(plan, moments, server.Drawn(w, pulled, 0))
    return state, [_message("moments", "0", question), _message("moments", "0", moments)]


def _later(step: str, broadcast: Broadcast) -> Broadcast:
    """A network's question as it is from the second round on: it tells of the last round's start, too."""
    now = {k: v for k, v in broadcast.arrays.items() if k in ("w", "alpha", "C")}
    now |= {"gradient": broadcast.arrays["w"]} if step == "train" else {}
    before = {f"{k}_before": v for k, v in now.items()}
    return replace(broadcast, arrays={**broadcast.arrays, **before})


def explain_audit(method: Method, census: Census, bootstrap: int) -> list[Explained]:
    """The messages of sums that a certificate takes, after the last round: one for each sensitive feature."""
    M, d = server.kernels_wanted(method) or AUDITED.kernels, encoding_of(census).width
    found = []
    for name, groups in census.groups.items():
        when = "after the last, once" + (f" for {name!r}" if len(census.groups) > 1 else "")
        psi = (1 + bootstrap, 4 * len(groups), M + 1)
        shapes = {"psi": psi, "psi_x": (M + 1, d), "x_squares": (d,)}
        reply = Reply(1, {name: np.zeros(shape) for name, shape in shapes.items()})
        found.append(_message("decisions", when, reply))
    return found


def _message(step: str, rounds: str, message: Message) -> Explained:
    size = len(pack(message))
    if isinstance(message, Broadcast):
        arrays = {f"task.{k}": v for k, v in message.task.arrays.items()} | dict(message.arrays)
        settings = dict.fromkeys((*message.task.settings, *message.settings), "setting")
        fields = settings | {k: _shape(v) for k, v in arrays.items()}
        return Explained(step, rounds, "server", fields, size, {})
    values = message.sums if isinstance(message, Reply) else vars(message)
    fields = {k: _shape(np.asarray(v)) for k, v in values.items()}
    return Explained(step, rounds, "site", fields, size, _revealed(fields))


def _revealed(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: REVEALS[name] for name in fields}


def _shape(value: np.ndarray) -> str:
    return " x ".join(map(str, value.shape)) or "1"


def _size(value: object) -> str:
    return f"{len(value)} entries" if isinstance(value, Mapping) else "1"
