"""UCI Adult as a data frame, for the examples that follow."""

import pandas as pd

from agnosticfair import load_dataset


def adult(rows: int = 8000) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """X (numbers and texts), y and the groups, of some rows drawn at random."""
    table = load_dataset("adult")
    texts = {name: column.values() for name, column in table.categorical.items()}
    X = pd.DataFrame({**table.numeric, **texts})
    y = pd.Series(table.target.values(), name="income")
    sex = pd.Series(table.sensitive_features["sex"].values(), name="sex")
    chosen = X.sample(rows, random_state=0).index
    return X.loc[chosen], y.loc[chosen], sex.loc[chosen]
