"""A first fit on Adult: one classifier in a Pipeline, fair over a whole set of deployments."""

from adult import adult
from fairlearn.metrics import MetricFrame, selection_rate
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

from agnosticfair import AgnosticFairClassifier, method

X, y, sex = adult()
X, X_test, y, y_test, sex, sex_test = train_test_split(X, y, sex, random_state=0)
texts = make_column_selector(dtype_exclude="number")
columns = make_column_transformer(
    (OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts), remainder=MinMaxScaler()
)

fair = make_pipeline(columns, AgnosticFairClassifier(method("agnosticfair", kernels=100), tau=0.1))
fair.fit(X, y, agnosticfairclassifier__sensitive_features=sex)
plain = make_pipeline(columns, LogisticRegression(max_iter=5000)).fit(X, y)

for name, model in (("logistic regression", plain), ("agnosticfair", fair)):
    rates = MetricFrame(
        metrics=lambda t, p: selection_rate(t, p, pos_label=">50K"),
        y_true=y_test,
        y_pred=model.predict(X_test),
        sensitive_features=sex_test,
    )
    accuracy = accuracy_score(y_test, model.predict(X_test))
    print(f"{name}: accuracy {accuracy:.3f}, risk difference {rates.difference():.3f}")
print(fair[-1].certificate_)
