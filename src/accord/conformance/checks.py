"""What every algorithm of the contract must satisfy, on real runs: one function a truth.

They judge by closed forms and identities on heterogeneous least squares, in float64 unless said
otherwise. A check returns what it measured, or raises ``BrokenError`` or ``InapplicableError``.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from accord import problems
from accord.core import keys, messages
from accord.core.checks import check_algorithm
from accord.data import Clients
from accord.engines import Star, make_job, run, star
from accord.engines.measures import Yardstick
from accord.theory import resolve

ROUNDS = 600
_SIZES = (30, 12, 45, 30)
_FEATURES = 4


class BrokenError(Exception):
    """A check that does not hold."""


class InapplicableError(Exception):
    """A check that does not concern this algorithm."""


def _within(distance, bound: float, what: str) -> str:
    if not distance <= bound:
        raise BrokenError(f"{what}: {distance:.1e}, allowed {bound:.0e}")
    return f"{what}: {distance:.1e}"


@functools.cache
def _arrays():
    rng = np.random.default_rng(11)
    scale = np.logspace(0, -0.3, _FEATURES)
    pairs = []
    for n in _SIZES:
        A = rng.standard_normal((n, _FEATURES)) * scale
        pairs.append((A, A @ rng.standard_normal(_FEATURES) + 0.1 * rng.standard_normal(n)))
    return pairs


@functools.cache
def common_problem(weights="rows", dtype="float64"):
    """The heterogeneous least-squares problem that the checks run on."""
    return problems.least_squares(Clients.from_arrays(_arrays()), weights=weights, dtype=dtype)


@functools.cache
def _ragged():
    """Clients in several buckets, with padding, whose proximal step takes Newton's method."""
    return problems.huber(Clients.from_arrays(_arrays()), l2=0.3, threshold=0.5)


def _largest(a, b) -> float:
    return max(float(abs(x - y).max(initial=0)) for x, y in zip(_flat(a), _flat(b), strict=True))


def _flat(tree):
    return [np.asarray(leaf, float) for leaf in jax.tree.leaves(tree)]


def _trajectory(algorithm, problem, rounds=8, **options):
    return run(algorithm, problem, rounds, record=("x",), **options)


def _is_random(algorithm) -> bool:
    """Whether the clients draw numbers of their own, so that their order matters."""
    return "minibatch" in algorithm.needs


def contract(algorithm) -> str:
    """A frozen dataclass with the five functions, whose states keep structure, shapes and dtypes."""
    check_algorithm(algorithm)
    Star(make_job(algorithm, common_problem()))
    exact = algorithm.exact
    return f"exact: {exact.when}" if exact.reaches else f"not exact; exact with {exact.when}"


def optimum(algorithm) -> str:
    """An exact method reaches the solution of the normal equations to 1e-10; another must not."""
    algorithm = resolve(algorithm, common_problem())
    distance = run(algorithm, common_problem(), ROUNDS, every=ROUNDS).history["distance"][-1]
    if algorithm.exact.reaches:
        return _within(distance, 1e-10, "distance to the optimum")
    if not distance > 1e-5:
        raise BrokenError(f"it declares itself not exact, yet ends {distance:.1e} from the optimum")
    return f"stays {distance:.1e} from the optimum, as it declares"


def equal_weights(algorithm) -> str:
    """The same with equal weights, whose optimum is another."""
    algorithm = resolve(algorithm, common_problem("equal"))
    _need(algorithm.exact.reaches, "it is not exact")
    distance = run(algorithm, common_problem("equal"), ROUNDS, every=ROUNDS).history["distance"][-1]
    return _within(distance, 1e-10, "distance to the optimum")


def _need(condition, reason: str) -> None:
    if not condition:
        raise InapplicableError(reason)


def fixed_point(algorithm) -> str:
    """At the optimum, with the states that belong to it, further rounds do not move (1e-12)."""
    algorithm = resolve(algorithm, common_problem())
    _need(algorithm.exact.reaches, "it has no fixed point at the optimum")
    machine, state = _settled(algorithm, ROUNDS)
    before = np.array(state.server.x)
    for _ in range(5):
        state, _ = machine.round(state)
    return _within(_largest(before, state.server.x), 1e-12, "movement in five rounds")


@functools.lru_cache(maxsize=32)
def _settled(algorithm, rounds):
    machine = Star(make_job(algorithm, common_problem()))
    never = Yardstick()
    state, *_ = machine.advance(machine.init(), never, rounds, rounds, rounds, 1, False)
    return machine, state


def duals(algorithm) -> str:
    """At the optimum the dual of client i is -grad f_i(x*)."""
    algorithm = resolve(algorithm, common_problem())
    _need(hasattr(algorithm, "dual"), "it has no dual")
    _need(algorithm.exact.reaches, "it is not exact")
    machine, state = _settled(algorithm, ROUNDS)
    x = common_problem().reference().x
    return _within(
        _largest(machine.duals(state), -common_problem().client_gradients(x)),
        1e-8,
        "error of the duals",
    )


def engines(algorithm) -> str:
    """The compiled and the debug engine agree to 1e-12, with absent clients and ragged rows too."""
    worst = 0.0
    ways = [(common_problem(), options) for options in _ways(algorithm)] + [(_ragged(), {})]
    for problem, options in ways:
        a = _trajectory(algorithm, problem, 5, **options)
        b = _trajectory(algorithm, problem, 5, engine="debug", **options)
        worst = max(worst, _largest(a.xs, b.xs))
        for name in set(a.history) - {"seconds"}:
            if name == "gradients" and problem is _ragged():
                continue  # Newton's method may stop a step sooner on other rounding
            if not np.allclose(a.history[name], b.history[name], rtol=1e-9, atol=1e-12):
                raise BrokenError(f"the engines report another {name}")
    return _within(worst, 1e-12, "largest difference")


def _ways(algorithm):
    return [{}] if algorithm.absent is None else [{}, {"participation": 0.5}]


def permutation(algorithm) -> str:
    """Another order of the clients gives the same models (1e-12)."""
    _need(not _is_random(algorithm), "its clients draw random numbers by their position")
    order = [2, 0, 3, 1]
    other = problems.least_squares(Clients.from_arrays([_arrays()[i] for i in order]))
    algorithm = resolve(algorithm, common_problem())
    a, b = (_trajectory(algorithm, p).xs for p in (common_problem(), other))
    return _within(_largest(a, b), 1e-12, "largest difference")


def duplication(algorithm) -> str:
    """A client that is there twice counts like one with twice the weight (1e-12)."""
    _need(not _is_random(algorithm), "its clients draw random numbers by their position")
    (X, y), *others = _arrays()
    twice = problems.least_squares(Clients.from_arrays([(X, y), (X, y), *others]))
    heavy = problems.least_squares(Clients.from_arrays([(X, y, np.full(len(y), 2.0)), *others]))
    algorithm = resolve(algorithm, heavy)
    a, b = (_trajectory(algorithm, p).xs for p in (twice, heavy))
    return _within(_largest(a, b), 1e-12, "largest difference")


def parameters(algorithm) -> str:
    """A dictionary of a scalar, a vector and an empty array gives the vector's trajectory."""
    problem = problems.custom(_dictionary_loss, _dictionary(0.0), _clients(), convex=True)
    algorithm = resolve(algorithm, common_problem())
    a = _trajectory(algorithm, common_problem(), 6).xs
    b = _trajectory(algorithm, problem, 6).xs
    joined = np.concatenate([b["first"][:, None], b["others"]], axis=1)
    if _is_random(algorithm):
        return "runs on a dictionary"
    return _within(_largest(a, joined), 1e-9, "largest difference")


def _dictionary(value):
    return {"first": value, "others": np.zeros(_FEATURES - 1), "none": np.zeros(0)}


def _dictionary_loss(x, row, target):
    residual = x["first"] * row[0] + row[1:] @ x["others"] - target
    return 0.5 * residual**2 + jnp.sum(x["none"])


def _clients():
    return Clients.from_arrays(_arrays())


def scalar(algorithm) -> str:
    """A single number as the model."""
    problem = problems.custom(_scalar_loss, 0.0, _clients(), convex=True)
    x = run(resolve(algorithm, common_problem()), problem, 5, reference=False).x
    if np.shape(x) != () or not np.isfinite(x):
        raise BrokenError(f"the model is {x!r}, expected a finite number")
    return f"x = {float(x):.3f}"


def _scalar_loss(x, row, target):
    return 0.5 * (x * row[0] - target) ** 2


def single_precision(algorithm) -> str:
    """In float32 all stays float32, and the trajectory is that of float64 to 1e-4."""
    algorithm = resolve(algorithm, common_problem())
    a = _trajectory(algorithm, common_problem()).xs
    b = _trajectory(algorithm, common_problem(dtype="float32")).xs
    if b.dtype != np.float32:
        raise BrokenError(f"the model became {b.dtype}")
    return _within(_largest(a, b), 1e-4, "largest difference")


def start(algorithm) -> str:
    """x0 is where the run starts: another start gives other models, and an exact method ends alike."""
    algorithm = resolve(algorithm, common_problem())
    x0 = np.arange(1.0, _FEATURES + 1)
    first = _trajectory(algorithm, common_problem(), 1).xs
    if _largest(first, _trajectory(algorithm, common_problem(), 1, x0=x0).xs) == 0:
        raise BrokenError("x0 makes no difference after one round")
    _need(algorithm.exact.reaches, "x0 matters, and it is not exact")
    end = run(algorithm, common_problem(), ROUNDS, x0=x0, every=ROUNDS).history["distance"][-1]
    return _within(end, 1e-10, "distance to the optimum from another start")


def hyperparameters(algorithm) -> str:
    """Every numeric hyper-parameter changes the result, and no value compiles anew."""
    algorithm = resolve(algorithm, common_problem())
    base = _trajectory(algorithm, common_problem(), 40).xs
    changed = []
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if field.metadata.get("static"):
            continue
        other = value + 1 if isinstance(value, int) else 0.6 * value + 0.3 * (value == 0)
        another = dataclasses.replace(algorithm, **{field.name: other})
        compiled = star.compiled_programs()
        xs = _trajectory(another, common_problem(), 40).xs
        if star.compiled_programs() > compiled:
            raise BrokenError(f"{field.name}: another value compiled anew")
        if base.shape == xs.shape and _largest(base, xs) == 0:
            raise BrokenError(f"{field.name}: {value} and {other} give the same models")
        changed.append(field.name)
    return ", ".join(changed) or "none"


def wire(algorithm) -> str:
    """The bytes reported are the bytes of the packed messages."""
    machine = Star(make_job(algorithm, common_problem()))
    job = machine.job
    with jax.enable_x64(True):
        key = keys.round_key(keys.run_key(0), 0)
        server = keys.with_key(job.algorithm.init_server(job.x0), keys.server_key(key))
        inbox = job.algorithm.broadcast(server)
        objective = job.problem.client_objective(0, job.algorithm.needs)
        state = job.algorithm.init_client(job.x0, objective)
        _, message, _ = job.algorithm.client(state, inbox, objective, keys.client_key(key, 0))
        up, down = len(messages.pack(message)), len(messages.pack(inbox))
    if machine.message_bytes != (up, down):
        raise BrokenError(f"{machine.message_bytes} bytes reported (up, down), {(up, down)} packed")
    history = run(algorithm, common_problem(), 3).history
    total = history["uplink_bytes"][-1], history["downlink_bytes"][-1]
    if total != (3 * len(_SIZES) * up, 3 * len(_SIZES) * down):
        raise BrokenError(f"{total} bytes in the history of 3 rounds of {len(_SIZES)} clients")
    vector = job.x0.nbytes
    return f"{up / vector:g} vectors up, {down / vector:g} down"


def reproducible(algorithm) -> str:
    """The same seed gives the same bits, however the rounds are cut and whatever is recorded."""
    reference = _trajectory(algorithm, common_problem(), 9, seed=4)
    sparse = run(algorithm, common_problem(), 9, seed=4, every=4)
    machine = Star(make_job(algorithm, common_problem(), seed=4))
    state, never = machine.init(), Yardstick()
    for end in (2, 3, 9):
        state, *_ = machine.advance(state, never, 1, end, 9, 16, False)
    for what, x in (("recording", sparse.x), ("cutting", state.server.x)):
        if _largest(reference.x, x) != 0:
            raise BrokenError(f"{what} the run differently changed the model")
    return "same bits"


def absent_clients(algorithm) -> str:
    """An absent client's state is untouched, and half of the clients a round still reach the optimum."""
    _need(algorithm.absent is not None, "it is only defined with every client")
    algorithm = resolve(algorithm, common_problem())
    mask = np.zeros((2, len(_SIZES)), bool)
    mask[0, :2] = mask[1, 2:] = True
    machine = Star(make_job(algorithm, common_problem(), participation=mask))
    before = machine.init()
    after, _ = machine.round(before)
    old, new = (machine.in_client_order(s.clients) for s in (before, after))
    for a, b in zip(_flat(old), _flat(new), strict=True):
        if not (a[2:] == b[2:]).all():
            raise BrokenError("the state of an absent client changed")
    exact = algorithm.exact
    _need(
        exact.reaches and exact.absent, "states are kept, and it is not exact with absent clients"
    )
    history = run(
        algorithm, common_problem(), 4 * ROUNDS, participation=0.5, every=4 * ROUNDS
    ).history
    return _within(history["distance"][-1], 1e-10, "distance to the optimum")


def stateless(algorithm) -> str:
    """With the state held by the server the models are the same (1e-12), and it is counted."""
    a = _trajectory(algorithm, common_problem())
    b = _trajectory(algorithm, common_problem(), client_state="server")
    machine = Star(make_job(algorithm, common_problem(), client_state="server"))
    up, down = (n / machine.job.x0.nbytes for n in machine.message_bytes)
    detail = f"{up:g} vectors up, {down:g} down; largest difference"
    return _within(_largest(a.xs, b.xs), 1e-12, detail)


def lost_state(algorithm) -> str:
    """A client that lost its state and gets it back from its latest message: still the optimum."""
    algorithm = resolve(algorithm, common_problem())
    _need(algorithm.recover_client is not None, "a lost state cannot be made up for")
    _need(algorithm.exact.reaches and algorithm.exact.absent, "it is not exact")
    everyone = np.ones((1, len(_SIZES)), bool)  # as a schedule, so that latest messages are kept
    machine = Star(make_job(algorithm, common_problem(), participation=everyone))
    state, *_ = machine.advance(machine.init(), Yardstick(), 20, 20, 20, 1, False)
    with jax.enable_x64(True):
        last = jax.tree.map(lambda leaf: leaf[0], state.latest[0])
        fresh = algorithm.recover_client(state.server.x, last)
        clients = jax.tree.map(lambda all_, one: all_.at[0].set(one), state.clients[0], fresh)
    state = state._replace(clients=(clients, *state.clients[1:]))
    state, *_ = machine.advance(state, Yardstick(), ROUNDS, ROUNDS, ROUNDS, 1, False)
    return _within(_largest(state.server.x, common_problem().reference().x), 1e-10, "distance")


CHECKS = {
    f.__name__: f
    for f in (
        contract,
        optimum,
        equal_weights,
        fixed_point,
        duals,
        engines,
        permutation,
        duplication,
        parameters,
        scalar,
        single_precision,
        start,
        hyperparameters,
        wire,
        reproducible,
        absent_clients,
        stateless,
        lost_state,
    )
}
"""Every check by its name."""
