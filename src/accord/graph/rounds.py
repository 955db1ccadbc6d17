"""One round of a graph method, in the four forms that it can take.

A method on edges has three: ``node_round``, where all nodes act, nothing is lost and neighbours want the same
(no state is then held on edges); ``edge_round``, for a set of nodes that act together; ``turn_round``, for
nodes that act one after another. ``mixing_round`` is that of the methods that mix neighbours' models.

A round in which nodes act together first delivers what was sent in the round before and then solves, so that
x and z belong together when they are looked at.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from accord import tree
from accord.core import keys, messages, parameters
from accord.graph import activation
from accord.graph.coupling import edge_sum, largest_pair, neighbour_sum


class State(NamedTuple):
    """Everything a run holds between rounds.

    ``x``: the nodes' models (nodes, ...); ``edges``: z_{i|j} of the directed edges (2E, ...), or the pair
    (P, Q) of ``node_round``, or the mixing method's state; ``sent``: nodes whose results are on their way;
    ``bad``: edges in the bad state of bursty losses; ``memory``: what nodes remember. Totals so far:
    ``round``, ``activations``, ``messages``, ``numbers`` (sent, of the model's dtype), ``lost`` messages,
    ``gradients`` (a node's mean), ``time``.
    """

    x: Any
    edges: Any
    sent: Any
    bad: Any
    memory: Any
    round: Any
    activations: Any
    messages: Any
    numbers: Any
    lost: Any
    gradients: Any
    time: Any


class Setup(NamedTuple):
    """The arguments of the compiled program that stay the same during a run.

    ``objectives`` and ``members`` have one entry per bucket of nodes; ``order`` brings buckets into the
    nodes' order; ``place`` is (bucket, row) of each node.
    """

    numbers: Any
    objectives: tuple[Any, ...]
    members: tuple[Any, ...]
    order: Any
    place: Any
    coupling: Any
    lists: Any
    weights: Any
    waking: Any
    losses: Any
    outages: Any
    sizes: Any
    key: Any


class Plan(NamedTuple):
    """What identifies the compiled program: hashable.

    ``form``: "node", "edge", "turn" or "mixing"; ``slots``: the largest degree; ``relaxed``: relaxation is
    not 1, so that old values of z are read.
    """

    structure: parameters.Structure
    form: str
    nodes: int
    edges: int
    slots: int
    rule: str
    losses: str
    noisy: bool
    broadcast: bool
    consensus: bool
    relaxed: bool


def _method(plan, setup):
    return parameters.join(setup.numbers, plan.structure)


def each_node(setup: Setup, function, *stacks):
    """function(objective, *own) of every node, stacked in the nodes' order."""
    if len(setup.objectives) == 1 and isinstance(setup.order, tuple):
        return jax.vmap(function)(setup.objectives[0], *stacks)
    parts = [
        jax.vmap(function)(o, *jax.tree.map(lambda leaf, m=m: leaf[m], stacks))
        for o, m in zip(setup.objectives, setup.members, strict=True)
    ]
    together = parts[0]
    if len(parts) > 1:
        together = jax.tree.map(lambda *p: jnp.concatenate(p), *parts)
    return jax.tree.map(lambda leaf: leaf[setup.order], together)


def _solve(plan, setup, state, centre, key):
    """Every node's local solve: (x, memory, gradients)."""
    method = _method(plan, setup)
    nodes = jnp.arange(plan.nodes, dtype="uint32")

    def one(objective, x, memory, centre, pull, i):
        own = keys.client_key(key, i) if plan.noisy else key
        return method.node(x, memory, objective, centre, pull, own)

    pull = setup.coupling.pull(setup.numbers["penalty"])
    x, memory, gradients = each_node(setup, one, state.x, state.memory, centre, pull, nodes)
    return x, memory, jnp.broadcast_to(jnp.asarray(gradients, float), (plan.nodes,))


def _counted(plan, setup, state, active, gradients, new):
    """The new state with the totals after the nodes ``active`` (nodes,) have acted."""
    sends = 1 if plan.broadcast else setup.coupling.edges.degrees
    active = jnp.asarray(active)
    return new._replace(
        round=state.round + 1,
        activations=state.activations + active.sum(),
        messages=state.messages + (active * sends).sum(),
        numbers=state.numbers + (active * setup.sizes).sum(),
        gradients=state.gradients + (active * gradients).sum() / plan.nodes,
    )


def node_round(plan: Plan, setup: Setup, state: State) -> State:
    """All nodes act, nothing is lost, consensus: z_{i|j} = P_j - Q_i, so two vectors a node are enough.

    The relaxed update z_{i|j} <- (1 - theta) z_{i|j} + theta (2 x_j - z_{j|i}) is that of
    P <- (1 - theta) P + theta (Q + 2 x) and Q <- (1 - theta) Q + theta P. Both would grow by theta x a
    round, which cancels in P_j - Q_i but costs digits: theta x_0 is taken off both.
    """
    key = keys.round_key(setup.key, state.round)
    theta = jnp.where(state.round == 0, 0.0, setup.numbers["relaxation"])
    p, q = state.edges

    def exchange(p, q, x):
        t, first = theta.astype(x.dtype), x[:1]
        return (1 - t) * p + t * (q + 2 * x - first), (1 - t) * q + t * (p - first)

    pairs = jax.tree.map(exchange, p, q, state.x)
    p, q = _pair_of(state.x, pairs)
    degrees = setup.coupling.edges.degrees
    centre = jax.tree.map(
        lambda a, b: neighbour_sum(setup.lists, a) / messages.expand(degrees, a) - b, p, q
    )
    x, memory, gradients = _solve(plan, setup, state, centre, key)
    new = state._replace(x=x, edges=(p, q), memory=memory)
    return _counted(plan, setup, state, jnp.ones(plan.nodes, bool), gradients, new)


def _pair_of(like, pairs):
    """A tree of pairs, in the structure of ``like``, as a pair of trees."""
    return jax.tree.transpose(jax.tree.structure(like), jax.tree.structure((0, 0)), pairs)


def edge_round(plan: Plan, setup: Setup, state: State) -> State:
    """A set of nodes acts together, on what had arrived before the round."""
    method, key = _method(plan, setup), keys.round_key(setup.key, state.round)
    edges = setup.coupling.edges
    came, lost, bad = _delivered(plan, setup, state, key)
    image = setup.coupling.image(state.x)

    def arrive(z, u):
        reply = method.reply(u, z)[edges.reverse]
        return jnp.where(messages.expand(came, z), method.receive(z, reply), z)

    z = jax.tree.map(arrive, state.edges, image)
    here = activation.up(setup.outages, plan.nodes, state.round)
    active = jnp.ones(plan.nodes, bool) if here is None else here
    if plan.rule != "uniform":
        woken = activation.wake_set(plan.rule, setup.waking, plan.nodes, key, state.round)
        active = active & woken
    x, memory, gradients = _solve(plan, setup, state, setup.coupling.centre(z), key)
    x = messages.choose(active, x, state.x)
    memory = messages.choose(active, memory, state.memory)
    new = state._replace(x=x, edges=z, sent=active, bad=bad, memory=memory, lost=state.lost + lost)
    return _counted(plan, setup, state, active, gradients, new)


def _delivered(plan, setup, state, key):
    """(which z change, messages lost, edges' states): z_{i|j} changes when j's message to i arrives."""
    edges = setup.coupling.edges
    on_way = state.sent[edges.target]
    kept, bad = on_way, state.bad
    if plan.losses != "none":
        draw = activation.loss_key(key)
        gone, moved = activation.losses(plan.losses, setup.losses, state.bad, draw, (plan.edges,))
        kept = kept & ~gone
        if plan.losses == "bursty":
            bad = jnp.where(on_way, moved, state.bad)
    here = activation.up(setup.outages, plan.nodes, state.round)
    if here is not None:
        kept = kept & here[edges.source]
    return kept, (on_way & ~kept).sum(), bad


def turn_round(plan: Plan, setup: Setup, state: State) -> State:
    """Nodes act one after another; each sends at once."""
    method, key = _method(plan, setup), keys.round_key(setup.key, state.round)
    edges, slots = setup.coupling.edges, plan.slots
    nodes, spent = activation.wake_turns(plan.rule, setup.waking, plan.nodes, key, state.round)
    here = activation.up(setup.outages, plan.nodes, state.round)
    pull = setup.coupling.pull(setup.numbers["penalty"])
    losing = activation.loss_key(key)
    nowhere = plan.edges + slots
    # What a solve costs, where that is known before: one thing less to carry.
    always: list[int] = []

    def act(carry, turn):
        x, z, memory, bad, lost, gradients = carry
        i, number = turn
        first = edges.offsets[i]
        slot = jnp.arange(slots, dtype="int32")
        valid = slot < edges.degrees[i]
        awake = None if here is None else here[i]
        own = lambda stack: jax.tree.map(lambda leaf: leaf[i], stack)  # noqa: E731
        rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, slots), z)
        centre = setup.coupling.centre_of(i, first, rows, valid)
        draw = jax.random.fold_in(keys.client_key(key, i), number) if plan.noisy else key
        new, kept, used = _solve_one(
            plan, setup, method, i, own(x), own(memory), centre, pull[i], draw
        )
        there = lax.dynamic_slice_in_dim(edges.reverse, first, slots)
        came = valid if awake is None else valid & awake
        if plan.losses != "none":
            chance = jax.random.fold_in(losing, number)
            before = bad[there] if plan.losses == "bursty" else bad
            gone, moved = activation.losses(plan.losses, setup.losses, before, chance, (slots,))
            if plan.losses == "bursty":
                bad = bad.at[jnp.where(came, there, nowhere)].set(moved, mode="drop")
            lost, came = lost + (came & gone).sum(), came & ~gone
        if here is not None:
            hearing = here[lax.dynamic_slice_in_dim(edges.target, first, slots)]
            lost, came = lost + (came & ~hearing).sum(), came & hearing
        image = setup.coupling.image_of(first, slots, new)
        # What is not delivered is written past the end, where nobody reads.
        at = jnp.where(came, there, nowhere + slot)

        def send(leaf, row, u):
            value = method.reply(u, row)
            if plan.relaxed:
                # Reading there costs more than all the rest.
                value = method.receive(leaf.at[at].get(mode="promise_in_bounds"), value)
            return leaf.at[at].set(value, mode="promise_in_bounds", unique_indices=True)

        z = jax.tree.map(send, z, rows, image)

        def put(leaf, value):
            value = value if awake is None else jnp.where(awake, value, leaf[i])
            return leaf.at[i].set(value, mode="promise_in_bounds")

        x, memory = jax.tree.map(put, x, new), jax.tree.map(put, memory, kept)
        if isinstance(used, int):
            always.append(used)
        else:
            gradients = gradients + (used if awake is None else awake * used)
        return (x, z, memory, bad, lost, gradients), None

    start = state.x, state.edges, state.memory, state.bad, state.lost, 0.0 * state.gradients
    turns = nodes, jnp.arange(len(nodes), dtype="uint32")
    (x, z, memory, bad, lost, gradients), _ = lax.scan(act, start, turns)
    acted = jnp.ones(len(nodes), bool) if here is None else here[nodes]
    gradients = gradients + acted.sum() * sum(always[:1])
    degree = 1 if plan.broadcast else edges.degrees[nodes]
    return state._replace(
        x=x, edges=z, bad=bad, memory=memory, lost=lost,
        round=state.round + 1,
        activations=state.activations + acted.sum(),
        messages=state.messages + (acted * degree).sum(),
        numbers=state.numbers + (acted * setup.sizes[nodes]).sum(),
        gradients=state.gradients + gradients / plan.nodes,
        time=state.time + spent,
    )  # fmt: skip


def _solve_one(plan, setup, method, i, x, memory, centre, pull, key):
    """One node's local solve: (x, memory, gradients)."""

    def branch(objectives):
        def solve(row):
            own = jax.tree.map(lambda leaf: leaf[row], objectives)
            return method.node(x, memory, own, centre, pull, key)

        return solve

    if len(setup.objectives) == 1:
        row = i if isinstance(setup.order, tuple) else setup.place[1][i]
        return branch(setup.objectives[0])(row)
    bucket, row = (part[i] for part in setup.place)

    def counted(solve):
        def solved(row):
            new, kept, used = solve(row)
            return new, kept, jnp.asarray(used, float)

        return solved

    return lax.switch(bucket, [counted(branch(o)) for o in setup.objectives], row)


def mixing_round(plan: Plan, setup: Setup, state: State) -> State:
    """A method that mixes neighbours' models."""
    method, edges = _method(plan, setup), setup.coupling.edges
    across, own = setup.weights

    def mix(stack):
        def one(leaf):
            weighed = messages.expand(across, leaf) * leaf[edges.target]
            return edge_sum(weighed, edges.source, plan.nodes) + messages.expand(own, leaf) * leaf

        return jax.tree.map(one, stack)

    after = method.step(state.edges, mix, lambda x: gradients_of(setup, x))
    new = state._replace(x=after.x, edges=after)
    everyone = jnp.ones(plan.nodes, bool)
    return _counted(plan, setup, state, everyone, method.gradients * jnp.ones(plan.nodes), new)


def gradients_of(setup: Setup, x):
    """grad f_i(x_i) of every node."""
    return each_node(setup, lambda objective, x: objective.grad(x), x)


ROUNDS = {"node": node_round, "edge": edge_round, "turn": turn_round, "mixing": mixing_round}


def measures(plan: Plan, setup: Setup, state: State, optimum) -> dict[str, Any]:
    """What is measured of a state, as float64 numbers."""
    x, n = state.x, plan.nodes
    values = each_node(setup, lambda objective, x: objective.value(x), x)
    row: dict[str, Any] = {"objective": values.sum()}
    slopes = gradients_of(setup, x)
    if optimum is not None:
        apart = jax.tree.map(lambda a, b: a - b, x, optimum)
        row["distance"] = tree.norm(apart) / n**0.5
    if plan.consensus:
        middle = jax.tree.map(lambda leaf: leaf.mean(0), x)
        apart = jax.tree.map(lambda leaf, m: leaf - m, x, middle)
        row["consensus"] = tree.norm(apart) / n**0.5
        row["gradient_norm"] = tree.norm(jax.tree.map(lambda leaf: leaf.mean(0), slopes))
    if plan.form != "mixing":
        row |= _edge_measures(plan, setup, state, slopes)
    for name in ("round", "activations", "messages", "numbers", "lost", "gradients", "time"):
        row[name] = getattr(state, name)
    return {name: jnp.asarray(value).astype("float64") for name, value in row.items()}


def _edge_measures(plan, setup, state, slopes) -> dict[str, Any]:
    """The dual residual max |lambda_{i|j} + lambda_{j|i}|; with constraints their residual, and stationarity.

    Stationarity is that of the antisymmetric part of lambda, so that both together are the KKT conditions.
    """
    rho = setup.numbers["penalty"]
    if plan.form == "node":
        # lambda_{i|j} + lambda_{j|i} = rho (s_i + s_j) with s = P - Q - x: no state on edges is needed.
        sums = jax.tree.map(lambda p, q, x: p - q - x, *state.edges, state.x)
        found = [largest_pair(setup.lists, leaf) for leaf in jax.tree.leaves(sums)]
        return {"dual_residual": rho * jnp.max(jnp.stack(found))}
    reverse = setup.coupling.edges.reverse[: plan.edges]
    z, image = (
        jax.tree.map(lambda leaf: leaf[: plan.edges], stack)
        for stack in (state.edges, setup.coupling.image(state.x))
    )
    dual = jax.tree.map(lambda a, u: rho * (a - u), z, image)
    largest = [abs(leaf + leaf[reverse]).max() for leaf in jax.tree.leaves(dual)]
    row = {"dual_residual": jnp.max(jnp.stack(largest))}
    if not plan.consensus:
        row["residual"] = abs(image - image[reverse]).max()
        pulled = setup.coupling.pull_back(0.5 * (dual - dual[reverse]))
        row["gradient_norm"] = tree.norm(slopes - pulled) / plan.nodes**0.5
    return row
