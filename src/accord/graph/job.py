"""What a graph run needs before its first round: checked, resolved and cast."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from accord.engines.job import checked_start, reference_is_cheap
from accord.graph import activation as waking
from accord.graph import coupling
from accord.graph.defaults import resolve
from accord.graph.mixing import DGD, EXTRA, Gossip, GradientTracking
from accord.graph.network import Network
from accord.graph.pdmm import PDMM
from accord.graph.reference import (
    NetworkReference,
    consensus_reference,
    kkt_reference,
    node_factors,
)
from accord.problems import Problem
from accord.problems.base import checked_dtype
from accord.problems.quadratic import AveragingProblem
from accord.theory import scaled

METHODS = {m.__name__: m for m in (PDMM, DGD, EXTRA, GradientTracking, Gossip)}


class GraphJob(NamedTuple):
    """A run that is ready to start.

    ``method`` has no ``None`` left; ``x0`` stacks the start of every node; ``waking``, ``losses`` and
    ``outages`` are parsed; ``arrays`` are the constraints, None for consensus; ``reference`` is the
    optimum, or None.
    """

    method: Any
    network: Any
    problem: Any
    seed: int
    dtype: str
    x0: Any
    waking: waking.Waking
    losses: waking.Losses
    outages: Any
    broadcast: bool
    arrays: Any
    reference: NetworkReference | None


def make_job(
    method,
    network,
    problem,
    rounds: int,
    seed: int = 0,
    activation="synchronous",
    loss_probability=0.0,
    *,
    communication: str = "unicast",
    outages=(),
    weights: str = "equal",
    x0=None,
    dtype: str | None = None,
    reference: bool | None = None,
) -> GraphJob:
    """Checks everything that can be checked before compiling, and fills in the defaults."""
    _check_kinds(method, network, problem)
    if reference not in (None, True, False):
        raise TypeError(f"reference: got {reference!r}; accepted are True, False and None")
    with jax.enable_x64(True):
        return _make_job(
            method, network, _weighed(problem, weights), rounds, seed, activation, loss_probability,
            communication, outages, x0, dtype, reference,
        )  # fmt: skip


def _check_kinds(method, network, problem) -> None:
    if isinstance(method, type):
        raise TypeError(
            f"algorithm: got the class {method.__name__}; give an instance: {method.__name__}()"
        )
    if not hasattr(method, "on_edges"):
        raise TypeError(
            f"algorithm: got {type(method).__name__}; accepted are those of accord.graph: "
            f"{', '.join(METHODS)}"
        )
    if not isinstance(network, Network):
        raise TypeError(f"network: expected accord.graph.Network, got {type(network).__name__}")
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem: expected one made by accord.problems, got {type(problem).__name__}"
        )
    if problem.regulariser is not None:
        raise ValueError(
            "problem: l1 is met by a server's proximal step, and a network has no server; use l1=0"
        )
    if len(problem) != len(network):
        raise ValueError(
            f"problem: it has {len(problem)} clients and the network {len(network)} nodes; client i is node i"
        )


def _weighed(problem, weights: str):
    if not isinstance(weights, str) or weights not in ("equal", "problem"):
        raise ValueError(f'weights: got {weights!r}; accepted are "equal" and "problem"')
    counted = problem.weights > 0
    if weights == "problem" or np.ptp(problem.weights[counted]) == 0:
        return problem
    return problem.reweighted(counted.astype(float))


def _make_job(
    method, network, problem, rounds, seed, activation, loss_probability, communication, outages,
    x0, dtype, reference,
) -> GraphJob:  # fmt: skip
    dtype = checked_dtype(dtype or problem.dtype)
    arrays = _constraints(network, problem)
    consensus = arrays is None
    if communication not in ("unicast", "broadcast"):
        raise ValueError(
            f'communication: got {communication!r}; accepted are "unicast" and "broadcast"'
        )
    rule = waking.parse_activation(activation, len(network), rounds)
    losses = waking.parse_losses(loss_probability)
    down = waking.parse_outages(outages, network)
    disturbed = losses.rule != "none" or down is not None
    if communication == "broadcast" and disturbed:
        raise ValueError(
            'communication: with "broadcast" neighbours rebuild z from what they know, which goes wrong '
            'where messages are lost; use "unicast" with loss_probability and outages'
        )
    if not method.on_edges:
        _check_mixing(method, problem, rule, disturbed, consensus)
    _check_needs(method, problem)
    pulls = None if consensus else coupling.rotation(network, arrays)[0]
    method = resolve(method, scaled(problem, node_factors(problem)), network, pulls)
    start = checked_start(x0, problem, dtype)
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(network), *leaf.shape)), start)
    return GraphJob(
        method, network, problem, int(seed), dtype, stacked, rule, losses, down,
        communication == "broadcast", arrays, _reference(problem, network, arrays, reference),
    )  # fmt: skip


def _constraints(network, problem):
    dimensions = getattr(problem, "dimensions", None)
    if network.constraints is None and getattr(problem, "common", True):
        if not network.connected:
            parts = np.bincount(network.components)
            raise ValueError(
                f"network: it falls into {len(parts)} parts, of {', '.join(map(str, parts[:5]))}"
                f"{', ...' if len(parts) > 5 else ''} nodes, which can never agree; join them by an edge, or "
                "run each part by itself"
            )
        return None
    initial = problem.initial()
    if not isinstance(initial, np.ndarray) or initial.ndim != 1:
        raise ValueError(
            f"network: constraints need models that are one vector; those of {problem.name!r} are not"
        )
    if dimensions is None:
        dimensions = np.full(len(network), initial.size)
    if network.constraints is None:
        network = network.with_constraints({})
    return network.constraints.arrays(dimensions)


def _check_mixing(method, problem, rule, disturbed, consensus) -> None:
    name = type(method).__name__
    if rule.kind != "all" or disturbed:
        raise ValueError(
            f"{name} is synchronous and wants every message: leave activation, loss_probability and outages "
            "at their defaults, or take PDMM"
        )
    if not consensus:
        raise ValueError(f"{name} mixes whole models (x_i = x_j); for constraints take PDMM")
    if isinstance(method, Gossip) and not isinstance(problem, AveragingProblem):
        raise ValueError(
            f"Gossip averages numbers; {problem.name!r} is no averaging problem: take PDMM, EXTRA or DGD"
        )


def _check_needs(method, problem) -> None:
    oracle = getattr(method, "oracle", None)
    solver = hasattr(oracle, "needs") and hasattr(oracle, "init") and not isinstance(oracle, type)
    if oracle is not None and not solver:
        raise TypeError(
            f"PDMM(oracle=...): got {oracle!r}; accepted is a local solver such as "
            "accord.oracles.GradientDescent()"
        )
    lacking = sorted(getattr(oracle, "needs", frozenset()) - problem.offers)
    if lacking:
        raise ValueError(
            f"oracle: {type(oracle).__name__} needs {lacking[0]!r}, which the problem {problem.name!r} does "
            f"not offer (it offers {', '.join(sorted(problem.offers))})"
        )


def _reference(problem, network, arrays, wanted):
    """The optimum, where it is wanted or cheap; a problem without one is refused in either case."""
    if wanted is False:
        return None
    if arrays is not None:
        found = kkt_reference(problem, network, arrays)
    elif wanted is None and not reference_is_cheap(problem):
        return None
    else:
        try:
            found = consensus_reference(problem)
        except ValueError:
            if wanted:
                raise
            return None
    if wanted and found is None:
        raise ValueError(
            "reference: there is none to be had: the problem is not known to be convex, is not quadratic "
            "where constraints want it, is too large, or has several optima"
        )
    return found
