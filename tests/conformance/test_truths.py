"""Truths of single families that the general checks cannot state."""

import dataclasses

import jax
import numpy as np
import pytest

import accord
from accord import conformance
from accord.engines import Star, make_job

FAMILY = {
    "PDMM": accord.PDMM(),
    "PDMM, relaxed": accord.PDMM(relaxation=0.7),
    "FedSplit": accord.FedSplit(),
    "InexactFedSplit": accord.InexactFedSplit(local_steps=3),
    "InexactFedSplit, dual": accord.InexactFedSplit(local_steps=3, start="dual"),
    "InexactFedSplit, warm": accord.InexactFedSplit(local_steps=3, start="warm"),
    "GPDMM": accord.GPDMM(local_steps=3),
    "AGPDMM": accord.AGPDMM(local_steps=3),
}


@pytest.fixture(scope="module")
def problem():
    return conformance.common_problem()


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("name", FAMILY)
def test_weighted_duals_cancel_after_every_server_step(problem, name, participation):
    machine = Star(make_job(FAMILY[name], problem, participation=participation))
    state = machine.init()
    for _ in range(6):
        state, _ = machine.round(state)
        found = machine.duals(state)
        assert abs(problem.weights @ found).max() < 1e-12
        assert abs(found).max() > 1e-3


def test_scaffnew_shifts_cancel(problem):
    machine = Star(make_job(accord.Scaffnew(communication_probability=0.3), problem))
    state = machine.init()
    for _ in range(6):
        state, _ = machine.round(state)
        assert abs(problem.weights @ machine.duals(state)).max() < 1e-12


def test_scaffold_control_is_the_mean_over_all_clients(problem):
    machine = Star(make_job(accord.SCAFFOLD(local_steps=3), problem, participation=0.5))
    state = machine.init()
    for _ in range(6):
        state, _ = machine.round(state)
        mean = problem.weights @ np.asarray(state.clients[0])
        assert abs(mean - np.asarray(state.server.control)).max() < 1e-14


@pytest.mark.parametrize("name", FAMILY)
def test_closed_form_fixed_point(problem, name):
    """Start at x_s = x_i = x*, y_i = x* - grad f_i(x*)/rho: one round does not move, or must."""
    machine = Star(make_job(FAMILY[name], problem))
    x, rho = problem.reference().x, machine.job.algorithm.penalty
    state = machine.init()
    with jax.enable_x64(True):
        uploads = jax.numpy.asarray(x - problem.client_gradients(x) / rho)
        clients = jax.vmap(machine.job.algorithm.recover_client, (None, 0))(x, uploads)
        state = state._replace(server=state.server._replace(x=jax.numpy.asarray(x)))
    after, _ = machine.round(state._replace(clients=(clients,)))
    moved = abs(np.asarray(after.server.x) - x).max()
    if name == "InexactFedSplit, dual":
        assert moved > 1e-3
    else:
        assert moved < 1e-12


@pytest.mark.parametrize("name", ["ADMM", "FedPD", "FedDyn"])
def test_dual_of_an_exact_solve_is_minus_the_gradient(problem, name):
    """lambda_i after an exact solve is -grad f_i(x_i)."""
    machine = Star(make_job(accord.REGISTRY[name](), problem))
    state = machine.init()
    for _ in range(3):
        state, seen = machine.round(state)
    for i, x in enumerate(np.asarray(seen.models[0])):
        gradient = problem.client_gradients(x)[i]
        assert abs(machine.duals(state)[i] + gradient).max() < 1e-12


def test_averaging_only_the_active_uploads_would_stall(problem):
    """The rule of the paper is needed: the mean over participants alone does not reach the optimum."""

    class Wrong(accord.GPDMM):
        absent = "participants"

    wrong = accord.run(Wrong(), problem, 1000, participation=0.5, every=1000)
    right = accord.run(accord.GPDMM(), problem, 1000, participation=0.5, every=1000)
    assert wrong.history["distance"][-1] > 1e-3
    assert right.history["distance"][-1] < 1e-12


def test_inexact_fedsplit_bias_shrinks_with_local_steps(problem):
    """From z_i the error falls with K but stays; from x_s it vanishes for every K."""
    penalty = 0.2 * accord.theory.constants(problem).smoothness
    errors = []
    for steps in (1, 3, 10):
        biased = accord.InexactFedSplit(local_steps=steps, penalty=penalty, start="dual")
        errors.append(accord.run(biased, problem, 2000, every=2000).history["distance"][-1])
        cured = dataclasses.replace(biased, start="primal")
        assert accord.run(cured, problem, 2000, every=2000).history["distance"][-1] < 1e-10
    assert errors[0] > errors[1] > errors[2] > 1e-6


@pytest.mark.parametrize("name", ["ADMM", "FedPD"])
def test_a_recovered_client_would_send_its_message_again(problem, name):
    """x + lambda/rho of the recovered state is the message it was recovered from."""
    algorithm = Star(make_job(accord.REGISTRY[name](), problem)).job.algorithm
    x, message = np.arange(4.0), np.array([3.0, -1.0, 0.5, 2.0])
    state = algorithm.recover_client(x, message)
    assert abs(state.x + state.dual / algorithm.penalty - message).max() < 1e-15


def test_the_skip_probability_of_fedpd_falls_on_a_line_to_zero():
    decay = accord.LinearDecay(40)
    assert [decay(t) for t in (0, 10, 30, 40, 90)] == [1, 0.75, 0.25, 0, 0]


def test_fedpd_counts_the_gradients_of_every_local_iteration(problem):
    oracle = accord.oracles.GradientDescent(local_steps=3)
    algorithm = accord.FedPD(oracle=oracle, skip_probability=0.4)
    history = accord.run(algorithm, problem, 8, seed=1).history
    assert history["iterations"][-1] > 8
    assert (history["gradients"] == 3 * history["iterations"]).all()
