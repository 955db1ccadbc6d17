"""Rounds per second of GPDMM, beside a batched NumPy loop of the same method.

25 clients x 100 rows x 50 features, K = 5, least squares, float64. Wanted: at least 2x NumPy.
"""

import jax
import numpy as np
from _timing import in_turn

import accord
from accord.engines import Star, make_job
from accord.engines.measures import Yardstick

CLIENTS, ROWS, FEATURES, K, ROUNDS = 25, 100, 50, 5, 1000


def numpy_rounds(gradient, eta, rho):
    """GPDMM in NumPy, given every client's gradient as one batched function of (m, d)."""
    x = np.zeros((CLIENTS, FEATURES))
    y, server = x, np.zeros(FEATURES)
    for _ in range(ROUNDS):
        z = 2 * server - y
        total = 0
        for _ in range(K):
            x = (x / eta + rho * z - gradient(x)) / (1 / eta + rho)
            total = total + x
        y = 2 * total / K - z
        server = y.mean(0)
    return server


def main():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((CLIENTS, ROWS, FEATURES))
    b = rng.standard_normal((CLIENTS, ROWS))
    clients = accord.Clients.from_arrays(list(zip(A, b, strict=True)))
    problem = accord.problems.least_squares(clients)
    machine = Star(make_job(accord.GPDMM(local_steps=K), problem))
    algorithm, never = machine.job.algorithm, Yardstick()
    eta, rho = algorithm.step_size, algorithm.penalty

    def accord_rounds():
        state, *_ = machine.advance(machine.init(), never, ROUNDS, ROUNDS, ROUNDS, 1, False)
        return np.asarray(jax.block_until_ready(state.server.x))

    H = np.einsum("mnd,mne->mde", A, A) / ROWS
    q = np.einsum("mnd,mn->md", A, b) / ROWS
    At = np.ascontiguousarray(A.transpose(0, 2, 1))

    def on_rows(x):
        residual = (A @ x[:, :, None])[:, :, 0] - b
        return (At @ residual[:, :, None])[:, :, 0] / ROWS

    def on_gram(x):
        return (H @ x[:, :, None])[:, :, 0] - q

    error = abs(accord_rounds() - numpy_rounds(on_rows, eta, rho)).max()
    print(f"GPDMM, {CLIENTS} clients x {ROWS} rows x {FEATURES} features, K = {K}, float64")
    print(f"  largest difference after {ROUNDS} rounds: {error:.1e}")
    for name, other in (
        ("batched NumPy on rows", lambda: numpy_rounds(on_rows, eta, rho)),
        ("batched NumPy on Gram matrices", lambda: numpy_rounds(on_gram, eta, rho)),
    ):
        ours, theirs, ratio = in_turn(accord_rounds, other)
        ms = 1e3 / ROUNDS
        print(
            f"  accord {ours * ms:.4f} ms a round, {name} {theirs * ms:.4f} ms: {ratio:.1f}x as fast"
        )


if __name__ == "__main__":
    main()
