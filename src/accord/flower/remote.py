"""A problem whose rows stay at the sites: what is asked of it are sums that the sites are asked for."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from accord import tree
from accord.flower.sites import finite
from accord.flower.wire import RefusedError, flatten
from accord.problems import Problem, with_regulariser
from accord.theory import DENSE_LIMIT

WEIGHTS = ("rows", "equal")

_REMEMBERED = 8
"""Answers that are remembered: about the last models."""


class RemoteClients(NamedTuple):
    """The clients of a remote problem: their names and numbers of rows."""

    names: tuple[str, ...]
    sizes: np.ndarray

    @property
    def rows(self) -> int:
        """The rows of all clients."""
        return int(self.sizes.sum())


class RemoteProblem(Problem):
    """minimise F(x) = sum_i w_i f_i(x) + h(x), where every f_i lives at its site.

    ``template`` is a problem of the same kind with other rows, for everything but sums over rows: shapes,
    penalties, the loss. ``rows`` are the clients' numbers of rows by name. ``ask(what, about, arrays, like)``
    asks every site and gives ``{name: (about, trees)}``, the trees by the names that ``like`` gives to their
    shapes. Answers are remembered for the last models.
    """

    def __init__(self, template, rows: dict[str, int], ask: Callable, weights: str = "rows"):
        self._template, self._ask = template, ask
        self._answers: dict[tuple, Any] = {}
        self.clients: Any = RemoteClients(tuple(rows), np.array(list(rows.values())))
        if weights not in WEIGHTS:
            raise ValueError(f'weights: got {weights!r}; accepted are "rows" and "equal"')
        sizes = self.clients.sizes.astype(float)
        totals = sizes if weights == "rows" else (sizes > 0).astype(float)
        if not totals.sum():
            raise ValueError("clients: no site has a row")
        self.weights = totals / totals.sum()
        self.dtype, self.name, self.convex = template.dtype, template.name, template.convex
        self.offers, self.regulariser = template.offers, template.regulariser
        self.bounded = template.bounded
        self._prepared: dict[Any, Any] = {}

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._template, name)

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        return f"Problem({self.name}, {self.dtype}, {len(self)} sites, {self.clients.rows} rows)"

    def initial(self):
        return self._template.initial()

    @property
    def quadratic(self) -> bool:
        return self._template.quadratic

    @property
    def strongly_convex(self) -> bool:
        return self._template.strongly_convex

    def without_regulariser(self) -> "Problem":
        if self.regulariser is None:
            return self
        smooth = copy.copy(self)
        smooth.regulariser = None
        return smooth

    def survey(self, x):
        told = self._sums("survey", x, {}, {"gradient": self.initial()})
        values = np.array([about["value"] for about, _ in told])
        return self._surveyed(x, values, [trees["gradient"] for _, trees in told])

    def _surveyed(self, x, values, gradients) -> tuple[float, Any, float]:
        value = float(self.weights @ values)
        gradient = jax.tree.map(
            lambda *leaves: np.tensordot(self.weights, np.stack(leaves), 1), *gradients
        )
        apart = [
            float(tree.norm(tree.subtract(own, gradient)))
            for own, w in zip(gradients, self.weights, strict=True)
            if w > 0
        ]
        if self.regulariser is not None:
            with jax.enable_x64(True):
                value, gradient = jax.tree.map(
                    np.asarray, with_regulariser(x, value, gradient, self.regulariser)
                )
        return float(value), gradient, max(apart)

    def remember_survey(self, x, told: dict[str, tuple[dict, Any]]) -> None:
        """Keeps what the clients told of f_i(x) in a round, by name, as an answer to ``survey``."""
        self._keep(self._key("survey", x, {}), [told[name] for name in self.clients.names])

    def client_gradients(self, x):
        told = self._sums("survey", x, {}, {"gradient": self.initial()})
        return jax.tree.map(lambda *g: np.stack(g), *(trees["gradient"] for _, trees in told))

    def derivatives(self, x, second: bool):
        like = {"gradient": np.zeros(np.shape(x)), "rounding": np.zeros(np.shape(x))}
        if second:
            like["hessian"] = np.zeros((np.size(x), np.size(x)))
        key = self._key("derivatives", x, {"second": second})
        if key not in self._answers:
            # Sums are remembered, not what they are made of: matrices of all sites would be too many.
            told = self._told("derivatives", x, {"second": second}, like)
            self._keep(key, self._total(told))
        sums = self._answers[key]
        gradient = sums["gradient"]
        if self.regulariser is not None:
            with jax.enable_x64(True):
                gradient = np.asarray(with_regulariser(x, 0.0, gradient, self.regulariser)[1])
        return gradient, sums["rounding"], sums.get("hessian")

    def hessian(self, x):
        return self.derivatives(x, True)[2]

    def least_hessian(self, x, spread, radius: float):
        like = {"least": np.zeros((np.size(x), np.size(x)))}
        ball = {"spread": np.asarray(spread)}
        return self._total(self._told("least", x, {"radius": float(radius)}, like, ball))["least"]

    def curvature(self):
        told = self._constants()
        if any(about["estimated"] for about in told):
            return None
        return tuple(np.array([about[name] for about in told]) for name in ("L", "mu"))

    def local_smoothness(self) -> np.ndarray:
        """Every client's own estimate of L_i, on a path of its own."""
        return np.array([about["L"] for about in self._constants()])

    def pooled_hessian(self):
        if not self.quadratic or np.size(self.initial()) > DENSE_LIMIT:
            return None
        return self.hessian(self.initial())

    def _constants(self):
        return [about for about, _ in self._sums("constants", None, {}, {}, _check_constants)]

    def _total(self, told) -> dict[str, np.ndarray]:
        total = {name: np.zeros_like(part) for name, part in told[0][1].items()}
        for weight, (_, parts) in zip(self.weights, told, strict=True):
            for name, part in parts.items():
                total[name] += weight * part
        return total

    def _told(self, what: str, x, about, like, arrays=None, check=lambda told: None):
        """Every client's answer, in client order."""
        sent = {} if x is None else flatten(jax.tree.map(np.asarray, x), "x")
        told = self._ask(what, about, sent | (arrays or {}), like, check)
        return [told[name] for name in self.clients.names]

    def _sums(self, what: str, x, about, like, check=lambda told: None):
        """The same, remembered."""
        key = self._key(what, x, about)
        if key not in self._answers:
            self._keep(key, self._told(what, x, about, like, check=check))
        return self._answers[key]

    def _key(self, what: str, x, about):
        leaves = (
            () if x is None else tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(x))
        )
        return what, leaves, tuple(about.items())

    def _keep(self, key, answers) -> None:
        self._answers.pop(key, None)
        self._answers[key] = answers
        while len(self._answers) > _REMEMBERED:
            # Answers about the problem itself stay.
            self._answers.pop(next(k for k in self._answers if k[0] != "constants"))


def _check_constants(told: dict[str, Any]) -> None:
    """Raises for what cannot be bounds on a client's curvature."""
    L, mu = finite(told.get("L"), "L"), told.get("mu")
    if L < 0 or type(told.get("estimated")) is not bool:
        raise RefusedError(f"its L is {L!r}, estimated {told.get('estimated')!r}")
    if mu is not None and not 0 <= finite(mu, "mu") <= L * (1 + 1e-9):
        raise RefusedError(f"its mu is {mu!r}, its L {L!r}")
