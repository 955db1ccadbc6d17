"""The certificate against minimisers refined in extended precision, and the lower bounds it rests on."""

from typing import NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accord
from accord.objectives import HuberLoss, LogisticLoss, PoissonLoss, SoftmaxLoss, SquaredLoss
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
        """(minimiser, gradient left) by Newton's method; what l1 holds at zero stays there."""
        x = x.astype(np.longdouble)
        active = ((x != 0) | (self.l1 == 0)).ravel()

        def slope_at(x):
            gradient, H = self.derivatives(x)
            return gradient.ravel(), H, (gradient + self.l1 * np.sign(x)).ravel()[active]

        gradient, H, slope = slope_at(x)
        for _ in range(60):
            step = np.zeros(x.size, np.longdouble)
            block = H[np.ix_(active, active)].astype(float)
            units = np.sqrt(np.diag(block))
            scaled = np.linalg.lstsq(
                block / np.outer(units, units), slope.astype(float) / units, rcond=1e-13
            )
            step[active] = scaled[0] / units
            for length in 0.5 ** np.arange(30):
                trial = slope_at(x - length * step.reshape(x.shape))
                if np.linalg.norm(trial[2]) < np.linalg.norm(slope):
                    break
            else:
                break
            x = x - length * step.reshape(x.shape)
            gradient, H, slope = trial
        l1 = (self.l1 + 0 * x).ravel()
        assert (abs(gradient[~active]) <= l1[~active]).all()
        return x, float(np.linalg.norm(slope))

    def nearest(self, best, x):
        """The minimiser nearest to x: classes may move together where no penalty holds them."""
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
    return accord.Clients.from_arrays(pairs), X.astype(np.longdouble), y, x


def build(rng, family, intercept, l1, l2, spread=1.0):
    clients, X, y, start = draw(rng, family, intercept, spread)
    options = {"softmax": {"classes": CLASSES}, "huber": {"threshold": THRESHOLD}}.get(family, {})
    make = getattr(accord.problems, family)
    problem = make(clients, l1=l1, l2=l2, intercept=intercept, **options)
    held = np.ones((X.shape[1], 1), np.longdouble)
    if intercept:
        held[-1] = 0
    if l1:
        start = problem.reference().x.reshape(start.shape)
    return problem, Truth(family, X, y, l1 * held, l2 * held), start


def trials(rng, family, intercept, count, spread=1.0, sizes=(0, 1e-12, 1e-6, 1e-3, 1e-2), l2s=None):
    """(problem, certificate, distance, errors, gap) of random problems and models near their minimiser."""
    done = 0
    while done < count:
        l1, l2 = rng.choice([0, 0, 0, 0.03]), rng.choice(l2s or [0, 0, 1e-4, 0.1])
        problem, truth, start = build(rng, family, intercept, l1, l2, spread)
        best, left = truth.minimiser(start)
        if left > 1e-15 * max(1, abs(truth.X).max()):
            continue  # separable, or a category that did not come up
        shape = problem.initial().shape
        for size in rng.choice(sizes, 2, replace=False):
            x = np.asarray(best, float)
            x = x + size * max(1, abs(x).max()) * rng.standard_normal(x.shape) * (x != 0)
            x = np.where(rng.random() < 0.3, x + size, x)  # also where the optimum has zeros
            least = truth.value(best)
            gap = truth.value(x.astype(np.longdouble)) - least - 1e-17 * (1 + abs(least))
            errors = abs(x - truth.nearest(best, x)).reshape(shape)
            bound = certificate(problem, x.reshape(shape))
            done += 1
            yield problem, bound, np.sqrt((errors**2).sum()), errors, gap


def test_what_is_known_by_itself():
    """Least squares in one unknown: the bounds are the errors."""
    problem = accord.problems.least_squares(
        accord.Clients.from_arrays([([[2.0], [1.0]], [4.0, 2.0])])
    )
    bound = certificate(problem, np.array([2.5]))
    assert bound.gradient_norm == pytest.approx(1.25)
    assert bound.distance == pytest.approx(0.5, rel=1e-9)
    assert bound.coefficients == pytest.approx([0.5], rel=1e-9)
    assert bound.gap == pytest.approx(0.3125, rel=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_bound_where_the_hessian_is_singular(family):
    """A column twice: there is no one minimiser."""
    rng = np.random.default_rng(2)
    clients, *_ = draw(rng, family, False, 0.2)
    twice = accord.Clients.from_arrays([(np.column_stack([X, X[:, :1]]), y) for X, y in clients])
    for l1 in (0.0, 0.01):
        problem = getattr(accord.problems, family)(twice, l1=l1)
        bound = certificate(problem, 0.1 * np.ones_like(problem.initial()))
        assert bound[1:] == (None, None, None) and bound.gradient_norm > 0


@pytest.mark.parametrize("distance", [1.0, 10.0, 30.0, 36.7, 100.0, 800.0])
def test_separable_classes_get_no_bound(distance):
    """F falls for ever: however small its gradient, no minimiser is near."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = (X[:, 0] > 0).astype(int)
    X[:, 0] += np.where(y, 0.5, -0.5)
    clients = accord.Clients.from_arrays([(X[:20], y[:20]), (X[20:], y[20:])])
    for intercept in (False, True):
        x = np.zeros(2 + intercept)
        x[0] = distance
        problem = accord.problems.logistic(clients, intercept=intercept)
        assert certificate(problem, x).distance is None
        both = np.stack([-x / 2, x / 2], 1)
        softmax = accord.problems.softmax(clients, intercept=intercept, classes=2)
        assert certificate(softmax, both).distance is None
    counts = accord.Clients.from_arrays([(abs(X[:20]), np.zeros(20)), (abs(X[20:]), np.zeros(40))])
    problem = accord.problems.poisson(counts)
    assert certificate(problem, np.array([-distance, -distance])).distance is None


def test_rows_that_are_all_but_certain_do_not_hide_what_rounding_took():
    """Slopes are differences of numbers near one; H is small, so that their rounding moves x much."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((95, 2))
    y = (X[:, 0] > 0).astype(int)
    truth = Truth("logistic", X.astype(np.longdouble), y, np.zeros((2, 1)), np.full((2, 1), 1e-9))
    best, left = truth.minimiser(np.array([[5.0], [0.0]]))
    assert left < 1e-18 and abs(X @ best.astype(float)).max() > 30
    problem = accord.problems.logistic(
        accord.Clients.from_arrays([(X[:40], y[:40]), (X[40:], y[40:])]), l2=1e-9
    )
    x = problem.reference().x
    bound, apart = certificate(problem, x), np.linalg.norm((x - best[:, 0]).astype(float))
    assert apart <= bound.distance < 1e-3


def test_a_penalty_that_bends_down_and_losses_unknown_have_no_local_bound():
    rng = np.random.default_rng(1)
    clients, *_ = draw(rng, "logistic", False)
    problem = accord.problems.penalised_logistic(clients, penalty=0.1)
    assert certificate(problem, problem.initial())[1:] == (None, None, None)
    averaging = accord.problems.averaging(np.array([1.0, 5.0]))
    assert certificate(averaging, np.array(4.0))[1:] == (1.0, 0.5, None)


def test_in_single_precision_rounding_is_that_of_single_precision():
    rng = np.random.default_rng(3)
    for family in FAMILIES:
        clients, *_ = draw(rng, family, True, 0.2)
        make = getattr(accord.problems, family)
        exact = make(clients, l2=0.1).reference().x
        bound = certificate(make(clients, l2=0.1, dtype="float32"), exact.astype("float32"))
        assert np.linalg.norm(exact - exact.astype("float32")) <= bound.distance < 1e-3


LOSSES = {
    "squared": SquaredLoss(),
    "logistic": LogisticLoss(),
    "poisson": PoissonLoss(),
    "huber": HuberLoss(0.7),
}


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(list(LOSSES)),
    st.floats(-30, 30), st.floats(-3, 3), st.floats(0, 20), st.floats(-1, 1),
)  # fmt: skip
def test_what_remains_of_a_curvature_is_no_overstatement(name, eta, y, reach, share):
    """At every point within reach the second derivative is at least ``remaining`` times the one here."""
    loss = LOSSES[name]
    with jax.enable_x64(True):
        here, there = (
            loss.bend(np.float64(v), np.float64(y), np.float64(1))
            for v in (eta, eta + share * reach)
        )
        kept = loss.remaining(np.float64(eta), np.float64(y), np.float64(reach))
        assert 0 <= kept <= 1
        # p (1 - p) has the absolute precision of 1 - p.
        assert there >= kept * here * (1 - 1e-9) - 1e-15
        if name == "logistic":
            farthest = loss.bend(eta + np.copysign(reach, eta), y, np.float64(1))
            assert kept * here == pytest.approx(float(farthest), rel=1e-6, abs=1e-15)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 6), st.floats(0, 10))
def test_what_remains_of_softmax(seed, size, reach):
    """As matrices, for moves that change no difference of two predictors by more than the reach."""
    rng = np.random.default_rng(seed)
    eta, move = size * rng.standard_normal((1, 4)), rng.uniform(0, 1, (1, 4))
    move *= reach / (move.max() - move.min())
    loss = SoftmaxLoss(4)

    def curvature(eta):
        return np.array([loss.bend(eta, np.zeros(1, int), e[None])[0] for e in np.eye(4)])

    with jax.enable_x64(True):
        kept = float(loss.remaining(eta, None, np.array([reach]))[0])
        apart = np.linalg.eigvalsh(curvature(eta + move) - kept * curvature(eta))
    assert apart.min() >= -1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_the_lower_bound_holds_everywhere_in_the_ball(family):
    """The true Hessian less the bound has no negative eigenvalue, at the centre and on the way out."""
    rng = np.random.default_rng(7)
    problem, truth, start = build(rng, family, True, 0.0, 0.01, 0.3)
    H = truth.derivatives(start.astype(np.longdouble))[1].astype(float) + 1e-3 * np.eye(start.size)
    factor = np.linalg.inv(np.linalg.cholesky(H))
    shape = problem.initial().shape
    below = []
    for radius in (0.0, 0.1, 0.5, 2.0):
        spread = (
            factor
            if len(shape) == 1
            else np.sqrt(2) * np.linalg.norm(factor, 2) * np.eye(len(start))
        )
        with jax.enable_x64(True):
            least = sum(
                w * np.asarray(
                    problem.client_objective(i, {"minibatch"}).least_second_derivative(
                        jax.numpy.asarray(start.reshape(shape)), jax.numpy.asarray(spread), radius
                    )
                )
                for i, w in enumerate(problem.weights)
            )  # fmt: skip
        for _ in range(60):
            u = rng.standard_normal(start.size)
            v = factor.T @ (u / np.linalg.norm(u) * radius * rng.random() ** 0.2)
            true = truth.derivatives(start + v.reshape(start.shape))[1].astype(float)
            below.append(np.linalg.eigvalsh(true - least).min())
            assert below[-1] >= -1e-12 * np.trace(true)
        if radius == 0 and family != "huber":
            assert abs(true - least).max() < 1e-12 * np.trace(true)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_truth_is_within_the_bounds(family, intercept):
    """A thousand models in all, badly scaled problems among them."""
    rng = np.random.default_rng([FAMILIES.index(family), intercept])
    certified = 0
    for _, bound, distance, errors, gap in trials(rng, family, intercept, 100):
        if bound.distance is not None:
            assert distance <= bound.distance
            assert gap <= bound.gap
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
