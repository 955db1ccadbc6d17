"""The parts that graph methods are made of, each by itself: defaults, sums over neighbours, rotations."""

import jax
import numpy as np
import pytest

from accord import graph, oracles
from accord.graph import Network, activation, coupling
from networks import moments, regression

pytestmark = pytest.mark.usefixtures("double_precision")


def curvature(problem):
    """(L, mu of F) from the rows."""
    H, _ = moments(problem)
    return np.linalg.eigvalsh(H).max(), np.linalg.eigvalsh(H.mean(0)).min()


@pytest.mark.parametrize("nodes", [4, 12])
def test_default_step_sizes_on_a_ring(nodes):
    """Metropolis weights are 1/3 each there, so W has the eigenvalues (1 + 2 cos(2 pi k / n)) / 3."""
    network, problem = Network.ring(nodes), regression(nodes)
    L, _ = curvature(problem)
    second = (1 + 2 * np.cos(2 * np.pi / nodes)) / 3
    least = -1 / 3

    def step(method):
        return graph.resolve(method, problem, network).step_size

    for method in (graph.DGD(), graph.EXTRA()):
        assert step(method) == pytest.approx((1 + least) / (2 * L), rel=1e-6)
    # On the short ring the least eigenvalue bounds the step, on the long one the second largest.
    wanted = (1 + least) ** 2 / 4 if nodes == 4 else 1 - second
    assert step(graph.GradientTracking()) == pytest.approx(wanted / L, rel=1e-6)
    assert step(graph.DGD(0.3)) == 0.3


def test_the_default_penalty_knows_the_curvature_of_the_sum():
    """sqrt(L mu) / (degree sqrt(1 - c^2)), with F's own mu, which exceeds every node's."""
    network, problem = Network.ring(24), regression(24)
    L, mu = curvature(problem)
    c = np.cos(2 * np.pi / 24)
    expected = np.sqrt(L * mu) / (2 * np.sqrt(1 - c * c))
    assert graph.resolve(graph.PDMM(), problem, network).penalty == pytest.approx(
        expected, rel=1e-6
    )


def test_a_gradient_step_suits_the_node_with_most_neighbours():
    """f_i + (rho/2) 7 ||x - z||^2 at the middle of a star of 8 has the smoothness L + 7 rho."""
    problem = regression(8)
    L, _ = curvature(problem)
    method = graph.PDMM(penalty=0.4, oracle=oracles.GradientDescent(5))
    chosen = graph.resolve(method, problem, Network.star(8))
    assert chosen.penalty == 0.4
    assert chosen.oracle.step_size == pytest.approx(1 / (L + 7 * 0.4), rel=1e-6)


def two_hubs():
    """Two joined hubs of 36 neighbours, and nodes of one, two and three."""
    pairs = [(0, 1)] + [(0, k) for k in range(2, 37)] + [(1, k) for k in range(37, 72)]
    return Network([*pairs, (2, 3), (3, 4), (37, 38)])


NETWORKS = {
    "ring": lambda: Network.ring(9),
    "star": lambda: Network.star(40),
    "two hubs": two_hubs,
    "isolated": lambda: Network([(0, 1), (1, 2)], nodes=5),
    "many degrees": lambda: Network.barabasi_albert(400, 2, seed=0),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_sums_over_neighbours(name):
    network = NETWORKS[name]()
    lists = coupling.neighbours(network)
    x = np.random.default_rng(0).standard_normal((len(network), 3))
    adjacency = network.adjacency().toarray()
    found = coupling.neighbour_sum(lists, jax.numpy.asarray(x))
    np.testing.assert_allclose(found, adjacency @ x, atol=1e-12)
    # The largest sum at every edge in turn, the one between hubs among them.
    for i, j in network.edges[:: max(1, len(network.edges) // 20)]:
        s = x.copy()
        s[[i, j]] += 100
        pairs = abs(s[network.source] + s[network.target]).max()
        assert coupling.largest_pair(lists, jax.numpy.asarray(s)) == pytest.approx(pairs)


def test_the_networks_take_every_path():
    members = [[len(m) for m in coupling.neighbours(make()).members] for make in NETWORKS.values()]
    # Ring: all written out. Star: leaves and a hub. Two hubs: kinds 1, 2, 3. The last: all as hubs.
    assert members == [[9, 0], [39, 1], [65, 4, 1, 2], [2, 2, 1, 0], [400]]


def sides(network, *pairs):
    constrained = network.with_constraints(
        {tuple(map(int, e)): pair for e, pair in zip(network.edges, pairs, strict=True)}
    )
    return constrained.constraints.arrays(np.full(len(network), pairs[0][0].shape[1]))


def test_rotation_is_none_where_every_constraint_is_on_coordinates():
    eye = np.eye(3)
    arrays = sides(Network.path(3), (eye[:2], eye[:2]), (2 * eye[1:], eye[1:]))
    weights, basis = coupling.rotation(Network.path(3), arrays)
    np.testing.assert_array_equal(weights, [[1, 1, 0], [1, 5, 4], [0, 1, 1]])
    np.testing.assert_array_equal(basis, [eye] * 3)


@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_rotation_makes_sums_diagonal_and_knows_what_nothing_holds(scale):
    rng = np.random.default_rng(1)
    network = Network.path(3)
    B = [scale * rng.standard_normal((2, 6)) for _ in range(4)]
    arrays = sides(network, (B[0], B[1]), (B[2], B[3]))
    weights, basis = coupling.rotation(network, arrays)
    total = [B[0].T @ B[0], B[1].T @ B[1] + B[2].T @ B[2], B[3].T @ B[3]]
    for q, V, expected in zip(weights, basis, total, strict=True):
        np.testing.assert_allclose(V * q @ V.T, expected, atol=1e-13 * scale**2)
        np.testing.assert_allclose(V.T @ V, np.eye(6), atol=1e-14)
    assert (weights > 0).sum(1).tolist() == [2, 4, 2]
    assert weights.min() == 0


def test_clocks_ring_in_proportion_to_their_rates():
    """A node's share of the rings is that of its rate, and gaps have the mean 1/(sum of rates)."""
    rates = np.array([1.0, 4.0, 0.5, 2.5])
    counts, spent, rounds = np.zeros(4), 0.0, 4000
    turn = jax.jit(lambda key: activation.wake_turns("rates", rates, 4, key, 0))
    for key in jax.random.split(jax.random.key(0), rounds):
        turns, span = turn(key)
        counts += np.bincount(turns, minlength=4)
        spent += float(span)
    share = rates / rates.sum()
    assert abs(counts / (4 * rounds) - share).max() < 4 * np.sqrt(0.25 / (4 * rounds))
    assert abs(spent / rounds - 4 / rates.sum()) < 4 * 2 / rates.sum() / np.sqrt(rounds)


def test_quadratics_of_nodes_hold_their_unused_entries_at_zero():
    """Entries beyond a node's dimension have the mean curvature of its own, and no pull."""
    problem = graph.quadratics(
        [np.diag([1.0, 3.0]), np.diag([2.0, 4, 6, 8])], [[1.0, 2], [0.0] * 4]
    )
    given = problem.quadratics()
    np.testing.assert_array_equal(given.hessian[0], np.diag([1.0, 3, 2, 2]))
    np.testing.assert_array_equal(given.linear[0], [1.0, 2, 0, 0])
    x = problem.client_objective(0)
    assert float(x.value(np.array([1.0, 1, 0, 0]))) == pytest.approx(0.5 * 4 - 3)


def test_least_squares_of_nodes_are_means_over_their_rows():
    """f_i = (1/(2 n)) ||A x - y||^2 + (l2/2) ||x||^2, value and gradient from the rows themselves."""
    rng = np.random.default_rng(2)
    pairs = [(rng.standard_normal((k, d)), rng.standard_normal(k)) for k, d in ((5, 2), (8, 3))]
    problem = graph.least_squares([*pairs, (np.zeros((0, 1)), np.zeros(0))], l2=0.3)
    for i, (A, y) in enumerate(pairs):
        d = A.shape[1]
        x = rng.standard_normal(d)
        whole = np.zeros(3)
        whole[:d] = x
        apart = A @ x - y
        objective = problem.client_objective(i)
        expected = apart @ apart / (2 * len(y)) + 0.15 * x @ x
        assert float(objective.value(whole)) == pytest.approx(expected, rel=1e-12)
        slope = A.T @ apart / len(y) + 0.3 * x
        np.testing.assert_allclose(objective.grad(whole)[:d], slope, rtol=1e-12)
    assert float(problem.client_objective(2).value(np.array([2.0, 0, 0]))) == pytest.approx(0.6)
