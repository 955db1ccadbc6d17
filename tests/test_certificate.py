"""The certificate against minimisers refined in extended precision, and the lower bounds it rests on."""

from typing import NamedTuple

import numpy as np
import pytest

import accord
from accord.theory import certificate

SIZES = (40, 25, 30)
FEATURES = 3
CLASSES = 3
THRESHOLD = 0.7
FAMILIES = ("least_squares", "logistic", "softmax", "poisson", "huber")


class Truth(NamedTuple):
    """F in extended precision, over all rows at once."""

    family: str
    X: np.ndarray
    y: np.ndarray
    l1: np.ndarray
    l2: np.ndarray

    def _rows(self, x):
        """Value, slope (n, C) and curvature (n, C, C) of every row."""
        eta = self.X @ x
        y = self.y[:, None]
        if self.family == "softmax":
            top = eta.max(1, keepdims=True)
            p = np.exp(eta - top)
            total = p.sum(1, keepdims=True)
            p, hot = p / total, y == np.arange(CLASSES)
            value = (top + np.log(total))[:, 0] - (hot * eta).sum(1)
            return value, p - hot, p[:, :, None] * (np.eye(CLASSES) - p[:, None, :])
        if self.family == "least_squares":
            value, slope, bend = (eta - y) ** 2 / 2, eta - y, np.ones_like(eta)
        elif self.family == "logistic":
            p = 1 / (1 + np.exp(-eta))
            value, slope, bend = np.logaddexp(0, eta) - y * eta, p - y, p * (1 - p)
        elif self.family == "poisson":
            value, slope, bend = np.exp(eta) - y * eta, np.exp(eta) - y, np.exp(eta)
        else:
            r = abs(eta - y)
            value = np.where(r <= THRESHOLD, r**2 / 2, THRESHOLD * (r - THRESHOLD / 2))
            slope, bend = np.clip(eta - y, -THRESHOLD, THRESHOLD), 1.0 * (r <= THRESHOLD)
        return value[:, 0], slope, bend[:, :, None]

    def value(self, x):
        penalties = self.l1 * abs(x) + self.l2 / 2 * x**2
        return self._rows(x)[0].mean() + penalties.sum()

    def derivatives(self, x):
        """Gradient of the smooth part, in the shape of x, and its Hessian (P, P)."""
        _, slope, bend = self._rows(x)
        gradient = self.X.T @ slope / len(self.y) + self.l2 * x
        H = np.einsum("ni,ncd,nj->icjd", self.X, bend, self.X) / len(self.y)
        return gradient, H.reshape(x.size, x.size) + np.diag((self.l2 + 0 * x).ravel())

    def minimiser(self, x):
        """From a model with the right zeros, Newton's method in extended precision, and the gradient left."""
        x = x.astype(np.longdouble)
        active = ((x != 0) | (self.l1 == 0)).ravel()
        for _ in range(6):
            gradient, H = self.derivatives(x)
            slope = (gradient + self.l1 * np.sign(x)).ravel()
            step = np.zeros(x.size, np.longdouble)
            block = H[np.ix_(active, active)].astype(float)
            step[active] = np.linalg.lstsq(block, slope[active].astype(float), rcond=1e-13)[0]
            x = x - step.reshape(x.shape)
        assert (abs(gradient.ravel()[~active]) <= (self.l1 + 0 * x).ravel()[~active]).all()
        return x, np.linalg.norm(slope[active].astype(float))

    def nearest(self, best, x):
        """Of all minimisers the nearest to x: where nothing holds them, classes move together."""
        free = (self.l1 + self.l2 == 0) & (self.family == "softmax")
        return best + np.where(free, (x - best).mean(1, keepdims=True), 0)


def draw(rng, family, intercept, spread=1.0):
    """Clients that differ, of fixed shapes; and the pooled rows in extended precision."""
    scale = 10 ** rng.uniform(-spread, spread, FEATURES)
    width = FEATURES + intercept
    x = rng.standard_normal((width, CLASSES if family == "softmax" else 1))
    x[:FEATURES] /= scale[:, None] * 2
    pairs = []
    for n in SIZES:
        X = (rng.standard_normal((n, FEATURES)) + 0.5 * rng.standard_normal(FEATURES)) * scale
        eta = (np.column_stack([X, np.ones(n)]) if intercept else X) @ x
        if family == "softmax":
            y = (eta + rng.gumbel(size=eta.shape)).argmax(1)
        elif family == "logistic":
            y = (rng.random(n) < 1 / (1 + np.exp(-eta[:, 0]))).astype(int)
        elif family == "poisson":
            y = rng.poisson(np.exp(np.minimum(eta[:, 0], 4)))
        else:
            y = eta[:, 0] + 0.5 * rng.standard_t(3, n)
        pairs.append((X, y))
    X, y = np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])
    X = np.column_stack([X, np.ones(len(X))]) if intercept else X
    return accord.Clients.from_arrays(pairs), X.astype(np.longdouble), y


def build(rng, family, intercept, l1, l2, spread=1.0):
    clients, X, y = draw(rng, family, intercept, spread)
    options = {"softmax": {"classes": CLASSES}, "huber": {"threshold": THRESHOLD}}.get(family, {})
    make = getattr(accord.problems, family)
    problem = make(clients, l1=l1, l2=l2, intercept=intercept, **options)
    held = np.ones((X.shape[1], 1), np.longdouble)
    if intercept:
        held[-1] = 0
    return problem, Truth(family, X, y, l1 * held, l2 * held)


def trials(rng, family, intercept, count, spread=1.0, sizes=(0, 1e-12, 1e-6, 1e-3, 1e-2), l2s=None):
    """(problem, x, certificate, distance, errors, gap) of random problems and models near their minimiser."""
    done = 0
    while done < count:
        l1, l2 = rng.choice([0, 0, 0.03]), rng.choice(l2s or [0, 0, 1e-4, 0.1])
        problem, truth = build(rng, family, intercept, l1, l2, spread)
        try:
            start = problem.reference().x
        except ValueError:
            continue  # separable, or a category that did not come up
        best, left = truth.minimiser(start.reshape(truth.X.shape[1], -1))
        if left > 1e-15:
            continue
        x = np.asarray(best, float)
        size = rng.choice(sizes)
        x = x + size * max(1, abs(x).max()) * rng.standard_normal(x.shape) * (x != 0)
        x = np.where(rng.random() < 0.3, x + size, x)  # also where the optimum has zeros
        near = truth.nearest(best, x)
        gap = truth.value(x.astype(np.longdouble)) - truth.value(best)
        bound = certificate(problem, x.reshape(start.shape))
        errors = abs(x - near).reshape(start.shape)
        done += 1
        yield problem, bound, np.sqrt((errors**2).sum()), errors, gap


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_truth_is_within_the_bounds(family, intercept):
    """A thousand random problems in all, badly scaled ones among them."""
    rng = np.random.default_rng([FAMILIES.index(family), intercept])
    certified = 0
    for _, bound, distance, errors, gap in trials(rng, family, intercept, 100):
        if bound.distance is not None:
            assert distance <= bound.distance
            assert gap <= bound.gap * (1 + 1e-9) + 1e-18
        if bound.coefficients is not None:
            assert (errors <= bound.coefficients).all()
            certified += 1
    assert certified > 50


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bounds_are_not_far_from_the_truth(family):
    """Within 100 times where rounding plays no part and columns are alike."""
    rng = np.random.default_rng(5)
    cases = trials(rng, family, True, 30, 0.2, sizes=(1e-8, 1e-5), l2s=[0, 0.1])
    for problem, bound, distance, _, gap in cases:
        if problem.regulariser is None:
            assert bound.distance <= 100 * distance
            assert bound.gap <= 100 * gap
