"""Networks, problems on them, and PDMM as a plain loop: what the tests of graphs share."""

import numpy as np

import accord
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
