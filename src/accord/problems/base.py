"""What every problem shares: its layout on the device, F and its derivatives, the reference optimum."""

import copy
import dataclasses
import functools
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import flatten_util

from accord import tree
from accord.core.checks import is_number
from accord.core.messages import everyone
from accord.data.clients import Clients
from accord.objectives import Quadratic
from accord.reference import Reference, minimise


class Prepared(NamedTuple):
    """A problem laid out for an engine, one entry per bucket of clients."""

    objectives: tuple[Any, ...]
    weights: tuple[Any, ...]
    clients: tuple[Any, ...]
    regulariser: Any = None


class Problem:
    """minimise F(x) = sum_i w_i f_i(x) + h(x).

    Attributes: ``clients``; ``weights`` (m,), summing to one; ``dtype``; ``convex`` (True, False, or
    None where it is not known); ``offers``, the names of what its objectives can do; ``regulariser``: h,
    which the server alone meets, or None.
    """

    convex: bool | None = True
    offers = frozenset({"grad", "prox", "hessian_product", "second_derivative", "minibatch"})
    name = "problem"
    regulariser: Any = None
    bounded = True
    """Whether ``curvature`` has bounds from the data."""

    def __init__(self, clients: Clients, weights: str, dtype: str):
        if not isinstance(clients, Clients):
            raise TypeError(
                f"clients: expected accord.Clients, got {type(clients).__name__}; "
                "build them with accord.Clients.from_arrays([(X_1, y_1), ...])"
            )
        self.clients = clients
        self.dtype = checked_dtype(dtype)
        self.weights = self._client_weights(weights)
        self._prepared: dict[Any, Prepared] = {}

    def reweighted(self, weights: np.ndarray) -> "Problem":
        """The same clients with other weights (m,), which are brought to a sum of one."""
        new = copy.copy(self)
        for name in ("_reference", "_constants", "_pooled", "_moments"):
            new.__dict__.pop(name, None)
        new._prepared = {}
        new.weights = weights / weights.sum()
        return new

    def without_regulariser(self) -> "Problem":
        """The smooth part of F, as a problem of its own."""
        if self.regulariser is None:
            return self
        smooth = copy.copy(self)
        smooth.__dict__.pop("_reference", None)
        smooth.regulariser = None
        smooth._prepared = {k: p._replace(regulariser=None) for k, p in self._prepared.items()}
        return smooth

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

    def __repr__(self) -> str:
        return f"Problem({self.name}, {self.dtype}, {self.clients})"

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
        layout, dtype = self._layout(frozenset(needs)), checked_dtype(dtype or self.dtype)
        if (layout, dtype) not in self._prepared:
            with jax.enable_x64(True):
                buckets = self._buckets(layout)
                self._prepared[layout, dtype] = Prepared(
                    tuple(self._build(b, dtype, layout) for b in buckets),
                    tuple(jnp.asarray(self.weights[b.clients], dtype) for b in buckets),
                    tuple(jnp.asarray(b.clients, "uint32") for b in buckets),
                    jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), self.regulariser),
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
        """grad F(x), in the structure of x, as NumPy arrays; the least subgradient where F has h."""
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
        """(F(x), grad F(x)), as NumPy values; the least subgradient where F has h."""
        return self.survey(x)[:2]

    def survey(self, x) -> tuple[float, Any, float]:
        """(F(x), grad F(x), dissimilarity): the last is max_i ||grad f_i(x) - grad (F - h)(x)|| over the
        clients of positive weight.
        """
        with jax.enable_x64(True):
            prepared = self.prepare()
            seen = _survey(
                prepared.objectives, prepared.weights, self._cast(x), prepared.regulariser
            )
            return jax.tree.map(np.asarray, seen)

    def hessian_product(self, x, direction) -> Any:
        """The Hessian of F at x applied to a direction."""
        with jax.enable_x64(True):
            prepared = self.prepare()
            args = prepared.objectives, prepared.weights, self._cast(x), self._cast(direction)
            return jax.tree.map(np.asarray, _hessian_product(*args))

    def hessian(self, x) -> np.ndarray:
        """The Hessian of F, of its smooth part, at x over the raveled parameters (P, P)."""
        with jax.enable_x64(True):
            prepared = self.prepare()
            return np.asarray(_hessian(prepared.objectives, prepared.weights, self._cast(x)))

    def derivatives(self, x, second: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """(grad F, its rounding, the Hessian of the smooth part), float64, for losses of a predictor.

        The gradient is the least subgradient where F has h; ``rounding`` is how far its entries can be off as
        they are computed, in units of the precision; the Hessian, over the raveled parameters, is None
        unless ``second``.
        """
        with jax.enable_x64(True):
            prepared = self.prepare()
            args = prepared.objectives, prepared.weights, self._cast(x), second
            gradient, rounding, H = _derivatives(*args)
            gradient = with_regulariser(self._cast(x), 0.0, gradient, prepared.regulariser)[1]
            return _double(gradient), _double(rounding), _double(H) if second else None

    def least_hessian(self, x, spread, radius: float) -> np.ndarray:
        """A lower bound, as a matrix, on the Hessian within a ball around x, summed over the clients.

        See ``LinearObjective.least_second_derivative``.
        """
        with jax.enable_x64(True):
            prepared = self.prepare()
            ball = self._cast(x), self._cast(spread), radius
            return _double(_least_hessian(prepared.objectives, prepared.weights, *ball))

    @property
    def quadratic(self) -> bool:
        """Whether every f_i is a quadratic."""
        return self.quadratics() is not None

    def quadratics(self) -> Quadratic | None:
        """Every f_i as a quadratic, stacked NumPy arrays; None where they are none."""
        return None

    def pooled_hessian(self) -> np.ndarray | None:
        """The Hessian of F where it is constant and small enough to form, else None."""
        return None

    def _cast(self, x):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, self.dtype), x)

    @property
    def strongly_convex(self) -> bool:
        """Whether the penalties alone make every f_i strongly convex."""
        return False

    @functools.cached_property
    def _reference(self) -> Reference | None:
        return minimise(self) if self.convex else None

    def reference(self) -> Reference | None:
        """The minimiser of F by an independent solver, found once; None unless F is known convex.

        L-BFGS, then Newton's method to ||grad F|| <= 1e-12 (relative to the clients' gradients there);
        least squares by its normal equations; with l1, Newton's method on the entries that are not zero.
        Raises ``ValueError`` where no minimiser is found, as for separable classes without l2.
        """
        return self._reference


def checked_dtype(dtype) -> str:
    """The name of a supported dtype; raises ``ValueError`` for another."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in ("float64", "float32"):
        raise ValueError(f'dtype: got {name}; accepted are "float64" and "float32"')
    return name


def non_negative(name: str, value: float) -> float:
    """A finite number >= 0; raises ``ValueError`` naming the argument for anything else."""
    if not is_number(value) or not np.isfinite(value) or value < 0:
        raise ValueError(f"{name}: got {value!r}; accepted is a finite number >= 0")
    return float(value)


def positive(name: str, value: float) -> float:
    """A finite number > 0; raises ``ValueError`` naming the argument for anything else."""
    if not is_number(value) or not np.isfinite(value) or value <= 0:
        raise ValueError(f"{name}: got {value!r}; accepted is a finite number > 0")
    return float(value)


def _trimmed(objective, rows: int):
    """A single client's objective with the padding after ``rows`` cut off."""
    if not hasattr(objective, "features"):
        return objective
    names = ("features", "targets", "row_weights")
    return dataclasses.replace(objective, **{n: getattr(objective, n)[:rows] for n in names})


@jax.jit
def _client_gradients(objectives, x):
    return [jax.vmap(lambda o: o.grad(x))(o) for o in objectives]


def value_and_client_gradients(objectives, x):
    """(f_i(x), grad f_i(x)) per bucket, each with a leading client axis."""
    return [jax.vmap(lambda o: (o.value(x), o.grad(x)))(o) for o in objectives]


def with_regulariser(x, value, gradient, regulariser):
    """(F(x), its least subgradient) from the value and gradient of the smooth part."""
    if regulariser is None:
        return value, gradient
    return value + regulariser.value(x), regulariser.least_subgradient(x, gradient)


@jax.jit
def _survey(objectives, weights, x, regulariser):
    stacks = value_and_client_gradients(objectives, x)
    value, gradient = everyone(stacks, weights)
    largest: Any = 0.0
    for w, (_, own) in zip(weights, stacks, strict=True):
        apart = jax.tree.leaves(jax.tree.map(lambda a, b: a - b, own, gradient))
        squares = sum((leaf.reshape(len(w), -1) ** 2).sum(1) for leaf in apart)
        largest = jnp.maximum(largest, jnp.max(jnp.where(w > 0, squares, 0)))
    return *with_regulariser(x, value, gradient, regulariser), jnp.sqrt(largest)


@jax.jit
def _hessian_product(objectives, weights, x, direction):
    stacks = [jax.vmap(lambda o: o.hessian_product(x, direction))(o) for o in objectives]
    return everyone(stacks, weights)


@jax.jit
def _hessian(objectives, weights, x):
    flat, unravel = flatten_util.ravel_pytree(x)

    def product(v):
        image = _hessian_product(objectives, weights, x, unravel(v))
        return flatten_util.ravel_pytree(image)[0]

    return jax.lax.map(product, jnp.eye(flat.size, dtype=flat.dtype), batch_size=16)


def summed(function, objectives, weights):
    """sum_i w_i function(f_i), one client after another: matrices of all clients would be too many."""

    def add(total, client):
        objective, w = client
        return tree.add_scaled(total, w, function(objective)), None

    first = jax.tree.map(lambda leaf: leaf[0], objectives[0])
    shapes = jax.eval_shape(function, first)
    total = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    for objective, w in zip(objectives, weights, strict=True):
        total, _ = jax.lax.scan(add, total, (objective, w))
    return total


@partial(jax.jit, static_argnums=3)
def _derivatives(objectives, weights, x, second):
    def seen(o):
        return o.grad(x), o.rounding(x), o.second_derivative(x) if second else 0.0

    return summed(seen, objectives, weights)


@jax.jit
def _least_hessian(objectives, weights, x, spread, radius):
    return summed(lambda o: o.least_second_derivative(x, spread, radius), objectives, weights)


def _double(array) -> np.ndarray:
    return np.asarray(array, float)


def normalised(row_weights: np.ndarray) -> np.ndarray:
    """Row weights (m, n) that sum to one per client (to zero for a client without rows)."""
    totals = row_weights.sum(1, keepdims=True)
    return row_weights / np.where(totals > 0, totals, 1)


def on_device(array: np.ndarray, dtype=None):
    """The array on the device: in place where its dtype allows, since clients own aligned memory."""
    if dtype is not None:
        array = array.astype(dtype, copy=False)
    return jax.device_put(array, may_alias=True)


def finite_numbers(name: str, value, shape=None) -> np.ndarray:
    """A finite float array, of the shape if one is given; raises ``ValueError`` naming the argument."""
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected an array of numbers") from None
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name}: shape {array.shape}; expected {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: has a NaN or infinite entry")
    return array
