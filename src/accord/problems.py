"""Problems: clients, their objectives f_i and weights w_i, together F(x) = sum_i w_i f_i(x).

f_i is the weighted mean loss over client i's rows plus the whole regulariser, so that F is the pooled
mean loss plus the regulariser when the weights are the clients' rows. Every function here takes
``weights="rows"`` (w_i = n_i / N, the pooled fit) or ``"equal"`` (w_i = 1/m over the clients with rows; a
client without rows weighs nothing), ``l2`` (adds
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
from jax import flatten_util

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
from accord.reference import Reference, minimise, solve, solve_quadratic

GRAM_LIMIT = 2048
"""The most features for which d x d matrices are formed."""

_MOMENTS_LIMIT = 2**26
"""The most numbers that the d x d matrices of all clients may hold together."""


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
    bounded = True
    """Whether ``curvature`` has bounds from the data."""

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
        totals = np.zeros(len(self.clients))
        for bucket in self.clients.buckets:
            totals[bucket.clients] = bucket.row_weights.sum(1)
        if totals.sum() == 0:
            raise ValueError("clients: all row weights are zero")
        if weights == "equal":
            totals = (totals > 0).astype(float)
        return totals / totals.sum()

    def __len__(self) -> int:
        return len(self.weights)

    def initial(self) -> Any:
        """The default start x0, as NumPy arrays."""
        raise NotImplementedError

    def _build(self, bucket, dtype: str, layout: str) -> Any:
        """The objectives of a bucket, stacked along a leading client axis."""
        raise NotImplementedError

    def curvature(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(L_i, mu_i) of every client from the data, or None where there is no such bound."""
        return None

    def prepare(
        self, needs: frozenset[str] = frozenset({"grad"}), dtype: str | None = None
    ) -> Prepared:
        """The problem on the device, laid out for an engine that calls ``needs`` of the objectives."""
        layout, dtype = self._layout(frozenset(needs)), _checked_dtype(dtype or self.dtype)
        if (layout, dtype) not in self._prepared:
            with jax.enable_x64(True):
                buckets = self._buckets(layout)
                self._prepared[layout, dtype] = Prepared(
                    tuple(self._build(b, dtype, layout) for b in buckets),
                    tuple(jnp.asarray(self.weights[b.clients], dtype) for b in buckets),
                    tuple(jnp.asarray(b.clients, "uint32") for b in buckets),
                )
        return self._prepared[layout, dtype]

    def _layout(self, needs: frozenset[str]) -> str:
        """How the objectives are held: "rows", "moments" (d x d matrices) or "spectrum" (diagonalised)."""
        return "rows"

    def _buckets(self, layout: str):
        return self.clients.buckets

    def client_objective(self, i: int, needs=frozenset({"grad"}), dtype: str | None = None) -> Any:
        """The objective of client i alone, with padding removed."""
        prepared = self.prepare(needs, dtype)
        for objectives, members in zip(prepared.objectives, prepared.clients, strict=True):
            place = np.flatnonzero(np.asarray(members) == i)
            if len(place):
                with jax.enable_x64(True):
                    one = jax.tree.map(lambda leaf, p=place[0]: leaf[p], objectives)
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
            return jax.tree.map(
                lambda *s: np.concatenate([np.asarray(p) for p in s])[order], *stacks
            )

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

    def hessian(self, x) -> np.ndarray:
        """The Hessian of F at x over the raveled parameters (P, P)."""
        with jax.enable_x64(True):
            prepared = self.prepare()
            return np.asarray(_hessian(prepared.objectives, prepared.weights, self._cast(x)))

    def pooled_hessian(self) -> np.ndarray | None:
        """The Hessian of F where it is constant and small enough to form, else None."""
        return None

    def _cast(self, x):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, self.dtype), x)

    @property
    def strongly_convex(self) -> bool:
        """Whether the regulariser alone makes every f_i strongly convex."""
        return False

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
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in ("float64", "float32"):
        raise ValueError(f'dtype: got {name}; accepted are "float64" and "float32"')
    return name


def _non_negative(name: str, value: float) -> float:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or value < 0:
        raise ValueError(f"{name}: got {value!r}; accepted is a finite number >= 0")
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


@jax.jit
def _hessian(objectives, weights, x):
    flat, unravel = flatten_util.ravel_pytree(x)

    def product(v):
        image = _hessian_product(objectives, weights, x, unravel(v))
        return flatten_util.ravel_pytree(image)[0]

    return jax.lax.map(product, jnp.eye(flat.size, dtype=flat.dtype), batch_size=16)


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
        self.convex = sum(p.curvature()[0] for p in penalties) >= 0
        if not self.convex:
            self.offers = self.offers - {"prox"}
        self.bounded = loss.curvature is not None

    def initial(self):
        length = self.clients.features[0] + self.intercept
        classes = getattr(self.loss, "classes", None)
        return np.zeros((length,) if classes is None else (length, classes), self.dtype)

    @property
    def _quadratic(self) -> bool:
        return isinstance(self.loss, SquaredLoss) and all(
            isinstance(p, Ridge) for p in self.penalties
        )

    @property
    def _width(self) -> int:
        return self.clients.features[0] + self.intercept

    def _layout(self, needs):
        if "minibatch" in needs or not self._quadratic or not self._has_moments:
            return "rows"
        if "prox" in needs:
            return "spectrum"
        return "moments" if 2 * self._width <= self.clients.rows / len(self) else "rows"

    @property
    def _has_moments(self) -> bool:
        return self._width <= GRAM_LIMIT and len(self) * self._width**2 <= _MOMENTS_LIMIT

    def _ridge(self):
        """The regulariser's diagonal: l2, and 0 for the intercept."""
        penalised = np.arange(self._width) < self.clients.features[0]
        return sum(p.l2 for p in self.penalties) * penalised

    @functools.cached_property
    def _pooled(self):
        """(Hessian of F, minimiser by the normal equations) of a least-squares problem."""
        H, b = np.diag(self._ridge()), np.zeros(self._width)
        for i, X, y, w in self._client_rows():
            weighted = self.weights[i] * w[:, None] * X
            H, b = H + weighted.T @ X, b + weighted.T @ y
        return H, solve(H, b)[0]

    @functools.cached_property
    def _moments(self) -> Quadratic:
        """Every client's quadratic, expanded around the pooled solution."""
        m, d = len(self), self._width
        H, b, c = np.zeros((m, d, d)), np.zeros((m, d)), np.zeros(m)
        ridge, centre = self._ridge(), self._pooled[1]
        for i, X, y, w in self._client_rows():
            residual = y - X @ centre
            H[i] = (w[:, None] * X).T @ X + np.diag(ridge)
            b[i] = X.T @ (w * residual) - ridge * centre
            c[i] = 0.5 * (w * residual) @ residual + 0.5 * (ridge * centre) @ centre
        return Quadratic(H, b, c, np.broadcast_to(centre, (m, d)))

    def _client_rows(self):
        """(i, X with the intercept's column, y, normalised weights) client by client, float64."""
        for i, (X, y) in enumerate(self.clients):
            w = self.clients.row_weights(i)
            X = np.asarray(X, float)
            if self.intercept:
                X = np.column_stack([X, np.ones(len(X))])
            yield i, X, np.asarray(y, float), w / (w.sum() or 1.0)

    def _buckets(self, layout):
        if layout == "rows":
            return self.clients.buckets
        everyone = np.arange(len(self))
        return (self.clients.buckets[0]._replace(clients=everyone),)

    def _build(self, bucket, dtype, layout):
        if layout != "rows":
            return _quadratic_on_device(self._moments, dtype, layout)
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
        if self._quadratic and self._width <= GRAM_LIMIT:
            for i, X, _, w in self._client_rows():
                H = (w[:, None] * X).T @ X + np.diag(self._ridge())
                L[i], mu[i] = extreme_eigenvalues(H)
            return L, mu
        for i, X, _, w in self._client_rows():
            L[i] = self.loss.curvature * _largest_eigenvalue(X * np.sqrt(w)[:, None]) + high
            mu[i] = 0.0 if self.intercept and low > 0 else low
        return L, mu

    @property
    def strongly_convex(self):
        return not self.intercept and sum(p.curvature()[0] for p in self.penalties) > 0

    def pooled_hessian(self) -> np.ndarray | None:
        """The Hessian of F where it is constant and small enough to form, else None."""
        return self._pooled[0] if self._quadratic and self._width <= GRAM_LIMIT else None

    @functools.cached_property
    def _reference(self):
        if self.pooled_hessian() is not None:
            return solve_quadratic(self, *self._pooled)
        return minimise(self) if self.convex else None


def extreme_eigenvalues(H: np.ndarray):
    """(largest, smallest) eigenvalue of symmetric matrices (..., d, d), the smallest less its rounding.

    It is 0 where rounding could have made it: a rank-deficient matrix has none of 1e-17.
    """
    if not np.isfinite(H).all():
        return np.full(H.shape[:-2], np.inf), np.zeros(H.shape[:-2])
    values = np.linalg.eigvalsh(H)
    noise = 64 * H.shape[-1] * np.finfo(float).eps * values[..., -1]
    return values[..., -1], np.maximum(values[..., 0] - noise, 0)


def _largest_eigenvalue(A: np.ndarray) -> float:
    """sigma_max(A)^2."""
    from scipy.sparse.linalg import svds

    if not A.size:
        return 0.0
    if min(A.shape) <= GRAM_LIMIT:
        gram = A.T @ A if A.shape[1] <= A.shape[0] else A @ A.T
        return float(extreme_eigenvalues(gram)[0])
    return float(svds(A, k=1, return_singular_vectors=False)[0] ** 2)


def normalised(row_weights: np.ndarray) -> np.ndarray:
    """Row weights (m, n) that sum to one per client (to zero for a client without rows)."""
    totals = row_weights.sum(1, keepdims=True)
    return row_weights / np.where(totals > 0, totals, 1)


def _quadratic_on_device(quadratic: Quadratic, dtype, layout) -> Quadratic:
    quadratic = jax.tree.map(jnp.asarray, quadratic)
    if layout == "spectrum":
        quadratic = diagonalised(quadratic)
    return jax.tree.map(lambda leaf: leaf.astype(dtype), quadratic)


def on_device(array: np.ndarray, dtype=None):
    """The array on the device: in place where its dtype allows, since clients own aligned memory."""
    if dtype is not None:
        array = array.astype(dtype, copy=False)
    return jax.device_put(array, may_alias=True)


class QuadraticProblem(Problem):
    """f_i(x) = (1/2) <x, H_i x> - <b_i, x> + c_i, given by its matrices."""

    offers = frozenset({"grad", "prox", "hessian_product"})

    def __init__(
        self, hessians, linears, constants=None, weights=None, dtype="float64", shift=None
    ):
        linears = _finite("linears", linears)
        if linears.ndim != 2:
            raise ValueError(f"linears: shape {linears.shape}; expected (clients, d)")
        m, d = linears.shape
        hessians = _finite("hessians", hessians, (m, d, d))
        symmetric = np.allclose(hessians, np.swapaxes(hessians, 1, 2))
        if not symmetric or np.linalg.eigvalsh(hessians).min() < -1e-9 * abs(hessians).max():
            raise ValueError("hessians: expected symmetric positive semi-definite matrices")
        constants = _finite("constants", np.zeros(m) if constants is None else constants, (m,))
        shift = np.zeros(d) if shift is None else shift
        self._given = Quadratic(hessians, linears, constants, np.broadcast_to(shift, (m, d)))
        placeholder = Clients.from_arrays([(np.zeros((1, d)), [0.0])] * m)
        super().__init__(placeholder, "equal", dtype)
        self.name = "quadratic"
        if weights is not None:
            weights = _finite("weights", weights, (m,))
            if (weights < 0).any() or not weights.sum() > 0:
                raise ValueError(f"weights: expected {m} numbers >= 0 with a positive sum")
            self.weights = weights / weights.sum()

    def initial(self):
        return np.zeros(self._given.linear.shape[1], self.dtype)

    def _build(self, bucket, dtype, layout):
        return _quadratic_on_device(self._given, dtype, layout)

    def _layout(self, needs):
        return "spectrum" if "prox" in needs else "moments"

    def curvature(self):
        return extreme_eigenvalues(self._given.hessian)

    def pooled_hessian(self):
        """The Hessian of F."""
        return np.tensordot(self.weights, self._given.hessian, 1)

    @functools.cached_property
    def _reference(self):
        H, b = self.pooled_hessian(), self.weights @ self._given.linear
        return solve_quadratic(self, H, self._given.shift[0] + solve(H, b)[0])


def _finite(name: str, value, shape=None) -> np.ndarray:
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected an array of numbers") from None
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name}: shape {array.shape}; expected {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: has a NaN or infinite entry")
    return array


class CustomProblem(Problem):
    """Clients with any JAX loss of one row over any pytree of parameters: see ``custom``."""

    name = "custom"
    bounded = False

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
            row, target = (self._on_device(a, self.dtype) for a in (X[0], y[0]))
            out = jax.eval_shape(self.loss, self.init, row, target)
        if not hasattr(out, "shape") or out.shape != ():
            raise ValueError(
                f"loss: returned {out} for one row; expected a scalar: the loss takes a single row, "
                "not a batch"
            )

    def _on_device(self, array, dtype):
        return on_device(array, dtype if array.dtype.kind == "f" else None)

    def initial(self):
        return self.init

    @property
    def strongly_convex(self):
        return bool(self.convex) and self.l2 > 0

    def _build(self, bucket, dtype, layout):
        return CustomObjective(
            features=self._on_device(bucket.features, dtype),
            targets=self._on_device(bucket.targets, dtype),
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


def softmax(
    clients, l2=0.0, weights="rows", intercept=False, dtype="float64", classes=None
) -> Problem:
    """f_i(x) = (1/n_i) sum_r [logsumexp(a_r x) - (a_r x)[y_r]] + (l2/2) ||x||^2.

    Labels are integers 0 .. C - 1; x has shape (d, C). ``classes`` is C; by default one more than the
    largest label of any client.
    """
    _check_labels(clients, None)
    largest = max(int(y.max()) for _, y in clients if len(y))
    classes = max(largest + 1, 2) if classes is None else classes
    if not isinstance(classes, int | np.integer) or classes < 2:
        raise ValueError(f"classes: got {classes!r}; accepted is a whole number >= 2")
    if largest >= classes:
        raise ValueError(
            f"classes: got {classes}, but a label is {largest}; labels are 0 .. classes - 1"
        )
    return _linear(clients, SoftmaxLoss(int(classes)), l2, weights, intercept, dtype, "softmax")


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
    if not _non_negative("threshold", threshold) > 0:
        raise ValueError(f"threshold: got {threshold}; accepted is a number > 0")
    loss = HuberLoss(float(threshold))
    return _linear(clients, loss, l2, weights, intercept, dtype, "huber")


def custom(
    loss: Callable, init, clients, l2=0.0, weights="rows", convex=None, dtype="float64"
) -> Problem:
    """f_i(x) = (1/n_i) sum_r loss(x, feature_row_r, target_r) + (l2/2) ||x||^2.

    ``loss`` is differentiable JAX code for **one** row and returns a scalar; ``init`` is the start, any
    pytree of arrays or scalars. ``convex=True`` opens the methods with an exact proximal step
    (PDMM, FedSplit, ...) and ``reference()``. Features may have any number of axes. The loss is compiled
    once for each function object: values that it reads from outside are those of its first use.
    """
    return CustomProblem(loss, init, clients, l2, weights, convex, dtype)


def quadratic(hessians, linears, constants=None, weights=None, dtype="float64") -> Problem:
    """f_i(x) = (1/2) <x, H_i x> - <b_i, x> + c_i from H (m, d, d), b (m, d) and c (m,)."""
    return QuadraticProblem(hessians, linears, constants, weights, dtype)


def averaging(values, dtype="float64") -> Problem:
    """f_i(x) = (1/2) ||x - values_i||^2 with equal weights: the optimum is the mean.

    ``values`` is (m,) or (m, d); x has shape (d,).
    """
    values = _finite("values", values)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not values.size:
        raise ValueError(f"values: shape {values.shape}; expected (clients,) or (clients, d)")
    identity = np.broadcast_to(np.eye(values.shape[1]), (len(values), *[values.shape[1]] * 2))
    mean = values.mean(0)
    apart = values - mean
    constants = 0.5 * (apart**2).sum(1)
    return QuadraticProblem(identity, apart, constants, dtype=dtype, shift=mean)


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
