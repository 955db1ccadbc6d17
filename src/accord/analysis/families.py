"""The kinds of model that can be fitted to a table: loss, prediction, likelihood, and what a site counts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from accord import problems


class Family(NamedTuple):
    """A kind of model.

    ``problem(clients, **options)`` makes its problem; ``mean(eta)`` is the prediction from the linear
    predictor; ``losses(eta, y, threshold)`` the loss of each row; ``scores(eta, y)`` what a site
    counts beside; ``likelihood`` says whether a fit without penalties maximises a likelihood, and has
    standard errors; ``metric`` names its measure of a fit.
    """

    problem: Callable[..., Any]
    mean: Callable[..., np.ndarray]
    losses: Callable[..., np.ndarray]
    scores: Callable[..., dict[str, float]]
    likelihood: bool
    metric: str


def _identity(eta):
    return eta


def _squared(eta, y, threshold):
    return 0.5 * (eta - y) ** 2


def _squares(eta, y):
    return {
        "residual_squares": float(((eta - y) ** 2).sum()),
        "target_sum": float(y.sum()),
        "target_squares": float(((y - y.mean()) ** 2).sum()) if len(y) else 0.0,
    }


def _huber(eta, y, threshold):
    r = abs(eta - y)
    return np.where(r <= threshold, 0.5 * r**2, threshold * (r - 0.5 * threshold))


def _sigmoid(eta):
    from scipy.special import expit

    return expit(eta)


def _logistic(eta, y, threshold):
    return np.logaddexp(0.0, eta) - y * eta


def _binary_scores(eta, y):
    return {
        "correct": float(((eta > 0) == (y > 0)).sum()),
        "positive": float(y.sum()),
        "auc": _auc(eta, y),
    }


def _auc(eta, y) -> float:
    """The area under the ROC curve by ranks; NaN where one class is absent."""
    positive = y > 0
    n, p = len(y), int(positive.sum())
    if p in (0, n):
        return float("nan")
    _, place, counts = np.unique(eta, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[positive].sum() - p * (p + 1) / 2) / (p * (n - p)))


def _softmax(eta):
    from scipy.special import softmax

    return softmax(eta, axis=1)


def _cross_entropy(eta, y, threshold):
    from scipy.special import logsumexp

    return logsumexp(eta, axis=1) - np.take_along_axis(eta, y[:, None], 1)[:, 0]


def _class_scores(eta, y):
    return {"correct": float((eta.argmax(1) == y).sum())}


def _poisson(eta, y, threshold):
    return np.exp(eta) - y * eta


def _count_scores(eta, y):
    from scipy.special import gammaln, xlogy

    rate = np.exp(eta)
    return {
        "deviance": float(2 * (xlogy(y, y) - xlogy(y, rate) - y + rate).sum()),
        "log_factorials": float(gammaln(y + 1).sum()),
        "target_sum": float(y.sum()),
        "entropy": float(xlogy(y, y).sum()),
    }


FAMILIES = {
    "linear": Family(
        problems.least_squares, _identity, _squared, _squares, True, "R2"
    ),
    "logistic": Family(
        problems.logistic, _sigmoid, _logistic, _binary_scores, True, "AUC"
    ),
    "softmax": Family(
        problems.softmax, _softmax, _cross_entropy, _class_scores, True, "accuracy"
    ),
    "poisson": Family(
        problems.poisson, np.exp, _poisson, _count_scores, True, "D2"
    ),
    "huber": Family(problems.huber, _identity, _huber, _squares, False, "R2"),
}  # fmt: skip
"""Every kind of model by its name."""


def metric(family: Family, scores: dict[str, float], rows: float) -> float:
    """The family's measure of a fit from a site's scores, or from their sums: NaN where undefined.

    R2 = 1 - residual/total squares, accuracy = correct/rows, D2 = 1 - deviance/null deviance; AUC is a
    site's own.
    """
    if family.metric == "R2":
        total = scores["target_squares"]
        return 1 - scores["residual_squares"] / total if total > 0 else float("nan")
    if family.metric == "accuracy":
        return scores["correct"] / rows
    if family.metric == "AUC":
        return scores["auc"]
    mean = scores["target_sum"] / rows
    null = scores["entropy"] - (scores["target_sum"] * np.log(mean) if mean > 0 else 0.0)
    return float(1 - scores["deviance"] / (2 * null)) if null > 0 else float("nan")


def site_statistics(family: Family, x, X, y, intercept: bool, threshold: float) -> dict[str, float]:
    """What a site reports of a model x on its rows: sums and counts only."""
    eta = X @ x[:-1] + x[-1] if intercept else X @ x
    counted = {"rows": float(len(y)), "loss": float(family.losses(eta, y, threshold).sum())}
    return counted | family.scores(eta, y)


def pooled(sums: list[dict[str, float]]) -> dict[str, float]:
    """The sites' statistics together: sums, and for the targets' squares the pooled centre."""
    totals = {k: sum(s[k] for s in sums) for k in sums[0] if k != "auc"}
    if "target_squares" in totals:
        mean = totals["target_sum"] / totals["rows"]
        totals["target_squares"] += sum(
            s["rows"] * (s["target_sum"] / s["rows"] - mean) ** 2 for s in sums if s["rows"]
        )
    if "auc" in sums[0]:
        known = [s for s in sums if not np.isnan(s["auc"])]
        rows = sum(s["rows"] for s in known)
        totals["auc"] = sum(s["rows"] * s["auc"] for s in known) / rows if rows else float("nan")
    return totals
