"""PyTorch modules: their gradients come out as PyTorch's, and their runs as those of the same loss in JAX."""

import numpy as np
import pytest

import accord

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

LENGTH = 5


def rows(count=4):
    rng = np.random.default_rng(1)
    found = []
    for i in range(count):
        X = rng.normal(size=(12 + 7 * i, LENGTH)) + i
        found.append((X, X @ rng.normal(size=LENGTH) + rng.normal(size=len(X))))
    return found


def squared(outputs, targets):
    return 0.5 * ((outputs[:, 0] - targets) ** 2).mean()


def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(LENGTH, 1, bias=False)


CLIENTS = accord.Clients.from_arrays(rows())


@pytest.mark.parametrize(
    "algorithm",
    [
        accord.AGPDMM(local_steps=4, step_size=0.015, penalty=0.5),
        accord.SCAFFOLD(local_steps=3, step_size=0.015),
        accord.AGPDMM(local_steps=4, step_size=0.015, penalty=0.5, batch_size=3),
    ],
    ids=["AGPDMM", "SCAFFOLD", "minibatches"],
)
@pytest.mark.parametrize("engine", ["star", "debug"])
def test_a_module_runs_as_the_same_loss_in_jax(algorithm, engine):
    module = linear()
    start = module.weight.detach().numpy()[0].astype(float)
    ours = accord.problems.torch_module(module, squared, CLIENTS, l2=0.1, dtype="float64")
    same = accord.problems.least_squares(CLIENTS, l2=0.1)
    run = accord.run(algorithm, ours, 8, engine=engine, participation=0.5)
    other = accord.run(algorithm, same, 8, x0=start, engine=engine, participation=0.5)
    assert np.abs(run.x["weight"][0] - other.x).max() < 1e-13
    assert run.history["objective"][-1] == pytest.approx(other.history["objective"][-1], rel=1e-13)


def test_defaults_come_from_the_curvature_of_the_module():
    problem = accord.problems.torch_module(linear(), squared, CLIENTS, dtype="float64")
    exact = accord.problems.least_squares(CLIENTS).curvature()[0].max()
    run = accord.run(accord.GPDMM(local_steps=2), problem, 3)
    # L is an estimate here: the largest curvature met, doubled.
    assert run.algorithm.step_size == pytest.approx(1 / (2 * exact), rel=1e-3)


def test_a_network_in_single_precision_learns_the_digits():
    data, _ = accord.data.digits()
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(64, 16), torch.nn.GroupNorm(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10)
    )
    loss = torch.nn.functional.cross_entropy
    problem = accord.problems.torch_module(module, loss, data)
    run = accord.run(accord.AGPDMM(local_steps=5, step_size=0.3, penalty=0.5), problem, 30)
    assert run.history["objective"][-1] < 0.5 * run.start["objective"]
    x = {name: torch.from_numpy(np.array(a)) for name, a in run.x.items()}
    X, y = (np.concatenate(parts) for parts in zip(*data, strict=True))
    scores = torch.func.functional_call(module, x, (torch.from_numpy(X.astype("float32")),))
    assert (scores.argmax(1).numpy() == y).mean() > 0.8


def test_a_client_without_rows_and_a_loss_without_curvature():
    clients = accord.Clients.from_arrays([*rows(2), (np.zeros((0, LENGTH)), np.zeros(0))])
    problem = accord.problems.torch_module(linear(), squared, clients, dtype="float64")
    same = accord.problems.least_squares(clients)
    x = {"weight": np.ones((1, LENGTH))}
    assert problem.objective(x) == pytest.approx(same.objective(np.ones(LENGTH)), rel=1e-13)
    flat = accord.problems.torch_module(
        linear(), lambda o, y: (o[:, 0] * y).mean(), clients, l2=0.5, dtype="float64"
    )
    bent = flat.hessian_product(x, x)
    assert np.allclose(bent["weight"], 0.5)


def test_what_is_refused():
    make = accord.problems.torch_module
    norm = torch.nn.Sequential(torch.nn.Linear(LENGTH, 2), torch.nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match=r"module: it has the buffer '1.running_mean'"):
        make(norm, squared, CLIENTS)
    with pytest.raises(TypeError, match="module: got int"):
        make(3, squared, CLIENTS)
    with pytest.raises(ValueError, match=r"loss: returned float32 of shape \(12,\)"):
        make(linear(), lambda o, y: (o[:, 0] - y) ** 2, CLIENTS)
    with pytest.raises(ValueError, match="loss: PyTorch warns of a client's rows: Using a target"):
        make(linear(), torch.nn.functional.mse_loss, CLIENTS)
    with pytest.raises(ValueError, match="loss: returned float64"):
        make(linear(), lambda o, y: squared(o, y).double(), CLIENTS)
    frozen = linear()
    frozen.weight.requires_grad_(False)
    with pytest.raises(ValueError, match="module: its parameter 'weight' is frozen"):
        make(frozen, squared, CLIENTS)
    weighted = accord.Clients.from_arrays([(X, y, np.arange(len(y)) + 1.0) for X, y in rows()])
    with pytest.raises(ValueError, match="clients: row weights"):
        make(linear(), squared, weighted)
    problem = make(linear(), squared, CLIENTS)
    exact = accord.PDMM(penalty=1.0, relaxation=1.0, oracle=accord.oracles.Exact())
    with pytest.raises(ValueError, match="PDMM needs 'prox'"):
        accord.run(exact, problem, 3)
