"""Problems: values, derivatives, minibatches, penalties, optima against scikit-learn, bad input."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

from accord import Clients, problems

D, CLASSES, THRESHOLD, PENALTY, ALPHA = 4, 3, 0.7, 0.2, 1.5
SIZES = (12, 1, 0, 30)


def arrays_for(kind, sizes=SIZES, seed=0, weighted=False):
    """Clients whose columns and targets differ from one to the next."""
    rng = np.random.default_rng(seed)
    truth, found = rng.normal(size=D), []
    for n in sizes:
        X = rng.normal(size=(n, D)) + 0.3 * rng.normal(size=D)
        eta = X @ truth + 0.5
        if kind in ("logistic", "penalised_logistic"):
            y = (rng.random(n) < special.expit(eta)).astype(int)
        elif kind == "softmax":
            y = rng.integers(0, CLASSES, n)
        elif kind == "poisson":
            y = rng.poisson(np.exp(0.3 * eta))
        else:
            y = eta + rng.normal(size=n)
        found.append((X, y, rng.uniform(0.2, 3, n)) if weighted else (X, y))
    return found


def quartic(x, row, target):
    return (row @ x["slopes"] + x["bias"] - target) ** 4 / 4


def build(kind, clients, **options):
    if kind == "custom":
        options.pop("intercept", None)
        init = {"bias": 0.0, "slopes": np.zeros(D)}
        return problems.custom(quartic, init, clients, convex=True, **options)
    extra = {
        "penalised_logistic": {"penalty": PENALTY, "alpha": ALPHA},
        "softmax": {"classes": CLASSES},
        "huber": {"threshold": THRESHOLD},
    }
    return getattr(problems, kind)(clients, **extra.get(kind, {}), **options)


KINDS = ["least_squares", "logistic", "softmax", "poisson", "huber", "penalised_logistic", "custom"]


def flat(x):
    """A point or gradient as one vector."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(x)])


def point(problem, seed=1, scale=0.4):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: scale * rng.normal(size=np.shape(leaf)), problem.initial())


def pooled(arrays):
    X = np.concatenate([a[0] for a in arrays])
    return X, np.concatenate([a[1] for a in arrays])


# ------------------------------------------------------------------------------------ derivatives


def mean_loss(kind, eta, y):
    """The mean loss by other people's functions."""
    from sklearn import metrics

    if kind == "least_squares":
        return metrics.mean_squared_error(y, eta) / 2
    if kind == "logistic":
        return metrics.log_loss(y, special.expit(eta), labels=[0, 1])
    if kind == "softmax":
        return metrics.log_loss(y, special.softmax(eta, axis=1), labels=range(CLASSES))
    if kind == "poisson":
        return np.mean(special.kl_div(y, np.exp(eta)) - special.xlogy(y, y) + y)
    return np.mean(special.huber(THRESHOLD, eta - y))


@pytest.mark.parametrize("kind", KINDS[:5])
def test_value_is_the_pooled_mean_loss(kind):
    arrays = arrays_for(kind)
    problem = build(kind, Clients.from_arrays(arrays), intercept=True)
    x = point(problem)
    X, y = pooled(arrays)
    expected = mean_loss(kind, X @ x[:-1] + x[-1], y)
    np.testing.assert_allclose(problem.objective(x), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_match_finite_differences(kind):
    arrays = arrays_for(kind, weighted=True)
    problem = build(kind, Clients.from_arrays(arrays), l2=0.3, intercept=True)
    x, direction = point(problem), point(problem, seed=2, scale=1.0)

    def moved(step):
        return jax.tree.map(lambda a, b: a + step * b, x, direction)

    h = 1e-5
    slope = (problem.objective(moved(h)) - problem.objective(moved(-h))) / (2 * h)
    np.testing.assert_allclose(flat(problem.gradient(x)) @ flat(direction), slope, rtol=1e-7)
    bend = (flat(problem.gradient(moved(h))) - flat(problem.gradient(moved(-h)))) / (2 * h)
    product = problem.hessian_product(x, direction)
    assert jax.tree.structure(product) == jax.tree.structure(x)
    np.testing.assert_allclose(flat(product), bend, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_minibatch_gradients_are_unbiased(kind):
    arrays = arrays_for(kind, weighted=True)
    problem = build(kind, Clients.from_arrays(arrays), l2=0.3, intercept=True)
    x = point(problem)
    some = np.array([0, 7, 7, 3, 11])

    @jax.jit
    def gradients(objective, x):
        rows = jax.vmap(lambda r: objective.minibatch_grad(x, r[None]))(jnp.arange(SIZES[0]))
        return objective.grad(x), rows, objective.minibatch_grad(x, some)

    with jax.enable_x64(True):
        objective = problem.client_objective(0, {"minibatch"})
        full, rows, batch = jax.tree.map(np.asarray, gradients(objective, x))
    close = {"rtol": 1e-12, "atol": 1e-13}
    mean = jax.tree.map(lambda leaf: leaf.mean(0), rows)
    np.testing.assert_allclose(flat(mean), flat(full), **close)
    # A larger batch is the mean of its rows, in full precision.
    mean = jax.tree.map(lambda leaf: leaf[some].mean(0), rows)
    np.testing.assert_allclose(flat(batch), flat(mean), **close)


def test_draws_are_uniform_over_the_true_rows():
    problem = problems.logistic(Clients.from_arrays(arrays_for("logistic")))
    with jax.enable_x64(True):
        key = jax.random.key(0)
        for i, n in enumerate(SIZES):
            index = np.asarray(problem.client_objective(i, {"minibatch"}).draw(key, 3000))
            assert index.shape == (3000,) and set(index) == set(range(max(n, 1)))
            if n > 1:
                counts = np.bincount(index)
                expected = 3000 / n
                assert ((counts - expected) ** 2 / expected).sum() < 2.5 * n


def test_prox_solves_its_problem():
    arrays = arrays_for("least_squares")
    problem = problems.least_squares(Clients.from_arrays(arrays), l2=0.1, intercept=True)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        for i in range(len(SIZES)):
            objective = problem.client_objective(i, {"prox"})
            centre = rng.normal(size=D + 1)
            for penalty in (1e-3, 1.0, 1e3):
                x = np.asarray(objective.prox(centre, penalty))
                residual = problem.client_gradients(x)[i] + penalty * (x - centre)
                assert np.linalg.norm(residual) <= 1e-12 * (1 + penalty)


@pytest.mark.parametrize("kind", ["least_squares", "logistic", "softmax", "huber"])
def test_curvature_bounds_the_hessians(kind):
    arrays = arrays_for(kind)
    problem = build(kind, Clients.from_arrays(arrays), l2=0.2)
    L, mu = problem.curvature()
    for i, (X, y) in enumerate(arrays):
        alone = build(kind, Clients.from_arrays([(X, y)] if len(y) else [arrays[0]]), l2=0.2)
        if not len(y):
            np.testing.assert_allclose([L[i], mu[i]], 0.2)
            continue
        x = point(alone, scale=0.1)
        basis = np.eye(x.size).reshape(-1, *x.shape)
        H = np.array([flat(alone.hessian_product(x, e)) for e in basis])
        values = np.linalg.eigvalsh(H)
        assert values[-1] <= L[i] * (1 + 1e-9) and values[0] >= mu[i] * (1 - 1e-9)
        if kind == "least_squares":
            np.testing.assert_allclose([mu[i], L[i]], values[[0, -1]], rtol=1e-9)


def test_poisson_has_no_curvature_bound():
    assert problems.poisson(Clients.from_arrays(arrays_for("poisson"))).curvature() is None


# -------------------------------------------------------------------------------------- penalties


@pytest.mark.parametrize("kind", KINDS[:5])
def test_l2_leaves_the_intercept_alone(kind):
    clients = Clients.from_arrays(arrays_for(kind))
    bare = build(kind, clients, intercept=True)
    penalised = build(kind, clients, l2=0.3, intercept=True)
    x = point(bare)
    added = 0.15 * (x[:-1] ** 2).sum()
    np.testing.assert_allclose(penalised.objective(x) - bare.objective(x), added, rtol=1e-10)
    difference = penalised.gradient(x) - bare.gradient(x)
    np.testing.assert_allclose(difference[:-1], 0.3 * x[:-1], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(difference[-1], 0, atol=1e-15)
    e = np.zeros_like(x)
    e[-1] = 1
    bends = [p.hessian_product(x, e) for p in (penalised, bare)]
    np.testing.assert_allclose(*bends, rtol=1e-12, atol=1e-14)
    without = build(kind, clients, l2=0.3)
    np.testing.assert_allclose(
        without.objective(x[:-1]) - build(kind, clients).objective(x[:-1]), added, rtol=1e-10
    )


def test_bounded_penalty():
    clients = Clients.from_arrays(arrays_for("logistic"))
    for intercept in (False, True):
        bare = problems.logistic(clients, intercept=intercept)
        problem = problems.penalised_logistic(clients, PENALTY, ALPHA, intercept=intercept)
        x = point(problem)
        w = x[:-1] if intercept else x
        added = PENALTY * (ALPHA * w**2 / (1 + ALPHA * w**2)).sum()
        np.testing.assert_allclose(problem.objective(x) - bare.objective(x), added, rtol=1e-10)
    assert problem.convex is False and "prox" not in problem.offers
    assert problem.reference() is None
    assert problems.penalised_logistic(clients, 0.0).convex is True


def test_custom_l2_touches_every_leaf():
    clients = Clients.from_arrays(arrays_for("custom"))
    x = point(build("custom", clients))
    added = build("custom", clients, l2=0.3).objective(x) - build("custom", clients).objective(x)
    np.testing.assert_allclose(added, 0.15 * (flat(x) ** 2).sum(), rtol=1e-9)


# --------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_twice_equals_weight_two(kind):
    (X, y), *others = arrays_for(kind)
    others = [(A, b, np.ones(len(b))) for A, b in others]
    w = np.ones(12)
    w[2], w[5] = 2, 0
    heavy = Clients.from_arrays([(X, y, w), *others])
    rows = np.where(np.arange(12) == 5, 2, np.arange(12))
    twice = Clients.from_arrays([(X[rows], y[rows], np.ones(12)), *others])
    options = {"l2": 0.1, "intercept": True}
    one, other = build(kind, twice, **options), build(kind, heavy, **options)
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-15)
    x = point(one)
    np.testing.assert_allclose(one.objective(x), other.objective(x), rtol=1e-13)
    np.testing.assert_allclose(
        flat(one.client_gradients(x)), flat(other.client_gradients(x)), rtol=1e-11, atol=1e-14
    )


def test_row_weights_of_any_scale_are_the_same_with_equal_weights():
    arrays = arrays_for("logistic", weighted=True)
    scaled = [(X, y, 100 * w) for X, y, w in arrays]
    for weights in ("rows", "equal"):
        one, other = (
            problems.logistic(Clients.from_arrays(a), weights=weights) for a in (arrays, scaled)
        )
        x = point(one)
        np.testing.assert_allclose(one.objective(x), other.objective(x), rtol=1e-13)


@pytest.mark.parametrize("kind", ["least_squares", "logistic"])
def test_how_rows_are_divided_does_not_matter_with_row_weights(kind):
    X, y = pooled(arrays_for(kind))
    rng = np.random.default_rng(0)
    objectives = []
    for cuts in ([], [20], [1, 2, 2, 40]):
        order = rng.permutation(len(y))
        clients = Clients.from_pooled(X, y, np.split(order, cuts))
        problem = build(kind, clients, l2=0.1)
        objectives.append(problem.objective(point(problem)))
    np.testing.assert_allclose(objectives, objectives[0], rtol=1e-13)


def test_equal_weights():
    arrays = arrays_for("least_squares")
    problem = problems.least_squares(Clients.from_arrays(arrays), l2=0.1, weights="equal")
    np.testing.assert_array_equal(problem.weights, np.array([1, 1, 0, 1]) / 3)
    scale = [np.full(len(y), 1 / np.sqrt(3 * len(y))) for _, y in arrays if len(y)]
    X, y = pooled(arrays)
    s = np.concatenate(scale)
    A = np.r_[X * s[:, None], np.sqrt(0.1) * np.eye(D)]
    expected = np.linalg.lstsq(A, np.r_[y * s, np.zeros(D)])[0]
    np.testing.assert_allclose(problem.reference().x, expected, rtol=1e-10)


# ---------------------------------------------------------------------- optima against scikit-learn


def check_reference(problem, x, tolerance=1e-7):
    reference = problem.reference()
    assert problem.reference() is reference
    assert reference.gradient_norm <= 1e-11
    assert np.linalg.norm(flat(problem.gradient(reference.x))) <= 1e-11
    np.testing.assert_allclose(reference.objective, problem.objective(reference.x), rtol=1e-14)
    assert reference.unique
    np.testing.assert_allclose(reference.x, x, rtol=tolerance, atol=tolerance)


def with_intercept(model, intercept):
    x = np.squeeze(model.coef_.T)
    if not intercept:
        return x
    return np.concatenate([x, np.reshape(model.intercept_, (1, *x.shape[1:]))])


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_least_squares_against_scikit_learn(l2, intercept):
    from sklearn.linear_model import LinearRegression, Ridge

    arrays = arrays_for("least_squares")
    X, y = pooled(arrays)
    problem = problems.least_squares(Clients.from_arrays(arrays), l2=l2, intercept=intercept)
    model = LinearRegression() if l2 == 0 else Ridge(l2 * len(y), solver="svd")
    model.set_params(fit_intercept=intercept).fit(X, y)
    check_reference(problem, with_intercept(model, intercept), 1e-11)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_classifiers_against_scikit_learn(kind, intercept):
    from sklearn.linear_model import LogisticRegression

    arrays = arrays_for(kind)
    X, y = pooled(arrays)
    problem = build(kind, Clients.from_arrays(arrays), l2=0.1, intercept=intercept)
    model = LogisticRegression(
        C=1 / (0.1 * len(y)), fit_intercept=intercept, solver="newton-cg", tol=1e-12
    ).fit(X, y)
    x = with_intercept(model, intercept)
    if kind == "softmax" and intercept:
        # A constant added to every class's intercept changes nothing: compare what is fixed.
        reference = problem.reference()
        assert reference.gradient_norm <= 1e-11 and not reference.unique
        np.testing.assert_allclose(reference.x[:-1], x[:-1], rtol=1e-7, atol=1e-8)
        centred = [b[-1] - b[-1].mean() for b in (reference.x, x)]
        np.testing.assert_allclose(*centred, rtol=1e-7, atol=1e-8)
        return
    check_reference(problem, x)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_poisson_against_scikit_learn(l2, intercept):
    from sklearn.linear_model import PoissonRegressor

    arrays = arrays_for("poisson")
    X, y = pooled(arrays)
    problem = problems.poisson(Clients.from_arrays(arrays), l2=l2, intercept=intercept)
    model = PoissonRegressor(
        alpha=l2, fit_intercept=intercept, solver="newton-cholesky", tol=1e-12, max_iter=1000
    ).fit(X, y)
    check_reference(problem, with_intercept(model, intercept))


def test_logistic_without_l2_against_scipy():
    arrays = arrays_for("logistic", sizes=(60, 90))
    X, y = pooled(arrays)
    problem = problems.logistic(Clients.from_arrays(arrays))
    equations = optimize.root(
        lambda x: X.T @ (special.expit(X @ x) - y), np.zeros(D), method="hybr", tol=1e-13
    )
    check_reference(problem, equations.x)


def test_huber_closed_forms():
    location = Clients.from_arrays([(np.ones((3, 1)), [0, 0.2, -0.2]), (np.ones((1, 1)), [100])])
    # sum_r clip(x - y_r, -1, 1) = 3 x - 1 = 0.
    check_reference(problems.huber(location), [1 / 3], 1e-12)
    # With l2: 3 x - 1 + 4 l2 x = 0.
    check_reference(problems.huber(location, l2=0.25), [1 / 4], 1e-12)
    arrays = arrays_for("least_squares")
    clients = Clients.from_arrays(arrays)
    wide = problems.huber(clients, l2=0.1, intercept=True, threshold=1e6)
    check_reference(wide, problems.least_squares(clients, l2=0.1, intercept=True).reference().x)


def test_custom_reference():
    arrays = arrays_for("logistic")
    clients = Clients.from_arrays(arrays)

    def loss(x, row, target):
        return jnp.logaddexp(0.0, row @ x) - target * (row @ x)

    problem = problems.custom(loss, np.zeros(D), clients, l2=0.1, convex=True)
    check_reference(problem, problems.logistic(clients, l2=0.1).reference().x, 1e-10)
    for convex in (None, False):
        assert problems.custom(loss, np.zeros(D), clients, convex=convex).reference() is None


def test_collinear_columns_give_the_solution_of_least_norm():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    X, y = np.column_stack([X, X[:, 0]]), rng.normal(size=40)
    problem = problems.least_squares(Clients.from_arrays([(X[:10], y[:10]), (X[10:], y[10:])]))
    reference = problem.reference()
    assert not reference.unique and reference.gradient_norm <= 1e-11
    np.testing.assert_allclose(reference.x, np.linalg.pinv(X) @ y, rtol=1e-10)


def test_columns_of_very_different_scales():
    # A score, a year, an income and the intercept.
    rng = np.random.default_rng(0)
    scales = np.array([1, 1e3, 1e7, 1])
    X = np.column_stack([rng.normal(size=200), rng.uniform(1950, 2000, 200), rng.random(200) * 1e7])
    y = X @ [1, 0.1, 1e-7] + 0.1 * rng.normal(size=200)
    clients = Clients.from_arrays([(X[:80], y[:80]), (X[80:], y[80:])])
    reference = problems.least_squares(clients, intercept=True).reference()
    expected = np.linalg.lstsq(np.column_stack([X, np.ones(200)]) / scales, y)[0]
    np.testing.assert_allclose(reference.x * scales, expected, rtol=1e-4)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_separable_classes_have_no_optimum(kind, scale):
    rng = np.random.default_rng(0)
    X = scale * rng.normal(size=(30, 3))
    y = (X[:, 0] > 0).astype(int)
    clients = Clients.from_arrays([(X[:10], y[:10]), (X[10:], y[10:])])
    with pytest.raises(ValueError, match=r"^reference: no minimiser was found.*separable.*l2 > 0"):
        getattr(problems, kind)(clients).reference()
    assert getattr(problems, kind)(clients, l2=1e-3).reference().gradient_norm <= 1e-11


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_a_rare_category_without_events_has_no_optimum(kind):
    # One column is a category whose targets are all 0: its coefficient falls for ever.
    X, y = pooled(arrays_for(kind, sizes=(60, 90)))
    rare = np.arange(150) % 10 == 0
    X, y = np.column_stack([X, rare]), np.where(rare, 0, y)
    clients = Clients.from_arrays([(X[:60], y[:60]), (X[60:], y[60:])])
    with pytest.raises(ValueError, match=r"^reference: no minimiser was found"):
        getattr(problems, kind)(clients).reference()
    assert getattr(problems, kind)(clients, l2=1e-3).reference().gradient_norm <= 1e-11


def test_one_class_with_an_intercept_has_no_optimum():
    X = np.random.default_rng(0).normal(size=(30, 2))
    problem = problems.logistic(Clients.from_arrays([(X, np.ones(30))]), intercept=True)
    with pytest.raises(ValueError, match=r"^reference: no minimiser was found"):
        problem.reference()


# --------------------------------------------------------------------------- quadratic, averaging


def test_quadratic():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5, 3, 3))
    H, b, c = A @ np.swapaxes(A, 1, 2), rng.normal(size=(5, 3)), rng.normal(size=5)
    x, v = rng.normal(size=3), rng.normal(size=3)
    for weights in (None, [1, 2, 3, 4, 0]):
        w = np.full(5, 0.2) if weights is None else np.array(weights) / 10
        problem = problems.quadratic(H, b, c, weights)
        np.testing.assert_array_equal(problem.weights, w)
        values = 0.5 * np.einsum("d,mde,e->m", x, H, x) - b @ x + c
        np.testing.assert_allclose(problem.objective(x), w @ values, rtol=1e-13)
        np.testing.assert_allclose(problem.client_gradients(x), H @ x - b, rtol=1e-12)
        np.testing.assert_allclose(problem.gradient(x), w @ (H @ x - b), rtol=1e-12)
        np.testing.assert_allclose(problem.hessian_product(x, v), w @ (H @ v), rtol=1e-12)
        expected = np.linalg.solve(np.tensordot(w, H, 1), w @ b)
        check_reference(problem, expected, 1e-10)
    np.testing.assert_allclose(problems.quadratic(H, b).objective(x) + c.mean(), values.mean())
    L, mu = problem.curvature()
    np.testing.assert_allclose(L, np.linalg.eigvalsh(H)[:, -1])
    np.testing.assert_allclose(mu, np.linalg.eigvalsh(H)[:, 0], atol=1e-12)


def test_averaging():
    values = np.random.default_rng(0).normal(size=(7, 2))
    problem = problems.averaging(values)
    x = np.array([0.3, -1.0])
    np.testing.assert_allclose(problem.objective(x), ((x - values) ** 2).sum(1).mean() / 2)
    check_reference(problem, values.mean(0), 1e-14)
    assert problem.reference().objective == pytest.approx(values.var(0).sum() / 2)
    numbers = problems.averaging([1.0, 2.0, 6.0])
    assert numbers.initial().shape == (1,)
    check_reference(numbers, [3.0], 1e-15)
    with jax.enable_x64(True):
        prox = problem.client_objective(3, {"prox"}).prox(x, 2.0)
    np.testing.assert_allclose(prox, (values[3] + 2 * x) / 3)


# ------------------------------------------------------------------------------------- precision


@pytest.mark.parametrize("kind", KINDS)
def test_float32_problems(kind):
    clients = Clients.from_arrays(arrays_for(kind))
    single = build(kind, clients, l2=0.1, intercept=True, dtype="float32")
    double = build(kind, clients, l2=0.1, intercept=True)
    assert {leaf.dtype for leaf in jax.tree.leaves(single.initial())} == {np.dtype("float32")}
    assert {leaf.dtype for leaf in jax.tree.leaves(double.initial())} == {np.dtype("float64")}
    x = point(double)
    for problem, dtype in ((single, "float32"), (double, "float64")):
        assert {leaf.dtype.name for leaf in jax.tree.leaves(problem.gradient(x))} == {dtype}
    np.testing.assert_allclose(single.objective(x), double.objective(x), rtol=1e-5)
    np.testing.assert_allclose(
        flat(single.gradient(x)), flat(double.gradient(x)), rtol=1e-4, atol=1e-5
    )
    for leaf in jax.tree.leaves(double.prepare({"grad"}, "float32").objectives):
        assert leaf.dtype.name in ("float32", "int32", "int64")
    if kind in ("least_squares", "logistic"):
        np.testing.assert_allclose(single.reference().x, double.reference().x, atol=1e-3)


def test_global_settings_of_jax_are_left_alone():
    problem = problems.logistic(Clients.from_arrays(arrays_for("logistic")), l2=0.1)
    assert problem.gradient(problem.initial()).dtype == np.float64
    assert problem.reference().x.dtype == np.float64
    assert jax.config.jax_enable_x64 is False
    assert jnp.zeros(2).dtype == jnp.float32


# ------------------------------------------------------------------------------------- bad input

X, Y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
CLIENTS = Clients.from_arrays([(X, Y), (X, Y)], names=["Ulm", "Basel"])
IMAGES = Clients.from_arrays([(np.zeros((3, 2, 2)), Y)])
EYE = np.eye(2)[None]


def with_targets(targets):
    return Clients.from_arrays([(X, Y), (X, targets)], names=["Ulm", "Basel"])


BAD = {
    "clients": (
        lambda: problems.logistic([(X, Y)]),
        "clients: expected accord.Clients, got list; build them with accord.Clients.from_arrays",
    ),
    "binary labels": (
        lambda: problems.logistic(with_targets([-1, 1, 1])),
        "client 'Basel': a label is -1; accepted are 0 and 1: recode the labels first",
    ),
    "three labels": (
        lambda: problems.penalised_logistic(with_targets([0, 1, 2]), 0.1),
        "client 'Basel': a label is 2; accepted are 0 and 1",
    ),
    "negative label": (
        lambda: problems.softmax(with_targets([0, -3, 2])),
        "client 'Basel': a label is -3; accepted are 0 .. classes - 1: recode the labels first",
    ),
    "fraction": (
        lambda: problems.softmax(with_targets([0, 0.5, 2])),
        "client 'Basel': a label is 0.5; accepted are 0 .. classes - 1",
    ),
    "classes": (
        lambda: problems.softmax(with_targets([0, 4, 2]), classes=4),
        "classes: got 4, but a label is 4; labels are 0 .. classes - 1",
    ),
    "negative count": (
        lambda: problems.poisson(with_targets([0, -2, 2])),
        "client 'Basel': a target is -2; Poisson counts are >= 0",
    ),
    "NaN cell": (
        lambda: problems.least_squares(with_targets([0, np.nan, 2])),
        "client 'Basel': y has a NaN or infinite value at (1,); drop or fill such rows first",
    ),
    "feature counts": (
        lambda: problems.least_squares(Clients.from_arrays([(X, Y), (X[:, :1], Y)])),
        "client '1' has features of shape (1,), client '0' (2,); all clients want the same",
    ),
    "no rows": (
        lambda: problems.least_squares(Clients.from_arrays([(X[:0], Y[:0])])),
        "arrays: no client has a row; at least one row is needed",
    ),
    "no weight": (
        lambda: problems.least_squares(Clients.from_arrays([(X, Y, 0 * Y)])),
        "clients: all row weights are zero",
    ),
    "negative l2": (
        lambda: problems.logistic(CLIENTS, l2=-1),
        "l2: got -1; accepted is a finite number >= 0",
    ),
    "infinite l2": (lambda: problems.softmax(CLIENTS, l2=np.inf), "l2: got inf; accepted is a"),
    "penalty": (
        lambda: problems.penalised_logistic(CLIENTS, -0.5),
        "penalty: got -0.5; accepted is a finite number >= 0",
    ),
    "threshold": (
        lambda: problems.huber(CLIENTS, threshold=0),
        "threshold: got 0; accepted is a finite number > 0",
    ),
    "weights": (
        lambda: problems.logistic(CLIENTS, weights="row"),
        'weights: got \'row\'; accepted are "rows" and "equal"',
    ),
    "dtype": (
        lambda: problems.logistic(CLIENTS, dtype="float16"),
        'dtype: got float16; accepted are "float64" and "float32"',
    ),
    "images": (
        lambda: problems.logistic(IMAGES),
        "clients: features have shape (2, 2); a linear predictor wants one axis of features",
    ),
    "no loss": (
        lambda: problems.custom(3, 0.0, CLIENTS),
        "loss: expected a function loss(x, feature_row, target) -> scalar",
    ),
    "vector loss": (
        lambda: problems.custom(lambda x, row, y: x * row, np.zeros(2), CLIENTS),
        "expected a scalar: the loss takes a single row, not a batch",
    ),
    "hessians": (
        lambda: problems.quadratic(EYE, [[1.0, 2, 3]]),
        "hessians: shape (1, 2, 2); expected (1, 3, 3)",
    ),
    "asymmetric": (
        lambda: problems.quadratic([[[1, 1], [0, 1]]], [[1, 1]]),
        "hessians: expected symmetric positive semi-definite matrices",
    ),
    "indefinite": (
        lambda: problems.quadratic(-EYE, [[1, 1]]),
        "hessians: expected symmetric positive semi-definite matrices",
    ),
    "quadratic weights": (
        lambda: problems.quadratic(EYE, [[1, 1]], weights=[-1]),
        "weights: expected 1 numbers >= 0 with a positive sum",
    ),
    "flat linears": (lambda: problems.quadratic(EYE, [1, 1]), "linears: "),
    "NaN linears": (lambda: problems.quadratic(EYE, [[1, np.nan]]), "linears: "),
    "constants": (lambda: problems.quadratic(EYE, [[1, 1]], [1, 2]), "constants: "),
    "values": (
        lambda: problems.averaging(np.zeros((2, 2, 2))),
        "values: shape (2, 2, 2); expected (clients,) or (clients, d)",
    ),
    "no values": (lambda: problems.averaging([]), "values: shape "),
    "NaN values": (
        lambda: problems.averaging([1.0, np.nan]),
        "values: has a NaN or infinite entry",
    ),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named_in_one_line(call, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)) as error:
        call()
    assert "\n" not in str(error.value)


def test_large_offsets_leave_the_gap_exact():
    values = 1e9 + np.random.default_rng(0).standard_normal((6, 2))
    problem = problems.averaging(values)
    apart = values - values.mean(0)
    assert problem.reference().objective == pytest.approx(0.5 * (apart**2).sum() / 6, rel=1e-9)
    clients = Clients.from_arrays(
        [(np.ones((5, 1)), 1e6 + 1e-3 * np.arange(5.0)), (np.ones((4, 1)), 1e6 - np.arange(4.0))]
    )
    problem = problems.least_squares(clients)
    residuals = np.concatenate([y for _, y in clients]) - problem.reference().x
    expected = 0.5 * (residuals**2).mean()
    assert problem.reference().objective == pytest.approx(expected, rel=1e-6)


def test_a_quadratic_without_a_minimiser_is_refused():
    flat = problems.quadratic([np.diag([1.0, 0.0])] * 2, np.ones((2, 2)))
    with pytest.raises(ValueError, match="falls without bound"):
        flat.reference()


def test_references_of_many_parameters(monkeypatch):
    """The matrix-free branch finds the same optimum, and is not fooled either."""
    from accord import reference

    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = (X[:, 0] > 0).astype(int)
    clients = Clients.from_arrays([(X[:20], y[:20]), (X[20:], y[20:])])
    dense = problems.logistic(clients, l2=0.1).reference()
    monkeypatch.setattr(reference, "DENSE_LIMIT", 1)
    free = problems.logistic(clients, l2=0.1).reference()
    assert free.unique
    assert abs(free.x - dense.x).max() < 1e-10
    with pytest.raises(ValueError, match="no minimiser"):
        problems.logistic(clients).reference()


def test_empty_clients_weigh_nothing():
    rng = np.random.default_rng(1)
    full = [(rng.standard_normal((9, 2)), rng.standard_normal(9)) for _ in range(2)]
    empty = (np.zeros((0, 2)), np.zeros(0))
    x = [
        problems.least_squares(Clients.from_arrays(full + [empty] * k), l2=0.3, weights="equal")
        .reference()
        .x
        for k in (0, 3)
    ]
    assert abs(x[0] - x[1]).max() < 1e-14


def test_client_data_cannot_be_changed_behind_a_problem():
    clients = Clients.from_arrays([(np.ones((3, 2)), np.ones(3))])
    with pytest.raises(ValueError, match="read-only"):
        clients[0][0][:] = 0
