"""Newton's method against NumPy's round by round, closed forms and the properties that its message has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import accord
import numpy_reference as ref
from accord.algorithms.newton import Message, Server
from accord.objectives import Lasso
from accord.oracles import newton_step

MODELS = {
    "least_squares": ref.LeastSquares,
    "logistic": ref.Logistic,
    "poisson": ref.Poisson,
}
SIZES = (9, 20, 14)
WIDTH = 4


def pairs(name, seed=3, shift=0.0):
    """Rows of clients that differ in size, place and law."""
    rng = np.random.default_rng(seed)
    made = []
    for n in SIZES:
        A = rng.standard_normal((n, WIDTH)) * [1.0, 0.5, 1.5, 0.3] + 0.3 * rng.standard_normal(
            WIDTH
        )
        eta = A @ rng.standard_normal(WIDTH) + shift
        noise = rng.uniform(size=n)
        made.append(
            (
                A,
                {
                    "least_squares": eta + noise,
                    "logistic": 1.0 * (noise < 1 / (1 + np.exp(-eta))),
                    "poisson": rng.poisson(np.exp(eta)),
                    "huber": eta + noise,
                    "softmax": rng.integers(0, 3, n),
                }[name],
            )
        )
    return made


def build(name, l1=0.0, **options):
    clients = accord.Clients.from_arrays(pairs(name))
    return getattr(accord.problems, name)(clients, l1=l1, **{"l2": 0.05} | options)


@pytest.mark.parametrize("weights", ["rows", "equal"])
@pytest.mark.parametrize(
    ("name", "far", "halved"),
    [
        ("least_squares", 3.0, False),
        ("logistic", 0.0, False),
        ("logistic", 8.0, True),
        ("poisson", 0.0, True),
        ("poisson", -4.0, False),
    ],
)
def test_every_round_is_that_of_numpy(name, far, halved, weights):
    """Iteratively reweighted least squares; from afar full steps would lead away, and are halved."""
    problem = build(name, weights=weights)
    x0 = far * np.array([1.0, -1.0, 0.5, 1.0])
    clients = [MODELS[name](A, y, 0.05) for A, y in pairs(name)]
    with np.errstate(over="ignore"):
        expected = ref.newton_rounds(clients, problem.weights, x0, 25)
    run = accord.run(accord.Newton(), problem, 25, x0=x0, record=("x",))
    scale = np.maximum(1, abs(expected).max(1, keepdims=True))
    assert abs((run.xs - expected) / scale).max() < 1e-9
    assert run.history["distance"][-1] < 1e-12
    assert float(run.state.server.length) == 1  # at the end rounding is no reason to halve
    assert (np.diff([run.start["objective"], *run.history["objective"]]) > 1e-9).any() == halved


def test_one_round_solves_least_squares():
    problem = build("least_squares", intercept=True)
    A, y = (np.concatenate(parts) for parts in zip(*pairs("least_squares"), strict=True))
    A = np.column_stack([A, np.ones(len(A))])
    ridge = 0.05 * np.diag([1.0] * WIDTH + [0.0])
    expected = np.linalg.solve(A.T @ A / len(A) + ridge, A.T @ y / len(A))
    run = accord.run(accord.Newton(), problem, 1, x0=np.arange(5.0))
    assert abs(run.x - expected).max() < 1e-12


@pytest.mark.parametrize("intercept", [False, True])
def test_one_round_solves_the_lasso(intercept):
    problem = build("least_squares", l1=0.3, l2=0.0, intercept=intercept)
    best = problem.reference().x
    assert 0 < (best == 0).sum() < len(best)
    run = accord.run(accord.Newton(), problem, 1)
    assert abs(run.x - best).max() < 1e-12
    assert ((run.x == 0) == (best == 0)).all()


def test_l1_counts_where_steps_are_judged():
    """From the minimiser without it the first step makes the rows' loss grow, and F fall."""
    problem = build("least_squares", l1=0.3, intercept=True)
    start = build("least_squares", intercept=True).reference().x
    run = accord.run(accord.Newton(), problem, 3, x0=start)
    assert run.history["distance"][0] < 1e-12 > run.history["distance"][-1]
    assert float(run.state.server.length) == 1


@pytest.mark.parametrize("length", [1.0, 0.25])
@pytest.mark.usefixtures("double_precision")
def test_the_rule_of_armijo(length):
    """F(x) <= F(base) + 1e-4 * length * decrease, to a digit; else half the step from where it began."""
    base, step, value, decrease = jnp.array([1.0, 2.0]), jnp.array([4.0, -8.0]), 2.0, -30.0
    x = base + length * step
    server = Server(x, base, step, *(jnp.asarray(v) for v in (length, value, decrease)))
    allowed = 2.0 - 30e-4 * length
    for here, taken in ((allowed - 1e-9, True), (allowed + 1e-9, False)):
        message = Message(
            jnp.asarray(here), jnp.array([1.0, -2.0]), jnp.diag(jnp.array([2.0, 4.0]))
        )
        after = accord.Newton().server(server, message, 1.0)
        if taken:
            assert (after.base == x).all() and after.length == 1 and after.value == here
            assert after.step == pytest.approx(np.array([-0.5, 0.5]), rel=1e-15)
            assert after.decrease == pytest.approx(-1.5, rel=1e-15)
        else:
            assert (after.base == base).all() and after.length == length / 2
            assert (after.step == step).all() and after.value == 2 and after.decrease == -30
        assert (after.x == after.base + after.length * after.step).all()


def test_quadratics_and_averages_take_one_round():
    rng = np.random.default_rng(0)
    H = [np.diag([1.0, 2.0]) + 0.1, np.diag([0.0, 3.0])]
    problem = accord.problems.quadratic(H, rng.standard_normal((2, 2)))
    assert accord.run(accord.Newton(), problem, 1).history["distance"][-1] < 1e-13
    values = rng.standard_normal((5, 6))
    run = accord.run(accord.Newton(), accord.problems.averaging(values), 1)
    assert abs(run.x - values.mean(0)).max() < 1e-14


def test_bytes_and_gradients():
    """Up 1 + d + d^2 numbers a client and round, down d; a Hessian counts as d gradients."""
    history = accord.run(accord.Newton(), build("logistic"), 3).history
    d, m = WIDTH, len(SIZES)
    rounds = np.arange(1, 4)
    assert (history["uplink_bytes"] == rounds * m * 8 * (1 + d + d**2)).all()
    assert (history["downlink_bytes"] == rounds * m * 8 * d).all()
    assert (history["gradients"] == rounds * (1 + d)).all()


def test_absent_clients_are_refused():
    with pytest.raises(
        ValueError, match=r"^participation: Newton is only defined with every client"
    ):
        accord.run(accord.Newton(), build("logistic"), 3, participation=0.5)


@pytest.mark.parametrize("l2", [0.0, 0.05])
def test_softmax(l2):
    """Without a penalty classes may move together; the shortest steps from zero never do."""
    problem = build("softmax", l2=l2, intercept=True)
    run = accord.run(accord.Newton(), problem, 20)
    assert run.history["gradient_norm"][-1] < 1e-13
    assert abs(run.x[-1].sum()) < 1e-12
    assert abs(run.x.sum(1)).max() < 1e-12
    best = problem.reference().x
    assert abs(run.x - (best - best.mean(1, keepdims=True))).max() < 1e-9


def test_huber():
    run = accord.run(accord.Newton(), build("huber", threshold=0.4), 25)
    assert run.history["distance"][-1] < 1e-12


def test_parameters_in_parts():
    """A custom loss over a dictionary takes the same steps."""

    def loss(x, row, target):
        eta = row[0] * x["first"] + row[1:] @ x["others"]
        return jnp.logaddexp(0.0, eta) - target * eta

    clients = accord.Clients.from_arrays(pairs("logistic"))
    start = {"first": 0.0, "others": np.zeros(WIDTH - 1)}
    parts = accord.problems.custom(loss, start, clients, l2=0.05, convex=True)
    xs = accord.run(accord.Newton(), parts, 8, record=("x",)).xs
    expected = accord.run(accord.Newton(), build("logistic"), 8, record=("x",)).xs
    assert abs(np.column_stack([xs["first"], xs["others"]]) - expected).max() < 1e-12


@pytest.mark.parametrize("name", ["logistic", "poisson"])
def test_single_precision_stays_at_the_optimum(name):
    """Rounding of F is no reason to halve for ever."""
    single = accord.run(accord.Newton(), build(name, dtype="float32"), 60, record=("x",))
    best = build(name).reference().x
    assert single.xs.dtype == np.float32
    assert abs(single.xs[12:] - best).max() < 2e-5


def test_the_shortest_step_where_the_hessian_is_singular():
    """More columns than rows: the solution of least norm, as NumPy's pseudo-inverse gives it."""
    rng = np.random.default_rng(1)
    A, y = rng.standard_normal((5, 8)), rng.standard_normal(5)
    problem = accord.problems.least_squares(
        accord.Clients.from_arrays([(A[:2], y[:2]), (A[2:], y[2:])])
    )
    run = accord.run(accord.Newton(), problem, 2)
    assert abs(run.x - np.linalg.pinv(A) @ y).max() < 1e-12
    # With F = 0 at the end no value is small enough for Armijo's rule, however short the step.
    run = accord.run(accord.Newton(), problem, 1500, every=1500)
    assert abs(run.x - np.linalg.pinv(A) @ y).max() < 1e-12


def test_a_step_far_too_long_is_taken_back_and_no_divergence():
    """From where all means are tiny the first step leads to where exp overflows."""
    problem = build("poisson", intercept=True)
    x0 = np.array([0.0, 0.0, 0.0, 0.0, -12.0])
    run = accord.run(accord.Newton(), problem, 30, x0=x0)
    assert not np.isfinite(run.history["objective"][0])
    assert run.status.name == "budget_spent" and run.history["distance"][-1] < 1e-10
    debug = accord.run(accord.Newton(), problem, 30, x0=x0, engine="debug")
    assert abs(debug.x - run.x).max() < 1e-12
    early = accord.run(accord.Newton(), problem, 1, x0=x0).status
    assert early.name == "not_finite" and "halved next: give it more rounds" in early.sentence
    nowhere = accord.run(accord.Newton(), problem, 9, x0=np.full(5, 400.0)).status
    assert nowhere.name == "not_finite" and "halved" not in nowhere.sentence


def test_columns_of_any_scale():
    scale = np.array([1e-5, 1.0, 1e6, 1e2])
    clients = accord.Clients.from_arrays([(A * scale, y) for A, y in pairs("poisson")])
    x = accord.run(accord.Newton(), accord.problems.poisson(clients), 25).x
    plain = accord.problems.poisson(accord.Clients.from_arrays(pairs("poisson")))
    assert x * scale == pytest.approx(plain.reference().x, rel=1e-9)


def test_where_f_is_not_convex_it_never_rises():
    clients = accord.Clients.from_arrays(pairs("logistic"))
    problem = accord.problems.penalised_logistic(clients, penalty=0.5, alpha=2.0)
    x0 = np.array([3.0, -2.0, 1.0, 2.0])
    run = accord.run(accord.Newton(), problem, 40, x0=x0, record=("x",))
    accepted = np.minimum.accumulate([run.start["objective"], *run.history["objective"]])
    assert run.history["objective"][-1] <= accepted[-1] + 1e-12
    assert run.history["objective"][-1] < run.start["objective"]


stepped = jax.jit(newton_step)


@pytest.mark.parametrize("rank", [6, 3])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.usefixtures("double_precision")
def test_the_model_of_a_step_is_minimised(rank, intercept):
    """First-order conditions of <g, v> + <v, H v>/2 + h(x + v), H singular or not, and the decrease."""
    zeros = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        root = rng.standard_normal((rank, 6)) * 10 ** rng.uniform(-1, 1, 6)
        H = root.T @ root
        # A gradient in the range of H, as that of a convex F has it: else the model falls for ever.
        g, x = H @ rng.standard_normal(6), rng.standard_normal(6) * (rng.random(6) < 0.5)
        lasso = Lasso(0.05 * abs(g).max(), intercept)
        v, decrease = stepped(x, g, H, lasso)
        y = np.asarray(x + v)
        assert (y != 0).any()
        zeros += int((y == 0).sum())
        left = np.asarray(lasso.least_subgradient(jnp.asarray(y), jnp.asarray(g + H @ (y - x))))
        assert abs(left).max() < 1e-10 * abs(g).max()
        h = [float(lasso.value(jnp.asarray(u))) for u in (x, y)]
        assert decrease == pytest.approx(g @ (y - x) + h[1] - h[0], rel=1e-10)
        assert decrease <= -(y - x) @ H @ (y - x) * (1 - 1e-9)
        v, decrease = stepped(x, g, H, None)
        assert np.asarray(v) == pytest.approx(-np.linalg.pinv(H) @ g, rel=1e-6, abs=1e-8)
        assert decrease == pytest.approx(float(g @ v), rel=1e-12)
    assert zeros > 10


@pytest.mark.usefixtures("double_precision")
def test_columns_that_are_almost_the_same():
    """Coordinate descent alone would take millions of sweeps."""
    H = np.array([[1.0, 1 - 1e-7, 0.1], [1 - 1e-7, 1.0, 0.1], [0.1, 0.1, 2.0]])
    best = np.array([2.0, -3.0, 0.0])
    g = -H @ best - 0.3 * np.sign(best)  # the solution from x = 0, with the last entry at zero
    g[2] = 0.1 - H[2] @ best
    y, _ = stepped(np.zeros(3), g, H, Lasso(0.3))
    assert np.asarray(y) == pytest.approx(best, abs=1e-7)
    assert y[2] == 0


@pytest.mark.parametrize("l1", [0.0, 0.05])
def test_the_debug_engine_takes_the_same_steps(l1):
    problem = build("poisson", l1=l1)
    x0 = np.full(WIDTH, -2.0)
    star, debug = (
        accord.run(accord.Newton(), problem, 5, x0=x0, record=("x",), engine=engine).xs
        for engine in ("star", "debug")
    )
    assert abs(star / np.maximum(1, abs(star)) - debug / np.maximum(1, abs(star))).max() < 1e-10


def test_another_problem_of_the_same_shape_compiles_nothing():
    accord.run(accord.Newton(), build("logistic", l1=0.1), 4)
    compiled = accord.engines.star.compiled_programs()
    accord.run(accord.Newton(), build("logistic", l1=0.2, l2=0.3), 4)
    assert accord.engines.star.compiled_programs() == compiled
    assert jax.config.jax_enable_x64 is False
