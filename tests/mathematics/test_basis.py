"""Bases: functions of the user, centres from nobody's rows, widths."""

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair import AgnosticFairClassifier
from agnosticfair.data.encoding import encode
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import Basis, gaussian, gaussian_at
from agnosticfair.methods import method

ROWS = small_table(400, 1)


@pytest.fixture(scope="module")
def rows():
    encoding = fit({"a": ROWS}, "fl").model.encoding
    return encode(encoding, ROWS), ROWS.target.values(), ROWS.sensitive_features["sex"].values()


def fair(**changes):
    own = {k: changes.pop(k) for k in ("basis", "scale") if k in changes}
    values = {"bound": 20.0, "tau": 0.1, **changes}
    return AgnosticFairClassifier(method("agnosticfair", **values), **own)


def test_a_function_of_gaussians_is_the_gaussian_basis(rows):
    X, y, s = rows
    ours = fair(kernels=10, sigma=0.8, scale=False).fit(X, y, sensitive_features=s)
    reweighting = gaussian_at(ours.fit_.centres, 0.8)
    same = fair(basis=reweighting, scale=False).fit(
        X, y, sensitive_features=s, clients=np.arange(400) % 3
    )
    np.testing.assert_allclose(ours.coef_, same.coef_, atol=1e-5)
    assert same.certificate_.kernels.basis == Basis("function", 10)
    one, two = ours.certificate_.worst_difference, same.certificate_.worst_difference
    assert one == pytest.approx(two, abs=1e-3)


@pytest.mark.parametrize("centres", ["rows", "ranges", "kmeans"])
def test_centres_do_not_depend_on_how_rows_are_spread(centres):
    chosen_method = method("agnosticfair", kernels=10, sigma=2.0, centres=centres, bound=50.0)
    one, many = (fit(dealt(ROWS, k), chosen_method, seed=4) for k in (1, 5))
    np.testing.assert_allclose(one.centres, many.centres, atol=1e-9)
    np.testing.assert_allclose(one.model.w, many.model.w, atol=1e-4)
    assert one.centres.shape == (10, one.model.encoding.width)
    X = encode(one.model.encoding, ROWS)
    near = ((X[:, None] - one.centres) ** 2).sum(axis=2).min(axis=0)
    assert (near.max() < 1e-12) == (centres == "rows")  # others are nobody's row


def test_a_draw_from_the_ranges_is_a_possible_row():
    chosen_method = method("agnosticfair", kernels=16, sigma=1.0, centres="ranges", bound=100.0)
    b = fit({"a": ROWS}, chosen_method).centres
    assert b.min() >= 0
    assert b.max() <= 1
    np.testing.assert_array_equal(b[:, 2:].sum(axis=1), 1.0)  # one job each
    assert ((b[:, 2:] == 0) | (b[:, 2:] == 1)).all()


def test_k_means_is_nearer_to_the_rows_than_the_draw_it_began_with():
    X = encode(fit({"a": ROWS}, "fl").model.encoding, ROWS)

    def spread(centres):
        b = fit({"a": ROWS}, method("agnosticfair", kernels=8, centres=centres, bound=50.0)).centres
        return ((X[:, None] - b) ** 2).sum(axis=2).min(axis=1).mean()

    assert spread("kmeans") < 0.8 * spread("ranges")


def halves(column):
    """A kernel for values below a half, and one for the others."""

    def of_rows(X):
        values = X[:, column] if isinstance(column, int) else X[column]
        return np.eye(2)[(np.asarray(values) >= 0.5).astype(int)]

    return of_rows


def test_a_function_protects_every_subgroup_that_it_names(rows):
    X, y, s = rows

    def both(X):
        return np.einsum("nk,nl->nkl", halves(0)(X), halves(2)(X)).reshape(len(X), 4)

    model = fair(basis=both, tau=0.05, bound=30.0).fit(X, y, sensitive_features=s)
    assert model.fit_.method.fairness.basis == Basis("function", 4)
    assert model.history_[-1]["worst"] <= 0.05 + 0.002
    assert "4 kernels of a function" in str(model.certificate_)


def test_frames_reach_the_function_by_name(rows):
    pd = pytest.importorskip("pandas")
    X, y, s = rows
    frame = pd.DataFrame(X, columns=[*"abcde"])
    by_name = fair(basis=halves("a")).fit(frame, y, sensitive_features=s)
    by_place = fair(basis=halves(0)).fit(X, y, sensitive_features=s)
    np.testing.assert_array_equal(by_name.coef_, by_place.coef_)
    assert by_name.certificate_.kernels.basis.kernels == 2


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (lambda X: np.ones(len(X)), r"400,.*400 rows"),
        (lambda X: np.ones((3, 2)), r"shape.*400 rows"),
        (lambda X: -np.ones((len(X), 2)), "-1 to -1"),
        (lambda X: np.full((len(X), 2), np.nan), "finite"),
        (lambda X: np.full((len(X), 2), "a"), "return numbers"),
    ],
)
def test_a_function_that_gives_no_weights_is_refused(rows, own, said):
    X, y, s = rows
    with pytest.raises(SettingsError, match=said):
        fair(basis=own).fit(X, y, sensitive_features=s)


def test_settings_of_bases_are_checked():
    with pytest.raises(SettingsError, match="unknown centres 'stars'"):
        gaussian(3, 1.0, "stars")
    with pytest.raises(SettingsError, match=r"sigma.*positive"):
        gaussian(3, "wide")
    with pytest.raises(SettingsError, match=r"'given'.*none"):
        fit({"a": ROWS}, method("agnosticfair", centres="given"))
    with pytest.raises(FederationError, match=r"0 kernels.*agreed"):
        fit({"a": ROWS}, method("agnosticfair", basis=Basis("function", 3)))
