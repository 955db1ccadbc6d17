"""Clients: packing, views, legal oddities, bad input; a ragged result equals the unpadded one."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accord
from accord import Clients, problems
from accord.data.clients import bucket_sizes

SIZES = {
    "one to 50,000": np.unique(np.geomspace(1, 50_000, 60).astype(int)),
    "equal": np.full(100, 37),
    "one giant": np.r_[np.ones(500, int), 50_000],
    "two giants": np.array([1, 49_999, 50_000]),
    "powers": 2 ** np.arange(16),
    "all of them": np.arange(1, 3000),
    "one client": np.array([123]),
    "one row each": np.ones(1000, int),
    "hospitals": np.array([123, 200, 294, 304]),
    "carriers": np.array([29, 342, 601, 709, 3175, 14_669, 18_260, 26_242, 48_110, 57_782]),
}


def padding_of(sizes):
    widths = np.array(bucket_sizes(sizes))
    home = np.searchsorted(widths, sizes)
    assert (np.diff(widths) > 0).all() and home.max() < len(widths)
    return widths[home].sum() / np.sum(sizes), len(widths)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_padding_is_small_in_few_buckets(sizes):
    padding, buckets = padding_of(sizes)
    assert padding <= 1.3
    assert buckets <= 12


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=300))
def test_padding_is_small_for_any_sizes(sizes):
    assert padding_of(np.array(sizes))[0] <= 1.3


def test_packed_padding_of_sizes_from_1_to_50_000():
    clients = Clients.from_arrays(
        [(np.full((n, 1), n), np.full(n, n)) for n in SIZES["one to 50,000"]]
    )
    assert clients.padding <= 1.3
    assert len(clients.buckets) <= 12
    assert clients.rows == SIZES["one to 50,000"].sum()
    for n, (X, y) in zip(SIZES["one to 50,000"], clients, strict=True):
        assert X.shape == (n, 1) and X.min() == X.max() == n and y.min() == y.max() == n


def random_arrays(sizes, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(n, d)), rng.normal(size=n)) for n in sizes]


def test_views_equal_the_input():
    arrays = random_arrays([5, 0, 1, 200, 7, 6, 1])
    clients = Clients.from_arrays(arrays, names="abcdefg")
    assert clients.names == tuple("abcdefg")
    assert clients.sizes.tolist() == [5, 0, 1, 200, 7, 6, 1]
    assert clients.features == (3,) and clients.rows == 220 and len(clients) == 7
    for i, (X, y) in enumerate(arrays):
        np.testing.assert_array_equal(clients[i][0], X)
        np.testing.assert_array_equal(clients[i][1], y)
        np.testing.assert_array_equal(clients.row_weights(i), np.ones(len(y)))
    np.testing.assert_array_equal(clients[-4][0], arrays[3][0])
    assert repr(clients) == "Clients(7 clients, 220 rows (0/5/200), 3 features)"
    for wrong in (7, -8):
        with pytest.raises(IndexError, match="of 7 clients"):
            clients[wrong]


def test_every_client_is_in_one_bucket_and_padding_has_weight_zero():
    clients = Clients.from_arrays(random_arrays([5, 0, 1, 200, 7, 6, 1]))
    members = np.concatenate([b.clients for b in clients.buckets])
    assert sorted(members) == list(range(7))
    for bucket in clients.buckets:
        np.testing.assert_array_equal(bucket.row_weights.sum(1), clients.sizes[bucket.clients])
        assert np.isfinite(bucket.features).all() and np.isfinite(bucket.targets).all()


def test_rows_are_copied():
    X, y = np.ones((3, 2)), np.ones(3)
    clients = Clients.from_arrays([(X, y)])
    X[:], y[:] = 7, 7
    assert (clients[0][0] == 1).all() and (clients[0][1] == 1).all()


def test_row_weights():
    weights = np.array([0.5, 0.0, 2.0])
    clients = Clients.from_arrays([(np.ones((3, 2)), np.ones(3), weights), *random_arrays([5], 2)])
    np.testing.assert_array_equal(clients.row_weights(0), weights)
    np.testing.assert_array_equal(clients.row_weights(1), np.ones(5))
    problem = problems.least_squares(clients)
    np.testing.assert_allclose(problem.weights, [2.5 / 7.5, 5 / 7.5])


def test_lists_integers_booleans_and_several_axes_are_taken():
    clients = Clients.from_arrays([([[1, 2], [3, 4]], [True, False]), ([[5, 6]], [1])])
    assert clients[0][0].dtype.kind == "i" and clients[0][1].tolist() == [1, 0]
    images = Clients.from_arrays([(np.zeros((4, 8, 8, 1)), np.zeros(4, int))])
    assert images.features == (8, 8, 1)


def test_from_pooled():
    X, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    clients = Clients.from_pooled(X, y, [[4, 0], [1, 2, 3], []], names=["a", "b", "c"])
    np.testing.assert_array_equal(clients[0][0], X[[4, 0]])
    np.testing.assert_array_equal(clients[1][1], [1, 2, 3])
    assert clients.sizes.tolist() == [2, 3, 0]


def test_a_mask_is_never_read_as_indices():
    X, y = np.arange(8.0).reshape(4, 2), np.arange(4)
    mask = np.array([False, True, True, False])
    try:
        clients = Clients.from_pooled(X, y, [mask, ~mask])
    except (TypeError, ValueError):
        return
    assert clients[0][1].tolist() == [1, 2] and clients[1][1].tolist() == [0, 3]


def test_pooled_arrays_of_unequal_length_are_refused():
    with pytest.raises(ValueError):
        Clients.from_pooled(np.zeros((4, 2)), np.zeros(5), [[0, 1], [2, 3]])


def test_empty_one_row_and_one_class_clients_are_legal():
    rng = np.random.default_rng(0)
    clients = Clients.from_arrays(
        [
            (rng.normal(size=(0, 2)), np.zeros(0)),
            (rng.normal(size=(1, 2)), np.zeros(1)),
            (rng.normal(size=(4, 2)), np.zeros(4)),
            (rng.normal(size=(9, 2)), np.ones(9)),
        ]
    )
    for make in (problems.least_squares, problems.logistic, problems.softmax, problems.poisson):
        problem = make(clients, l2=0.1)
        objective, gradient = problem.evaluate(problem.initial() + 0.1)
        assert np.isfinite(objective) and np.isfinite(gradient).all()
        assert problem.weights[0] == 0
        np.testing.assert_allclose(problem.client_gradients(problem.initial() + 1)[0], 0.1)


X, y = np.ones((3, 2)), np.ones(3)
NAN = np.where(np.eye(3, 2) > 0, np.nan, 1.0)

BAD = {
    "no clients": ([], r"^arrays: there are no clients; give a list of \(X, y\) pairs"),
    "no pair": ([(X,)], r"^arrays\[0\]: expected a pair \(X, y\)"),
    "arrays for a list": ((X, y), r"^arrays\[0\]: expected a pair"),
    "text": ([(X, y), (X.astype(str), y)], r"^arrays\[1\]: X has dtype <U\d+; .* encode text"),
    "objects": ([(X, y.astype(object))], r"^arrays\[0\]: y has dtype object"),
    "complex": ([(X + 0j, y)], r"^arrays\[0\]: X has dtype complex128"),
    "flat X": ([(y, y)], r"^arrays\[0\]: X has shape \(3,\); expected \(rows, features\)"),
    "column y": ([(X, y[:, None])], r"^arrays\[0\]: y has shape \(3, 1\); expected \(3,\)"),
    "short y": ([(X, y[:2])], r"^arrays\[0\]: y has shape \(2,\); expected \(3,\)"),
    "short weights": ([(X, y, y[:2])], r"^arrays\[0\]: row weights have shape \(2,\)"),
    "negative weight": ([(X, y, [1, -2, 1])], r"^client '0': row weights must be >= 0, one is -2"),
    "NaN weight": ([(X, y, [1, np.nan, 1])], r"^client '0': row weights has a NaN .* at \(1,\)"),
    "NaN cell": ([(X, y), (NAN, y)], r"^client '1': X has a NaN or infinite value at \(0, 0\)"),
    "infinite target": ([(X, y * np.inf)], r"^client '0': y has a NaN or infinite value at \(0,\)"),
    "feature counts": ([(X, y), (X[:, :1], y)], r"^client '1' has features of shape \(1,\), c"),
    "no rows": ([(X[:0], y[:0])] * 2, r"^arrays: no client has a row"),
}


@pytest.mark.parametrize(("arrays", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named_in_one_line(arrays, message):
    with pytest.raises(ValueError) as error:
        Clients.from_arrays(arrays)
    assert re.search(message, str(error.value)) and "\n" not in str(error.value)


def test_bad_names():
    with pytest.raises(ValueError, match=r"^names: 1 names for 2 clients$"):
        Clients.from_arrays([(X, y), (X, y)], names=["a"])
    with pytest.raises(ValueError, match=r"^names: 'a' names two clients"):
        Clients.from_arrays([(X, y), (X, y)], names=["a", "a"])
    with pytest.raises(ValueError, match=r"^client 'Basel': X has a NaN"):
        Clients.from_arrays([(X, y), (NAN, y)], names=["Ulm", "Basel"])


# ------------------------------------------------- ragged equals a plain loop over the true rows

L2, PENALTY, ALPHA, THRESHOLD, CLASSES = 0.3, 0.2, 1.5, 0.7, 3


def loss_and_slope(kind, eta, y):
    """The losses of the rows and their derivatives in eta, in NumPy."""
    if kind == "least_squares":
        return (eta - y) ** 2 / 2, eta - y
    if kind in ("logistic", "penalised_logistic"):
        return np.log1p(np.exp(eta)) - y * eta, 1 / (1 + np.exp(-eta)) - y
    if kind == "poisson":
        return np.exp(eta) - y * eta, np.exp(eta) - y
    if kind == "huber":
        r = eta - y
        losses = [
            t * t / 2 if abs(t) <= THRESHOLD else THRESHOLD * (abs(t) - THRESHOLD / 2) for t in r
        ]
        return np.array(losses), np.minimum(np.maximum(r, -THRESHOLD), THRESHOLD)
    if kind == "softmax":
        e = np.exp(eta)
        total = e.sum(1)
        rows, labels = np.arange(len(y)), y.astype(int)
        slope = e / total[:, None]
        slope[rows, labels] -= 1
        return np.log(total) - eta[rows, labels], slope
    return (eta - y) ** 4 / 4, (eta - y) ** 3


def plain(kind, arrays, weights, intercept, x):
    """(F, grad F, client gradients) by a loop over clients, on their true rows alone."""
    shares = np.array([a[2].sum() for a in arrays])
    shares = shares if weights == "rows" else (shares > 0).astype(float)
    shares = shares / shares.sum()
    F, gradients = 0.0, []
    free = np.ones(x.shape)
    if intercept:
        free[-1] = 0
    coefficients = x * free
    square = ALPHA * coefficients**2
    for share, (X, y, w) in zip(shares, arrays, strict=True):
        A = np.column_stack([X, np.ones(len(X))]) if intercept else X
        losses, slopes = loss_and_slope(kind, A @ x, y)
        w = w / w.sum() if len(w) else w
        f = w @ losses + L2 / 2 * (coefficients**2).sum()
        g = A.T @ (slopes * w.reshape(-1, *[1] * (slopes.ndim - 1))) + L2 * coefficients
        if kind == "penalised_logistic":
            f += PENALTY * (square / (1 + square)).sum()
            g += PENALTY * 2 * ALPHA * coefficients / (1 + square) ** 2
        F += share * f
        gradients.append(g)
    return F, np.tensordot(shares, gradients, 1), np.array(gradients)


def quartic(x, row, target):
    return (row @ x["slopes"] - target) ** 4 / 4


def build(kind, clients, weights, intercept):
    options = {"l2": L2, "weights": weights}
    if kind == "custom":
        return problems.custom(quartic, {"slopes": np.zeros(4)}, clients, convex=True, **options)
    options["intercept"] = intercept
    if kind == "penalised_logistic":
        return problems.penalised_logistic(clients, PENALTY, ALPHA, **options)
    if kind == "huber":
        return problems.huber(clients, threshold=THRESHOLD, **options)
    if kind == "softmax":
        return problems.softmax(clients, classes=CLASSES, **options)
    return getattr(problems, kind)(clients, **options)


KINDS = ["least_squares", "logistic", "softmax", "poisson", "huber", "penalised_logistic", "custom"]
TARGETS = {
    "logistic": lambda rng, n: rng.integers(0, 2, n),
    "penalised_logistic": lambda rng, n: rng.integers(0, 2, n),
    "softmax": lambda rng, n: rng.integers(0, CLASSES, n),
    "poisson": lambda rng, n: rng.poisson(2.0, n),
}


def ragged(kind, sizes, weighted, seed=0):
    rng = np.random.default_rng(seed)
    arrays = []
    for n in sizes:
        X = rng.normal(size=(n, 4))
        y = TARGETS.get(kind, lambda rng, n: rng.normal(size=n))(rng, n)
        arrays.append((X, y, rng.uniform(0.2, 3, n) if weighted else np.ones(n)))
    return arrays


FEW, MANY = (3, 0, 1, 9, 5, 2), (40, 1, 0, 300, 7, 2)
# (weights, intercept, row weights, sizes). With many rows least squares keeps d x d matrices.
CASES = [
    ("rows", False, False, FEW),
    ("equal", False, True, FEW),
    ("rows", True, True, MANY),
    ("equal", True, False, MANY),
]
GRAM = [("rows", False, True, MANY), ("equal", True, True, FEW)]


@pytest.mark.parametrize(
    ("kind", "weights", "intercept", "weighted", "sizes"),
    [(kind, *case) for kind in KINDS[:-1] for case in CASES]
    + [("least_squares", *case) for case in GRAM]
    + [("custom", *case) for case in CASES if not case[1]],
)
def test_ragged_equals_unpadded(kind, weights, intercept, weighted, sizes):
    arrays = ragged(kind, sizes, weighted)
    clients = Clients.from_arrays(arrays)
    assert len(clients.buckets) > 1 and clients.padding > 1
    problem = build(kind, clients, weights, intercept)
    shape = (4 + intercept,) if kind != "softmax" else (4 + intercept, CLASSES)
    x = 0.4 * np.random.default_rng(1).normal(size=shape)
    F, gradient, gradients = plain(kind, arrays, weights, intercept, x)
    point = {"slopes": x} if kind == "custom" else x
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(problem.objective(point), F, **close)
    found, founds = problem.gradient(point), problem.client_gradients(point)
    if kind == "custom":
        found, founds = found["slopes"], founds["slopes"]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, gradient, **close)
    np.testing.assert_allclose(founds, gradients, **close)


@pytest.mark.parametrize("kind", KINDS)
def test_client_objective_has_no_padding(kind):
    arrays = ragged(kind, FEW, weighted=True)
    problem = build(kind, Clients.from_arrays(arrays), "rows", False)
    shape = (4,) if kind != "softmax" else (4, CLASSES)
    x = 0.4 * np.random.default_rng(1).normal(size=shape)
    _, _, gradients = plain(kind, arrays, "rows", False, x)
    with jax.enable_x64(True):
        point = {"slopes": jnp.asarray(x)} if kind == "custom" else jnp.asarray(x)
        for i in (1, 4):  # an empty client keeps one row, of weight zero
            objective = problem.client_objective(i, {"minibatch"})
            assert len(objective.targets) == max(FEW[i], 1)
            found = jax.jit(lambda o: o.grad(point))(objective)
            found = found["slopes"] if kind == "custom" else found
            np.testing.assert_allclose(found, gradients[i], rtol=1e-12, atol=1e-12)
    with pytest.raises(IndexError):
        problem.client_objective(len(FEW))


def test_clients_are_reachable_under_their_fixed_names():
    assert accord.Clients is accord.data.Clients
    for name in ("digits", "partition", "read_table"):
        assert hasattr(accord.data, name)
