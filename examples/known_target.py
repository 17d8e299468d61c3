"""A deployment of which unlabelled rows are known: weigh the rows, then trust the weights so far."""

from adult import adult

from agnosticfair import AgnosticFairClassifier, method, target_weights
from agnosticfair.mathematics.scoring import gap

X, y, sex = adult()
numbers, group = X.select_dtypes("number"), (sex == "Male").astype(int)
there = (X["workclass"] != "Private").to_numpy()  # trained on the private sector, used elsewhere
X_train, y_train, s_train = numbers[~there], y[~there], sex[~there]

robust = method("agnosticfair", tau=0.05, nominal=0.2, kernels=50, sigma=0.3, bound=20)
weights = target_weights(X_train, numbers[there])
for trust in (None, 0.0, 0.5, 0.9):
    model = AgnosticFairClassifier(method(robust, trust=trust or 0.0))
    known = None if trust is None else weights
    model.fit(X_train, y_train, sensitive_features=s_train, sample_weight=known)
    decided = (model.predict(numbers[there]) == ">50K").astype(int)
    right = (decided == (y[there] == ">50K")).mean()
    rd = gap("demographic_parity", y[there] == ">50K", decided, group[there])
    name = "unknown target" if trust is None else f"known target, trust {trust}"
    print(f"{name}: accuracy {right:.3f}, risk difference {rd:.3f}")
