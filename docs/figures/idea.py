"""Draws the two pictures of docs/idea.md from Adult: python docs/figures/idea.py [FOLDER]."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from agnosticfair import audit_clients
from agnosticfair.data.encoding import encode
from agnosticfair.federation import fit
from agnosticfair.mathematics.ambiguity import Ambiguity, worst_linear
from agnosticfair.mathematics.basis import gaussian, gaussian_kernel
from agnosticfair.methods import method
from agnosticfair.report.figures import BLUE, GREEN, ORANGE, RED
from agnosticfair_research import datasets, splits

SOURCE = datasets.dataset("adult")
SPLIT = splits.shift(datasets.load_dataset("adult"), SOURCE, clients=2, seed=0)
METHODS = {
    "fl": "no fairness",
    "fairfl": "fair as the rows are",
    "agnosticfair": "fair over the set",
}


def axes(figure):
    drawn = figure.subplots()
    drawn.spines[["top", "right"]].set_visible(False)
    return drawn


def reweightings() -> Figure:
    """Ages of the training rows, and three deployments made of the same rows by kernels over age."""
    age = np.concatenate([table.numeric["age"] for table in SPLIT.train.values()])
    centres = np.arange(20.0, 80.0, 8.0)
    K = gaussian_kernel(age[:, None], centres[:, None], 7.0)
    A = Ambiguity(K.sum(axis=0), len(age), bound=5.0)
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    drawn, bins = axes(figure), np.arange(16, 92, 2)
    style = {"density": True, "bins": bins}
    drawn.hist(age, **style, color="#CCCCCC", label="the training rows as they are")
    young, old = (
        worst_linear(A, -A.psi_theta * (centres - there) ** 2).alpha for there in (20, 68)
    )
    for label, colour, alpha in (
        ("a younger deployment", BLUE, young),
        ("an older one", ORANGE, old),
        ("and any mixture of the two", GREEN, (young + old) / 2),
    ):
        weights = K @ alpha
        drawn.hist(
            age, **style, weights=weights, histtype="step", color=colour, lw=1.8, label=label
        )
    for centre in centres:
        drawn.plot(centre, -0.002, "^", color="black", ms=5, clip_on=False)
    drawn.set(
        xlabel="age (triangles: centres of the kernels)", ylabel="share of the weight, per year"
    )
    drawn.legend(frameon=False)
    return figure


def risk_difference(y_hat: np.ndarray, s: np.ndarray, weights: np.ndarray) -> float:
    """|rate_1 - rate_0| under these weights of rows."""
    rates = [np.average(y_hat[s == group], weights=weights[s == group]) for group in (0, 1)]
    return abs(rates[1] - rates[0])


def over_the_set() -> Figure:
    """Risk difference of three models for the rows as they are, for corners of A, and at its worst."""
    rng = np.random.default_rng(0)
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    drawn = axes(figure)
    for place, (name, about) in zip((2, 1, 0), METHODS.items(), strict=True):
        changes = {"tau": 0.11} if name == "agnosticfair" else {}
        model = fit(SPLIT.train, method(name, **changes)).model
        certificate = audit_clients(model, SPLIT.train, basis=gaussian(200, 1.0), held_out=False)
        X = np.vstack([encode(model.encoding, table) for table in SPLIT.train.values()])
        y_hat = np.concatenate([model.predict(table) for table in SPLIT.train.values()])
        s = np.concatenate([t.sensitive_features["sex"].codes for t in SPLIT.train.values()])
        K = gaussian_kernel(X, certificate.kernels.centres, 1.0)
        A = Ambiguity(K.sum(axis=0), len(X), certificate.kernels.bound)
        corners = [
            worst_linear(A, A.psi_theta * rng.normal(size=len(A.psi_theta))).alpha
            for _ in range(150)
        ]
        differences = [risk_difference(y_hat, s, K @ alpha) for alpha in corners]
        drawn.plot(
            differences, place + rng.uniform(-0.2, 0.2, 150), ".", color=BLUE, ms=4, alpha=0.5
        )
        drawn.plot(certificate.difference, place, "|", color="black", ms=26, mew=2.5)
        drawn.plot(certificate.kernels.worst_difference, place, "D", color=RED, ms=8)
        drawn.text(-0.01, place, f"{name}\n{about}", ha="right", va="center")
    handles = [
        drawn.plot([], [], mark, color=colour, ms=size)[0]
        for mark, colour, size in (("|", "black", 14), (".", BLUE, 8), ("D", RED, 7))
    ]
    labels = (
        "the rows as they are",
        "150 reweightings in the set",
        "certified worst of all of them",
    )
    drawn.legend(handles, labels, frameon=False, loc="upper right")
    drawn.set(
        yticks=[], xlim=(0, 0.5), ylim=(-0.5, 3.1), xlabel="risk difference between the sexes"
    )
    drawn.spines["left"].set_visible(False)
    return figure


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, draw in (("idea-reweighting", reweightings), ("idea-set", over_the_set)):
        draw().savefig(folder / f"{name}.png", dpi=150)
