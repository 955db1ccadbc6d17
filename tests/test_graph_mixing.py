"""The methods that mix neighbours' models, against their papers' recursions."""

import numpy as np
import pytest

import accord
from accord import graph
from accord.graph import Network
from networks import FAMILIES, moments, readings, regression

MIXERS = [graph.EXTRA(), graph.GradientTracking()]


@pytest.mark.parametrize("method", MIXERS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_exact_mixing_methods_reach_the_optimum(method, family):
    network = FAMILIES[family]()
    problem = regression(len(network), l2=0.3)
    run = graph.run(method, network, problem, 60_000, every=500, tolerance=1e-11)
    assert run.status.name == "converged"
    assert run.history["distance"][-1] < 1e-9


def plain_mixing(name, network, H, b, eta, rounds, x0):
    across, own = network.metropolis_weights()
    W = np.diag(own)
    W[network.source, network.target] = across
    np.testing.assert_allclose(W.sum(0), 1, atol=1e-15)
    np.testing.assert_array_equal(W, W.T)
    grad = lambda x: np.einsum("nij,nj->ni", H, x) - b  # noqa: E731
    x = np.broadcast_to(x0, b.shape)
    xs, y, g = [], grad(x), grad(x)
    before = None
    for k in range(rounds):
        if name == "DGD":
            x = W @ x - eta * grad(x)
        elif name == "EXTRA":
            if k == 0:
                new = W @ x - eta * grad(x)
            else:
                half = 0.5 * (np.eye(len(W)) + W)
                new = x + W @ x - half @ before - eta * (grad(x) - grad(before))
            before, x = x, new
        else:
            x = W @ x - eta * y
            y = W @ y + grad(x) - g
            g = grad(x)
        xs.append(x)
    return np.array(xs)


@pytest.mark.parametrize("name", ["DGD", "EXTRA", "GradientTracking"])
def test_mixing_methods_are_those_of_the_papers(name):
    network = FAMILIES["small_world"]()
    problem = regression(len(network))
    method = graph.METHODS[name](step_size=0.05)
    x0 = np.array([3.0, -1.0, 0.5])
    run = graph.run(method, network, problem, 30, record="x", x0=x0)
    xs = plain_mixing(name, network, *moments(problem), 0.05, 30, x0)
    np.testing.assert_allclose(run.xs, xs, atol=1e-11)
    vectors = 2 if name == "GradientTracking" else 1
    assert run.history["bytes"][-1] == 30 * vectors * len(network.source) * 3 * 8
    assert run.history["messages"][-1] == 30 * len(network.source)


def test_dgd_stops_short_in_proportion_to_its_step():
    network = FAMILIES["ring"]()
    problem = regression(len(network), l2=0.3)
    L = accord.theory.constants(problem).smoothness
    ends = [
        graph.run(graph.DGD(s / L), network, problem, 20_000, every=20_000).history["distance"][-1]
        for s in (0.02, 0.01)
    ]
    assert ends[0] > 1e-3
    assert 1.6 < ends[0] / ends[1] < 2.4


def test_gossip_is_powers_of_the_weights():
    network = FAMILIES["grid"]()
    values = readings(network)
    run = graph.run(graph.Gossip(), network, accord.problems.averaging(values), 5, record="x")
    across, own = network.metropolis_weights()
    W = np.diag(own)
    W[network.source, network.target] = across
    np.testing.assert_allclose(
        run.xs[:, :, 0], [np.linalg.matrix_power(W, k) @ values for k in range(1, 6)], atol=1e-13
    )
    far = graph.run(graph.Gossip(), network, accord.problems.averaging(values), 2000, every=2000)
    assert abs(far.x - values.mean()).max() < 1e-12


def test_pdmm_beats_gossip_where_paths_are_long():
    """On a ring of 30 the spectral gap is small: gossip needs its inverse, PDMM the root of that."""
    network = Network.ring(30)
    problem = accord.problems.averaging(readings(network))

    def rounds_to(method):
        distance = graph.run(method, network, problem, 3000).history["distance"]
        return int(np.argmax(distance < 1e-6)) + 1

    assert 10 * rounds_to(graph.PDMM()) < rounds_to(graph.Gossip())


def test_broadcasts_carry_every_vector():
    network, problem = Network.ring(4), regression(4)
    for method, vectors in ((graph.DGD(), 1), (graph.GradientTracking(), 2)):
        run = graph.run(method, network, problem, 3, communication="broadcast")
        assert run.history["bytes"][-1] == 3 * 4 * vectors * 3 * 8


def test_a_comparison_of_methods_that_start_at_the_optimum(tmp_path):
    for values in ([0.0] * 4, [5.0] * 4):
        methods = [graph.PDMM(), graph.Gossip()]
        problem = accord.problems.averaging(values)
        comparison = accord.compare(methods, problem, 20, network=Network.ring(4))
        comparison.plots(tmp_path)
        comparison.report(tmp_path / "report.html")
        assert comparison.table()[1]["distance"] < 1e-12
