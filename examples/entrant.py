"""Enter the benchmark with a method of your own: one file, which stays yours.

agnosticfair-research bench --entrants rule,examples/entrant.py --datasets oulad --seeds 0
"""

import numpy as np

from agnosticfair_research.entrants import Decide, Entrant, Train


def fit(train: Train, limit: float) -> Decide:
    """Logistic regression on rows weighed so that label and group are independent; ``limit`` says how much of it."""
    from sklearn.linear_model import LogisticRegression

    rows = train.pooled  # X, y, s of all clients; train.encoded has them client by client
    weights = np.ones(len(rows.y))  # times train.weights(rows.y), so that both labels count alike
    for y in (0, 1):
        for s in np.unique(rows.s):
            inside = (rows.y == y) & (rows.s == s)
            expected = (rows.y == y).mean() * (rows.s == s).mean()
            weights[inside] += (1 - limit) * (expected / max(inside.mean(), 1e-9) - 1)
    learner = LogisticRegression(max_iter=1000).fit(
        rows.X, rows.y, sample_weight=weights * train.weights(rows.y)
    )
    return lambda table: learner.predict(train.rows(table).X).astype(float)


ENTRANT = Entrant("reweighting", fit, "rows reweighted, then logistic regression", pooled=True)

if __name__ == "__main__":
    from agnosticfair_research.benchmark import cells, run_cell

    (cell,) = cells(["oulad"], [0], [__file__])
    for setting in run_cell(cell)["settings"]:
        found = setting["all"]
        print(
            f"asked for {setting['request']:g}: balanced accuracy {setting['test']['balanced_accuracy']:.3f}, risk "
            f"difference over {found['count']} deployments: p90 {found['p90']:.3f}, max {found['max']:.3f}"
        )
