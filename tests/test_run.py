"""What ``accord.run`` promises around an algorithm: stopping, statuses, recording, refusals."""

import dataclasses
import logging

import jax
import numpy as np
import polars
import pytest

import accord
from accord import conformance
from accord.engines import StageError, Star, loop, make_job, star
from accord.engines.history import COLUMNS


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(5)
    sizes = (20, 35, 50)
    pairs = [(rng.standard_normal((n, 3)), rng.standard_normal(n) + i) for i, n in enumerate(sizes)]
    return accord.Clients.from_arrays(pairs, names=["north", "south", "west"])


@pytest.fixture(scope="module")
def problem(clients):
    return accord.problems.least_squares(clients, l2=0.1)


def test_run_reports_what_happened(problem):
    run = accord.run(accord.AGPDMM(local_steps=3), problem, rounds=30, record=("x",))
    assert run.status.name == "budget_spent"
    assert run.status.ok
    assert "30 rounds" in run.status.sentence
    assert run.xs.shape == (30, 3)
    assert (run.xs[-1] == run.x).all()
    assert run.x.dtype == np.float64
    assert run.history["round"].tolist() == list(range(1, 31))
    assert run.history["gradients"].tolist() == list(range(3, 91, 3))
    assert set(run.history) <= set(COLUMNS)
    assert run.algorithm.penalty > 0
    assert run.algorithm.step_size == pytest.approx(1 / accord.theory.constants(problem).smoothness)
    assert run.start["gap"] > run.history["gap"][0]


def test_columns_hold_what_they_say(problem):
    run = accord.run(accord.PDMM(), problem, 5, record=("x",))
    best = problem.reference()
    for k, x in enumerate(run.xs):
        value, gradient = problem.evaluate(x)
        assert run.history["objective"][k] == pytest.approx(value, rel=1e-13)
        assert run.history["gap"][k] == pytest.approx(value - best.objective, abs=1e-14)
        assert run.history["gradient_norm"][k] == pytest.approx(np.linalg.norm(gradient), rel=1e-9)
        assert run.history["distance"][k] == pytest.approx(np.linalg.norm(x - best.x), rel=1e-9)
    assert (np.diff(run.history["seconds"]) >= 0).all()
    assert run.history["uplink_bytes"].tolist() == [3 * 24 * k for k in range(1, 6)]


@pytest.mark.parametrize("engine", ["star", "debug"])
@pytest.mark.parametrize(
    ("algorithm", "up", "down"),
    [(accord.FedAvg(), 1, 1), (accord.PDMM(), 1, 2), (accord.GPDMM(), 3, 3)],
)
def test_a_state_that_the_server_holds_travels_both_ways(problem, algorithm, up, down, engine):
    """In vectors: none; y_i, which is the message up; the pair of x_i and y_i."""
    run = accord.run(algorithm, problem, 2, client_state="server", engine=engine)
    assert run.history["uplink_bytes"].tolist() == [3 * 24 * up, 2 * 3 * 24 * up]
    assert run.history["downlink_bytes"].tolist() == [3 * 24 * down, 2 * 3 * 24 * down]


def test_consensus_and_dual_residual(problem):
    machine = Star(make_job(accord.GPDMM(local_steps=2), problem))
    state, seen = machine.round(machine.init())
    models = machine.in_client_order(seen.models)
    apart = models - np.asarray(state.server.x)
    run = accord.run(accord.GPDMM(local_steps=2), problem, 1)
    consensus = np.sqrt(problem.weights @ (apart**2).sum(1))
    assert run.history["consensus"][0] == pytest.approx(consensus, rel=1e-12)
    residual = run.algorithm.penalty * abs(apart).max()
    assert run.history["dual_residual"][0] == pytest.approx(residual, rel=1e-12)


def test_methods_without_duals_have_no_dual_residual(problem):
    assert "dual_residual" not in accord.run(accord.FedProx(), problem, 2).history
    assert "iterations" not in accord.run(accord.FedAvg(), problem, 2).history


def test_every_keeps_each_so_many_th_round_and_the_last(problem):
    run = accord.run(accord.GPDMM(), problem, 10, every=4, record=("x",))
    assert run.history["round"].tolist() == [4, 8, 10]
    assert run.xs.shape == (3, 3)


def test_stop_on_the_certificate(problem):
    stop = accord.Stop(distance=1e-6)
    run = accord.run(accord.AGPDMM(), problem, 5000, stop=stop)
    assert run.status.name == "converged"
    assert "certified distance" in run.status.sentence
    true = np.linalg.norm(run.x - problem.reference().x)
    assert true <= run.certificate.distance <= 1e-6
    before = accord.run(accord.AGPDMM(), problem, int(run.history["round"][-1]) - 1)
    assert before.certificate.distance > 1e-6


@pytest.mark.parametrize("stop", [accord.Stop(gradient_norm=1e-5), accord.Stop(gap=1e-9)])
def test_stop_on_the_first_round_that_is_good_enough(problem, stop):
    run = accord.run(accord.GPDMM(), problem, 5000, stop=stop)
    column = "gap" if stop.gap else "gradient_norm"
    bound = stop.gap or stop.gradient_norm
    assert run.status.name == "converged"
    assert run.history[column][-1] <= bound
    assert (run.history[column][:-1] > bound).all()


def test_divergence_is_noticed_and_named(problem):
    with pytest.warns(UserWarning, match=r"step_size: .* stable bound"):
        run = accord.run(accord.GradientDescent(step_size=100.0), problem, 100_000)
    assert run.status.name == "diverged"
    assert not run.status.ok
    assert "step_size 100 is above" in run.status.sentence
    assert run.history["round"][-1] < 100


def test_values_that_are_not_finite_are_named():
    clients = accord.Clients.from_arrays([([[200.0]], [1.0]), ([[300.0]], [2.0])])
    problem = accord.problems.poisson(clients)
    run = accord.run(accord.GradientDescent(step_size=1e3), problem, 50, reference=False)
    assert run.status.name in ("not_finite", "diverged")
    assert "local estimate" in run.status.sentence or "step_size" in run.status.sentence


def test_progress_sees_rows_between_chunks(problem):
    seen = []
    accord.run(accord.GPDMM(), problem, 40, progress=seen.append)
    assert seen[-1]["round"] == 40
    assert "gradient_norm" in seen[-1]


def test_history_as_table(problem, tmp_path):
    run = accord.run(accord.GPDMM(), problem, 4)
    frame = run.history.dataframe()
    assert frame.height == 4
    run.history.write_csv(tmp_path / "h.csv")
    assert polars.read_csv(tmp_path / "h.csv").columns == list(run.history)
    with pytest.raises(ValueError, match="does not exist"):
        run.history.write_csv(tmp_path / "nowhere" / "h.csv")
    with pytest.raises(KeyError, match="this run has the columns"):
        run.history["loss"]


def test_importing_and_running_changes_no_global_setting(problem):
    accord.run(accord.GPDMM(), problem, 2)
    assert not jax.config.jax_enable_x64


def test_the_library_prints_nothing(problem, capsys):
    accord.run(accord.GPDMM(), problem, 5)
    assert capsys.readouterr() == ("", "")
    assert not logging.getLogger("accord").handlers


def test_a_schedule_of_participants(problem):
    schedule = np.array([[True, False, False], [False, True, True], [True, True, True]])
    run = accord.run(accord.GPDMM(), problem, 3, participation=schedule)
    assert run.history["uplink_bytes"].tolist() == [24, 72, 144]


def test_float32_problem_in_float64_and_back(clients):
    single = accord.problems.least_squares(clients, dtype="float32")
    assert accord.run(accord.GPDMM(), single, 3).x.dtype == np.float32
    assert accord.run(accord.GPDMM(), single, 3, dtype="float64").x.dtype == np.float64


def test_starting_at_the_optimum_is_not_divergence(problem):
    x = problem.reference().x
    run = accord.run(accord.FedAvg(local_steps=20), problem, 50, x0=x)
    assert run.status.name == "budget_spent"
    assert run.history["distance"][-1] > 1e-3


def test_clients_of_weight_zero_alone_leave_the_model():
    rng = np.random.default_rng(0)
    full = rng.standard_normal((9, 2)), rng.standard_normal(9)
    empty = np.zeros((0, 2)), np.zeros(0)
    problem = accord.problems.least_squares(accord.Clients.from_arrays([full, empty]), l2=0.1)
    only_empty = np.array([[False, True]] * 2)
    for engine in ("star", "debug"):
        for algorithm in (accord.FedAvg(), accord.SCAFFOLD(), accord.GPDMM()):
            run = accord.run(
                algorithm, problem, 2, participation=only_empty, x0=[1.0, 2.0], engine=engine
            )
            assert run.x.tolist() == [1.0, 2.0]


@dataclasses.dataclass(frozen=True)
class FailsAtSouth(accord.FedAvg):
    """Fails where a client has 35 rows."""

    def client(self, state, inbox, objective, key):
        if objective.features.shape[0] == 35:
            raise ZeroDivisionError("no such luck")
        return super().client(state, inbox, objective, key)


def test_the_debug_engine_names_the_place(clients):
    problem = accord.problems.logistic(
        accord.Clients.from_arrays([(X, y > 0) for X, y in clients], clients.names)
    )
    with pytest.raises(StageError, match=r"FailsAtSouth.client, round 1, client 'south': ZeroDiv"):
        accord.run(FailsAtSouth(local_steps=2), problem, 3, engine="debug")


@dataclasses.dataclass(frozen=True)
class ChangesShape(accord.FedAvg):
    """Returns a server model of another shape."""

    def server(self, server, mean, share):
        return super().server(server, mean[:-1], share)


@dataclasses.dataclass(frozen=True)
class NoFirstMessage(accord.Algorithm):
    """Wants every client's latest message, and has no first one."""

    absent = "latest"

    def init_server(self, x):
        return accord.core.Model(x)

    def client(self, state, inbox, objective, key):
        return state, inbox, {}

    def server(self, server, mean, share):
        return server


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"algorithm": accord.GPDMM}, TypeError, r"give an instance: GPDMM\(\)"),
        ({"algorithm": "GPDMM"}, TypeError, "not a dataclass"),
        ({"problem": 3}, TypeError, "problem: expected one made by accord.problems"),
        ({"rounds": 0}, ValueError, "rounds: got 0"),
        ({"rounds": 2.5}, ValueError, "rounds: got 2.5"),
        ({"every": 0}, ValueError, "every: got 0"),
        ({"seed": -1}, ValueError, "seed: got -1"),
        ({"participation": 0.0}, ValueError, "participation: got 0.0"),
        ({"participation": 1.5}, ValueError, "participation: got 1.5"),
        ({"participation": np.ones((3, 2), bool)}, ValueError, "shape \\(rounds, 3\\)"),
        ({"participation": np.zeros((3, 3), bool)}, ValueError, "no client at all"),
        (
            {"participation": np.ones((2, 3), bool)},
            ValueError,
            "2 rounds in the schedule, 3 to run",
        ),
        ({"x0": [0.0]}, ValueError, "x0: "),
        ({"x0": np.zeros(4)}, ValueError, r"x0: an array of shape \(4,\); expected \(3,\)"),
        ({"x0": np.full(3, np.nan)}, ValueError, "x0: has a NaN"),
        ({"record": ("loss",)}, ValueError, "record: got"),
        ({"stop": 1e-3}, TypeError, "expected accord.Stop"),
        ({"client_state": "cloud"}, ValueError, "client_state: got 'cloud'"),
        ({"engine": "sta"}, ValueError, "engine: got 'sta'"),
        ({"dtype": "float16"}, ValueError, "dtype: got float16"),
        (
            {"algorithm": ChangesShape()},
            ValueError,
            "ChangesShape.server fails .* returned a server state",
        ),
        (
            {"algorithm": accord.Scaffnew(), "participation": 0.5},
            ValueError,
            "Scaffnew is only defined with every client",
        ),
        (
            {"algorithm": NoFirstMessage(), "participation": 0.5},
            ValueError,
            "has no init_message",
        ),
    ],
)
def test_bad_arguments_are_refused_in_one_line(problem, arguments, error, words):
    given = {"algorithm": accord.GPDMM(), "problem": problem, "rounds": 3, **arguments}
    with pytest.raises(error, match=words) as caught:
        accord.run(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: accord.GPDMM(local_steps=5.0), "local_steps=...): got 5.0"),
        (lambda: accord.LinearDecay(0), "iterations=...): got 0"),
        (lambda: accord.oracles.Exact(method="cholesky"), "method=...): got 'cholesky'"),
        (lambda: accord.oracles.SGD(form="lin"), "form=...): got 'lin'"),
        (lambda: accord.GPDMM(step_size=-0.1), "step_size=...): got -0.1"),
        (lambda: accord.GPDMM(local_steps=0), "local_steps=...): got 0"),
        (lambda: accord.GPDMM(local_steps=2.5), "whole number"),
        (lambda: accord.PDMM(penalty=0.0), "penalty=...): got 0.0"),
        (lambda: accord.PDMM(relaxation=1.2), r"relaxation=...): got 1.2"),
        (lambda: accord.FedPD(skip_probability=1.0), "skip_probability=...): got 1.0"),
        (lambda: accord.Scaffnew(communication_probability=0.0), "communication_probability"),
        (lambda: accord.SCAFFOLD(server_step_size=float("nan")), "server_step_size=...): got nan"),
        (lambda: accord.FedAvg(batch_size=0), "batch_size=...): got 0"),
        (lambda: accord.InexactFedSplit(start="cold"), "start=...): got 'cold'"),
        (lambda: accord.oracles.GradientDescent(step_size=0.0), "step_size=...): got 0.0"),
        (lambda: accord.Stop(), "give at least one"),
        (lambda: accord.Stop(gap=-1.0), "gap=...): got -1.0"),
    ],
)
def test_bad_hyperparameters_are_refused_when_made(make, words):
    with pytest.raises(ValueError) as caught:
        make()
    assert words in str(caught.value)


def test_a_hyperparameter_of_the_wrong_type():
    with pytest.raises(TypeError, match="got 'fast' of type str"):
        accord.GPDMM(step_size="fast")


def test_a_method_whose_needs_the_objective_lacks(clients):
    custom = accord.problems.custom(lambda x, row, y: (row @ x - y) ** 2, np.zeros(3), clients)
    with pytest.raises(ValueError, match=r"PDMM needs 'prox', .* say convex=True"):
        accord.run(accord.PDMM(oracle=accord.oracles.Exact()), custom, 2)
    averaging = accord.problems.averaging([1.0, 2.0, 4.0])
    with pytest.raises(ValueError, match="FedAvg needs 'minibatch'"):
        accord.run(accord.FedAvg(batch_size=2), averaging, 2)


def test_stop_on_distance_needs_strong_convexity(clients):
    flat = accord.problems.huber(clients)
    with pytest.raises(ValueError, match="not known to be strongly convex"):
        accord.run(accord.GPDMM(), flat, 2, stop=accord.Stop(distance=1e-3))


def test_no_reference_for_a_problem_not_known_to_be_convex(clients):
    custom = accord.problems.custom(lambda x, row, y: (row @ x - y) ** 2, np.zeros(3), clients)
    assert "gap" not in accord.run(accord.GPDMM(), custom, 2).history
    with pytest.raises(ValueError, match="no reference optimum"):
        accord.run(accord.GPDMM(), custom, 2, reference=True)


def test_many_programs_do_not_pile_up(problem, monkeypatch):
    monkeypatch.setattr(loop, "_MOST_PROGRAMS", 3)
    for width in range(1, 7):
        rng = np.random.default_rng(width)
        pairs = [(rng.standard_normal((4, width)), rng.standard_normal(4)) for _ in range(2)]
        accord.run(accord.FedAvg(), accord.problems.huber(accord.Clients.from_arrays(pairs)), 2)
        assert star.compiled_programs() <= 3


def test_a_numpy_scalar_decides_no_dtype(clients):
    single = accord.problems.least_squares(clients, dtype="float32")
    run = accord.run(accord.AGPDMM(step_size=np.float64(0.01)), single, 2)
    assert run.x.dtype == np.float32


@pytest.mark.parametrize("algorithm", [accord.PDMM, accord.FedSplit, accord.FedDyn])
def test_an_oracle_with_memory_is_refused_where_there_is_no_room(problem, algorithm):
    oracle = accord.oracles.VarianceReduced()
    with pytest.raises(ValueError, match="oracle: VarianceReduced carries its gradient estimate"):
        accord.run(algorithm(oracle=oracle), problem, 2)


@pytest.mark.parametrize("oracle", ["exact", accord.oracles.Exact, accord.GradientDescent()])
def test_what_is_no_oracle_is_refused(problem, oracle):
    with pytest.raises(TypeError, match=r"oracle=...\): got"):
        accord.run(accord.FedPD(oracle=oracle), problem, 2)


def test_divergence_with_bounded_gradients_is_noticed(clients):
    huber = accord.problems.huber(clients)
    with pytest.warns(UserWarning, match="step_size"):
        run = accord.run(accord.GradientDescent(step_size=1e5), huber, 50)
    assert run.status.name == "diverged"
    assert "above the" in run.status.sentence or "F grew to" in run.status.sentence


def test_what_is_not_finite_is_noticed_between_recorded_rounds(problem):
    with pytest.warns(UserWarning, match="step_size"):
        run = accord.run(accord.GradientDescent(step_size=100.0), problem, 10**6, every=10**6)
    assert run.status.name == "not_finite"
    assert run.history["round"][-1] < 1000


def test_noise_about_an_agreed_optimum_is_not_divergence(clients):
    one = accord.problems.least_squares(accord.Clients.from_arrays([clients[0]] * 2))
    x0 = one.reference().x
    run = accord.run(accord.FedAvg(batch_size=4), one, 30, x0=x0)
    assert run.status.name == "budget_spent"


def test_recording_seldom_on_the_debug_engine(problem):
    a = accord.run(accord.GPDMM(), problem, 5, every=2, engine="debug")
    assert a.history["round"].tolist() == [2, 4, 5]


def test_columns_that_differ_wildly_are_pointed_out():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(2000.0, 2020.0), rng.standard_normal(20)])
    clients = accord.Clients.from_arrays([(X, rng.standard_normal(20))] * 2)
    problem = accord.problems.least_squares(clients, intercept=True)
    run = accord.run(accord.GPDMM(), problem, 5)
    assert "standardise the columns" in run.status.sentence


def test_the_contract_without_inheritance(problem):
    @dataclasses.dataclass(frozen=True)
    class Plain:
        step_size: float = 0.05

        def init_server(self, x):
            return accord.core.Model(x)

        def init_client(self, x, objective):
            return {"rounds": 0}

        def broadcast(self, server):
            return server.x

        def client(self, state, inbox, objective, key):
            state = {"rounds": state["rounds"] + 1}
            return state, inbox - self.step_size * objective.grad(inbox), {"gradients": 1}

        def server(self, server, mean, share):
            return accord.core.Model(mean)

    run = accord.run(Plain(), problem, 3000)
    assert run.history["distance"][-1] < 1e-10
    assert "consensus" not in run.history
    assert all(conformance.check_one(Plain(), c).passed for c in ("contract", "engines"))


def test_a_message_of_integers_has_a_mean(problem):
    @dataclasses.dataclass(frozen=True)
    class Counts(accord.Algorithm):
        def init_server(self, x):
            return accord.core.Model(x)

        def client(self, state, inbox, objective, key):
            return state, (inbox, jax.numpy.int32(4)), {}

        def server(self, server, mean, share):
            return accord.core.Model(0 * mean[0] + mean[1])

    for engine in ("star", "debug"):
        assert accord.run(Counts(), problem, 1, engine=engine).x == pytest.approx([4, 4, 4])


def test_an_unknown_rule_for_absent_clients(problem):
    class Typo(accord.GPDMM):
        absent = "lastest"

    with pytest.raises(ValueError, match="absent: got 'lastest'"):
        accord.run(Typo(), problem, 2, participation=0.5)
