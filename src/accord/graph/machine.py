"""The engine of graph methods: rounds in one compiled loop, as the star engine's."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from accord.core import keys, parameters
from accord.engines.loop import make_room, record_rounds, same_dtypes, unpacked
from accord.engines.measures import CONVERGED, DIVERGED, NOT_FINITE, RUNNING
from accord.graph import coupling
from accord.graph.job import GraphJob
from accord.graph.reference import node_factors
from accord.graph.rotated import rotated
from accord.graph.rounds import ROUNDS, Plan, Setup, State, gradients_of, measures
from accord.objectives import Quadratic, factored
from accord.oracles import Exact

OPTIMALITY = ("consensus", "residual", "dual_residual", "gradient_norm")
"""The columns that all vanish at the optimum, and nowhere else."""


class Scale(NamedTuple):
    """What the judge holds a row against; ``tolerance`` is -1 for never."""

    tolerance: Any = -1.0
    explosion: Any = jnp.inf
    optimum: Any = None


def _judge(row, scale: Scale):
    """RUNNING, CONVERGED, DIVERGED or NOT_FINITE, from a recorded row."""
    worst = jnp.max(jnp.stack([row[name] for name in OPTIMALITY if name in row]))
    code = jnp.where(worst > scale.explosion, DIVERGED, RUNNING)
    code = jnp.where(worst <= scale.tolerance, CONVERGED, code)
    return jnp.where(jnp.isfinite(row["objective"] + worst), code, NOT_FINITE)


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def _advance(plan, capacity, keep, setup, state, scale, basis, every, end, last):
    def one_round(state):
        return same_dtypes(ROUNDS[plan.form](plan, setup, state), state), ()

    return record_rounds(
        one_round,
        lambda state, _: measures(plan, setup, state, scale.optimum),
        lambda row: _judge(row, scale),
        lambda state: _models(state.x, basis),
        capacity, keep, state, every, end, last,
    )  # fmt: skip


def _models(x, basis):
    """The nodes' models in their own variables."""
    return x if isinstance(basis, tuple) else jnp.einsum("ndk,nk->nd", basis, x)


_measures = partial(jax.jit, static_argnums=0)(measures)


class Machine:
    """A graph method on a network, ready to step: ``init``, then ``advance``.

    ``plan.form`` tells which of the forms of ``accord.graph.rounds`` it takes.
    """

    def __init__(self, job: GraphJob):
        self.job = job
        with jax.enable_x64(True):
            self._build()

    def _build(self):
        job = self.job
        method, network, problem = job.method, job.network, job.problem
        consensus = job.arrays is None
        form = self._form(consensus)
        slots = int(network.degrees.max())
        numbers, structure = parameters.split(method)
        padding = slots if form == "turn" else 0
        # Per node: rotated variables, where constraints ask for them.
        if consensus:
            self._basis: Any = ()
            ends = coupling.degrees_of(network) if form == "node" else None
            pair = coupling.Consensus(ends or coupling.edges_of(network, padding))
        else:
            weights, basis = coupling.rotation(network, job.arrays)
            self._basis = jnp.asarray(basis, job.dtype)
            pair = coupling.linear(network, job.arrays, weights, basis, job.dtype, padding)
        oracle = getattr(method, "oracle", None)
        needs = frozenset({"grad"}) if oracle is None else oracle.needs
        prepared = problem.prepare(needs, job.dtype)
        objectives, members, order, place = self._objectives(prepared, pair)
        self.plan = Plan(
            structure=structure,
            form=form,
            nodes=len(network),
            edges=len(network.target),
            slots=slots,
            rule=job.waking.rule,
            losses=job.losses.rule,
            noisy="minibatch" in needs or getattr(oracle, "noisy", False),
            broadcast=job.broadcast,
            consensus=consensus,
            relaxed=getattr(method, "relaxation", 1.0) != 1,
        )
        self.setup = Setup(
            numbers=numbers,
            objectives=objectives,
            members=members,
            order=order,
            place=place,
            coupling=pair,
            lists=coupling.neighbours(network) if form == "node" else (),
            weights=self._mixing(network) if form == "mixing" else (),
            waking=jax.tree.map(jnp.asarray, job.waking.values),
            losses=job.losses.values,
            outages=None if job.outages is None else tuple(map(jnp.asarray, job.outages)),
            sizes=jnp.asarray(self._sizes(network)),
            key=keys.run_key(job.seed),
        )

    def _form(self, consensus: bool) -> str:
        job = self.job
        if not job.method.on_edges:
            return "mixing"
        if job.waking.kind == "turn":
            return "turn"
        undisturbed = job.losses.rule == "none" and job.outages is None
        if consensus and job.waking.kind == "all" and undisturbed:
            return "node"
        return "edge"

    def _mixing(self, network):
        return tuple(jnp.asarray(w, self.job.dtype) for w in network.metropolis_weights())

    def _sizes(self, network) -> np.ndarray:
        """Numbers that a node sends when it acts."""
        job = self.job
        vectors = job.method.vectors
        whole = sum(leaf.size // len(network) for leaf in jax.tree.leaves(job.x0))
        if job.broadcast:
            own = getattr(job.problem, "dimensions", np.full(len(network), whole))
            return vectors * np.asarray(own, np.int64)
        if job.arrays is None:
            return network.degrees.astype(np.int64) * whole * vectors
        return np.bincount(network.source, job.arrays.rows, len(network)).astype(np.int64)

    def _objectives(self, prepared, pair):
        """(objectives, members, order, place), objectives scaled, rotated and factored as they are used."""
        job, n = self.job, len(self.job.network)
        factors = jnp.asarray(node_factors(job.problem), job.dtype)
        even = bool(np.ptp(job.problem.weights) == 0)
        oracle = getattr(job.method, "oracle", None)
        penalty = pair.pull(job.method.penalty) if job.method.on_edges else None
        objectives = []
        for o, m in zip(prepared.objectives, prepared.clients, strict=True):
            if not even:
                o = jax.vmap(lambda own, f: own.scaled(f))(o, factors[m])
            if not isinstance(self._basis, tuple):
                o = jax.vmap(rotated)(o, self._basis[m])
            if isinstance(o, Quadratic) and isinstance(oracle, Exact):
                o = jax.vmap(factored)(o, penalty[m].astype(job.dtype))
                self._check_determined(o.hessian, penalty[m], m)
            objectives.append(o)
        members = tuple(jnp.asarray(m, "int32") for m in prepared.clients)
        flat = np.concatenate([np.asarray(m) for m in members])
        if len(members) == 1 and (flat == np.arange(n)).all():
            return tuple(objectives), members, (), ()
        bucket = np.repeat(np.arange(len(members)), [len(m) for m in members])
        row = np.concatenate([np.arange(len(m)) for m in members])
        order = np.argsort(flat)
        place = tuple(jnp.asarray(a[order], "int32") for a in (bucket, row))
        return tuple(objectives), members, jnp.asarray(order), place

    def _check_determined(self, hessians, penalties, members) -> None:
        """Raises where a node's sub-problem is flat: neither f_i nor its constraints hold x_i there."""
        if self.job.arrays is None:
            return
        held = np.asarray(hessians) + np.asarray(penalties)[:, None, :] * np.eye(hessians.shape[-1])
        values = np.linalg.eigvalsh(held)
        flat = np.flatnonzero(values[:, 0] <= 1e-14 * values[:, -1])
        if len(flat):
            name = self.job.network.names[int(np.asarray(members)[flat[0]])]
            raise ValueError(
                f"network: x of node {name} is not determined: f_i is flat in a direction that none of its "
                "constraints holds; add l2, or a constraint"
            )

    def init(self) -> State:
        """The state before the first round: every model, and every z, at the start."""
        with jax.enable_x64(True):
            return self._init()

    def _init(self) -> State:
        plan, setup, job = self.plan, self.setup, self.job
        x = jax.tree.map(lambda leaf: jnp.array(leaf, job.dtype), job.x0)
        if not plan.consensus:
            x = self.rotate(x)
        memory: Any = ()
        if plan.form == "mixing":
            edges = job.method.init(x, lambda x: gradients_of(setup, x))
            x = edges.x
        else:
            memory = jax.vmap(job.method.init_node)(x)
            edges = self._first_edges(x)
        bad: Any = ()
        if plan.losses == "bursty":
            bad = jnp.zeros(len(setup.coupling.edges.source), bool)
        sent = jnp.zeros(plan.nodes, bool) if plan.form == "edge" else ()
        whole = jnp.asarray(0, "int64")
        state = State(x, edges, sent, bad, memory, whole, whole, whole, whole, whole, 0.0, 0.0)
        return jax.tree.map(lambda leaf: jnp.array(leaf, jnp.asarray(leaf).dtype), state)

    def _first_edges(self, x):
        """z_{i|j} = x0 everywhere (as B x0 - o with constraints): P = x0 and Q = 0 in the form of nodes."""
        plan = self.plan
        if plan.form == "node":
            return x, jax.tree.map(jnp.zeros_like, x)
        z = self.setup.coupling.image(x)
        if plan.form == "turn":
            pad = lambda a: jnp.pad(a, [(0, plan.slots)] + [(0, 0)] * (a.ndim - 1))  # noqa: E731
            z = jax.tree.map(pad, z)
        return z

    def advance(self, state, scale, every, end, last, capacity, keep):
        """Rounds up to ``end``, as the star engine's: (state, rows, models, code)."""
        make_room(_advance)
        with jax.enable_x64(True):
            state, record, code = _advance(
                self.plan, capacity, keep, self.setup, state, scale, self._basis, every, end, last
            )
            return state, *unpacked(record), int(code)

    def measure(self, state, optimum) -> dict[str, float]:
        """The measures of a state."""
        with jax.enable_x64(True):
            row = _measures(self.plan, self.setup, state, optimum)
            return {name: float(value) for name, value in row.items()}

    def models(self, state):
        """The nodes' models as NumPy arrays (nodes, ...), in their own variables."""
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, _models(state.x, self._basis))

    def rotate(self, x):
        """Models in the engine's variables: what distances are measured in."""
        if self.plan.consensus:
            return jax.tree.map(lambda leaf: jnp.asarray(leaf, self.job.dtype), x)
        with jax.enable_x64(True):
            return jnp.einsum("ndk,nd->nk", self._basis, jnp.asarray(x, self.job.dtype))

    def duals(self, state) -> Any:
        """lambda_{i|j} = rho (z_{i|j} - B_{i|j} x_i) of every directed edge (2E, ...)."""
        network, rho = self.job.network, self.job.method.penalty
        if self.plan.form == "node":
            i, j = network.source, network.target
            p, q, x = (jax.tree.map(np.asarray, part) for part in (*state.edges, state.x))
            return jax.tree.map(lambda p, q, x: rho * (p[j] - (q + x)[i]), p, q, x)
        with jax.enable_x64(True):
            edges, image = self.plan.edges, self.setup.coupling.image(state.x)
            return jax.tree.map(
                lambda z, u: np.asarray(rho * (z[:edges] - u[:edges])), state.edges, image
            )
