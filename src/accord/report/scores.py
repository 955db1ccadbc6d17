"""How well a model predicts rows that no client has fitted."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from accord.data import Clients
from accord.objectives import HuberLoss, LogisticLoss, PoissonLoss, SoftmaxLoss, SquaredLoss
from accord.problems import LinearProblem

_CLASSIFIERS: dict[type, Callable] = {
    SoftmaxLoss: lambda eta: eta.argmax(1),
    LogisticLoss: lambda eta: (eta > 0).astype(int),
}
_REGRESSORS: dict[type, Callable] = {
    SquaredLoss: lambda eta: eta,
    HuberLoss: lambda eta: eta,
    PoissonLoss: np.exp,
}


class Score(NamedTuple):
    """``overall`` over all rows; ``clients`` (m,), NaN where a client has no score."""

    overall: float
    clients: np.ndarray

    @property
    def lowest(self) -> int | None:
        """The position of the client that the model serves least; None where none has a score."""
        return None if np.isnan(self.clients).all() else int(np.nanargmin(self.clients))

    @property
    def least(self) -> float:
        """That client's score, or NaN."""
        return np.nan if self.lowest is None else float(self.clients[self.lowest])


def check_test(problem, test) -> None:
    """Raises where ``test`` cannot be held against models of ``problem``."""
    if not isinstance(test, Clients):
        raise TypeError(f"test: expected accord.Clients, got {type(test).__name__}")
    loss = type(getattr(problem, "loss", None))
    if not isinstance(problem, LinearProblem) or loss not in (*_CLASSIFIERS, *_REGRESSORS):
        raise ValueError(
            f"test: the problem {problem.name!r} does not say how it predicts; accepted are "
            "softmax, logistic, least_squares, huber and poisson: leave test out"
        )
    if test.names != problem.clients.names:
        raise ValueError(
            f"test: its clients are {_some(test.names)}, those of the problem "
            f"{_some(problem.clients.names)}; give the same ones in the same order"
        )
    if test.features != problem.clients.features:
        raise ValueError(
            f"test: rows of {test.features} features, the problem has {problem.clients.features}"
        )


def _some(names) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def kind_of_score(problem) -> str:
    """What is scored: "accuracy" of classes, "R2" (share of variance explained) of numbers."""
    return "accuracy" if type(problem.loss) in _CLASSIFIERS else "R2"


def score(problem, x, test: Clients) -> Score | None:
    """The score of a model on the clients' held-out rows, or None where it is not finite."""
    x = np.asarray(x, float)
    if not np.isfinite(x).all():
        return None
    classes = kind_of_score(problem) == "accuracy"
    predict = (_CLASSIFIERS if classes else _REGRESSORS)[type(problem.loss)]
    pieces = []
    for i, (X, y) in enumerate(test):
        with np.errstate(over="ignore"):
            predicted = predict(X @ x[:-1] + x[-1] if problem.intercept else X @ x)
        pieces.append((predicted, y, test.row_weights(i)))
    judge = _accuracy if classes else _explained
    overall = judge(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))
    return Score(overall, np.array([judge(*piece) for piece in pieces]))


def _accuracy(predicted, y, weights) -> float:
    return float(np.average(predicted == y, weights=weights)) if weights.sum() > 0 else np.nan


def _explained(predicted, y, weights) -> float:
    """R^2 = 1 - (squared error) / (squared deviation from the rows' own mean)."""
    if not weights.sum() > 0:
        return np.nan
    total = weights @ (y - np.average(y, weights=weights)) ** 2
    if not total > 0:
        return np.nan
    with np.errstate(over="ignore"):
        return float(1 - weights @ (predicted - y) ** 2 / total)
