"""Products of two values as features: agreed from counts, the same bits for any split, in files and exports."""

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.errors import ModelError, SettingsError
from agnosticfair.estimator.classifier import AgnosticFairClassifier
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.model import load_model
from agnosticfair.report.card import card, markdown

ROWS = small_table(400, 5)


def made(name="agnosticfair-named", **changes):
    return method(name, products=0.05, bands=4, **changes)


@pytest.mark.parametrize("name", ["agnosticfair-named", "fairfl", "fl"])
def test_products_are_the_same_for_any_split(name):
    one, three = (fit(t, made(name), positive="yes") for t in ({"one": ROWS}, dealt(ROWS, 3)))
    masked = fit(dealt(ROWS, 3), made(name), positive="yes", secure=True)
    np.testing.assert_array_equal(one.model.w, three.model.w)
    np.testing.assert_array_equal(one.model.w, masked.model.w)
    plain = fit({"one": ROWS}, method(name, bands=4), positive="yes")
    assert len(one.model.w) == len(plain.model.w) + len(one.model.encoding.products)


def test_a_product_is_of_two_values_that_enough_rows_have():
    encoding = fit({"one": ROWS}, made("fl"), positive="yes").model.encoding
    X, names = encode(encoding, ROWS), encoding.names
    first, d = len(encoding.numeric), encoding.width - len(encoding.products)
    one = range(first, d)
    shares = {(i, j): (X[:, i] * X[:, j]).mean() for i in one for j in one if i < j}
    assert {*encoding.products} == {pair for pair, share in shares.items() if share >= 0.05}
    for k, (i, j) in enumerate(encoding.products, d):
        np.testing.assert_array_equal(X[:, k], X[:, i] * X[:, j])
        assert names[k] == f"{names[i]} and {names[j]}"


def test_a_model_with_products_is_saved_and_read(tmp_path):
    model = fit({"one": ROWS}, made(), positive="yes").model
    model.save(tmp_path / "m.safetensors")
    again = load_model(tmp_path / "m.safetensors")
    assert again.encoding == model.encoding
    np.testing.assert_array_equal(again.decision(ROWS), model.decision(ROWS))


@pytest.mark.parametrize("pair", [[0, 3], [3, 3], [2, 99], ["a", 3], [2]])
def test_a_damaged_product_is_refused(pair):
    told = {"numeric": [["age", 0, 1]], "categorical": [["job", ["a", "b", "c"]]], "scale": True}
    with pytest.raises(ModelError, match="the encoding is damaged"):
        Encoding.from_json({**told, "products": [pair]})


def test_the_estimator_has_one_weight_a_column():
    X = np.stack([*ROWS.numeric.values()], axis=1)
    for features in ({"bands": 4}, {"products": 0.1}):
        with pytest.raises(SettingsError, match="coef_ has one weight a column"):
            AgnosticFairClassifier("fl", **features).fit(X, ROWS.labels("yes"))


@pytest.mark.parametrize("name", ["fl", "agnosticfair-named"])
def test_the_card_says_that_values_are_multiplied(name):
    for asked in (method(name), made(name)):
        fitted = fit({"one": ROWS}, asked, positive="yes")
        page = markdown(card(fitted, {"one": ROWS}, {"sex": "it was not asked for"}))
        k = len(fitted.model.encoding.products)
        assert (f"{k} pairs of values count by themselves, too." in page) == (k > 0)
