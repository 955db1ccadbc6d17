"""Networks: numbering, families, spectra, constraints, and what is refused."""

import networkx
import numpy as np
import pytest

from accord.graph import Network


def laplacian(network):
    adjacency = network.adjacency().toarray()
    return np.diag(adjacency.sum(1)) - adjacency


FAMILIES = {
    "ring": (Network.ring(7), networkx.cycle_graph(7)),
    "path": (Network.path(6), networkx.path_graph(6)),
    "grid": (Network.grid(3, 4), networkx.grid_2d_graph(3, 4)),
    "torus": (Network.torus(3, 5), networkx.grid_2d_graph(3, 5, periodic=True)),
    "complete": (Network.complete(5), networkx.complete_graph(5)),
    "star": (Network.star(6), networkx.star_graph(5)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_against_networkx(name):
    ours, theirs = FAMILIES[name]
    assert len(ours) == len(theirs)
    assert sorted(ours.degrees) == sorted(d for _, d in theirs.degree)
    assert ours.diameter == networkx.diameter(theirs)
    assert ours.connected
    labels = {node: i for i, node in enumerate(theirs)}
    expected = {tuple(sorted((labels[a], labels[b]))) for a, b in theirs.edges}
    assert set(map(tuple, ours.edges.tolist())) == expected
    assert ours.positions.shape == (len(ours), 2)


@pytest.mark.parametrize(
    "network",
    [
        Network.erdos_renyi(30, 0.2, seed=1),
        Network.random_geometric(30, seed=1),
        Network.barabasi_albert(30, 2, seed=1),
        Network.small_world(30, 4, 0.2, seed=1),
        Network.ring(4),
        Network.complete(4),
        Network.grid(3, 4),  # bipartite, with different degrees
    ],
    ids=[
        "erdos_renyi",
        "random_geometric",
        "barabasi_albert",
        "small_world",
        "ring",
        "complete",
        "grid",
    ],
)
def test_numbers_of_a_network(network):
    values = np.linalg.eigvalsh(laplacian(network))
    assert abs(network.algebraic_connectivity - values[1]) < 1e-9
    assert network.connected
    # Directed edges: by source, then target; reverse is an involution that swaps both ends.
    s, t, r = network.source, network.target, network.reverse
    assert (np.lexsort((t, s)) == np.arange(len(s))).all()
    np.testing.assert_array_equal(s[r], t)
    np.testing.assert_array_equal(t[r], s)
    np.testing.assert_array_equal(r[r], np.arange(len(r)))
    np.testing.assert_array_equal(np.bincount(s), network.degrees)
    scale = network.degrees**-0.5
    normalised = network.adjacency().toarray() * scale[:, None] * scale
    moduli = np.sort(abs(np.linalg.eigvalsh(normalised)))
    assert abs(network.mixing_rate - moduli[moduli < 1 - 1e-9][-1]) < 1e-9


def test_large_networks_have_the_same_numbers():
    """Beyond 600 nodes eigenvalues come from Lanczos iterations."""
    network = Network.torus(30, 30)
    smallest = 2 - 2 * np.cos(2 * np.pi / 30)
    assert abs(network.algebraic_connectivity / smallest - 1) < 1e-5
    # An even torus is bipartite: -1 is left out, as 1 is.
    assert abs(network.mixing_rate - (1 + np.cos(2 * np.pi / 30)) / 2) < 2e-3
    random = Network.erdos_renyi(700, 0.02, seed=3)
    values = np.linalg.eigvalsh(laplacian(random))
    assert abs(random.algebraic_connectivity / values[1] - 1) < 1e-6
    assert not random.bipartite
    assert random.diameter == networkx.diameter(networkx.Graph(list(random.edges)))


def test_families_have_their_places():
    """Circles with node 0 on top, turning right; rectangles row under row, as a page is read."""
    for network, ring in ((Network.ring(4), slice(0, 4)), (Network.star(5), slice(1, 5))):
        expected = [[0, 1], [1, 0], [0, -1], [-1, 0]]
        np.testing.assert_allclose(network.positions[ring], expected, atol=1e-15)
    expected = [[0, 0], [1, 0], [2, 0], [0, -1], [1, -1], [2, -1]]
    np.testing.assert_array_equal(Network.grid(2, 3).positions, expected)
    np.testing.assert_array_equal(Network.torus(3, 3).positions[:6], expected)
    np.testing.assert_array_equal(Network.path(3).positions, [[0, 0], [1, 0], [2, 0]])


def test_names_and_positions():
    network = Network([("b", "a"), ("b", "c")], nodes=["a", "b", "c"], positions=np.eye(3)[:, :2])
    assert network.edges.tolist() == [[0, 1], [1, 2]]
    assert list(network.names) == ["a", "b", "c"]
    assert network.number("c") == 2
    graph = networkx.Graph([("x", "y"), ("y", "z")])
    for k, node in enumerate(graph):
        graph.nodes[node]["pos"] = (k, 0.5)
    ours = Network.from_networkx(graph)
    assert list(ours.names) == ["x", "y", "z"]
    assert ours.positions.tolist() == [[0, 0.5], [1, 0.5], [2, 0.5]]
    assert repr(ours) == "Network(3 nodes, 2 edges)"


def test_sites_in_the_plane():
    rng = np.random.default_rng(0)
    clusters = np.concatenate([rng.normal(c, 0.1, (8, 2)) for c in (0, 5, 9)])
    network = Network.from_positions(clusters, neighbours=3, names=[f"s{i}" for i in range(24)])
    assert network.connected
    assert network.degrees.min() >= 3
    # Two bridges hold three clusters together, each as short as it can be.
    cluster = np.arange(24) // 8
    bridges = [(i, j) for i, j in network.edges if cluster[i] != cluster[j]]
    assert len(bridges) == 2
    distances = np.linalg.norm(clusters[:, None] - clusters[None], axis=-1)
    shortest = [distances[:8, 8:16].min(), distances[8:16, 16:].min()]
    np.testing.assert_allclose([distances[i, j] for i, j in bridges], shortest)


def test_points_are_joined_up_to_the_default_radius():
    network = Network.random_geometric(60, seed=2)
    apart = np.linalg.norm(network.positions[:, None] - network.positions[None], axis=-1)
    expected = (apart <= np.sqrt(2 * np.log(60) / 60)) & ~np.eye(60, dtype=bool)
    np.testing.assert_array_equal(network.adjacency().toarray(), expected)


def test_sites_have_no_more_neighbours_than_there_are_others():
    network = Network.from_positions([[0, 0], [1, 0], [0, 2]], neighbours=9)
    assert network.edges.tolist() == [[0, 1], [0, 2], [1, 2]]


def test_random_families_repeat_by_seed():
    for make in (
        lambda s: Network.erdos_renyi(20, 0.2, seed=s),
        lambda s: Network.random_geometric(20, seed=s),
        lambda s: Network.barabasi_albert(20, 2, seed=s),
        lambda s: Network.small_world(20, 4, 0.5, seed=s),
    ):
        np.testing.assert_array_equal(make(3).edges, make(3).edges)
        assert make(3).edges.tolist() != make(4).edges.tolist()


def test_metropolis_weights():
    network = Network.star(4)
    across, own = network.metropolis_weights()
    np.testing.assert_allclose(across, 1 / 4)
    np.testing.assert_allclose(own, [1 / 4, 3 / 4, 3 / 4, 3 / 4])


MISTAKES = {
    "self-loop": (lambda: Network([(0, 1), (2, 2)]), r"\(2, 2\) is a self-loop"),
    "twice": (lambda: Network([(0, 1), (1, 2), (1, 0)]), r"\(0, 1\) is given 2 times"),
    "negative": (lambda: Network([(0, -1)]), "node numbers must be from 0"),
    "too large": (lambda: Network([(0, 5)], nodes=3), r"\(0, 5\) is not among the nodes 0 to 2"),
    "none": (lambda: Network([]), "edges: there are none"),
    "one node": (lambda: Network([], nodes=1), "nodes: got 1; a network has at least 2"),
    "no pairs": (lambda: Network([(0, 1, 2)]), "expected pairs of node numbers"),
    "fractions": (lambda: Network([(0.5, 1.0)]), "expected pairs of node numbers"),
    "names without nodes": (lambda: Network([("a", "b")]), r"for names give nodes=\[...\] too"),
    "unknown name": (lambda: Network([("a", "x")], nodes=["a", "b"]), "'x' is not among the nodes"),
    "same name": (lambda: Network([], nodes=["a", "a"]), "'a' names two nodes"),
    "positions": (lambda: Network([(0, 1)], positions=[[0, 0]]), r"positions: shape \(1, 2\)"),
    "ring": (lambda: Network.ring(2), "nodes: got 2; accepted is a whole number >= 3"),
    "torus": (lambda: Network.torus(2, 5), "rows: got 2; accepted is a whole number >= 3"),
    "never connected": (lambda: Network.erdos_renyi(50, 0.001), "none of 100 draws was connected"),
    "probability": (lambda: Network.erdos_renyi(50, 1.5), "probability: got 1.5"),
    "radius": (lambda: Network.random_geometric(50, -1), "radius: got -1"),
    "attachments": (lambda: Network.barabasi_albert(5, 5), "attachments: got 5; accepted are 1 to 4"),
    "neighbours": (lambda: Network.small_world(5, 5), "neighbours: got 5; accepted are 2 to 4"),
    "directed": (
        lambda: Network.from_networkx(networkx.DiGraph([(0, 1)])),
        "it is directed or has parallel edges",
    ),
    "sites": (lambda: Network.from_positions([[0, 0, 0]]), r"positions: shape \(1, 3\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name):
    make, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message):
        make()


def matrix(*shape):
    return np.arange(1.0, 1 + np.prod(shape)).reshape(shape)


CONSTRAINTS = {
    "no such edge": ({(0, 2): (matrix(1, 2), matrix(1, 2))}, "the network has no such edge"),
    "no such node": (
        {(0, 9): (matrix(1, 2), matrix(1, 2))},
        "the network has no such node; it has 0 to 3",
    ),
    "rows": ({(0, 1): (matrix(1, 2), matrix(2, 2))}, "B_ij has 1 rows and B_ji 2"),
    "one side": ({(0, 1): matrix(1, 2)}, r"expected \(B_ij, B_ji\)"),
    "twice": (
        {(0, 1): (matrix(1, 2), matrix(1, 2)), (1, 0): (matrix(1, 2), matrix(1, 2))},
        "is constrained twice",
    ),
    "constant": ({(0, 1): (matrix(1, 2), matrix(1, 2), [1.0, 2.0])}, r"c has shape \(2,\)"),
    "not finite": ({(0, 1): ([[np.nan, 1.0]], matrix(1, 2))}, "of finite numbers"),
    "same coordinate": ({(0, 1): ([0, 0], [0, 1])}, "expected different ones >= 0"),
    "key": ({0: (matrix(1, 2), matrix(1, 2))}, "is not an edge"),
    "words": ("ab", "expected a matrix"),
    "columns": ({(0, 1): (matrix(1, 3), matrix(1, 2))}, "B of node 0 has 3 columns; its x has 2"),
    "coordinate": ({(0, 1): ([2], [1])}, "coordinate 2; its x has 0 to 1"),
    "infeasible": (
        {
            (0, 1): (np.eye(2), np.eye(2), [1.0, 0.0]),
            (1, 2): (np.eye(2), np.eye(2), [1.0, 0.0]),
            (2, 3): (np.eye(2), np.eye(2), [1.0, 0.0]),
            (3, 0): (np.eye(2), np.eye(2), [1.0, 0.0]),
        },
        "no x satisfies them all",
    ),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_mistakes_in_constraints_are_named(name):
    given, message = CONSTRAINTS[name]
    with pytest.raises(ValueError, match=message):
        Network.ring(4).with_constraints(given).constraints.arrays(np.full(4, 2))


def test_dimensions_that_differ_want_a_constraint():
    with pytest.raises(ValueError, match=r"edge \(0, 1\) has none, and x_i = x_j is not possible"):
        Network.path(3).with_constraints({}).constraints.arrays(np.array([2, 3, 3]))


def test_offsets_around_a_cycle_that_add_up_are_feasible():
    eye = np.eye(1)
    steps = {(0, 1): 1.0, (1, 2): 2.0, (2, 3): -4.0, (3, 0): 1.0}
    network = Network.ring(4).with_constraints({e: (eye, eye, [c]) for e, c in steps.items()})
    arrays = network.constraints.arrays(np.ones(4, int))
    ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
    expected = [0.5 * steps[i, j] if (i, j) in steps else -0.5 * steps[j, i] for i, j in ends]
    np.testing.assert_array_equal(arrays.offsets[:, 0], expected)
