"""Your own file: clients in a column, two sensitive features, string labels."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from agnosticfair import AgnosticFairClassifier, method

rng = np.random.default_rng(0)
n = 3000
sex, region = rng.choice(["F", "M"], n), rng.choice(["north", "south", "west"], n)
score = rng.normal(size=n) + 0.6 * (sex == "M") + 0.4 * (region == "south")
frame = pd.DataFrame({"score": score, "years": rng.integers(0, 30, n), "sex": sex})
frame = frame.assign(region=region, hired=np.where(score > rng.normal(size=n), "yes", "no"))
file = Path(tempfile.mkdtemp()) / "rows.csv"
frame.assign(branch=rng.choice(["b1", "b2"], n)).to_csv(file, index=False)

rows = pd.read_csv(file)
model = AgnosticFairClassifier(
    method("agnosticfair", kernels=50, bound=20), metric="equalized_odds", tau=0.1
)
model.fit(
    rows[["score", "years"]],
    rows["hired"],
    sensitive_features=rows[
        ["sex", "region"]
    ],  # a constraint for each; intersections=True for both
    clients=rows["branch"],
)
print(model.classes_, "converged:", model.converged_, "under the floor:", model.under_floor_)
for sensitive_feature, certificate in model.certificate_.items():
    print(sensitive_feature, "-", certificate)
