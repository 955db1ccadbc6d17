"""What is checked before anything is compiled; every refusal is one sentence."""

import dataclasses
import difflib
from contextlib import contextmanager

import numpy as np

from accord.core.contract import FUNCTIONS
from accord.core.ranges import check_hyperparameters


def check_algorithm(algorithm) -> None:
    """Raises where something is not an algorithm of the contract."""
    if isinstance(algorithm, type):
        raise TypeError(
            f"algorithm: got the class {algorithm.__name__}; give an instance: {algorithm.__name__}()"
        )
    name = type(algorithm).__name__
    if not dataclasses.is_dataclass(algorithm):
        raise TypeError(
            f"algorithm: got {name}, which is not a dataclass; an algorithm is a frozen dataclass with "
            f"the functions {', '.join(FUNCTIONS)}"
        )
    if not getattr(algorithm, "__dataclass_params__").frozen:  # noqa: B009
        raise TypeError(
            f"algorithm: {name} is not frozen; decorate it with @dataclass(frozen=True)"
        )
    if not isinstance(getattr(algorithm, "needs", frozenset()), frozenset | set):
        raise TypeError(f"{name}.needs: expected a set of names such as frozenset({{'grad'}})")
    absent = [
        f for f in ("init_server", "client", "server") if not callable(getattr(algorithm, f, None))
    ]
    if absent:
        raise TypeError(f"algorithm: {name} lacks the function {absent[0]}; see accord.Algorithm")
    check_hyperparameters(algorithm)
    oracle = getattr(algorithm, "oracle", None)
    usable = callable(oracle) and hasattr(oracle, "init") and not isinstance(oracle, type)
    if oracle is not None and not usable:
        raise TypeError(
            f"{name}(oracle=...): got {oracle!r}; accepted is a local solver such as "
            "accord.oracles.GradientDescent()"
        )


def check_fit(algorithm, problem, partial: bool) -> None:
    """Raises where the problem lacks what the method needs, or forbids absent clients."""
    name = type(algorithm).__name__
    lacking = sorted(algorithm.needs - problem.offers)
    if lacking:
        advice = {
            "prox": "it is not known to be convex: say convex=True if it is, or take GPDMM, AGPDMM, "
            "SCAFFOLD or an oracle of gradient steps",
            "minibatch": "it has no rows to draw from: use full gradients",
        }.get(lacking[0], "take another method")
        raise ValueError(
            f"{name} needs {lacking[0]!r}, which the problem {problem.name!r} does not offer "
            f"(it offers {', '.join(sorted(problem.offers))}): {advice}"
        )
    if problem.regulariser is not None and not algorithm.proximal:
        raise ValueError(
            f"problem: l1 > 0 wants a proximal step at the server, which {name} does not have; take Newton, "
            "PDMM, FedSplit, ADMM, GPDMM, AGPDMM or GradientDescent, or l1=0"
        )
    oracle = getattr(algorithm, "oracle", None)
    if getattr(oracle, "stateful", False) and not algorithm.oracle_memory:
        raise ValueError(
            f"oracle: {type(oracle).__name__} carries its gradient estimate from one call to the next, "
            f"which {name} has no room for; use it with FedPD or ADMM"
        )
    absent = algorithm.absent
    if partial and absent is None:
        raise ValueError(
            f"participation: {name} is only defined with every client in every round; "
            "use participation=1.0, or another method"
        )
    unknown = set(_rules(absent)) - {"latest", "participants"} if absent is not None else set()
    if unknown:
        raise ValueError(
            f"{name}.absent: got {unknown.pop()!r}; accepted are 'latest', 'participants', a tree of these "
            "in the message's structure, or None"
        )
    if partial and "latest" in _rules(absent) and not hasattr(algorithm, "init_message"):
        raise ValueError(
            f"participation: {name} averages over every client's latest message but has no "
            "init_message(x) to stand for a client not heard yet; define it, or use participation=1.0"
        )


def _rules(absent) -> list:
    if not isinstance(absent, dict | tuple | list):
        return [absent]
    parts = absent.values() if isinstance(absent, dict) else absent
    return [rule for part in parts for rule in _rules(part)]


def is_number(value) -> bool:
    """Whether a value is one real number, as which True and False do not count."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def closest(name: str, known, what: str) -> str:
    """A sentence that refuses an unknown name and proposes the closest known ones."""
    near = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.4)
    by_lower = {k.lower(): k for k in known}
    hint = f"; did you mean {by_lower[near[0]]}?" if near else ""
    return f"{what}: there is no {name!r}{hint} (known: {', '.join(known)})"


@contextmanager
def named(algorithm, function: str):
    """Names the function of an algorithm in which something fails before compiling."""
    try:
        yield
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise ValueError(
            f"{type(algorithm).__name__}.{function} fails on one client: {type(error).__name__}: {first}; "
            'engine="debug" runs it uncompiled'
        ) from error


def check_same(function: str, what: str, old, new) -> None:
    """Raises where a function returned another structure, shape or dtype than it was given."""
    import jax
    import jax.numpy as jnp

    given, returned = str(jax.tree.structure(old)), str(jax.tree.structure(new))
    if given != returned:
        raise ValueError(
            f"{function}: returned a {what} of structure {returned}; expected {given}, as it was given"
        )
    for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
        a, b = jnp.asarray(a), jnp.asarray(b)
        exact = jnp.issubdtype(a.dtype, jnp.integer) and jnp.issubdtype(b.dtype, jnp.integer)
        if a.shape != b.shape or (a.dtype != b.dtype and not exact):
            raise ValueError(
                f"{function}: returned a {what} with {b.dtype}{b.shape} where it was given "
                f"{a.dtype}{a.shape}; keep shapes and dtypes"
            )
