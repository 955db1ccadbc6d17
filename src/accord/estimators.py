"""scikit-learn estimators whose rows belong to clients: ``fit(X, y, groups=...)``.

They minimise  mean loss + l1 ||w||_1 + (l2/2) ||w||^2  over the rows of all clients, the intercept free, by
an algorithm of Accord on the problem of Accord (``accord.analysis.solve``), and end at the coefficients
that pooling would have given, whatever the groups. In scikit-learn's terms, with n rows:

    FederatedRidge                l2 = alpha / n
    FederatedLasso                l1 = alpha
    FederatedElasticNet           l1 = alpha l1_ratio, l2 = alpha (1 - l1_ratio)
    FederatedLogisticRegression   l2 = 1 / (n C)
    FederatedPoissonRegressor     l2 = alpha

Penalties default to 0.01, for ridge and logistic regression what scikit-learn's default is at 100 rows.
Sample weights count as repeated rows, n then being their sum, and a client weighs what its rows do.

Before the first round the clients send the sums that give the columns' means and deviations. With an
intercept the columns are centred, which changes no optimum and keeps the digits of columns far from
zero. They are then divided by powers of two, which rounds nothing: each column by its own where there is
no penalty, all by one where there is, so that l1 and l2 keep their meaning. Targets are centred and scaled
alike in linear models.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from accord import problems
from accord.analysis import solve
from accord.data import Clients
from accord.engines.job import check_whole
from accord.problems.base import non_negative, positive
from accord.theory import Certificate

__all__ = [
    "FederatedElasticNet",
    "FederatedLasso",
    "FederatedLinearRegression",
    "FederatedLogisticRegression",
    "FederatedPoissonRegressor",
    "FederatedRidge",
]


class _Units(NamedTuple):
    """What the problem is solved in: v = scale w / target, the columns being (X - centre) / scale."""

    centre: np.ndarray
    scale: np.ndarray
    target: float = 1.0
    shift: float = 0.0

    def coefficients(self, x, intercept: bool):
        """(w, b) in the user's units from v, and the intercept's row below it."""
        v = x[: len(self.scale)]
        w = self.target * (v.T / self.scale).T
        b = self.target * x[-1] + self.shift - self.centre @ w if intercept else 0 * w[0]
        return w, b

    def certificate(self, found: Certificate, factor: float, intercept: bool) -> Certificate:
        """The certificate of (w, b) from that of v; F here is ``factor`` times F there."""
        d = len(self.scale)
        matrix = np.diag(self.target / self.scale)
        if intercept:
            matrix = np.block(
                [
                    [matrix, np.zeros((d, 1))],
                    [-(self.centre @ matrix)[None], np.full((1, 1), self.target)],
                ]
            )
        distance, coefficients = found.distance, found.coefficients
        gap = None if found.gap is None else factor * found.gap
        if distance is not None:
            distance = float(np.linalg.norm(matrix, 2) * distance)
        if coefficients is not None:
            coefficients = abs(matrix) @ coefficients
            shortest = float(np.linalg.norm(coefficients))
            distance = shortest if distance is None else min(distance, shortest)
        return Certificate(factor * found.gradient_norm, distance, gap, coefficients)


class _Federated(BaseEstimator):
    """What the estimators share: rows to clients, units, the solving, and what is told of it."""

    def _penalties(self) -> tuple[float, float]:
        return (
            non_negative("l1", getattr(self, "l1", 0.0)),
            non_negative("l2", getattr(self, "l2", 0.0)),
        )

    def _check_options(self) -> None:
        """Raises by the names of the estimator's own parameters."""
        positive("tol", self.tol)
        if self.max_rounds is not None:
            check_whole("max_rounds", self.max_rounds, 1, 31)
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise TypeError(
                f"fit_intercept: got {self.fit_intercept!r}; accepted are True and False"
            )

    def _fit(self, make_problem, X, y, groups, sample_weight):
        """Solves for coefficients (d,) or (d, C) and intercepts, of rows that are validated.

        ``groups``: the number of every row's client, and the clients' names.
        """
        l1, l2 = self._penalties()
        self._check_options()
        owner, names = groups
        w = np.ones(len(y)) if sample_weight is None else sample_weight
        intercept = bool(self.fit_intercept)
        units, Z = _units(X, w, intercept, own=l1 == l2 == 0)
        units, y, factor = self._target_units(units, y, w, intercept)
        order, counts = np.argsort(owner, kind="stable"), np.bincount(owner, minlength=len(names))
        rows = np.split(order, np.cumsum(counts)[:-1])
        arrays = [_packed(Z[i], y[i], w[i]) for i in rows]
        s = units.scale[0]
        problem = make_problem(
            Clients.from_arrays(arrays, names),
            l1=l1 * units.target / (s * factor),
            l2=l2 * units.target**2 / (s**2 * factor),
            intercept=intercept,
        )
        solution = solve(problem, self.algorithm, self.tol, self.max_rounds)
        x = np.asarray(solution.x)
        if x.ndim == 2:
            # Numbers that neither rows nor penalties determine: mean zero over the classes.
            free = np.full(len(x), l1 == l2 == 0)
            free[-1] |= intercept
            x = np.where(free[:, None], x - x.mean(1, keepdims=True), x)
        self.certificate_ = units.certificate(solution.certificate, factor, intercept)
        self.history_, self.status_ = solution.run.history, solution.status
        self.n_iter_ = int(self.history_["round"][-1])
        if solution.status.name != "converged":
            warnings.warn(
                f"{type(self).__name__}: {solution.status.sentence}",
                ConvergenceWarning,
                stacklevel=3,
            )
        return units.coefficients(x, intercept)

    def _target_units(self, units: _Units, y, w, intercept: bool):
        """(units, targets in them, factor): F is ``factor`` times the F that is minimised."""
        return units, y, 1.0

    def _decision(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, dtype="numeric", reset=False)
        return np.asarray(X, float) @ self.coef_.T + self.intercept_


def _labelled(groups, rows: int):
    """(the number of every row's client, the clients' names)."""
    if groups is None:
        return np.zeros(rows, int), ["all"]
    groups = np.asarray(groups)
    if groups.shape != (rows,):
        raise ValueError(
            f"groups: shape {groups.shape}; accepted is one label a row, ({rows},), naming its client"
        )
    if groups.dtype.kind not in "iubUS":
        missing = groups != groups
        if groups.dtype.kind == "O":
            missing = [label is None or label != label for label in groups]
        if np.any(missing):
            raise ValueError(
                "groups: a label is missing; accepted is one label a row, naming its client"
            )
    try:
        labels, owner = np.unique(groups, return_inverse=True)
    except TypeError:
        raise ValueError("groups: labels of mixed types; give strings, or integers") from None
    return owner, [str(n) for n in labels]


def _packed(X, y, w):
    """A client's rows, brought to one of a few numbers of rows by some that weigh nothing.

    Folds of a cross-validation then meet programs that are compiled already.
    """
    n = len(y)
    if not n:
        return X, y, w
    doubling = (n - 1).bit_length()
    step = 2**doubling if n <= 256 else 2 ** (doubling - 6)
    more = -n % step
    if not more:
        return X, y, w
    return (
        np.concatenate([X, np.broadcast_to(X[:1], (more, X.shape[1]))]),
        np.concatenate([y, np.broadcast_to(y[:1], more)]),
        np.concatenate([w, np.zeros(more)]),
    )


def _units(X, w, intercept: bool, own: bool):
    """(centre and scale of the columns, each its ``own`` scale or one for all, the columns in them)."""
    total, d = w.sum(), X.shape[1]
    centre, Z = np.zeros(d), X
    if intercept:
        centre = w @ X / total
        rest = w @ (X - centre) / total
        centre = centre + rest
        Z = X - centre
    squares = np.einsum("r,rk,rk->k", w, Z, Z) / total
    # A constant column, up to the rounding of its mean, keeps its unit.
    rounding = (64 * np.finfo(float).eps * abs(centre)) ** 2
    squares = np.where(squares > rounding, squares, 0.0)
    if not own:
        squares = np.full(d, squares.mean())
    units = _Units(centre, _power_of_two(np.sqrt(squares)))
    return units, Z / units.scale


def _power_of_two(size):
    """The nearest powers of two, and 1 for 0."""
    size = np.asarray(size, float)
    return 2.0 ** np.round(np.log2(np.where(size > 0, size, 1.0)))


def _weights(sample_weight, X):
    """Row weights, or None; at least one is to be positive."""
    if sample_weight is None:
        return None
    w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not (w > 0).any():
        raise ValueError("sample_weight: all weights are zero; at least one row is to count")
    return w


def _counting(w, *arrays):
    """The arrays without the rows of weight zero."""
    if w is None or (w > 0).all():
        return (w, *arrays)
    kept = w > 0
    return (w[kept], *(a[kept] for a in arrays))


class _Regression(RegressorMixin, _Federated):
    """A regressor of one target."""

    _problem: ClassVar[Callable]

    def fit(self, X, y, groups=None, sample_weight=None):
        """Fits the rows of all clients together.

        ``X`` (n, d) and ``y`` (n,); ``groups`` (n,): the client of every row, by any label (None: one
        client); ``sample_weight`` (n,), >= 0. Raises ``ValueError`` where they do not fit; warns with
        ``ConvergenceWarning`` where the tolerance is not reached.
        """
        X, y = validate_data(self, X, y, dtype="numeric", y_numeric=True)
        w = _weights(sample_weight, X)
        owner, names = _labelled(groups, len(y))
        w, X, y, owner = _counting(w, np.asarray(X, float), np.asarray(y, float), owner)
        self.coef_, intercept = self._fit(self._problem, X, y, (owner, names), w)
        self.intercept_ = float(intercept)
        return self

    def predict(self, X):
        """The expected target of every row, (n,)."""
        return self._decision(X)


class _LinearRegression(_Regression):
    """Least squares in any units of the target: y / c has the coefficients w / c at l1 / c."""

    _problem = staticmethod(problems.least_squares)

    def _target_units(self, units, y, w, intercept):
        shift = w @ y / w.sum() if intercept else 0.0
        shift += w @ (y - shift) / w.sum() if intercept else 0.0
        size = float(_power_of_two(np.sqrt(w @ (y - shift) ** 2 / w.sum())))
        units = units._replace(target=size, shift=shift)
        return units, (y - shift) / size, size**2


class FederatedLinearRegression(_LinearRegression):
    """Ordinary least squares over the rows of all clients.

    (1/(2n)) ||X w + b - y||^2. Where columns are collinear or outnumber the rows there are many minimisers,
    and the one of least norm is taken, in columns brought to deviations within a factor of two of one.

    ``fit_intercept``; ``algorithm`` (default ``accord.Newton()`` for up to 700 parameters, else
    ``accord.AGPDMM()``); ``tol`` bounds ||x - x*|| / max(1, ||x||) by a certificate, in the units above, or
    the gradient norm where F is flat; ``max_rounds`` (default 100,000).

    Fitted: ``coef_``, ``intercept_``, ``n_iter_`` (rounds), ``certificate_`` (of coefficients, then
    intercept), ``history_``, ``status_``, ``n_features_in_``, ``feature_names_in_``.
    """

    def __init__(self, *, fit_intercept=True, algorithm=None, tol=1e-8, max_rounds=None):
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds


class FederatedRidge(_LinearRegression):
    """Ridge regression: (1/(2n)) ||X w + b - y||^2 + (l2/2) ||w||^2; scikit-learn's alpha is n l2.

    The other parameters and what is fitted are those of ``FederatedLinearRegression``.
    """

    def __init__(self, l2=0.01, *, fit_intercept=True, algorithm=None, tol=1e-8, max_rounds=None):
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds


class FederatedLasso(_LinearRegression):
    """The lasso: (1/(2n)) ||X w + b - y||^2 + l1 ||w||_1; scikit-learn's alpha is l1.

    Coefficients that are zero at the optimum are exactly zero. The other parameters and what is fitted
    are those of ``FederatedLinearRegression``.
    """

    def __init__(self, l1=0.01, *, fit_intercept=True, algorithm=None, tol=1e-8, max_rounds=None):
        self.l1 = l1
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds


class FederatedElasticNet(_LinearRegression):
    """The elastic net: (1/(2n)) ||X w + b - y||^2 + l1 ||w||_1 + (l2/2) ||w||^2.

    scikit-learn's alpha is l1 + l2 and its l1_ratio l1 / (l1 + l2). The other parameters and what is fitted
    are those of ``FederatedLinearRegression``.
    """

    def __init__(
        self, l1=0.01, l2=0.01, *, fit_intercept=True, algorithm=None, tol=1e-8, max_rounds=None
    ):
        self.l1 = l1
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds


class FederatedPoissonRegressor(_Regression):
    """Poisson regression of counts y >= 0 with a log link: mean of exp(eta) - y eta, plus penalties.

    eta = X w + b; scikit-learn's alpha is l2. The other parameters and what is fitted are those of
    ``FederatedLinearRegression``.
    """

    _problem = staticmethod(problems.poisson)

    def __init__(
        self, l1=0.0, l2=0.01, *, fit_intercept=True, algorithm=None, tol=1e-8, max_rounds=None
    ):
        self.l1 = l1
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds

    def _target_units(self, units, y, w, intercept):
        if (y < 0).any():
            raise ValueError(f"y: a target is {y.min():g}; Poisson counts are >= 0")
        if not (y > 0).any():
            raise ValueError("y: all counts are zero, so that no finite intercept is the best one")
        if not intercept:
            return units, y, 1.0
        # exp(eta) - y eta is c times the loss of y/c at eta - log c, but for a constant.
        c = float(_power_of_two(w @ y / w.sum()))
        return units._replace(shift=np.log(c)), y / c, c

    def predict(self, X):
        """The expected count of every row, (n,)."""
        return np.exp(self._decision(X))

    def score(self, X, y, sample_weight=None):
        """D^2, the share of the Poisson deviance explained, as scikit-learn's PoissonRegressor has it."""
        from sklearn.metrics import d2_tweedie_score

        return d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class FederatedLogisticRegression(ClassifierMixin, _Federated):
    """Logistic regression, for more than two classes multinomial: mean log-loss plus penalties.

    scikit-learn's C is 1/(n l2). Labels of any kind; every client may lack some of them. For more than two
    classes one number may be added to a feature's coefficients of all classes without a change to any
    probability: where no penalty objects, they are given with mean zero over the classes, as are the
    intercepts. Separable classes have no finite fit without a penalty: the warning says so.

    The other parameters are those of ``FederatedLinearRegression``. Fitted, beside what is named there:
    ``classes_``; ``coef_`` (1, d) and ``intercept_`` (1,) for two classes, (C, d) and (C,) for C > 2.
    """

    def __init__(
        self, l1=0.0, l2=0.01, *, fit_intercept=True, algorithm=None, tol=1e-8, max_rounds=None
    ):
        self.l1 = l1
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds

    def fit(self, X, y, groups=None, sample_weight=None):
        """Fits the rows of all clients together.

        ``X`` (n, d) and ``y`` (n,), labels; ``groups`` (n,): the client of every row, by any label (None: one
        client); ``sample_weight`` (n,), >= 0: a class whose rows all weigh nothing is no class. Raises
        ``ValueError`` where they do not fit or there is but one class; warns with
        ``ConvergenceWarning`` where the tolerance is not reached.
        """
        X, y = validate_data(self, X, y, dtype="numeric")
        check_classification_targets(y)
        w = _weights(sample_weight, X)
        owner, names = _labelled(groups, len(y))
        w, X, y, owner = _counting(w, np.asarray(X, float), y, owner)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y: there is one class only, {classes[0]!r}; a classifier wants at least 2 classes"
            )
        self.classes_ = classes
        make = problems.logistic
        if len(classes) > 2:
            make = partial(problems.softmax, classes=len(classes))
        coefficients, intercept = self._fit(make, X, codes.astype(float), (owner, names), w)
        self.coef_ = np.atleast_2d(coefficients.T)
        self.intercept_ = np.broadcast_to(intercept, len(self.coef_)).copy()
        return self

    def decision_function(self, X):
        """The linear predictors: (n,) for two classes, positive for the second; (n, C) for C > 2."""
        eta = self._decision(X)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def predict_proba(self, X):
        """The probability of every class, (n, C)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X):
        """The logarithms of the classes' probabilities, (n, C)."""
        from scipy.special import log_softmax

        eta = self._decision(X)
        if eta.shape[1] == 1:
            return -np.logaddexp(0.0, np.hstack([eta, -eta]))
        return log_softmax(eta, axis=1)

    def predict(self, X):
        """The most probable class of every row, (n,)."""
        eta = self.decision_function(X)
        best = (eta > 0).astype(int) if eta.ndim == 1 else eta.argmax(1)
        return self.classes_[best]
