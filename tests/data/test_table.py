import numpy as np
import pytest

from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError


def test_take_keeps_vocabularies():
    table = Table({"x": np.arange(3.0)}, {"c": Column.of("abc")}, None, {})
    subgroup = table.take(np.array([2]))
    assert len(subgroup) == 1
    assert subgroup.categorical["c"].categories == ("a", "b", "c")
    assert subgroup.categorical["c"].values().tolist() == ["c"]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(DataError, match=r"'x'.*2 rows"):
        Table({"x": np.zeros(2)}, {"c": Column.of("abc")}, None, {})
