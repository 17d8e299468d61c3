"""Nobody's row is shown unless ``centres="rows"`` asks for it by name, whichever front a fit comes from."""

import pytest
from helpers import dealt, small_table

from agnosticfair.cli import main
from agnosticfair.estimator.classifier import AgnosticFairClassifier
from agnosticfair.federation import fit, in_process
from agnosticfair.mathematics.basis import Basis, gaussian
from agnosticfair.methods import DEEP, DEFAULT, METHODS, method
from agnosticfair.server.plan import centres_kind
from agnosticfair.tuning import trace

ROWS = small_table(300, 4)


class Asked:
    """An engine that knows which steps were asked."""

    def __init__(self):
        self.engine, self.steps = in_process(dealt(ROWS, 3)), set()

    def clients(self):
        return self.engine.clients()

    def exchange(self, step, *more):
        self.steps.add(step)
        return self.engine.exchange(step, *more)


@pytest.mark.parametrize("name", [DEFAULT, *sorted(METHODS)])
def test_no_method_and_no_basis_asks_for_rows(name):
    assert centres_kind(method(name)) != "rows"
    for settings in ({"network": "mlp"}, {"kernels": 7}) if name == DEFAULT else ():
        assert centres_kind(method(name, **settings)) == "kmeans"
    for deep in DEEP:
        assert centres_kind(method(deep, network="mlp")) != "rows"
    assert gaussian().centres == Basis("gaussian").centres == "kmeans"


def test_a_fit_asks_for_rows_only_if_they_are_named():
    for changes, request in (({}, False), ({"centres": "rows"}, True)):
        engine = Asked()
        fit(engine, method("agnosticfair", kernels=6, max_rounds=1, **changes), positive="yes")
        assert ("centres" in engine.steps) == request


def test_a_path_of_tau_asks_for_no_rows():
    frontier = trace(
        dealt(ROWS, 2),
        method("agnosticfair", kernels=6, max_rounds=2),
        taus=(0.2, 0.3),
        folds=2,
        sensitive_features="sex",
        positive="yes",
    )
    assert centres_kind(frontier.pick(None).method) == "kmeans"


def test_the_estimator_asks_for_no_rows():
    X, y = ROWS.numeric["age"][:, None], ROWS.labels("yes")
    s = ROWS.sensitive_features["sex"].values()
    agnostic_fair_classifier = AgnosticFairClassifier(
        method("agnosticfair", kernels=6, max_rounds=2)
    )
    assert (
        centres_kind(agnostic_fair_classifier.fit(X, y, sensitive_features=s).fit_.method)
        == "kmeans"
    )


@pytest.mark.parametrize("command", ["fit", pytest.param("tune", marks=pytest.mark.slow)])
def test_the_terminal_says_what_rows_as_centres_show(command, tmp_path, capsys):
    sides = ROWS.numeric["age"], ROWS.sensitive_features["sex"].values(), ROWS.target.values()
    lines = ["age,sex,y", *(",".join(map(str, row)) for row in zip(*sides, strict=True))]
    (tmp_path / "a.csv").write_text("\n".join([*lines[:1], *lines[1:150]]))
    (tmp_path / "b.csv").write_text("\n".join([*lines[:1], *lines[150:]]))
    files = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    more = {"fit": ("--tau", "0.3"), "tune": ("--taus", "0.2,0.3", "--folds", "2", "--jobs", "1")}
    said = []
    for k, centres in enumerate(((), ("--centres", "rows"))):
        name = "model.safetensors" if command == "fit" else ""
        out = ("--out", str(tmp_path / str(k) / name))
        (tmp_path / str(k)).mkdir()
        request = ("--method", "agnosticfair", "--kernels", "5", "--max-rounds", "2", *centres)
        with pytest.raises(SystemExit) as ended:
            main(
                [
                    command,
                    *files,
                    "--target",
                    "y",
                    "--sensitive-features",
                    "sex",
                    *request,
                    *more[command],
                    *out,
                ]
            )
        said.append(" ".join(capsys.readouterr().out.split()))
        assert ended.value.code == 0, said
    assert "rows of the others" not in said[0]
    assert "--centres rows" in said[1]
