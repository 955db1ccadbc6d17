"""Problems whose losses are of a linear predictor."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from accord.objectives import Lasso, LinearObjective, Quadratic, Ridge, SoftmaxLoss, SquaredLoss
from accord.problems.base import Problem, normalised, on_device
from accord.problems.quadratic import quadratic_on_device
from accord.problems.spectra import GRAM_LIMIT, extreme_eigenvalues, largest_eigenvalue
from accord.reference import minimise, minimise_regularised, solve, solve_quadratic

_MOMENTS_LIMIT = 2**26
"""The most numbers that the d x d matrices of all clients may hold together."""


class LinearProblem(Problem):
    """Clients with a loss of a linear predictor: see the functions of this module."""

    def __init__(self, clients, loss, penalties, weights, intercept, dtype, name, l1=0.0):
        super().__init__(clients, weights, dtype)
        if len(clients.features) != 1:
            raise ValueError(
                f"clients: features have shape {clients.features}; a linear predictor wants one "
                "axis of features: flatten them, or use accord.problems.custom"
            )
        self.loss, self.penalties, self.intercept, self.name = loss, penalties, intercept, name
        self.regulariser = Lasso(l1, intercept) if l1 else None
        self.convex = sum(p.curvature()[0] for p in penalties) >= 0
        if not self.convex:
            self.offers = self.offers - {"prox"}
        self.bounded = loss.curvature is not None

    def initial(self):
        length = self.clients.features[0] + self.intercept
        classes = getattr(self.loss, "classes", None)
        return np.zeros((length,) if classes is None else (length, classes), self.dtype)

    @property
    def quadratic(self) -> bool:
        """Whether every f_i is a quadratic."""
        return isinstance(self.loss, SquaredLoss) and all(
            isinstance(p, Ridge) for p in self.penalties
        )

    @property
    def _width(self) -> int:
        return self.clients.features[0] + self.intercept

    def _layout(self, needs):
        if "minibatch" in needs or not self.quadratic or not self._has_moments:
            return "rows"
        if "prox" in needs:
            return "spectrum"
        return "moments" if 2 * self._width <= self.clients.rows / len(self) else "rows"

    @property
    def _has_moments(self) -> bool:
        return self._width <= GRAM_LIMIT and len(self) * self._width**2 <= _MOMENTS_LIMIT

    def _ridge(self):
        """The penalties' diagonal: l2, and 0 for the intercept."""
        penalised = np.arange(self._width) < self.clients.features[0]
        return sum(p.l2 for p in self.penalties) * penalised

    @functools.cached_property
    def _grams(self):
        """(A_i' W_i A_i, A_i' W_i y_i) of every client, stacked; A_i with the intercept's column."""
        m, d = len(self), self._width
        H, b = np.zeros((m, d, d)), np.zeros((m, d))
        for i, X, y, w in self._client_rows():
            weighted = w[:, None] * X
            H[i], b[i] = weighted.T @ X, weighted.T @ y
        return H, b

    @functools.cached_property
    def _pooled(self):
        """(Hessian of F, minimiser by the normal equations) of a least-squares problem."""
        if self._has_moments:
            H, b = (np.tensordot(self.weights, part, 1) for part in self._grams)
        else:
            H, b = np.zeros((self._width, self._width)), np.zeros(self._width)
            for i, X, y, w in self._client_rows():
                weighted = self.weights[i] * w[:, None] * X
                H, b = H + weighted.T @ X, b + weighted.T @ y
        H = H + np.diag(self._ridge())
        return H, solve(H, b)[0]

    @functools.cached_property
    def _moments(self) -> Quadratic:
        """Every client's quadratic, expanded around the pooled solution."""
        m, d = len(self), self._width
        b, c = np.zeros((m, d)), np.zeros(m)
        ridge, centre = self._ridge(), self._pooled[1]
        for i, X, y, w in self._client_rows():
            residual = y - X @ centre
            b[i] = X.T @ (w * residual) - ridge * centre
            c[i] = 0.5 * (w * residual) @ residual + 0.5 * (ridge * centre) @ centre
        H = self._grams[0] + np.diag(ridge)
        return Quadratic(H, b, c, np.broadcast_to(centre, (m, d)))

    def quadratics(self):
        """Every f_i as a quadratic, for least squares."""
        return self._moments if self.quadratic and self._has_moments else None

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
            return quadratic_on_device(self._moments, dtype, layout)
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
        if self.quadratic and self._width <= GRAM_LIMIT:
            for i, X, _, w in self._client_rows():
                H = (w[:, None] * X).T @ X + np.diag(self._ridge())
                L[i], mu[i] = extreme_eigenvalues(H)
            return L, mu
        for i, X, _, w in self._client_rows():
            L[i] = self.loss.curvature * largest_eigenvalue(X * np.sqrt(w)[:, None]) + high
            mu[i] = 0.0 if self.intercept and low > 0 else low
        return L, mu

    @property
    def strongly_convex(self):
        return not self.intercept and sum(p.curvature()[0] for p in self.penalties) > 0

    def pooled_hessian(self) -> np.ndarray | None:
        """The Hessian of F where it is constant and small enough to form, else None."""
        return self._pooled[0] if self.quadratic and self._width <= GRAM_LIMIT else None

    @functools.cached_property
    def _reference(self):
        if not self.convex:
            return None
        if self.regulariser is not None:
            return minimise_regularised(self)
        if self.pooled_hessian() is not None:
            return solve_quadratic(self, *self._pooled)
        return minimise(self)
