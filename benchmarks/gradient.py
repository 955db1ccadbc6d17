"""One full softmax gradient beside the two bare matrix products that it amounts to.

10 clients x 6,000 rows x 784 features, 10 classes, float32. The products are taken by the faster of
NumPy's BLAS and XLA. Wanted: at most 1.15x. Then, a gradient step by K = 5 local steps of AGPDMM, and
ragged clients of 1 to 50,000 rows beside the same rows in equal clients (wanted: at most 1.3x).
"""

import jax
import jax.numpy as jnp
import numpy as np
from _timing import in_turn

import accord
from accord.problems import value_and_client_gradients

CLIENTS, ROWS, FEATURES, CLASSES, K = 10, 6000, 784, 10, 5


@jax.jit
def gradients(objectives, x):
    """Every client's gradient at its own model."""
    return [jax.vmap(lambda o, v: o.grad(v))(o, v) for o, v in zip(objectives, x, strict=True)]


@jax.jit
def bare_products(features, x, p):
    """A x and A' p of every client."""
    return features @ x, jnp.swapaxes(features, 1, 2) @ p


def softmax_gradient():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((CLIENTS, ROWS, FEATURES), dtype=np.float32)
    y = rng.integers(0, CLASSES, (CLIENTS, ROWS))
    clients = accord.Clients.from_arrays(list(zip(X, y, strict=True)))
    problem = accord.problems.softmax(clients, dtype="float32")
    objectives = problem.prepare().objectives
    x = jnp.asarray(rng.standard_normal((CLIENTS, FEATURES, CLASSES), dtype=np.float32)) * 0.01
    p = jnp.asarray(rng.standard_normal((CLIENTS, ROWS, CLASSES), dtype=np.float32))
    features, x_, p_ = objectives[0].features, np.asarray(x), np.asarray(p)

    def full():
        return jax.block_until_ready(gradients(objectives, [x]))

    def by_xla():
        return jax.block_until_ready(bare_products(features, x, p))

    def by_numpy():
        return [(X[i] @ x_[i], X[i].T @ p_[i]) for i in range(CLIENTS)]

    print(f"softmax gradient, {CLIENTS} x {ROWS} x {FEATURES}, {CLASSES} classes, float32")
    for name, bare in (("XLA", by_xla), ("NumPy", by_numpy)):
        low, ours, ratio = in_turn(bare, full, 15)
        print(
            f"  gradient {ours * 1e3:.1f} ms, products by {name} {low * 1e3:.1f} ms: {ratio:.2f}x"
        )


def ragged():
    """Clients of 1 to 50,000 rows, K gradients each, against the same number of rows evenly spread."""
    rng = np.random.default_rng(1)
    sizes = np.unique(np.geomspace(1, 50_000, 40).astype(int))
    even = np.full(len(sizes), sizes.sum() // len(sizes))
    print(f"ragged clients, {len(sizes)} of 1 to 50,000 rows, logistic, 50 features, float64")
    steps = []
    for counts in (even, sizes):
        pairs = [(rng.standard_normal((n, 50)), rng.integers(0, 2, n)) for n in counts]
        clients = accord.Clients.from_arrays(pairs)
        problem = accord.problems.logistic(clients, l2=1e-2)
        with jax.enable_x64(True):
            objectives, x = problem.prepare().objectives, jnp.zeros(50)
        run = jax.jit(value_and_client_gradients)

        def once(run=run, objectives=objectives, x=x):
            with jax.enable_x64(True):
                return jax.block_until_ready(run(objectives, x))

        steps.append(once)
        print(f"  {clients}: {clients.padding:.3f} stored rows a true row")
    low, ours, ratio = in_turn(*steps, 15)
    print(f"  even {low * 1e3:.1f} ms, ragged {ours * 1e3:.1f} ms: {ratio:.2f}x")


if __name__ == "__main__":
    softmax_gradient()
    ragged()
