"""Problems: clients, their objectives f_i and weights w_i, together F(x) = sum_i w_i f_i(x).

f_i is the weighted mean loss over client i's rows plus the whole regulariser, so that F is the pooled
mean loss plus the regulariser when the weights are the clients' rows. Every function here takes
``weights="rows"`` (w_i = n_i / N, the pooled fit) or ``"equal"`` (w_i = 1/m), ``l2`` (adds
(l2/2) ||x||^2 to every f_i, never on the intercept), ``intercept`` (adds a last entry, or row, to x)
and ``dtype`` ("float64" or "float32").
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from accord.data.clients import Clients
from accord.objectives import (
    BoundedPenalty,
    CustomObjective,
    HuberLoss,
    LinearObjective,
    LogisticLoss,
    PoissonLoss,
    Quadratic,
    Ridge,
    SoftmaxLoss,
    SquaredLoss,
    diagonalised,
)
from accord.reference import Reference, minimise, solve_quadratic

GRAM_LIMIT = 2048
"""The most features for which a d x d matrix per client is formed."""


class Prepared(NamedTuple):
    """A problem laid out for an engine, one entry per bucket of clients."""

    objectives: tuple[Any, ...]
    weights: tuple[Any, ...]
    clients: tuple[Any, ...]


class Problem:
    """minimise F(x) = sum_i w_i f_i(x).

    Attributes: ``clients``; ``weights`` (m,), summing to one; ``dtype``; ``convex`` (True, False, or
    None where it is not known); ``offers``, the names of what its objectives can do.
    """

    convex: bool | None = True
    offers = frozenset({"grad", "prox", "hessian_product", "minibatch"})
    name = "problem"

    def __init__(self, clients: Clients, weights: str, dtype: str):
        if not isinstance(clients, Clients):
            raise TypeError(
                f"clients: expected accord.Clients, got {type(clients).__name__}; "
                "build them with accord.Clients.from_arrays([(X_1, y_1), ...])"
            )
        self.clients = clients
        self.dtype = _checked_dtype(dtype)
        self.weights = self._client_weights(weights)
        self._prepared: dict[Any, Prepared] = {}

    def _client_weights(self, weights: str) -> np.ndarray:
        if weights not in ("rows", "equal"):
            raise ValueError(f'weights: got {weights!r}; accepted are "rows" and "equal"')
        if weights == "equal":
            return np.full(len(self.clients), 1 / len(self.clients))
        totals = np.zeros(len(self.clients))
        for bucket in self.clients.buckets:
            totals[bucket.clients] = bucket.row_weights.sum(1)
        if totals.sum() == 0:
            raise ValueError("clients: all row weights are zero")
        return totals / totals.sum()

    def __len__(self) -> int:
        return len(self.weights)

    def initial(self) -> Any:
        """The default start x0, as NumPy arrays."""
        raise NotImplementedError

    def _build(self, bucket, dtype: str, needs: frozenset[str]) -> Any:
        """The objectives of a bucket, stacked along a leading client axis."""
        raise NotImplementedError

    def curvature(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(L_i, mu_i) of every client from the data, or None where there is no such bound."""
        return None

    def prepare(self, needs: frozenset[str] = frozenset({"grad"}), dtype: str | None = None) -> Prepared:
        """The problem on the device, laid out for an engine that calls ``needs`` of the objectives."""
        dtype = _checked_dtype(dtype or self.dtype)
        relevant = frozenset(needs) & {"prox", "minibatch"}
        if (relevant, dtype) not in self._prepared:
            with jax.enable_x64(True):
                buckets = self._buckets(relevant)
                self._prepared[relevant, dtype] = Prepared(
                    tuple(self._build(b, dtype, relevant) for b in buckets),
                    tuple(jnp.asarray(self.weights[b.clients], dtype) for b in buckets),
                    tuple(jnp.asarray(b.clients, "uint32") for b in buckets),
                )
        return self._prepared[relevant, dtype]

    def _buckets(self, needs):
        return self.clients.buckets

    def client_objective(self, i: int, needs=frozenset({"grad"}), dtype: str | None = None) -> Any:
        """The objective of client i alone, with padding removed."""
        prepared = self.prepare(needs, dtype)
        for objectives, members in zip(prepared.objectives, prepared.clients, strict=True):
            place = np.flatnonzero(np.asarray(members) == i)
            if len(place):
                with jax.enable_x64(True):
                    one = jax.tree.map(lambda leaf: leaf[place[0]], objectives)
                    return _trimmed(one, max(int(self.clients.sizes[i]), 1))
        raise IndexError(f"client {i} of {len(self)} clients")

    def objective(self, x) -> float:
        """F(x)."""
        return float(self.evaluate(x)[0])

    def gradient(self, x) -> Any:
        """grad F(x), in the structure of x, as NumPy arrays."""
        return self.evaluate(x)[1]

    def client_gradients(self, x) -> Any:
        """grad f_i(x) of every client, stacked in client order along a leading axis."""
        with jax.enable_x64(True):
            prepared = self.prepare()
            stacks = _client_gradients(prepared.objectives, self._cast(x))
            order = np.argsort(np.concatenate([np.asarray(c) for c in prepared.clients]))
            return jax.tree.map(lambda *s: np.concatenate([np.asarray(p) for p in s])[order], *stacks)

    def evaluate(self, x) -> tuple[float, Any]:
        """(F(x), grad F(x)), as NumPy values."""
        with jax.enable_x64(True):
            prepared = self.prepare()
            pair = _value_and_grad(prepared.objectives, prepared.weights, self._cast(x))
            return jax.tree.map(np.asarray, pair)

    def hessian_product(self, x, direction) -> Any:
        """The Hessian of F at x applied to a direction."""
        with jax.enable_x64(True):
            prepared = self.prepare()
            args = prepared.objectives, prepared.weights, self._cast(x), self._cast(direction)
            return jax.tree.map(np.asarray, _hessian_product(*args))

    def _cast(self, x):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, self.dtype), x)

    @functools.cached_property
    def _reference(self) -> Reference | None:
        return minimise(self) if self.convex else None

    def reference(self) -> Reference | None:
        """The minimiser of F by an independent solver, found once; None unless F is known convex.

        L-BFGS, then Newton with conjugate gradients to ||grad F|| <= 1e-12 (relative to the clients'
        gradients there); least squares by its normal equations. Raises ``ValueError`` where no
        minimiser is found, as for separable classes without a regulariser.
        """
        return self._reference


def _checked_dtype(dtype) -> str:
    name = np.dtype(dtype).name
    if name not in ("float64", "float32"):
        raise ValueError(f'dtype: got {name}; accepted are "float64" and "float32"')
    return name


def _non_negative(name: str, value: float) -> float:
    if not np.isfinite(value) or value < 0:
        raise ValueError(f"{name}: got {value}; accepted is a finite number >= 0")
    return float(value)


def _trimmed(objective, rows: int):
    """A single client's objective with the padding after ``rows`` cut off."""
    if isinstance(objective, Quadratic):
        return objective
    names = ("features", "targets", "row_weights")
    return dataclasses.replace(objective, **{n: getattr(objective, n)[:rows] for n in names})


def combine(weights, stacks):
    """sum_i w_i g_i over buckets of stacked trees."""
    parts = [
        jax.tree.map(lambda leaf, w=w: jnp.tensordot(w.astype(leaf.dtype), leaf, 1), s)
        for w, s in zip(weights, stacks, strict=True)
    ]
    return jax.tree.map(lambda *p: sum(p), *parts)


@jax.jit
def _client_gradients(objectives, x):
    return [jax.vmap(lambda o: o.grad(x))(o) for o in objectives]


def value_and_client_gradients(objectives, x):
    """(f_i(x), grad f_i(x)) per bucket, each with a leading client axis."""
    return [jax.vmap(lambda o: (o.value(x), o.grad(x)))(o) for o in objectives]


@jax.jit
def _value_and_grad(objectives, weights, x):
    return combine(weights, value_and_client_gradients(objectives, x))


@jax.jit
def _hessian_product(objectives, weights, x, direction):
    stacks = [jax.vmap(lambda o: o.hessian_product(x, direction))(o) for o in objectives]
    return combine(weights, stacks)


class LinearProblem(Problem):
    """Clients with a loss of a linear predictor: see the functions of this module."""

    def __init__(self, clients, loss, penalties, weights, intercept, dtype, name):
        super().__init__(clients, weights, dtype)
        if len(clients.features) != 1:
            raise ValueError(
                f"clients: features have shape {clients.features}; a linear predictor wants one "
                "axis of features: flatten them, or use accord.problems.custom"
            )
        self.loss, self.penalties, self.intercept, self.name = loss, penalties, intercept, name
        self.convex = all(p.curvature()[0] >= 0 for p in penalties)
        if not self.convex:
            self.offers = self.offers - {"prox"}

    def initial(self):
        length = self.clients.features[0] + self.intercept
        classes = getattr(self.loss, "classes", None)
        return np.zeros((length,) if classes is None else (length, classes), self.dtype)

    @property
    def _quadratic(self) -> bool:
        return isinstance(self.loss, SquaredLoss) and all(isinstance(p, Ridge) for p in self.penalties)

    def _gram(self, needs) -> bool:
        """Whether d x d matrices take the place of the rows: exact steps, or when it is cheaper."""
        d = self.clients.features[0] + self.intercept
        if not self._quadratic or "minibatch" in needs or d > GRAM_LIMIT:
            return False
        return "prox" in needs or 2 * d <= self.clients.rows / len(self.clients)

    @functools.cached_property
    def _moments(self):
        """(A'WA + regulariser, A'Wy, (1/2) y'Wy) of every client, W its normalised row weights."""
        d = self.clients.features[0] + self.intercept
        m = len(self)
        H, b, c = np.zeros((m, d, d)), np.zeros((m, d)), np.zeros(m)
        for i, X, y, w in self._client_rows():
            weighted = w[:, None] * X
            H[i], b[i], c[i] = weighted.T @ X, weighted.T @ y, 0.5 * (w * y) @ y
        penalised = np.arange(d) < self.clients.features[0]
        H[:, penalised, penalised] += sum(p.l2 for p in self.penalties)
        return H, b, c

    def _client_rows(self):
        """(i, X with the intercept's column, y, normalised weights) client by client, float64."""
        for i, (X, y) in enumerate(self.clients):
            w = self.clients.row_weights(i)
            X = np.asarray(X, float)
            if self.intercept:
                X = np.column_stack([X, np.ones(len(X))])
            yield i, X, np.asarray(y, float), w / (w.sum() or 1.0)

    def _buckets(self, needs):
        if not self._gram(needs):
            return self.clients.buckets
        everyone = np.arange(len(self))
        return (self.clients.buckets[0]._replace(clients=everyone),)

    def _build(self, bucket, dtype, needs):
        if self._gram(needs):
            H, b, c = (jnp.asarray(a) for a in self._moments)
            quadratic = Quadratic(H, b, c)
            if "prox" in needs:
                quadratic = diagonalised(quadratic)
            return jax.tree.map(lambda leaf: leaf.astype(dtype), quadratic)
        targets = bucket.targets
        kind = "int32" if isinstance(self.loss, SoftmaxLoss) else dtype
        m = len(bucket.clients)
        return LinearObjective(
            features=on_device(bucket.features, dtype),
            targets=jnp.asarray(targets, kind),
            row_weights=jnp.asarray(normalised(bucket.row_weights), dtype),
            rows=jnp.asarray(self.clients.sizes[bucket.clients], "int32"),
            penalties=tuple(
                jax.tree.map(lambda leaf: jnp.full(m, leaf, dtype), p) for p in self.penalties
            ),
            loss=self.loss,
            intercept=self.intercept,
        )

    def curvature(self):
        if self.loss.curvature is None:
            return None
        low, high = np.sum([p.curvature() for p in self.penalties], axis=0)
        L, mu = np.zeros(len(self)), np.zeros(len(self))
        if self._quadratic and self._moments[0].shape[1] <= GRAM_LIMIT:
            values = np.linalg.eigvalsh(self._moments[0])
            return values[:, -1], np.maximum(values[:, 0], 0)
        for i, X, _, w in self._client_rows():
            L[i] = self.loss.curvature * _largest_eigenvalue(X * np.sqrt(w)[:, None]) + high
            mu[i] = 0.0 if self.intercept and low > 0 else low
        return L, mu

    @functools.cached_property
    def _reference(self):
        if self._quadratic and self._moments[0].shape[1] <= GRAM_LIMIT:
            H, b, _ = (np.tensordot(self.weights, a, 1) for a in self._moments)
            return solve_quadratic(self, H, b)
        return minimise(self) if self.convex else None


def _largest_eigenvalue(A: np.ndarray) -> float:
    """sigma_max(A)^2."""
    from scipy.sparse.linalg import svds

    if not A.size:
        return 0.0
    if min(A.shape) <= GRAM_LIMIT:
        gram = A.T @ A if A.shape[1] <= A.shape[0] else A @ A.T
        return float(np.linalg.eigvalsh(gram)[-1])
    return float(svds(A, k=1, return_singular_vectors=False)[0] ** 2)


def normalised(row_weights: np.ndarray) -> np.ndarray:
    """Row weights (m, n) that sum to one per client (to zero for a client without rows)."""
    totals = row_weights.sum(1, keepdims=True)
    return row_weights / np.where(totals > 0, totals, 1)


def on_device(array: np.ndarray, dtype=None):
    """The array on the device: in place where its dtype allows, since clients own aligned memory."""
    if dtype is not None:
        array = array.astype(dtype, copy=False)
    return jax.device_put(array, may_alias=True)


class QuadraticProblem(Problem):
    """f_i(x) = (1/2) <x, H_i x> - <b_i, x> + c_i, given by its matrices."""

    offers = frozenset({"grad", "prox", "hessian_product"})

    def __init__(self, hessians, linears, constants=None, weights=None, dtype="float64"):
        hessians, linears = np.asarray(hessians, float), np.asarray(linears, float)
        m, d = linears.shape
        if hessians.shape != (m, d, d):
            raise ValueError(f"hessians: shape {hessians.shape}; expected {(m, d, d)}")
        symmetric = np.allclose(hessians, np.swapaxes(hessians, 1, 2))
        if not symmetric or np.linalg.eigvalsh(hessians).min() < -1e-9 * abs(hessians).max():
            raise ValueError("hessians: expected symmetric positive semi-definite matrices")
        constants = np.zeros(m) if constants is None else np.asarray(constants, float)
        self._moments = hessians, linears, constants
        placeholder = Clients.from_arrays([(np.zeros((1, d)), [0.0])] * m)
        super().__init__(placeholder, "equal", dtype)
        self.name = "quadratic"
        if weights is not None:
            weights = np.asarray(weights, float)
            if weights.shape != (m,) or (weights < 0).any() or not weights.sum() > 0:
                raise ValueError(f"weights: expected {m} numbers >= 0 with a positive sum")
            self.weights = weights / weights.sum()

    def initial(self):
        return np.zeros(self._moments[1].shape[1], self.dtype)

    def _build(self, bucket, dtype, needs):
        quadratic = Quadratic(*(jnp.asarray(a) for a in self._moments))
        if "prox" in needs:
            quadratic = diagonalised(quadratic)
        return jax.tree.map(lambda leaf: leaf.astype(dtype), quadratic)

    def curvature(self):
        values = np.linalg.eigvalsh(self._moments[0])
        return values[:, -1], np.maximum(values[:, 0], 0)

    @functools.cached_property
    def _reference(self):
        H, b, _ = (np.tensordot(self.weights, a, 1) for a in self._moments)
        return solve_quadratic(self, H, b)


class CustomProblem(Problem):
    """Clients with any JAX loss of one row over any pytree of parameters: see ``custom``."""

    name = "custom"

    def __init__(self, loss, init, clients, l2, weights, convex, dtype):
        super().__init__(clients, weights, dtype)
        if not callable(loss):
            raise TypeError("loss: expected a function loss(x, feature_row, target) -> scalar")
        self.loss, self.convex = loss, convex
        self.init = jax.tree.map(lambda leaf: np.asarray(leaf, self.dtype), init)
        self.l2 = _non_negative("l2", l2)
        if not convex:
            self.offers = self.offers - {"prox"}
        self._check_loss()

    def _check_loss(self):
        X, y = next((X, y) for X, y in self.clients if len(y))
        with jax.enable_x64(True):
            row, target = self._on_device(X[0]), self._on_device(y[0])
            out = jax.eval_shape(self.loss, self.init, row, target)
        if not hasattr(out, "shape") or out.shape != ():
            raise ValueError(
                f"loss: returned {out} for one row; expected a scalar: the loss takes a single row, "
                "not a batch"
            )

    def _on_device(self, array):
        return on_device(array, self.dtype if array.dtype.kind == "f" else None)

    def initial(self):
        return self.init

    def _build(self, bucket, dtype, needs):
        return CustomObjective(
            features=self._on_device(bucket.features),
            targets=self._on_device(bucket.targets),
            row_weights=jnp.asarray(normalised(bucket.row_weights), dtype),
            rows=jnp.asarray(self.clients.sizes[bucket.clients], "int32"),
            l2=jnp.full(len(bucket.clients), self.l2, dtype),
            loss=self.loss,
        )


def _linear(clients, loss, l2, weights, intercept, dtype, name, extra=()):
    penalties = (Ridge(_non_negative("l2", l2)), *extra)
    return LinearProblem(clients, loss, penalties, weights, bool(intercept), dtype, name)


def least_squares(clients, l2=0.0, weights="rows", intercept=False, dtype="float64") -> Problem:
    """f_i(x) = (1/(2 n_i)) ||A_i x - y_i||^2 + (l2/2) ||x||^2, with x of shape (d,)."""
    return _linear(clients, SquaredLoss(), l2, weights, intercept, dtype, "least_squares")


def logistic(clients, l2=0.0, weights="rows", intercept=False, dtype="float64") -> Problem:
    """f_i(x) = (1/n_i) sum_r [log(1 + exp(<a_r, x>)) - y_r <a_r, x>] + (l2/2) ||x||^2.

    Labels y_r are 0 or 1; x has shape (d,).
    """
    problem = _linear(clients, LogisticLoss(), l2, weights, intercept, dtype, "logistic")
    _check_binary(clients)
    return problem


def penalised_logistic(
    clients, penalty, alpha=1.0, l2=0.0, weights="rows", intercept=False, dtype="float64"
) -> Problem:
    """Logistic regression plus penalty * sum_j alpha x_j^2 / (1 + alpha x_j^2), which is not convex.

    The experiment of X. Zhang, M. Hong, S. Dhople, W. Yin and Y. Liu, "FedPD: A Federated Learning
    Framework with Adaptivity to Non-IID Data", IEEE TSP, 2021.
    """
    extra = BoundedPenalty(_non_negative("penalty", penalty), _non_negative("alpha", alpha))
    name = "penalised_logistic"
    problem = _linear(clients, LogisticLoss(), l2, weights, intercept, dtype, name, (extra,))
    _check_binary(clients)
    return problem


def softmax(clients, l2=0.0, weights="rows", intercept=False, dtype="float64", classes=None) -> Problem:
    """f_i(x) = (1/n_i) sum_r [logsumexp(a_r x) - (a_r x)[y_r]] + (l2/2) ||x||^2.

    Labels are integers 0 .. C - 1; x has shape (d, C). ``classes`` is C; by default one more than the
    largest label of any client.
    """
    _check_labels(clients, None)
    largest = max(int(y.max()) for _, y in clients if len(y))
    classes = max(largest + 1, 2) if classes is None else int(classes)
    if largest >= classes:
        raise ValueError(f"classes: got {classes}, but a label is {largest}; labels are 0 .. classes - 1")
    return _linear(clients, SoftmaxLoss(classes), l2, weights, intercept, dtype, "softmax")


def poisson(clients, l2=0.0, weights="rows", intercept=False, dtype="float64") -> Problem:
    """f_i(x) = (1/n_i) sum_r [exp(<a_r, x>) - y_r <a_r, x>] + (l2/2) ||x||^2, counts y_r >= 0."""
    problem = _linear(clients, PoissonLoss(), l2, weights, intercept, dtype, "poisson")
    for name, (_, y) in zip(clients.names, clients, strict=True):
        if len(y) and y.min() < 0:
            raise ValueError(f"client {name!r}: a target is {y.min():g}; Poisson counts are >= 0")
    return problem


def huber(
    clients, l2=0.0, weights="rows", intercept=False, dtype="float64", threshold=1.0
) -> Problem:
    """f_i(x) = (1/n_i) sum_r h(<a_r, x> - y_r) + (l2/2) ||x||^2.

    h(r) = r^2/2 for |r| <= threshold and threshold (|r| - threshold/2) beyond.
    """
    if not threshold > 0:
        raise ValueError(f"threshold: got {threshold}; accepted is a number > 0")
    loss = HuberLoss(float(threshold))
    return _linear(clients, loss, l2, weights, intercept, dtype, "huber")


def custom(
    loss: Callable, init, clients, l2=0.0, weights="rows", convex=None, dtype="float64"
) -> Problem:
    """f_i(x) = (1/n_i) sum_r loss(x, feature_row_r, target_r) + (l2/2) ||x||^2.

    ``loss`` is differentiable JAX code for **one** row and returns a scalar; ``init`` is the start, any
    pytree of arrays or scalars. ``convex=True`` opens the methods with an exact proximal step
    (PDMM, FedSplit, ...) and ``reference()``. Features may have any number of axes.
    """
    return CustomProblem(loss, init, clients, l2, weights, convex, dtype)


def quadratic(hessians, linears, constants=None, weights=None, dtype="float64") -> Problem:
    """f_i(x) = (1/2) <x, H_i x> - <b_i, x> + c_i from H (m, d, d), b (m, d) and c (m,)."""
    return QuadraticProblem(hessians, linears, constants, weights, dtype)


def averaging(values, dtype="float64") -> Problem:
    """f_i(x) = (1/2) ||x - values_i||^2 with equal weights: the optimum is the mean.

    ``values`` is (m,) or (m, d); x has shape (d,).
    """
    values = np.asarray(values, float)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not values.size:
        raise ValueError(f"values: shape {values.shape}; expected (clients,) or (clients, d)")
    if not np.isfinite(values).all():
        raise ValueError("values: has a NaN or infinite entry")
    identity = np.broadcast_to(np.eye(values.shape[1]), (len(values), *[values.shape[1]] * 2))
    return quadratic(identity, values, 0.5 * (values**2).sum(1), dtype=dtype)


def _check_labels(clients, classes) -> None:
    allowed = "0 .. classes - 1" if classes is None else "0 and 1"
    for name, (_, y) in zip(clients.names, clients, strict=True):
        wrong = (y != np.round(y)) | (y < 0) | (y >= (np.inf if classes is None else classes))
        if wrong.any():
            raise ValueError(
                f"client {name!r}: a label is {y[wrong][0]:g}; accepted are {allowed}: "
                "recode the labels first"
            )


def _check_binary(clients) -> None:
    _check_labels(clients, 2)
