"""The scikit-learn front: one classifier with ``fit``, ``predict`` and friends, over arrays and frames.

It is the same fit as over tables: X becomes a table per client, and the numbers are those of ``federation.fit`` for the
same rows and seed. scikit-learn is needed here and nowhere else (``pip install agnosticfair[sklearn]``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any
from warnings import warn

import numpy as np

from agnosticfair.auditing.audit import audit
from agnosticfair.auditing.certificate import Certificate
from agnosticfair.auditing.fits import certified_set, compared, kernels_on
from agnosticfair.auditing.inputs import as_frame, codes
from agnosticfair.auditing.limit import UNWEIGHTED, fit_within
from agnosticfair.data.axes import SITE
from agnosticfair.data.encoding import encode
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.estimator import frames
from agnosticfair.estimator.frames import Layout, feature_columns
from agnosticfair.federation import Fit, fit
from agnosticfair.learners import local
from agnosticfair.learners.rule import Rule
from agnosticfair.mathematics.basis import checked, comes_with_rows
from agnosticfair.mathematics.linear import sigmoid, units
from agnosticfair.methods import DEFAULT, Method, Network, needs_groups
from agnosticfair.settings import TAUS
from agnosticfair.tuning import Frontier, Progress, trace

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_array, check_X_y
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

    from agnosticfair.estimator import parameters
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "AgnosticFairClassifier needs scikit-learn 1.6 or later: pip install 'agnosticfair[sklearn]'"
    ) from error

UNCONVERGED = "the fit did not converge: more rounds (max_rounds) may change the model"
UNPROTECTED = (
    "no group is protected: neither sensitive_features nor sensitive_columns is given, so that the fit is 'fl', "
    "accurate and nothing else"
)


class AgnosticFairClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that is accurate, and fair, in every subgroup or for every reweighting of its rows in a set A.

    ``None`` leaves a value as the method has it. All other settings of a method are those of ``agnosticfair.method``:
    ``AgnosticFairClassifier(method("agnosticfair", kernels=50, bound=20))``.

    Parameters
    ----------
    method : str or Method
        A name of ``METHODS``, or what ``agnosticfair.method`` makes of one. 'auto' is ``rule``, and ``agnosticfair``
        with a network or a basis.
    tau : float
        The largest difference between two groups' rates, in every subgroup with enough people, by the model's own
        estimates on the training rows; methods other than 'rule' limit it over their set of reweightings. A fit that
        converged keeps it to 0.001 before decisions are rounded to yes or no. What holds on new rows is the
        certificate's to say.
    limit : float
        Instead of tau, the largest difference of decisions in any estimable subgroup, to be certified at
        ``confidence`` (``precision``: docs/certificates.md); ``certified_limit_`` says what is.
    confidence, precision : float
    metric : str
        What fairness means: 'demographic_parity', 'equal_opportunity', ... (``METRICS``).
    sensitive_columns : str, int or a sequence of them
        Columns of X (places, in an array) that hold the groups; never features. ``fit`` then needs no
        ``sensitive_features``, nor do ``Pipeline``, ``GridSearchCV`` and ``cross_val_score``. Texts in a frame
        become one column per category, and dates days since 1970.
    subgroups_by : str, int or a sequence of them
        Columns of X that name subgroups, too, as texts, and are no features; 'site' is who holds a row.
    rule : Rule
        How the rule estimates and decides: learner, costs, positive rate, awareness.
    network : str, Network or callable
        None for the linear model; 'mlp', a ``Network``, or a function from d to a ``torch.nn.Module`` with one logit
        (extra 'torch', docs/deep.md).
    basis : str, Basis or callable
        What can be weighed up: 'gaussian', 'by_client', 'constant', a ``Basis``, or a function from X, as it is given
        to ``fit``, to K, (n, M), not negative (``gaussian_at`` makes one).
    handle_unknown : str
        Of a text that the fit has not seen: 'error', or 'ignore', which takes it for its column's commonest.
    scale : bool
        Columns are scaled to [0, 1] by their range for the fit and the kernels, as the command line does;
        ``coef_`` is in the units of X all the same.
    random_state : int, RandomState or None
        Draws the kernels' centres and a network's weights.
    verbose : int
        1 prints every round.

    Attributes
    ----------
    coef_, intercept_ : arrays (1, d) and (1,)
        Of a linear model.
    classes_, n_features_in_, feature_names_in_, n_iter_
        As scikit-learn has them; ``n_iter_`` counts rounds.
    alpha_ : array (M,)
        The loss adversary's weights of its kernels.
    history_ : tuple of dict
        A record per round.
    converged_ : bool
    under_floor_ : tuple of str
        Groups too small for the floor, compared with none over A.
    trained_subgroups_ : tuple of (str, float)
        The subgroups in which decisions differ most on the training rows.
    fit_ : Fit
        All of the fit.
    certificate_ : Certificate, or a dict of them
        What holds over the set on the training rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> s, noise = rng.integers(0, 2, 400), rng.normal(size=(400, 2))
    >>> X = noise + s[:, None] * [1.0, 0.0]
    >>> y = X.sum(axis=1) > rng.normal(size=400)
    >>> fair = AgnosticFairClassifier("fairfl").fit(X, y, sensitive_features=s)
    >>> rates = [fair.predict(X)[s == g].mean() for g in (0, 1)]
    >>> bool(abs(rates[0] - rates[1]) < 0.1)
    True
    """

    def __init__(
        self,
        method: str | Method = DEFAULT,
        *,
        tau: float | None = None,
        limit: float | None = None,
        confidence: float = 0.95,
        precision: float = 0.1,
        metric: str | None = None,
        sensitive_columns: Any = None,
        subgroups_by: Any = None,
        rule: Rule | None = None,
        network: Any = None,
        basis: Any = None,
        handle_unknown: str = "error",
        scale: bool = True,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.tau = tau
        self.limit = limit
        self.confidence = confidence
        self.precision = precision
        self.metric = metric
        self.sensitive_columns = sensitive_columns
        self.subgroups_by = subgroups_by
        self.rule = rule
        self.network = network
        self.basis = basis
        self.handle_unknown = handle_unknown
        self.scale = scale
        self.random_state = random_state
        self.verbose = verbose

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name.

        Parameters
        ----------
        deep : bool
            Those of the rule, too, as ``rule__costs``.

        Returns
        -------
        dict
        """
        params = super().get_params(deep=False)
        rule = self.rule if isinstance(self.rule, Rule) else Rule()  # anything may be set
        inner = {f"rule__{f.name}": getattr(rule, f.name) for f in fields(Rule)} if deep else {}
        return params | inner

    def set_params(self, **params: Any) -> AgnosticFairClassifier:
        """Set parameters by name, those of the rule as ``rule__costs``.

        Parameters
        ----------
        **params
        """
        inner = {k: params.pop(k) for k in [*params] if k in self.get_params() and "__" in k}
        super().set_params(**params)
        if inner:
            values = {key.removeprefix("rule__"): value for key, value in inner.items()}
            self.rule = replace(self.rule or Rule(), **values)
        return self

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        clients: Any = None,
        sample_weight: Any = None,
    ) -> AgnosticFairClassifier:
        """Train on rows of numbers with two labels.

        Parameters
        ----------
        X : (n, d) array or frame
            The features, and the columns that ``sensitive_columns`` and ``subgroups_by`` name.
        y : (n,) array
            The labels, of which there are two.
        sensitive_features : (n,) array, or a frame, dict or (n, a) array of several, optional
            The group of every row; never a feature. A method without fairness needs none; the default one, of which
            nothing about groups is asked, warns that it protects nobody, and fits 'fl'.
        clients : (n,) array, optional
            Who holds every row; one holder unless said.
        sample_weight : (n,) array, optional
            2 is the row twice.
        """
        X = as_frame(X)
        tables, method, how = self._problem(X, y, sensitive_features, clients, sample_weight)
        if self.limit is None:
            fitted = fit(tables, method, **how)
        else:
            limits: dict[str, Any] = {"confidence": self.confidence, "precision": self.precision}
            fitted, self.certified_limit_ = fit_within(
                tables, method, limit=self.limit, **limits, **how
            )
        self._take(fitted)
        if not fitted.converged:
            warn(f"{UNCONVERGED} ({fitted.rounds} so far)", ConvergenceWarning, stacklevel=2)
        elif fitted.collapsed is not None:
            warn(fitted.collapsed, UserWarning, stacklevel=2)
        self._training = (X, y, self._groups(X, sensitive_features), sample_weight)
        return self

    def _groups(self, X: Any, sensitive_features: Any) -> Any:
        """The groups that are given, else those in the columns that were named."""
        layout: Layout | None = self._layout
        if sensitive_features is not None or layout is None or not layout.sensitive:
            return sensitive_features
        return frames.groups_of(layout, as_frame(X))

    def _problem(
        self, X: Any, y: Any, sensitive_features: Any, clients: Any, sample_weight: Any
    ) -> tuple[dict[str, Table], Method, dict[str, Any]]:
        """What the arrays make: tables by client, as files of these rows would; the method, and how to run it."""
        frame = X
        X, y = self._numbers(X, y=y)
        K = checked(self.basis, frame, len(X)) if callable(self.basis) else None
        method = parameters.method_of(self, K)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        if weights is not None and (weights < 0).any():
            raise DataError(
                f"sample_weight has negative values, {weights.min():g} for one: drop them"
            )
        repeats = frames.repeats_of(weights)
        if weights is not None and repeats is None and method.averaging is not None:
            raise SettingsError(
                f"method {method.name!r} knows no sample_weight but whole numbers: repeat the rows"
            )
        if self.limit is not None and weights is not None and (weights != 1).any():
            raise SettingsError(UNWEIGHTED)
        self.classes_, codes_y = frames.labels_of(y, weights)
        sensitive = feature_columns(self._groups(frame, sensitive_features), len(X))
        if needs_groups(method) and not sensitive:
            method = parameters.unprotected(self, method)
            warn(UNPROTECTED, UserWarning, stacklevel=3)
        frames.check_subgroup_columns(method, self._columns(), [*sensitive])
        self._group_names = tuple(sensitive)
        several = clients is not None
        owners, keys = codes(clients, "clients", len(X)) if several else (None, (frames.ALL,))
        how = {
            "sensitive_features": tuple(sensitive) or None,
            "positive": "1",
            "seed": parameters.seed_of(self.random_state),
            "on_round": parameters.print_round if self.verbose else None,
            "scale": self.scale,
        }
        groups = (sensitive, self._group_names, self.handle_unknown)
        table = frames.table_as_read(self._columns(), frame, X, *groups, codes_y, weights, K)
        return frames.dealt(table, owners, keys, repeats), method, how

    def _columns(self) -> Layout:
        """The columns that are fitted on; those of numbers alone need no layout of their own."""
        names = getattr(self, "feature_names_in_", None)
        numbers = [f"x{j}" for j in range(self.n_features_in_)] if names is None else [*names]
        return self._layout or Layout(tuple(numbers), {})

    def _take(self, fitted: Fit) -> None:
        """Keep what a fit found, its weights in the units of X."""
        self.fit_, self._network, model = fitted, self.network, fitted.model
        if model.network is None and model.rule is None:
            encoding, w = model.encoding, model.w[:-1].copy()
            ends = np.array([(low, high) for _, low, high in encoding.numeric]).reshape(-1, 2)
            low, span = units(ends[:, 0], ends[:, 1], encoding.scale)
            counts = (ends[:, 1] > ends[:, 0]) | (not encoding.scale)  # a constant is encoded as 0
            w[: len(low)] = np.where(counts, w[: len(low)] / span, 0.0)
            self.intercept_ = np.array([model.w[-1] - w[: len(low)] @ low])
            place = {name: j for j, name in enumerate(encoding.names)}
            names = self._columns().names(self._group_names)
            self.coef_ = w[None, [place[name] for name in names]]
        self.alpha_, self.history_ = fitted.alpha, fitted.history
        self.converged_, self.n_iter_ = fitted.converged, fitted.rounds
        self.under_floor_ = fitted.under_floor
        self._certificate: Certificate | dict[str, Certificate] | None = None

    def decision_function(self, X: Any) -> np.ndarray:
        """Signed distances, positive where the answer is ``classes_[1]``.

        Parameters
        ----------
        X : (n, d) array or frame

        Returns
        -------
        (n,) array
        """
        check_is_fitted(self)
        model, table = self.fit_.model, self._table(X)
        if model.network is None or not callable(self._network):
            return model.decision(table)
        from agnosticfair.networks import decide

        # a process to which this estimator was sent knows the function by a name of its own
        network = parameters.network_of(self._network)
        assert isinstance(network, Network)
        rows = encode(model.encoding, table)
        return decide(network.name, model.network["hidden"], model.w, rows)

    def predict(self, X: Any) -> np.ndarray:
        """The label of every row.

        Parameters
        ----------
        X : as in ``decision_function``

        Returns
        -------
        (n,) array
        """
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(np.int64)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the two labels.

        Parameters
        ----------
        X : as in ``decision_function``

        Returns
        -------
        (n, 2) array, in the order of ``classes_``
        """
        check_is_fitted(self)
        model = self.fit_.model
        ruled = model.rule is not None
        p = model.probabilities(self._table(X)) if ruled else sigmoid(self.decision_function(X))
        return np.column_stack([1.0 - p, p])

    def audit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        **options: Any,
    ) -> Certificate | dict[str, Certificate]:
        """A certificate on these rows over the set of the fit.

        Who holds a row is not known here, so for basis 'by_client' it is over named subgroups alone.

        Parameters
        ----------
        X : (n, d) array or frame
        y : (n,) array, optional
            Labels; without them nothing is said of accuracy.
        sensitive_features : (n,) array, or a frame or dict of several, optional
            The groups, where no column of X has them.
        sample_weight : (n,) array, optional
            The centre of the set, equal weights unless said; "measured" is without it.
        **options
            Those of ``agnosticfair.audit``; kernels, bound, floor and metric are the fit's unless given.

        Returns
        -------
        Certificate or dict of str to Certificate
            One per sensitive feature where there are several.
        """
        check_is_fitted(self)
        X = as_frame(X)
        columns = feature_columns(self._groups(X, sensitive_features), len(X))
        if not columns:
            raise DataError("sensitive_features is missing: give one value per row")
        fairness = self.fit_.method.fairness
        table = replace(self._table(X, columns), target=None)
        rows = np.empty((len(table), 0))
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, rows)
        table = replace(table, weights=weights)
        over = certified_set(self.fit_, without=SITE)
        if fairness is not None and fairness.basis.kind != "subgroups":
            over = {k: v for k, v in over.items() if k not in ("basis", "bound", "centres")}
            x = encode(self.fit_.model.encoding, table)
            K = checked(self.basis, X, len(x)) if comes_with_rows(fairness.basis) else None
            over |= kernels_on(fairness, x, self.fit_.centres, K, weights)
        certificates = {
            name: audit(
                self.predict(X),
                table,
                y,
                sensitive_features=column.values(),
                **{"positive": self.classes_[1], **over, **options},
            )
            for name, column in compared(fairness, columns).items()
        }
        return certificates if len(certificates) > 1 else next(iter(certificates.values()))

    def _table(self, X: Any, groups: Mapping[str, Column] | None = None) -> Table:
        """Rows to be decided, with their groups, if they are given or the model looks at them."""
        X, model = as_frame(X), self.fit_.model
        rows = self._numbers(X)
        if groups is None:
            reads = bool({*model.sensitive_features} & {*model.further_columns})
            groups = feature_columns(self._groups(X, None), len(rows)) if reads else {}
        how = (self._columns(), X, rows, groups, self._group_names, self.handle_unknown)
        return frames.table_as_read(*how)

    @property
    def trained_subgroups_(self) -> tuple[tuple[str, float], ...]:
        """The subgroups in which decisions differ most by the rule's estimates, the worst first, in the columns' own
        names and units; none where the fit has no subgroups. ``certificate_`` counts decisions by the labels."""
        check_is_fitted(self)
        return self.fit_.trained_subgroups

    @property
    def certificate_(self) -> Certificate | dict[str, Certificate]:
        """What holds over the set on the training rows; computed when first asked for."""
        check_is_fitted(self)
        if self._certificate is None:
            if self._training is None or self._training[2] is None:
                raise AttributeError(
                    "certificate_ needs the training rows and their groups, which this estimator does "
                    "not have: call audit(X, y, sensitive_features=...)"
                )
            X, y, groups, weights = self._training
            self._certificate = self.audit(
                X, y, sensitive_features=groups, sample_weight=weights, held_out=False
            )
        return self._certificate

    def __getstate__(self) -> dict[str, Any]:
        """Training rows do not travel with a saved model, but for those that are kernels' centres."""
        state = dict(super().__getstate__())
        state |= {"_training": None} if "_training" in state else {}
        if "fit_" in state:
            state["_classifiers"] = local.trained_classifiers(self.fit_.model.estimates)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A classifier that learned in another process is known under another name here."""
        models = state.pop("_classifiers", None)
        if models is not None:
            fitted, estimates = state["fit_"], state["fit_"].model.estimates
            known = local.known_here(estimates, models)
            model = replace(fitted.model, estimates=known)
            state["fit_"] = replace(fitted, model=model, start=None, learner=known.kind)
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = self.rule is not None and parameters.takes_missing(self)
        return tags

    def _numbers(self, X: Any, **fitting: Any) -> Any:
        """X as numbers; in a fit also y, and the features are noted."""
        X = as_frame(X)
        rule = None if fitting else self.fit_.method.rule
        missing = parameters.takes_missing(self) if fitting else rule and rule.takes_missing
        finite: Any = "allow-nan" if missing else True
        numbers: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": finite}
        if fitting:
            self._layout = frames.layout_of(X, self.sensitive_columns, self.subgroups_by)
        if self._layout is not None:
            y = fitting.get("y")
            validate_data(self, X, reset=bool(fitting), skip_check_array=True)
            numbers["ensure_min_features"] = 0  # all may be texts
            rows = check_array(frames.numbers_of(self._layout, X), **numbers)
            return rows if not fitting else check_X_y(rows, y, **numbers)
        try:
            return validate_data(self, X, reset=bool(fitting), **numbers, **fitting)
        except ValueError as problem:
            if "could not convert string" not in str(problem):
                raise
            raise DataError(
                f"X has columns that are not numbers ({problem}): encode them first, with a "
                "ColumnTransformer and a OneHotEncoder in a Pipeline"
            ) from None


def frontier(
    X: Any,
    y: Any,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    sample_weight: Any = None,
    estimator: AgnosticFairClassifier | None = None,
    taus: Sequence[float] = TAUS,
    folds: int = 2,
    n_jobs: int = 1,
    on_progress: Progress | None = None,
) -> Frontier:
    """Accuracy against the worst difference for every tau, on held-out folds.

    Parameters
    ----------
    X : (n, d) array or frame
    y : (n,) array
    sensitive_features, clients, sample_weight : (n,) arrays, optional
        As in ``AgnosticFairClassifier.fit``.
    estimator : AgnosticFairClassifier, optional
        With all its settings but tau.
    taus : sequence of float
        The path.
    folds : int
        Of the cross-validation.
    n_jobs : int
        Processes; in a script under ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with (done, total) fits.

    Returns
    -------
    Frontier
        ``pick(tau)`` is the fitted estimator of a point, ``pick()`` that of the knee; ``points`` has the numbers.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> s = rng.integers(0, 2, 120)
    >>> X = np.c_[rng.normal(s, 1.0), rng.normal(size=120)]
    >>> send = {"estimator": AgnosticFairClassifier("fairfl"), "taus": (0.1, 0.3), "folds": 2}
    >>> path = frontier(X, X.sum(axis=1) > 0.5, sensitive_features=s, **send)
    >>> [point.tau for point in path.points]
    [0.1, 0.3]
    """
    from sklearn.base import clone  # where it is missing, the classifier says so

    base = clone(AgnosticFairClassifier() if estimator is None else estimator)
    tables, method, how = base._problem(X, y, sensitive_features, clients, sample_weight)

    def picked(fitted: Fit) -> AgnosticFairClassifier:
        fairness = fitted.method.fairness
        one = clone(base).set_params(tau=None if fairness is None else fairness.tau)
        one._problem(X, y, sensitive_features, clients, sample_weight)  # notes features and classes
        one._take(fitted)
        one._training = (X, y, one._groups(X, sensitive_features), sample_weight)
        return one

    names = how.pop("sensitive_features") or ()
    return trace(
        tables,
        method,
        sensitive_features=names,
        taus=taus,
        folds=folds,
        jobs=n_jobs,
        on_progress=on_progress,
        picked=picked,
        **how,
    )
