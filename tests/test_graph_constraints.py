"""PDMM with linear constraints on the edges, against KKT systems."""

import numpy as np
import pytest

import accord
from accord import graph, oracles
from accord.graph import Network
from networks import FAMILIES, moments, plain_pdmm, regression

pytestmark = pytest.mark.usefixtures("double_precision")


SELECTION = [0, 2]


def constrained(kind, seed=0):
    """(network, problem) with nodes that do not agree on everything."""
    rng = np.random.default_rng(seed)
    network = FAMILIES["small_world"]()
    n = len(network)
    if kind == "selection":
        return network.with_constraints(SELECTION), regression(n, l2=0.05)
    network = FAMILIES["ring"]()
    n = len(network)
    dims = rng.integers(3, 6, n)
    H, b = [], []
    for d in dims:
        A = rng.standard_normal((d + 2, d))
        H.append(A.T @ A)
        b.append(rng.standard_normal(d))
    given = {}
    for i, j in network.edges:
        rows = int(rng.integers(1, 3))
        pair = (rng.standard_normal((rows, dims[i])), rng.standard_normal((rows, dims[j])))
        given[int(i), int(j)] = pair
    if kind == "offsets":
        wanted = [rng.standard_normal(d) for d in dims]
        given = {(i, j): (B, C, B @ wanted[i] - C @ wanted[j]) for (i, j), (B, C) in given.items()}
    return network.with_constraints(given), graph.quadratics(H, b)


def kkt(network, problem, dims, H, b):
    """Primal and multipliers of the whole system, assembled by hand."""
    starts = np.concatenate([[0], np.cumsum(dims)])
    rows, right = [], []
    for i, j in network.edges:
        B, C, c = network.constraints.sides(i, j, dims)
        block = np.zeros((len(c), starts[-1]))
        block[:, starts[i] : starts[i + 1]] = B
        block[:, starts[j] : starts[j + 1]] = -C
        rows.append(block)
        right.append(c)
    C, c = np.concatenate(rows), np.concatenate(right)
    big = np.zeros((starts[-1],) * 2)
    for i, h in enumerate(H):
        big[starts[i] : starts[i + 1], starts[i] : starts[i + 1]] = h
    K = np.block([[big, -C.T], [-C, np.zeros((len(c),) * 2)]])
    solution = np.linalg.lstsq(K, np.concatenate([*b, -c]), rcond=None)[0]
    x = [solution[starts[i] : starts[i + 1]] for i in range(len(dims))]
    return x, solution[starts[-1] :]


@pytest.mark.parametrize("kind", ["selection", "dense", "offsets"])
@pytest.mark.parametrize("activation", ["synchronous", "asynchronous"])
def test_constraints_reach_the_kkt_point(kind, activation):
    network, problem = constrained(kind)
    n = len(network)
    if kind == "selection":
        H, b = moments(problem)
        H, dims = H + 0.05 * np.eye(3), np.full(n, 3)
    else:
        dims = problem.dimensions
        H = [problem._given.hessian[i, :d, :d] for i, d in enumerate(dims)]
        b = [problem._given.linear[i, :d] for i, d in enumerate(dims)]
    x, _ = kkt(network, problem, dims, H, b)
    run = graph.run(graph.PDMM(), network, problem, 4000, activation=activation, every=4000)
    for own, expected in zip(run.x, x, strict=True):
        assert abs(own - expected).max() < 1e-9
    assert run.history["distance"][-1] < 1e-9
    assert run.history["residual"][-1] < 1e-9
    assert run.history["dual_residual"][-1] < 1e-9
    # Both duals of every edge: opposite, and each node's pulled back add up to its gradient.
    np.testing.assert_allclose(run.duals, -run.duals[network.reverse], atol=1e-9)
    for i in range(n):
        pulled = np.zeros(dims[i])
        for e in range(network.offsets[i], network.offsets[i + 1]):
            j = network.target[e]
            B, C, _ = network.constraints.sides(min(i, j), max(i, j), dims)
            own = B if i < j else C
            pulled += own.T @ run.duals[e, : len(own)]
        np.testing.assert_allclose(pulled, H[i] @ run.x[i] - b[i], atol=1e-9)
    # The multipliers themselves, where they are unique.
    if kind == "offsets" and run.reference.duals is not None:
        forward = network.source < network.target
        C, _, _ = graph.constraints.stacked(network, network.constraints.arrays(np.asarray(dims)))
        if np.linalg.matrix_rank(C.toarray()) == C.shape[0]:
            np.testing.assert_allclose(run.duals[forward], run.reference.duals, atol=1e-8)


def test_multipliers_of_a_tree_are_unique():
    """On a path with full-rank constraints primal and both duals equal those of the KKT system."""
    rng = np.random.default_rng(11)
    network, dims = Network.path(5), [3, 2, 4, 2, 3]
    H = [np.eye(d) * rng.uniform(0.5, 2) for d in dims]
    b = [rng.standard_normal(d) for d in dims]
    given = {
        (i, i + 1): (rng.standard_normal((1, dims[i])), rng.standard_normal((1, dims[i + 1])))
        for i in range(4)
    }
    network = network.with_constraints(given)
    x, nu = kkt(network, None, np.array(dims), H, b)
    run = graph.run(graph.PDMM(), network, graph.quadratics(H, b), 3000, every=3000)
    for own, expected in zip(run.x, x, strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-9)
    forward = network.source < network.target
    np.testing.assert_allclose(run.duals[forward, 0], nu, atol=1e-9)
    np.testing.assert_allclose(run.duals[network.reverse[forward], 0], -nu, atol=1e-9)
    np.testing.assert_allclose(run.reference.duals[:, 0], nu, atol=1e-9)


@pytest.mark.parametrize("theta", [1.0, 0.7])
@pytest.mark.parametrize("in_turn", [False, True])
def test_constrained_rounds_are_those_of_the_plain_loop(theta, in_turn):
    """Dense matrices that mix a node's variables: the engine rotates them, the plain loop does not."""
    rng = np.random.default_rng(4)
    network, n, d = FAMILIES["grid"](), 12, 3
    H = np.array([np.diag(rng.uniform(0.5, 2, d)) for _ in range(n)])
    b = rng.standard_normal((n, d))
    given, sides = {}, {}
    for i, j in network.edges:
        i, j = int(i), int(j)
        B, C = rng.standard_normal((2, d)), rng.standard_normal((2, d))
        c = B @ np.ones(d) - C @ np.ones(d)
        given[j, i] = (C, B, -c)
        sides[i, j], sides[j, i] = (B, 0.5 * c), (C, -0.5 * c)
    turns = rng.integers(0, n, (20, 5)) if in_turn else None
    xs, _ = plain_pdmm(network, H, b, 0.3, 20, theta=theta, sides=sides, turns=turns)
    run = graph.run(
        graph.PDMM(0.3, theta), network.with_constraints(given), graph.quadratics(H, b), 20,
        record="x", activation="synchronous" if turns is None else turns,
    )  # fmt: skip
    np.testing.assert_allclose(run.xs, xs, atol=1e-10)


def test_constraints_with_other_losses_and_solvers():
    rng = np.random.default_rng(9)
    arrays = [(rng.standard_normal((9, 3)), rng.integers(0, 2, 9)) for _ in range(5)]
    problem = accord.problems.logistic(accord.Clients.from_arrays(arrays), l2=0.2)
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0][:2]
    network = Network.ring(5)
    network = network.with_constraints(
        {tuple(map(int, e)): (rotation, rotation) for e in network.edges}
    )
    exact = graph.run(graph.PDMM(), network, problem, 400, every=400)
    assert exact.history["gradient_norm"][-1] < 1e-11
    assert exact.history["residual"][-1] < 1e-11
    for oracle in (oracles.Linearised(5), oracles.GradientDescent(5)):
        other = graph.run(graph.PDMM(oracle=oracle), network, problem, 1500, every=1500)
        np.testing.assert_allclose(other.x, exact.x, atol=1e-9)


def test_problems_without_a_kkt_system_have_no_reference():
    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal((k, 3)), rng.integers(0, 2, k)) for k in (6, 9, 12, 7)]
    clients = accord.Clients.from_arrays(arrays)
    problem = accord.problems.logistic(clients, l2=0.1, weights="equal")
    network = Network.ring(4).with_constraints([0, 1, 2])
    run = graph.run(graph.PDMM(), network, problem, 500, every=500)
    assert abs(run.x - problem.reference().x).max() < 1e-10
    assert run.reference is None and "distance" not in run.history
    with pytest.raises(ValueError, match="reference: there is none to be had"):
        graph.run(graph.PDMM(), network, problem, 5, reference=True)


def test_an_infeasible_start_is_not_divergence():
    network = Network([(0, 1)]).with_constraints({(0, 1): (np.eye(1), np.eye(1), [2.0])})
    problem = accord.problems.averaging([0.0, 0.0])
    run = graph.run(graph.PDMM(), network, problem, 200, every=200)
    assert run.status.name == "budget_spent"
    np.testing.assert_allclose(run.x[:, 0], [1, -1], atol=1e-12)
    assert run.history["distance"][-1] < 1e-12
    np.testing.assert_allclose(run.duals[:, 0], [1, -1], atol=1e-12)


def test_parts_of_a_network_are_each_solved():
    """With constraints a network in parts is legal; its penalty is that of a part."""
    pairs = Network([(0, 1), (2, 3)]).with_constraints({})
    values = [0.0, 1, 2, 4]
    run = graph.run(graph.PDMM(), pairs, accord.problems.averaging(values), 60, every=60)
    np.testing.assert_allclose(run.x[:, 0], [0.5, 0.5, 3, 3], atol=1e-12)
    assert run.algorithm.penalty == pytest.approx(1.0)
    assert not Network([(0, 1), (1, 2), (2, 0), (3, 4)]).bipartite


REFUSED = {
    "flat": ([np.diag([1.0, 0]), np.eye(2)], [[1.0, 0], [1, 1]], "x of node 0 is not determined"),
    "unbounded": ([np.diag([1.0, 0]), np.eye(2)], [[1.0, 1], [1, 1]], "falls without bound"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_solution_is_refused(name):
    hessians, linears, message = REFUSED[name]
    network = Network([(0, 1)]).with_constraints({(0, 1): ([0], [0])})
    with pytest.raises(ValueError, match=message):
        graph.run(graph.PDMM(), network, graph.quadratics(hessians, linears), 5)


def test_nothing_in_common_is_refused():
    problem = accord.problems.averaging([1.0, 2, 3])
    nobody = Network([], nodes=3).with_constraints({})
    zero = Network.path(3).with_constraints({e: (0 * np.eye(1),) * 2 for e in ((0, 1), (1, 2))})
    for network in (nobody, zero):
        with pytest.raises(ValueError, match="nothing is shared"):
            graph.run(graph.PDMM(), network, problem, 5)
