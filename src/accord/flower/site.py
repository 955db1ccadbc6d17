"""What one data holder computes: sums at a model, and its part of a round."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from accord.algorithms import REGISTRY
from accord.analysis.fit import encoded_clients, make_problem, report_of
from accord.analysis.local import local_models
from accord.analysis.model import Model
from accord.analysis.schema import Schema
from accord.analysis.summaries import Request, summarise
from accord.core import keys, parameters
from accord.data.sites import Site
from accord.flower.shapes import Shapes
from accord.flower.wire import rebuilt
from accord.problems import Problem
from accord.theory import constants


class Table:
    """A site whose rows are a table: the server's plan says how they become a problem."""

    def __init__(self, frame):
        self.frame = frame

    def card(self, about: dict[str, Any]) -> dict[str, Any]:
        """What the site says of itself at first: its summary, and nothing of single rows."""
        request = Request.from_json(about["request"])
        summary = summarise(self.frame, request)
        return {"rows": summary.rows, "summary": summary.to_json()}

    def problem(self, plan: dict[str, Any]) -> Problem:
        schema = Schema.from_json(plan["schema"])
        clients = encoded_clients(schema, [Site("rows", self.frame)])
        return make_problem(schema, clients, plan["l1"], plan["l2"], plan["threshold"])


class Own:
    """A site with a problem of the user's own, of one client."""

    def __init__(self, problem: Problem):
        if not isinstance(problem, Problem) or len(problem) != 1:
            raise TypeError(
                f"objective: got {problem!r}; accepted is a problem of accord.problems with one client"
            )
        self._problem = problem

    def card(self, about: dict[str, Any]) -> dict[str, Any]:
        p = self._problem
        return {
            "rows": int(p.clients.rows),
            "name": p.name,
            "convex": p.convex,
            "offers": sorted(p.offers),
            "dtype": p.dtype,
            "strongly_convex": bool(p.strongly_convex),
            "quadratic": bool(p.quadratic),
            "bounded": bool(p.bounded),
            "l2": float(getattr(p, "l2", 0.0)),
        }

    def problem(self, plan: dict[str, Any]) -> Problem:
        return self._problem


class Step(NamedTuple):
    """A client's part of a round: its next ``state``, the ``message`` and numbers about it; ``value`` and
    ``gradient`` of its f_i at the server's model, or None where they were not asked for."""

    state: Any
    message: Any
    info: dict[str, float]
    value: Any
    gradient: Any


class Worker:
    """A site's problem and the methods that run on it."""

    def __init__(self, problem: Problem, classes: Mapping[str, type] = REGISTRY):
        self.problem, self._classes = problem, classes
        self._method: tuple[str, Any] = ("", None)
        self.x = jax.tree.map(np.asarray, problem.initial())

    def _objective(self, algorithm):
        """The site's f_i, laid out for the method, with a client axis of length one."""
        return self.problem.prepare(algorithm.needs).objectives[0]

    def method(self, text: str) -> tuple[Any, Shapes]:
        """The algorithm that a text describes, and the shapes of what it sends and keeps."""
        if self._method[0] != text:
            algorithm = rebuilt(json.loads(text), self._classes)
            self._method = text, (algorithm, Shapes(algorithm, self.x))
        return self._method[1]

    def first_state(self, algorithm, x):
        """The client's state before its first round."""
        with jax.enable_x64(True):
            numbers, structure = parameters.split(algorithm)
            start = _first(structure, numbers, _on_device(x), self._objective(algorithm))
            return jax.tree.map(np.asarray, start)

    def step(
        self, algorithm, state, inbox, model, seed: int, round_: int, client: int, measured: bool
    ):
        """One round as client number ``client`` of all."""
        numbers, structure = parameters.split(algorithm)
        objective = self._objective(algorithm)
        with jax.enable_x64(True):
            out = _step(
                structure, measured, numbers, _on_device(state), _on_device(inbox), _on_device(model),
                objective, seed, round_, np.uint32(client),
            )  # fmt: skip
            state, message, info, value, gradient = jax.tree.map(np.asarray, out)
        info = {name: float(number) for name, number in info.items()}
        return Step(state, message, info, value, gradient)

    def survey(self, x) -> tuple[float, Any]:
        """f_i(x) and its gradient."""
        value, gradient, _ = self.problem.without_regulariser().survey(x)
        return float(value), gradient

    def constants(self) -> dict[str, Any]:
        """L_i and mu_i; whether L_i is but an estimate on a path of this client's own."""
        own = self.problem.without_regulariser()
        bounds = own.curvature()
        if bounds is not None:
            return {"L": float(bounds[0][0]), "mu": float(bounds[1][0]), "estimated": False}
        c = constants(own)
        return {"L": float(c.client_smoothness[0]), "mu": c.strong_convexity, "estimated": True}

    def report(self, model: Model, compare_local: bool) -> dict[str, Any]:
        """The counts of a joint model, and of one of these rows alone."""
        X, y = self.problem.clients[0]
        own = local_models(self.problem)[0] if compare_local else None
        told = report_of(model, "", X, y, own)
        return {"joint": told.joint, "own": told.own}


def check_batches(algorithm, least: float) -> None:
    """Raises for a method whose minibatches have fewer rows than a site lets its gradients be of."""
    for part in (algorithm, getattr(algorithm, "oracle", None)):
        batch = getattr(part, "batch_size", None)
        if batch is not None and batch < least:
            raise ValueError(
                f"batch_size: got {batch}; gradients that leave this site are of {least:g} rows or more "
                "(least-batch in its node configuration)"
            )


def _on_device(tree):
    return jax.tree.map(jnp.asarray, tree)


@partial(jax.jit, static_argnums=0)
def _first(structure, numbers, x, objective):
    algorithm = parameters.join(numbers, structure)
    return algorithm.init_client(x, jax.tree.map(lambda leaf: leaf[0], objective))


@partial(jax.jit, static_argnums=(0, 1))
def _step(structure, measured, numbers, state, inbox, model, objective, seed, round_, client):
    algorithm = parameters.join(numbers, structure)
    objective = jax.tree.map(lambda leaf: leaf[0], objective)
    key = keys.client_key(keys.round_key(keys.run_key(seed), round_), client)
    new, message, info = algorithm.client(state, inbox, objective, key)
    new = jax.tree.map(lambda a, b: jnp.asarray(a).astype(b.dtype), new, state)
    told = {name: info[name] for name in ("gradients", "iterations") if name in info}
    if not measured:
        return new, message, told, None, None
    return new, message, told, objective.value(model), objective.grad(model)
