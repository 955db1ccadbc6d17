"""The estimators beside scikit-learn on the pooled rows, to the same accuracy, in turn.

Rows are simulated at the size of nycflights13: 327,346 flights of 16 airlines (29 to 57,782 rows), linear and
logistic regression with 7 and 20 columns, float64. Warm: programs are compiled, as in a grid search; cold:
the first fit of a process. Wanted: warm at most 5x. BLAS has one thread on both sides, for two that
wait for each other on a shared machine measure their neighbours. Then the fixed cost of a fit: 100 x 5
rows, 4 clients.
"""

import time

import numpy as np
from _timing import in_turn
from sklearn.linear_model import LinearRegression, LogisticRegression
from threadpoolctl import threadpool_limits

import accord

ROWS, SMALLEST, LARGEST, CLIENTS = 327_346, 29, 57_782, 16
L2 = 1e-4


def sizes() -> np.ndarray:
    """Sixteen sizes from the smallest to the largest airline, together all rows."""
    low, high = 0.0, 5.0
    inner = np.linspace(0, 1, CLIENTS)
    for _ in range(60):
        power = (low + high) / 2
        counts = np.round(SMALLEST + (LARGEST - SMALLEST) * inner**power).astype(int)
        low, high = (power, high) if counts.sum() > ROWS else (low, power)
    counts[-2] += ROWS - counts.sum()
    return counts


def flights(columns: int):
    """Rows whose law differs by client: (X, y, delays over a threshold, client)."""
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(CLIENTS), sizes())
    rng.shuffle(client)
    shift = rng.standard_normal((CLIENTS, columns))
    X = rng.standard_normal((ROWS, columns)) + 0.5 * shift[client]
    y = X @ rng.standard_normal(columns) / np.sqrt(columns) + rng.standard_normal(ROWS)
    return X, y, y > 0.5, client


def error(ours, theirs) -> float:
    """The largest difference of coefficients, relative to the largest."""
    return float(abs(ours.coef_ - theirs.coef_).max() / abs(theirs.coef_).max())


def once(fit) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    fit()
    return time.perf_counter() - began


def main():
    for columns in (7, 20):
        X, y, late, client = flights(columns)
        pooled = LogisticRegression(C=1 / (L2 * ROWS), solver="newton-cholesky", tol=1e-8)
        default = LogisticRegression(C=1 / (L2 * ROWS), tol=1e-8, max_iter=1000)
        cases = (
            ("linear", accord.FederatedLinearRegression(), LinearRegression(), y),
            ("logistic, newton-cholesky", accord.FederatedLogisticRegression(l2=L2), pooled, late),
            ("logistic, lbfgs", accord.FederatedLogisticRegression(l2=L2), default, late),
        )
        for name, ours, theirs, target in cases:
            cold = once(lambda o=ours, t=target, X=X, c=client: o.fit(X, t, groups=c))
            a, b, ratio = in_turn(
                lambda o=theirs, t=target, X=X: o.fit(X, t),
                lambda o=ours, t=target, X=X, c=client: o.fit(X, t, groups=c),
                5,
            )
            print(
                f"{name}, {columns} columns: scikit-learn {a:.2f} s, Accord {b:.2f} s: {ratio:.2f}x "
                f"(first fit {cold:.2f} s, {ours.n_iter_} rounds, difference {error(ours, theirs):.0e})",
                flush=True,
            )
    rng = np.random.default_rng(1)
    X, client = rng.standard_normal((100, 5)), np.arange(100) % 4
    for name in ("LinearRegression", "Lasso", "LogisticRegression", "PoissonRegressor"):
        y = (
            rng.poisson(2, 100)
            if name == "PoissonRegressor"
            else X[:, 0] + rng.standard_normal(100)
        )
        target = y > 0 if name == "LogisticRegression" else y
        model = getattr(accord, f"Federated{name}")()
        cold = once(lambda m=model, t=target: m.fit(X, t, groups=client))
        warm = sorted(once(lambda m=model, t=target: m.fit(X, t, groups=client)) for _ in range(9))
        print(f"100 x 5 rows, {name}: {warm[4] * 1e3:.0f} ms warm, {cold:.2f} s the first time")


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        main()
