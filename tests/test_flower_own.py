"""A user's own apps over Flower: a JAX loss, a PyTorch module, an own algorithm, and Flower's own loop."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

import accord

pytest.importorskip("flwr", reason="the extra flower is not installed")

from accord.flower import AccordStrategy, Options, Terms, client_app
from accord.flower.server import carry_out
from accord.flower.tasks import OwnRun
from grid import LocalGrid

TERMS = Terms(settle=0, poll=0.001, resend=0.05, leave_after=2)
NAMES = ("north", "south", "west")


def rows(k):
    rng = np.random.default_rng(k)
    X = rng.normal(size=(11 + 6 * k, 3)) + k
    return X, (X[:, 0] + rng.normal(size=len(X)) > k).astype(float)


def loss(x, row, target):
    eta = row @ x["w"] + x["b"]
    return jnp.logaddexp(0.0, eta) - target * eta


START = {"w": np.zeros(3), "b": np.zeros(())}


def own(ks):
    clients = accord.Clients.from_arrays([rows(k) for k in ks])
    return accord.problems.custom(loss, START, clients, l2=0.2)


def grid_of(problem, tmp_path, **options):
    apps = {
        name: client_app(lambda c, k=k: problem([k]), **options) for k, name in enumerate(NAMES)
    }
    return LocalGrid(apps, {name: {"state": str(tmp_path / "state")} for name in NAMES})


def test_a_jax_loss_over_a_tree_of_parameters(tmp_path):
    task = OwnRun(accord.AGPDMM(local_steps=3, step_size=0.1, penalty=0.5), START, 10)
    run = carry_out(grid_of(own, tmp_path), task, Options(tmp_path / "out", TERMS))
    same = accord.run(task.algorithm, own(range(3)), 10)
    for name in START:
        assert np.abs(run.x[name] - same.x[name]).max() < 1e-12
    assert run.history["objective"] == pytest.approx(same.history["objective"], rel=1e-12)
    with np.load(tmp_path / "out" / "model.npz") as stored:
        assert np.array_equal(stored["x['w']"], run.x["w"])


def test_defaults_come_from_the_sites(tmp_path):
    task = OwnRun(accord.GPDMM(local_steps=2), START, 3)
    run = carry_out(grid_of(own, tmp_path), task, Options(terms=TERMS))
    # Each site's estimate of L is on a path of its own, the engine's on a common one.
    whole = accord.run(task.algorithm, own(range(3)), 3).algorithm.step_size
    assert 0.3 * whole < run.algorithm.step_size < 3 * whole


def test_a_pytorch_module(tmp_path):
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))

    def problem(ks):
        clients = accord.Clients.from_arrays([(rows(k)[0], rows(k)[1].astype(int)) for k in ks])
        return accord.problems.torch_module(
            module, torch.nn.functional.cross_entropy, clients, dtype="float64"
        )

    start = problem([0]).initial()
    task = OwnRun(accord.SCAFFOLD(local_steps=3, step_size=0.05), start, 6)
    run = carry_out(grid_of(problem, tmp_path), task, Options(terms=TERMS))
    same = accord.run(task.algorithm, problem(range(3)), 6)
    assert all(np.abs(run.x[name] - same.x[name]).max() < 1e-12 for name in start)


@dataclass(frozen=True)
class Shrinking(accord.GradientDescent):
    """Gradient descent towards half of its step."""

    def server(self, server, mean, share):
        return super().server(server, mean / 2, share)


def test_an_algorithm_of_ones_own(tmp_path):
    def least_squares(ks):
        return accord.problems.least_squares(
            accord.Clients.from_arrays([rows(k) for k in ks]), l2=1.0
        )

    algorithm = Shrinking(step_size=0.05)
    grid = grid_of(least_squares, tmp_path, classes=[Shrinking])
    task = OwnRun(algorithm, np.zeros(3), 5, classes=[Shrinking])
    run = carry_out(grid, task, Options(terms=TERMS))
    assert np.abs(run.x - accord.run(algorithm, least_squares(range(3)), 5).x).max() < 1e-12
    with pytest.raises(ValueError, match="algorithm: Shrinking is not known at the sites"):
        carry_out(grid, OwnRun(algorithm, np.zeros(3), 5), Options(terms=TERMS))


@pytest.mark.parametrize(
    "algorithm",
    [accord.AGPDMM(local_steps=4), accord.SCAFFOLD(), accord.Newton()],
    ids=lambda a: type(a).__name__,
)
def test_flowers_own_loop(algorithm, tmp_path):
    def logistic(ks):
        return accord.problems.logistic(accord.Clients.from_arrays([rows(k) for k in ks]), l2=0.1)

    grid = grid_of(logistic, tmp_path)
    strategy = AccordStrategy(algorithm, np.zeros(3), options=Options(terms=TERMS))
    result = strategy.start(grid, strategy.initial_arrays, num_rounds=8)
    same = accord.run(algorithm, logistic(range(3)), 8)
    assert np.abs(strategy.model - same.x).max() < 1e-12
    assert np.array_equal(result.arrays["x"].numpy(), strategy.model)
    # The measures are of the model that a round started from.
    told = [result.train_metrics_clientapp[k]["objective"] for k in range(2, 9)]
    assert told == pytest.approx(same.history["objective"][:-1], rel=1e-12)


def test_flowers_own_loop_with_replies_lost_and_a_site_that_leaves(tmp_path):
    def logistic(ks):
        return accord.problems.logistic(accord.Clients.from_arrays([rows(k) for k in ks]), l2=0.1)

    grid = grid_of(logistic, tmp_path)
    lost = iter(["south"])

    def after(name, message, reply):
        # The first of the replies of south that matter is lost.
        if name == "south" and message.metadata.message_type == "train" and next(lost, None):
            return []
        return [reply]

    grid.after = after
    terms = Terms(settle=0, poll=0.001, resend=0.05, leave_after=2, deadline=0.3)
    strategy = AccordStrategy(accord.Newton(), np.zeros(3), options=Options(terms=terms))
    strategy.start(grid, strategy.initial_arrays, num_rounds=6)
    same = accord.run(accord.Newton(), logistic(range(3)), 6)
    assert np.abs(strategy.model - same.x).max() < 1e-12
    grid.gone.add("west")
    strategy.start(grid, strategy.initial_arrays, num_rounds=10)
    rest = logistic([0, 1]).reference().x
    assert np.abs(strategy.model - rest).max() < 1e-10


def test_what_the_strategy_refuses(tmp_path):
    with pytest.raises(ValueError, match="AccordStrategy keeps no files"):
        AccordStrategy(accord.PDMM(), np.zeros(3), options=Options(tmp_path))
    strategy = AccordStrategy(accord.PDMM(), np.zeros(3))
    with pytest.raises(RuntimeError, match="call configure_train first"):
        strategy.aggregate_train(1, [])
