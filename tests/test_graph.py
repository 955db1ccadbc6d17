"""PDMM and its kin on networks: against closed forms, KKT systems and a plain loop over nodes and edges."""

import jax
import numpy as np
import pytest

import accord
from accord import graph, oracles
from accord.graph import Network
from networks import FAMILIES, moments, plain_pdmm, readings, regression

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("activation", ["synchronous", "asynchronous"])
def test_averaging_reaches_the_mean(family, activation):
    network = FAMILIES[family]()
    values = readings(network)
    run = graph.run(
        graph.PDMM(), network, accord.problems.averaging(values), 400, activation=activation,
        every=400,
    )  # fmt: skip
    assert abs(run.x - values.mean()).max() < 1e-12
    assert run.history["dual_residual"][-1] < 1e-11
    assert run.history["consensus"][-1] < 1e-12


@pytest.mark.parametrize("family", ["ring", "grid", "star", "small_world"])
def test_least_squares_reaches_the_pooled_solution(family):
    network = FAMILIES[family]()
    problem = regression(len(network))
    X = np.concatenate([A for A, _ in problem.clients])
    y = np.concatenate([y for _, y in problem.clients])
    pooled = np.linalg.lstsq(X, y, rcond=None)[0]
    run = graph.run(graph.PDMM(), network, problem, 1200, every=1200)
    assert abs(run.x - pooled).max() < 1e-10
    # Each node's duals add up to its gradient, and neighbours' are opposite.
    sums = np.zeros_like(run.x)
    np.add.at(sums, network.source, run.duals)
    gradients = np.array([problem.client_objective(i).grad(x) for i, x in enumerate(run.x)])
    np.testing.assert_allclose(sums, gradients, atol=1e-10)
    np.testing.assert_allclose(run.duals, -run.duals[network.reverse], atol=1e-10)
    assert run.history["distance"][-1] < 1e-10
    assert abs(run.history["gap"][-1]) < 1e-9


@pytest.mark.parametrize("theta", [1.0, 0.5, 0.8])
@pytest.mark.parametrize("family", ["ring", "barabasi_albert"])
def test_rounds_are_those_of_the_plain_loop(family, theta):
    network = FAMILIES[family]()
    problem = regression(len(network))
    xs, _ = plain_pdmm(network, *moments(problem), 0.4, 25, theta=theta)
    run = graph.run(graph.PDMM(0.4, theta), network, problem, 25, record=("x",))
    np.testing.assert_allclose(run.xs, xs, atol=1e-11)


def test_duals_are_those_of_the_update_of_the_papers():
    """lambda_{i|j} = rho (x_j - x_i) - lambda_{j|i}, with x_j and lambda_{j|i} of the round before."""
    network, rho = Network.ring(5), 0.7
    problem = regression(5)
    runs = [graph.run(graph.PDMM(rho), network, problem, k) for k in (7, 8)]
    before, after = ([r.x, r.duals] for r in runs)
    i, j = network.source, network.target
    expected = rho * (before[0][j] - after[0][i]) - before[1][network.reverse]
    np.testing.assert_allclose(after[1], expected, atol=1e-12)


@pytest.mark.parametrize("loss", [0.0, 1e-30])
def test_both_synchronous_forms_are_one(loss):
    """The form that holds two vectors a node, and the one that holds z on every edge."""
    network = FAMILIES["barabasi_albert"]()
    problem = regression(len(network))
    run = graph.run(graph.PDMM(0.3, 0.9), network, problem, 40, record="x", loss_probability=loss)
    machine = graph.Machine(
        graph.make_job(graph.PDMM(0.3), network, problem, 1, loss_probability=loss)
    )
    assert machine.plan.form == ("edge" if loss else "node")
    if loss:
        plain = graph.run(graph.PDMM(0.3, 0.9), network, problem, 40, record="x")
        np.testing.assert_allclose(run.xs, plain.xs, atol=1e-12)
        np.testing.assert_allclose(run.duals, plain.duals, atol=1e-12)
        for name in ("objective", "dual_residual", "messages", "bytes", "activations"):
            np.testing.assert_allclose(run.history[name], plain.history[name], rtol=1e-9)


def test_no_digits_are_lost_in_many_rounds():
    network = Network.ring(6)
    values = readings(network) + 1000
    run = graph.run(
        graph.PDMM(0.3), network, accord.problems.averaging(values), 20_000, every=20_000
    )
    assert abs(run.x - values.mean()).max() < 1e-11


def test_two_nodes_by_hand():
    """f_1 = (x-0)^2/2, f_2 = (x-6)^2/2, rho = 1: x = (a + z)/2 and z' = 2 x_other - z_other."""
    problem = accord.problems.averaging([0.0, 6.0])
    run = graph.run(graph.PDMM(1.0), Network([(0, 1)]), problem, 3, record="x")
    # z = (0, 0); x = (0, 3); z = (6, 0); x = (3, 3); z = (6, 0): the mean, and it stays.
    np.testing.assert_allclose(run.xs[:, :, 0], [[0, 3], [3, 3], [3, 3]], atol=1e-15)
    np.testing.assert_allclose(run.duals[:, 0], [3, -3], atol=1e-15)


def test_a_ring_takes_the_sweeps_of_jacobi_not_of_gauss_seidel():
    """A round that used values computed in the same round would need about half as many."""
    network, rho = Network.ring(20), 1.0
    values = readings(network)[:, None]
    H = np.broadcast_to(np.eye(1), (20, 1, 1))
    problem = accord.problems.averaging(values)

    def rounds_to(xs):
        return int(np.argmax(abs(xs - values.mean()).max((1, 2)) < 1e-6)) + 1

    run = graph.run(graph.PDMM(rho), network, problem, 300, record="x")
    jacobi, _ = plain_pdmm(network, H, values, rho, 300)
    sweeps = np.tile(np.arange(20), (300, 1))
    gauss_seidel, _ = plain_pdmm(network, H, values, rho, 300, turns=sweeps)
    assert rounds_to(run.xs) == rounds_to(jacobi)
    assert rounds_to(gauss_seidel) < 0.75 * rounds_to(jacobi)
    # The same sweeps are to be had on request.
    swept = graph.run(graph.PDMM(rho), network, problem, 300, record="x", activation=sweeps)
    np.testing.assert_allclose(swept.xs, gauss_seidel, atol=1e-12)


def test_the_star_network_is_the_star_engine():
    """A relay without rows in the middle: two interleaved copies of the centralised method."""
    clients = regression(6)
    arrays = [(np.zeros((0, 3)), np.zeros(0)), *clients.clients]
    with_relay = accord.problems.least_squares(accord.Clients.from_arrays(arrays), weights="equal")
    star = accord.run(accord.PDMM(penalty=0.6), clients, 20, record=("x",))
    run = graph.run(graph.PDMM(0.6), Network.star(7), with_relay, 40, record="x")
    np.testing.assert_allclose(run.xs[1::2, 0], star.xs, atol=1e-12)
    np.testing.assert_allclose(run.xs[2::2, 0], star.xs[:-1], atol=1e-12)


def test_the_star_network_with_linearised_steps_is_gpdmm():
    clients = regression(6)
    arrays = [(np.zeros((0, 3)), np.zeros(0)), *clients.clients]
    with_relay = accord.problems.least_squares(accord.Clients.from_arrays(arrays), weights="equal")
    step = 0.9 / accord.theory.constants(clients).smoothness
    star = accord.run(accord.GPDMM(5, step, 0.6), clients, 15, record=("x",))
    # In turn: the clients, then the middle. The relay's own exact step is a mean, which linearised
    # steps do not give, so the middle is solved here.
    xs, y = [], np.zeros((6, 3))
    H, b = moments(clients)
    last, z, server = np.zeros((6, 3)), np.zeros((6, 3)), np.zeros(3)
    for _ in range(15):
        z, total = 2 * server - y, 0
        for _ in range(5):
            g = np.einsum("mij,mj->mi", H, last) - b
            last = (last / step + 0.6 * z - g) / (1 / step + 0.6)
            total = total + last
        y = 2 * total / 5 - z
        server = y.mean(0)
        xs.append(server)
    np.testing.assert_allclose(star.xs, xs, atol=1e-12)
    # One round of the network does the very same at its leaves.
    oracle = oracles.Linearised(5, step)
    run = graph.run(graph.PDMM(0.6, 1.0, oracle), Network.star(7), with_relay, 1)
    total, last = 0, np.zeros((6, 3))
    for _ in range(5):
        g = np.einsum("mij,mj->mi", H, last) - b
        last = (last / step - g) / (1 / step + 0.6)
        total = total + last
    np.testing.assert_allclose(run.x[1:], total / 5, atol=1e-13)


@pytest.mark.parametrize(
    "oracle",
    [oracles.Linearised(4), oracles.GradientDescent(6), oracles.Exact()],
    ids=lambda o: type(o).__name__,
)
@pytest.mark.parametrize("activation", ["synchronous", "asynchronous"])
def test_every_local_solver_reaches_the_optimum(oracle, activation):
    network = FAMILIES["grid"]()
    problem = regression(len(network), l2=0.1)
    run = graph.run(
        graph.PDMM(oracle=oracle), network, problem, 1500, activation=activation, every=1500
    )
    assert run.history["distance"][-1] < 1e-10


def test_logistic_regression_on_a_network():
    rng = np.random.default_rng(3)
    arrays = [(rng.standard_normal((k, 3)), rng.integers(0, 2, k)) for k in (3, 8, 20, 5, 11, 40)]
    problem = accord.problems.logistic(accord.Clients.from_arrays(arrays), l2=0.1, weights="equal")
    for activation in ("synchronous", "asynchronous"):
        run = graph.run(
            graph.PDMM(), Network.ring(6), problem, 300, activation=activation, every=300
        )
        assert abs(run.x - problem.reference().x).max() < 1e-10


def test_weights_of_the_problem():
    """Nodes of different sizes: equal weights by default, the pooled fit on request."""
    rng = np.random.default_rng(5)
    arrays = [(rng.standard_normal((k, 2)), rng.standard_normal(k)) for k in (3, 30, 7, 12)]
    clients = accord.Clients.from_arrays(arrays)
    rows, equal = (
        accord.problems.least_squares(clients, l2=0.05, weights=w) for w in ("rows", "equal")
    )
    network = Network.path(4)
    for weights, expected in (("equal", equal), ("problem", rows)):
        run = graph.run(graph.PDMM(), network, rows, 300, weights=weights, every=300)
        assert abs(run.x - expected.reference().x).max() < 1e-11
        assert run.history["distance"][-1] < 1e-11


ACTIVATIONS = {
    "asynchronous": "asynchronous",
    "synchronous": "synchronous",
    "subset": graph.RandomSubset(0.3),
    "clock": graph.PoissonClock(np.linspace(0.5, 3, 12)),
}


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
@pytest.mark.parametrize(
    "loss", [0.3, graph.GilbertElliott(0.1, 0.3)], ids=["independent", "bursty"]
)
def test_lost_messages_do_not_bias(activation, loss):
    network = FAMILIES["grid"]()
    problem = regression(len(network), l2=0.1)
    run = graph.run(
        graph.PDMM(), network, problem, 1500, activation=activation, loss_probability=loss,
        every=1500,
    )  # fmt: skip
    assert run.history["distance"][-1] < 1e-10
    share = run.history["lost"][-1] / run.history["messages"][-1]
    assert abs(share - (0.3 if loss == 0.3 else 0.25)) < 0.02


def test_bursts_have_their_length():
    """Losses come in runs of 1/to_good on average, in every form."""
    with jax.enable_x64(True):
        from accord.graph import activation

        rule = graph.GilbertElliott(0.02, 0.1)
        values = activation.parse_losses(rule).values
        bad, seen = jax.numpy.zeros(200, bool), []
        for k in range(400):
            gone, bad = activation.losses("bursty", values, bad, jax.random.key(k), (200,))
            seen.append(np.asarray(gone))
    gone = np.array(seen)
    starts = (gone[1:] & ~gone[:-1]).sum()
    assert abs(gone.sum() / starts - 10) < 1
    assert abs(gone[100:].mean() - 1 / 6) < 0.02


@pytest.mark.parametrize("family", ["ring", "barabasi_albert"])
@pytest.mark.parametrize("theta", [1.0, 0.6])
def test_turns_are_those_of_the_plain_loop(family, theta):
    network = FAMILIES[family]()
    problem = regression(len(network))
    turns = np.random.default_rng(1).integers(0, len(network), (30, 7))
    xs, _ = plain_pdmm(network, *moments(problem), 0.4, 30, theta=theta, turns=turns)
    run = graph.run(graph.PDMM(0.4, theta), network, problem, 30, record="x", activation=turns)
    np.testing.assert_allclose(run.xs, xs, atol=1e-11)
    assert run.history["activations"][-1] == turns.size
    assert run.history["messages"][-1] == network.degrees[turns].sum()


def test_sets_are_those_of_the_plain_loop():
    network = FAMILIES["grid"]()
    problem = regression(len(network))
    sets = np.random.default_rng(2).random((30, len(network))) < 0.4
    xs, _ = plain_pdmm(network, *moments(problem), 0.4, 30, sets=sets)
    run = graph.run(graph.PDMM(0.4), network, problem, 30, record="x", activation=sets)
    np.testing.assert_allclose(run.xs, xs, atol=1e-11)


@pytest.mark.parametrize("activation", ["synchronous", "turns"])
def test_a_node_that_is_down_neither_acts_nor_hears(activation):
    network = FAMILIES["grid"]()
    problem = regression(len(network), l2=0.1)
    H, b = moments(problem)
    H = H + 0.1 * np.eye(3)
    down = {5: (4, 9), 7: (6, 20)}
    turns = np.tile(np.arange(len(network)), (40, 1))

    def up(t, i):
        return not (i in down and down[i][0] <= t + 1 <= down[i][1])

    if activation == "turns":
        kept = [[i for i in row if up(t, i)] for t, row in enumerate(turns)]
        xs, _ = plain_pdmm(network, H, b, 0.4, 40, turns=kept, arrives=lambda t, i, j: up(t, j))
        chosen = turns
    else:
        sets = np.array([[up(t, i) for i in range(len(network))] for t in range(40)])
        # Sent in round t, it is heard at the start of the next one.
        xs, _ = plain_pdmm(network, H, b, 0.4, 40, sets=sets, arrives=lambda t, i, j: up(t + 1, j))
        chosen = "synchronous"
    outages = [graph.Outage(i, *span) for i, span in down.items()]
    run = graph.run(
        graph.PDMM(0.4), network, problem, 40, record="x", activation=chosen, outages=outages
    )
    np.testing.assert_allclose(run.xs, xs, atol=1e-11)
    assert (run.xs[3:9, 5] == run.xs[3, 5]).all() == (activation == "turns") or (
        run.xs[3:9, 5] == run.xs[2, 5]
    ).all()
    if activation == "synchronous":
        later = graph.run(graph.PDMM(), network, problem, 900, outages=outages, every=900)
        assert later.history["distance"][-1] < 1e-10


def test_broadcast_is_the_same_in_fewer_messages():
    network = FAMILIES["grid"]()
    problem = regression(len(network))
    for activation in ("synchronous", "asynchronous"):
        unicast, broadcast = (
            graph.run(graph.PDMM(), network, problem, 20, activation=activation, communication=c)
            for c in ("unicast", "broadcast")
        )
        np.testing.assert_array_equal(unicast.x, broadcast.x)
        acted = unicast.history["activations"][-1]
        assert broadcast.history["messages"][-1] == acted
        assert broadcast.history["bytes"][-1] == acted * 3 * 8
        assert unicast.history["bytes"][-1] == unicast.history["messages"][-1] * 3 * 8
    sends = 20 * len(network.source)
    synchronous = graph.run(graph.PDMM(), network, problem, 20)
    assert synchronous.history["messages"][-1] == sends
    with pytest.raises(ValueError, match="broadcast"):
        graph.run(
            graph.PDMM(), network, problem, 5, loss_probability=0.1, communication="broadcast"
        )


def test_half_relaxation_is_consensus_admm():
    """ADMM for min sum f_i(x_i), x_i = e = x_j on every edge, with scaled multipliers."""
    network, rho = FAMILIES["small_world"](), 0.5
    problem = regression(len(network))
    H, b = moments(problem)
    n, d = b.shape
    s, t, degree = network.source, network.target, network.degrees
    e, u = np.zeros((len(s), d)), np.zeros((len(s), d))  # of each directed edge
    run = graph.run(graph.PDMM(rho, 0.5), network, problem, 30, record="x")
    for k in range(30):
        pull = np.zeros((n, d))
        np.add.at(pull, s, e - u)
        x = np.array(
            [
                np.linalg.solve(H[i] + rho * degree[i] * np.eye(d), b[i] + rho * pull[i])
                for i in range(n)
            ]
        )
        np.testing.assert_allclose(run.xs[k], x, atol=1e-11)
        e = 0.5 * (x[s] + u + x[t] + u[network.reverse])
        u = u + x[s] - e


def test_merely_convex_functions_want_relaxation():
    """f_i without curvature in some direction: exact at theta < 1, where the default comes from the data."""
    network = FAMILIES["ring"]()
    rng = np.random.default_rng(7)
    arrays = [(rng.standard_normal((1, 4)), rng.standard_normal(1)) for _ in range(len(network))]
    problem = accord.problems.least_squares(accord.Clients.from_arrays(arrays))
    run = graph.run(graph.PDMM(relaxation=None), network, problem, 6000, every=6000)
    assert run.algorithm.relaxation == 0.5
    assert run.history["distance"][-1] < 1e-9


def test_the_default_penalty_is_the_fastest_for_averaging_on_a_regular_network():
    network = Network.ring(24)
    problem = accord.problems.averaging(readings(network))
    best = graph.run(graph.PDMM(), network, problem, 1).algorithm.penalty
    c = np.cos(2 * np.pi / 24)
    assert abs(network.mixing_rate - c) < 1e-9
    assert abs(best - 1 / (2 * np.sqrt(1 - c * c))) < 1e-9

    def factor(rho):
        d = graph.run(graph.PDMM(rho), network, problem, 160).history["distance"]
        return (d[150] / d[50]) ** 0.01

    assert factor(0.7 * best) > factor(best) + 0.01
    assert factor(1.4 * best) > factor(best) + 0.01


def test_statuses():
    network = FAMILIES["ring"]()
    problem = regression(len(network))
    run = graph.run(graph.PDMM(), network, problem, 5000, tolerance=1e-9)
    assert run.status.name == "converged"
    assert run.history["round"][-1] < 5000
    for name in ("consensus", "dual_residual", "gradient_norm"):
        assert run.history[name][-1] <= 1e-9 < run.history[name][0]
    wild = graph.run(graph.DGD(step_size=100.0), network, problem, 500)
    assert wild.status.name == "diverged"
    assert "step_size" in wild.status.sentence
    assert graph.run(graph.PDMM(), network, problem, 3).status.name == "budget_spent"


def test_same_bits_however_recorded():
    network = FAMILIES["grid"]()
    problem = regression(len(network))
    options = {"activation": "asynchronous", "loss_probability": 0.2, "seed": 5}
    runs = [
        graph.run(graph.PDMM(), network, problem, 37, every=k, record=r, **options)
        for k, r in ((1, ("x",)), (10, ()), (37, ()))
    ]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].x, other.x)
    assert list(runs[1].history["round"]) == [10, 20, 30, 37]
    np.testing.assert_array_equal(runs[0].xs[-1], runs[0].x)
    different = graph.run(graph.PDMM(), network, problem, 37, **(options | {"seed": 6}))
    assert abs(different.x - runs[0].x).max() > 0


def test_poisson_clocks_tell_the_time():
    network = FAMILIES["grid"]()
    rates = np.linspace(0.5, 3, 12)
    run = graph.run(
        graph.PDMM(), network, accord.problems.averaging(readings(network)), 2000,
        activation=graph.PoissonClock(rates), every=2000,
    )  # fmt: skip
    expected = 2000 * 12 / rates.sum()
    assert abs(run.history["time"][-1] / expected - 1) < 0.05
    assert (
        "time"
        not in graph.run(
            graph.PDMM(), network, accord.problems.averaging(readings(network)), 2
        ).history
    )


def test_models_of_any_structure_agree():
    """A dictionary of parameters with a scalar in it, over an asynchronous ring."""
    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal((7, 2)), rng.standard_normal(7)) for _ in range(5)]

    def loss(x, row, target):
        return 0.5 * (row @ x["w"] + x["b"] - target) ** 2

    problem = accord.problems.custom(
        loss, {"w": np.zeros(2), "b": 0.0}, accord.Clients.from_arrays(arrays), l2=0.1, convex=True
    )
    best = problem.reference().x
    for activation in ("synchronous", "asynchronous"):
        run = graph.run(
            graph.PDMM(), Network.ring(5), problem, 300, activation=activation, every=300
        )
        assert abs(run.x["w"] - best["w"]).max() < 1e-10
        assert run.x["b"].shape == (5,)
        assert abs(run.x["b"] - best["b"]).max() < 1e-10


def test_single_precision():
    network = FAMILIES["grid"]()
    problem = regression(len(network), dtype="float32")
    run = graph.run(graph.PDMM(), network, problem, 300, every=300)
    assert run.x.dtype == np.float32
    assert run.history["distance"][-1] < 1e-4
    assert run.history["bytes"][-1] == run.history["messages"][-1] * 3 * 4


def test_noisy_and_stateful_solvers_run():
    network = FAMILIES["ring"]()
    problem = regression(len(network), rows=40, l2=0.1)
    for oracle, share in (
        (oracles.SGD(8, 5, 0.02, "linearised"), 0.5),
        (oracles.VarianceReduced(8, 3, 5), 1e-6),
    ):
        for activation in ("synchronous", "asynchronous", graph.RandomSubset(0.5)):
            run = graph.run(graph.PDMM(oracle=oracle), network, problem, 300, activation=activation)
            assert run.history["distance"][-1] < share * run.start["distance"]
            assert run.history["gradients"][-1] > 0


def test_no_recompilation_for_other_numbers():
    from accord.graph import machine

    network = FAMILIES["ring"]()
    problem = regression(len(network))
    graph.run(graph.PDMM(0.3), network, problem, 10)
    before = machine._advance._cache_size()
    graph.run(graph.PDMM(0.5), network, problem, 10, seed=3)
    assert machine._advance._cache_size() == before


def test_weights_of_the_problem_shape_every_default():
    """One node with 400 rows among nodes with 4: its f_i counts seven times, and so does its L."""
    rng = np.random.default_rng(1)
    sizes = (4, 4, 4, 400, 4, 4, 4, 4)
    arrays = [(rng.standard_normal((k, 2)) * (1 + (k > 4)), rng.standard_normal(k)) for k in sizes]
    problem = accord.problems.least_squares(accord.Clients.from_arrays(arrays), l2=0.05)
    for method in (
        graph.EXTRA(),
        graph.GradientTracking(),
        graph.DGD(),
        graph.PDMM(oracle=oracles.GradientDescent(5)),
        graph.PDMM(oracle=oracles.Linearised(1)),
    ):
        run = graph.run(method, Network.ring(8), problem, 4000, every=4000, weights="problem")
        assert run.status.name == "budget_spent", run.status
        if not isinstance(method, graph.DGD):
            assert run.history["distance"][-1] < 1e-4


def test_growth_of_the_objective_is_not_divergence():
    """Gossip starts at every node's own minimiser, where sum f_i is 0: it can only grow."""
    problem = accord.problems.averaging([-100.0, 100, -90, 120])
    run = graph.run(graph.Gossip(), Network.ring(4), problem, 300, every=300)
    assert run.status.name == "budget_spent"
    assert abs(run.x - 7.5).max() < 1e-10


MISTAKES = {
    "in two parts": (lambda: Network([(0, 1), (2, 3)]), {}, "falls into 2 parts"),
    "isolated node": (lambda: Network([(0, 1), (1, 2)], nodes=4), {}, "falls into 2 parts"),
    "activation": (lambda: Network.ring(4), {"activation": "sometimes"}, "activation: got"),
    "short sequence": (lambda: Network.ring(4), {"activation": [0, 1]}, "2 rounds in the sequence"),
    "unknown node": (lambda: Network.ring(4), {"activation": [9] * 9}, "node numbers must be 0 to 3"),
    "loss": (lambda: Network.ring(4), {"loss_probability": 1.0}, "loss_probability: got 1.0"),
    "outage": (lambda: Network.ring(4), {"outages": [(1, 5, 2)]}, "1 <= first <= last"),
    "outage of nobody": (lambda: Network.ring(4), {"outages": [(9, 1, 2)]}, "no such node"),
    "weights": (lambda: Network.ring(4), {"weights": "rows"}, "weights: got 'rows'"),
    "rounds": (lambda: Network.ring(4), {"rounds": 0}, "rounds: got 0"),
    "record": (lambda: Network.ring(4), {"record": ("z",)}, "record: got"),
    "tolerance": (lambda: Network.ring(4), {"tolerance": 0}, "tolerance: got 0"),
    "nodes": (lambda: Network.ring(5), {}, "4 clients and the network 5 nodes"),
    "x0": (lambda: Network.ring(4), {"x0": np.zeros(2)}, "x0: an array of shape"),
    "method": (lambda: Network.ring(4), {"method": accord.PDMM()}, "accepted are those of accord.graph"),
    "class": (lambda: Network.ring(4), {"method": graph.PDMM}, "got the class PDMM"),
    "extra asynchronous": (
        lambda: Network.ring(4),
        {"method": graph.EXTRA(), "activation": "asynchronous"},
        "EXTRA is synchronous",
    ),
    "gossip": (lambda: Network.ring(4), {"method": graph.Gossip()}, "no averaging problem"),
    "nothing": (lambda: Network.ring(4), {"method": None}, "NoneType"),
    "infinite tolerance": (lambda: Network.ring(4), {"tolerance": np.inf}, "tolerance: got inf"),
    "long outage": (lambda: Network.ring(4), {"outages": [(1, 1, 10**10)]}, "1 <= first <= last"),
    "no record": (lambda: Network.ring(4), {"record": 5}, "record: got 5"),
    "progress": (lambda: Network.ring(4), {"progress": 5}, "progress: got 5"),
    "reference": (lambda: Network.ring(4), {"reference": "yes"}, "reference: got 'yes'"),
    "ragged": (lambda: Network.ring(4), {"activation": [[1, 2], [3]]}, "different lengths"),
    "rates": (
        lambda: Network.ring(4), {"activation": graph.PoissonClock("fast")}, "expected numbers",
    ),
    "words": (lambda: Network.ring(4), {"x0": "start"}, "accepted are numbers"),
    "solver": (
        lambda: Network.ring(4), {"method": graph.PDMM(oracle=len)}, "accepted is a local solver",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name):
    network, changes, message = MISTAKES[name]
    options = {"method": graph.PDMM(), "rounds": 5} | changes
    method, rounds = options.pop("method"), options.pop("rounds")
    with pytest.raises((ValueError, TypeError), match=message):
        graph.run(method, network(), regression(4), rounds, **options)


def test_a_penalty_is_one_number():
    with pytest.raises(TypeError, match=r"PDMM\(penalty=\.\.\.\)"):
        graph.PDMM(penalty=np.ones(2))
