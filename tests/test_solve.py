"""Solving to a tolerance: against the reference optimum, and runs that go on from earlier ones."""

import numpy as np
import pytest

import accord
from accord.analysis import default_algorithm, solve
from accord.analysis.solve import NEWTON_LIMIT


def clients(kind, rows=(30, 12, 50), d=4):
    """Clients that differ in size, mean and law."""
    rng = np.random.default_rng(7)
    arrays = []
    for i, n in enumerate(rows):
        X = rng.standard_normal((n, d)) + i
        eta = X @ np.linspace(-0.5, 0.5, d)
        y = {
            "least_squares": lambda e=eta, n=n: e + rng.standard_normal(n),
            "logistic": lambda e=eta, n=n: (rng.random(n) < 1 / (1 + np.exp(-e))).astype(float),
            "softmax": lambda e=eta, n=n: rng.integers(0, 3, n),
            "poisson": lambda e=eta, n=n: rng.poisson(np.exp(e)),
        }[kind]()
        arrays.append((X, y))
    return accord.Clients.from_arrays(arrays)


def problem_of(kind, **options):
    return getattr(accord.problems, kind)(clients(kind), **options)


@pytest.mark.parametrize("kind", ["least_squares", "logistic", "softmax", "poisson"])
def test_the_certified_distance_is_within_the_tolerance_and_true(kind):
    problem = problem_of(kind, l2=1e-2)
    for tolerance in (1e-3, 1e-9):
        found = solve(problem, tolerance=tolerance)
        error = np.linalg.norm(found.x - problem.reference().x)
        size = max(1.0, np.linalg.norm(found.x))
        assert found.status.name == "converged"
        assert error <= found.certificate.distance + 1e-14
        assert found.certificate.distance <= tolerance * size


def test_a_first_order_method_goes_on_until_the_certificate_is_small_enough():
    problem = problem_of("logistic", intercept=True)
    found = solve(problem, accord.AGPDMM(), tolerance=1e-7)
    whole = accord.run(
        accord.AGPDMM(), problem, int(found.run.state.round), stop=None, reference=False
    )
    assert found.status.name == "converged"
    assert found.certificate.distance <= 1e-7 * max(1.0, np.linalg.norm(found.x))
    assert (found.x == whole.x).all()
    rounds = found.run.history["round"]
    assert (rounds == np.arange(1, len(rounds) + 1)).all()


def test_a_budget_is_kept_and_told():
    problem = problem_of("logistic")
    found = solve(problem, accord.GradientDescent(), max_rounds=40)
    assert found.status.name == "budget_spent"
    assert "after 40 rounds" in found.status.sentence
    assert len(found.run.history["round"]) == 40
    assert not found.escapes


def test_rounding_ends_a_run_that_no_round_improves():
    found = solve(problem_of("poisson", l2=1e-2), tolerance=1e-30)
    assert found.status.name == "budget_spent"
    assert "not to 1.0e-30" in found.status.sentence
    assert int(found.run.state.round) < 100


def test_a_gradient_where_nothing_is_curved_is_no_convergence():
    """With a tiny threshold Huber's loss is |r|: no Hessian, and yet a gradient."""
    rng = np.random.default_rng(0)
    clients = accord.Clients.from_arrays(
        [(rng.standard_normal((30, 2)), rng.standard_normal(30)) for _ in range(3)]
    )
    found = solve(accord.problems.huber(clients, threshold=1e-12, intercept=True))
    assert found.certificate.distance is None
    assert found.status.name == "budget_spent"


def test_separable_classes_escape():
    X = np.linspace(-1, 1, 20)[:, None]
    separable = accord.Clients.from_arrays([(X[::2], X[::2, 0] > 0), (X[1::2], X[1::2, 0] > 0)])
    found = solve(accord.problems.logistic(separable))
    assert found.escapes
    assert "may be separable" in found.status.sentence
    assert not solve(accord.problems.logistic(separable, l2=1e-4)).escapes


@pytest.mark.parametrize("l1", [0.0, 0.05])
def test_more_features_than_rows(l1):
    wide = accord.problems.least_squares(clients("least_squares", (3, 5), d=12), l1=l1)
    found = solve(wide)
    assert found.status.name == "converged"
    assert found.certificate.distance is None
    value, gradient = wide.evaluate(found.x)
    assert np.linalg.norm(gradient) <= 1e-12
    assert value == pytest.approx(wide.reference().objective, abs=1e-12)


def test_the_choice_of_a_method_says_what_crosses_the_wire():
    problem = problem_of("least_squares", intercept=True)
    algorithm, reason = default_algorithm(problem)
    history = solve(problem).run.history
    up, down = (int(history[n][0]) // len(problem) for n in ("uplink_bytes", "downlink_bytes"))
    assert algorithm == accord.Newton()
    assert f"sends {up:,} bytes a round and receives {down:,}" in reason
    assert "X'X" in reason
    wide = clients("least_squares", (3, 5), d=NEWTON_LIMIT + 1)
    algorithm, reason = default_algorithm(accord.problems.least_squares(wide))
    assert algorithm == accord.AGPDMM()
    assert f"{(NEWTON_LIMIT + 1) ** 2:,}" in reason
    bounded = accord.problems.penalised_logistic(clients("logistic"), penalty=0.1)
    assert "not known to be convex" in default_algorithm(bounded).reason


@pytest.mark.parametrize("engine", ["star", "debug"])
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_a_run_that_goes_on_is_the_run_in_one_go(engine, participation):
    problem = problem_of("logistic", l2=1e-2)
    options = {"participation": participation, "record": ("x",), "engine": engine}
    method = accord.SCAFFOLD(local_steps=3)
    once = accord.run(method, problem, 9, **options)
    first = accord.run(method, problem, 4, **options)
    again = accord.run(method, problem, 9, resume=first, **options)
    assert (again.xs == once.xs).all()
    assert (again.x == once.x).all()
    assert again.start == once.start
    for name in set(once.history) - {"seconds"}:
        assert (again.history[name] == once.history[name]).all(), name
    assert (np.diff(again.history["seconds"]) >= 0).all()
    assert again.seconds > first.seconds


def test_what_cannot_go_on_is_refused():
    problem = problem_of("logistic", l2=1e-2)
    first = accord.run(accord.GPDMM(), problem, 4)
    with pytest.raises(ValueError, match="rounds: got 4; the run to resume has done 4"):
        accord.run(accord.GPDMM(), problem, 4, resume=first)
    with pytest.raises(ValueError, match="another algorithm, problem or seed"):
        accord.run(accord.AGPDMM(), problem, 9, resume=first)
    with pytest.raises(TypeError, match="resume: got Status"):
        accord.run(accord.GPDMM(), problem, 9, resume=first.status)
    with pytest.raises(ValueError, match="tolerance: got 0"):
        solve(problem, tolerance=0)
