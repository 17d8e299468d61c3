"""Choose tau: accuracy against the worst difference over a set, and the estimator of the point you pick."""

import tempfile
from pathlib import Path

from adult import adult

from agnosticfair import AgnosticFairClassifier, frontier, method
from agnosticfair.report.figures import frontier_figure, png

X, y, sex = adult(4000)
numbers = X.select_dtypes("number")
found = frontier(
    numbers,
    y,
    sensitive_features=sex,
    estimator=AgnosticFairClassifier(
        method("agnosticfair", kernels=50, sigma=0.3, bound=20, nominal=0.2)
    ),
    taus=(0.02, 0.05, 0.1, 0.2),
    folds=2,
)
for k, point in enumerate(found.points):
    mark = " <- knee" if k == found.knee else ""
    print(f"tau {point.tau}: accuracy {point.accuracy:.3f}, worst {point.worst:.3f}{mark}")
picture = Path(tempfile.mkdtemp()) / "frontier.png"
picture.write_bytes(png(frontier_figure(found)))
print(found.pick(), "drawn in", picture.name)
