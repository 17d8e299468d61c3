"""What a rule may be."""

import pytest
from sklearn.linear_model import RidgeClassifier

from agnosticfair.errors import SettingsError
from agnosticfair.learners.rule import Rule
from agnosticfair.methods import method


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"learner": "forest"}, "unknown learner 'forest'"),
        ({"learner": RidgeClassifier()}, "RidgeClassifier.*predict_proba"),
        ({"costs": (1, 0)}, "costs is"),
        ({"costs": "fair"}, "costs is 'fair'"),
        ({"positive_rate": (0.5, 0.2)}, "positive_rate is"),
        ({"folds": 1}, "learning_folds is 1"),
        ({"min_people": 0}, "min_people is 0"),
        ({"learner": "given"}, "go together"),
        ({"learner": "linear", "probability": "score"}, "go together"),
    ],
)
def test_a_bad_rule_is_a_sentence(change, sentence):
    with pytest.raises(SettingsError, match=sentence):
        Rule(**change)


def test_a_column_of_probabilities_is_the_learner():
    assert Rule(probability="score").learner == "given"
    assert Rule(probability="score, group").probability == ("score", "group")


def test_settings_reach_the_rule():
    made = method("rule", costs="balanced", learning_folds=3, overall=0.1).rule
    assert (made.costs, made.folds, made.overall) == ("balanced", 3, 0.1)
    with pytest.raises(SettingsError, match=r"'fl'.*rule"):
        method("fl", costs="balanced")
