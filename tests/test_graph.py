"""PDMM and its kin on networks: against closed forms, KKT systems and a plain loop over nodes and edges."""

import jax
import numpy as np
import pytest

import accord
from accord import graph, oracles
from accord.graph import Network

FAMILIES = {
    "ring": lambda: Network.ring(9),
    "path": lambda: Network.path(7),
    "grid": lambda: Network.grid(3, 4),
    "torus": lambda: Network.torus(3, 4),
    "complete": lambda: Network.complete(6),
    "star": lambda: Network.star(8),
    "erdos_renyi": lambda: Network.erdos_renyi(12, 0.3, seed=1),
    "random_geometric": lambda: Network.random_geometric(15, seed=2),
    "barabasi_albert": lambda: Network.barabasi_albert(40, 1, seed=3),
    "small_world": lambda: Network.small_world(14, 4, 0.3, seed=4),
}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def readings(network, seed=0):
    return 5 + 3 * np.random.default_rng(seed).standard_normal(len(network))


def regression(nodes, rows=6, features=3, seed=0, l2=0.0, **options):
    """Least squares whose nodes have optima of their own, and scales of their own."""
    rng = np.random.default_rng(seed)
    arrays = []
    for _ in range(nodes):
        A = rng.standard_normal((rows, features)) * rng.uniform(0.5, 2)
        arrays.append((A, A @ rng.standard_normal(features) + 0.1 * rng.standard_normal(rows)))
    clients = accord.Clients.from_arrays(arrays)
    return accord.problems.least_squares(clients, l2=l2, **options)


def moments(problem):
    """(H_i, b_i) with f_i = x'H_i x/2 - b_i'x + constant, straight from the rows."""
    H = np.array([A.T @ A / len(y) for A, y in problem.clients])
    return H, np.array([A.T @ y / len(y) for A, y in problem.clients])


def plain_pdmm(
    network, H, b, rho, rounds, *, theta=1.0, sides=None, turns=None, sets=None, arrives=None
):
    """PDMM written as it is in the papers: a loop over nodes and edges, one z for each direction.

    ``sides``: {(i, j): (B_ij, o_ij)} of directed edges; ``turns`` (rounds, k): nodes one after another;
    ``sets`` (rounds, n): who acts; ``arrives(round, i, j)``: whether i's message to j does.
    """
    n, d = b.shape
    eye = np.eye(d), np.zeros(d)
    side = {
        (i, int(j)): eye if sides is None else sides[i, int(j)]
        for i in range(n)
        for j in network.neighbours(i)
    }
    z = {e: -o for e, (_, o) in side.items()}  # B x - o at x = 0
    x, xs = np.zeros((n, d)), []

    def solve(i):
        A, r = H[i].copy(), b[i].copy()
        for j in network.neighbours(i):
            B, o = side[i, j]
            A += rho * B.T @ B
            r += rho * B.T @ (z[i, j] + o)
        return np.linalg.solve(A, r)

    def sent(i, t):
        out = {}
        for j in network.neighbours(i):
            B, o = side[i, j]
            new = 2 * (B @ x[i] - o) - z[i, j]
            if arrives is None or arrives(t, i, j):
                out[j, i] = (1 - theta) * z[j, i] + theta * new
        return out

    for t in range(rounds):
        if turns is not None:
            for i in turns[t]:
                x[i] = solve(i)
                z.update(sent(i, t))
        else:
            active = range(n) if sets is None else np.flatnonzero(sets[t])
            x = np.array([solve(i) if i in active else x[i] for i in range(n)])
            z.update({e: v for i in active for e, v in sent(i, t).items()})
        xs.append(x.copy())
    return np.array(xs), z


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


MIXERS = [graph.EXTRA(), graph.GradientTracking()]


@pytest.mark.parametrize("method", MIXERS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_exact_mixing_methods_reach_the_optimum(method, family):
    network = FAMILIES[family]()
    problem = regression(len(network), l2=0.3)
    run = graph.run(method, network, problem, 60_000, every=500, tolerance=1e-11)
    assert run.status.name == "converged"
    assert run.history["distance"][-1] < 1e-9


def plain_mixing(name, network, H, b, eta, rounds):
    across, own = network.metropolis_weights()
    W = np.diag(own)
    W[network.source, network.target] = across
    np.testing.assert_allclose(W.sum(0), 1, atol=1e-15)
    np.testing.assert_array_equal(W, W.T)
    grad = lambda x: np.einsum("nij,nj->ni", H, x) - b  # noqa: E731
    x = np.zeros_like(b)
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
    run = graph.run(method, network, problem, 30, record="x")
    xs = plain_mixing(name, network, *moments(problem), 0.05, 30)
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


MISTAKES = {
    "in two parts": (lambda: Network([(0, 1), (2, 3)]), {}, "falls into 2 parts"),
    "isolated node": (lambda: Network([(0, 1), (1, 2)], nodes=4), {}, "falls into 2 parts"),
    "activation": (lambda: Network.ring(4), {"activation": "sometimes"}, "activation: got"),
    "short sequence": (lambda: Network.ring(4), {"activation": [0, 1]}, "2 rounds in the sequence"),
    "unknown node": (lambda: Network.ring(4), {"activation": [9] * 9}, "node numbers must be"),
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
    "penalty": (lambda: Network.ring(4), {"method": None}, "NoneType"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name):
    network, changes, message = MISTAKES[name]
    options = {"method": graph.PDMM(), "rounds": 5} | changes
    method, rounds = options.pop("method"), options.pop("rounds")
    with pytest.raises((ValueError, TypeError), match=message):
        graph.run(method, network(), regression(4), rounds, **options)
