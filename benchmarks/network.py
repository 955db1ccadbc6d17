"""PDMM on networks, beside what its arithmetic amounts to and beside loops in Python.

Wanted: a synchronous round of a million nodes within 2x two sparse matrix-vector products; five million
single-node activations a second; 100x the rounds of a loop over nodes of NumPy calls.
"""

import resource
import sys
from pathlib import Path

import numpy as np
from _timing import in_turn

import accord
from accord import graph
from accord.graph.machine import Scale


def rounds_of(network, problem, rounds, activation="synchronous", penalty=0.3):
    """A function that runs so many rounds from the start, without measuring in between."""
    job = graph.make_job(
        graph.PDMM(penalty), network, problem, rounds, activation=activation, reference=False
    )
    machine = graph.Machine(job)
    return lambda: machine.advance(machine.init(), Scale(), rounds, rounds, rounds, 1, False)


def million(rounds=100):
    rng, n = np.random.default_rng(0), 10**6
    edges = np.sort(rng.integers(0, n, (5 * n, 2), dtype=np.int32), 1)
    edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)
    lone = np.setdiff1d(np.arange(n), edges)
    edges = np.concatenate([edges, np.stack([lone, (lone + 1) % n], 1)]).astype(np.int32)
    network = graph.Network(np.unique(np.sort(edges, 1), axis=0), n)
    problem = accord.problems.averaging(rng.standard_normal(n))
    table, x = network.adjacency(), rng.standard_normal(n)

    def products():
        for _ in range(2 * rounds):
            table @ x

    ours, theirs, ratio = in_turn(rounds_of(network, problem, rounds), products, runs=3)
    ms = 1e3 / rounds
    print(f"averaging, {n:,} nodes, {len(network.target):,} directed edges, synchronous")
    print(
        f"  accord {ours * ms:.1f} ms a round, two products {theirs * ms:.1f} ms: {1 / ratio:.2f}x the time"
    )


def memory():
    """Peak of a run beyond what was there before it, over the edge arrays (a process of its own)."""
    n = 10**6
    steps = np.arange(1, 6, dtype=np.int32)
    nodes = np.arange(n, dtype=np.int32)
    edges = np.stack([np.tile(nodes, 5), (nodes + steps[:, None] * 7919).ravel() % n], 1)
    network = graph.Network(edges.astype(np.int32), n)
    problem = accord.problems.averaging(np.random.default_rng(0).standard_normal(n))
    held = sum(a.nbytes for a in (network.source, network.target, network.reverse, network.offsets))
    z = 8 * len(network.target)
    small = graph.Network.ring(50)
    rounds_of(small, accord.problems.averaging(np.arange(50.0)), 5)()
    before = _resident()
    rounds_of(network, problem, 20)()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(f"  memory of the run {peak / 2**20:.0f} MiB: {peak / (held + z):.2f}x the edge arrays")
    print(f"  (indices {held / 2**20:.0f} MiB and one value an edge {z / 2**20:.0f} MiB)")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def activations(rounds=100):
    n = 10_000
    nodes = np.arange(n)
    edges = np.concatenate([np.stack([nodes, (nodes + k) % n], 1) for k in (1, 2, 3, 4)])
    network = graph.Network(edges, n)
    values = np.random.default_rng(0).standard_normal(n)
    run = rounds_of(network, accord.problems.averaging(values), rounds, "asynchronous")
    turns = np.random.default_rng(1).integers(0, n, 50_000)

    def natural():
        z, x = np.zeros(len(network.target)), np.zeros(n)
        offsets, reverse = network.offsets, network.reverse
        for i in turns:
            own = slice(offsets[i], offsets[i + 1])
            rows = z[own]
            x[i] = (values[i] + 0.3 * rows.sum()) / (1 + 0.3 * len(rows))
            z[reverse[own]] = 2 * x[i] - rows

    ours, theirs, _ = in_turn(run, natural, runs=5)
    a, b = rounds * n / ours, len(turns) / theirs
    print(f"averaging, {n:,} nodes of degree 8, one node at a time")
    print(
        f"  accord {a / 1e6:.1f} million activations a second, a Python loop {b / 1e6:.3f}: {a / b:.0f}x"
    )


def regressions(rounds=500):
    rng = np.random.default_rng(0)
    network = graph.Network.random_geometric(200, 0.11, seed=1)
    A, y = rng.standard_normal((200, 60, 50)), rng.standard_normal((200, 60))
    problem = accord.problems.least_squares(
        accord.Clients.from_arrays(list(zip(A, y, strict=True)))
    )
    H, b = np.einsum("nrd,nre->nde", A, A) / 60, np.einsum("nrd,nr->nd", A, y) / 60
    source, target, reverse, offsets = (
        network.source,
        network.target,
        network.reverse,
        network.offsets,
    )
    rho = 0.3
    inverses = [np.linalg.inv(H[i] + rho * network.degrees[i] * np.eye(50)) for i in range(200)]

    def loop(solve, count):
        z, x = np.zeros((len(source), 50)), np.zeros((200, 50))
        for _ in range(count):
            for i in range(200):
                right = b[i] + rho * z[offsets[i] : offsets[i + 1]].sum(0)
                x[i] = solve(i, right)
            new = np.empty_like(z)
            for i in range(200):
                for e in range(offsets[i], offsets[i + 1]):
                    new[reverse[e]] = 2 * x[i] - z[e]
            z = new
        return x

    def as_written(count):
        """Neighbour by neighbour, as the papers write it."""
        edges = {(i, int(j)): np.zeros(50) for i in range(200) for j in network.neighbours(i)}
        for _ in range(count):
            sent = {}
            for i in range(200):
                left, right = H[i].copy(), b[i].copy()
                for j in network.neighbours(i):
                    left += rho * np.eye(50)
                    right += rho * edges[i, int(j)]
                x = np.linalg.solve(left, right)
                for j in network.neighbours(i):
                    sent[int(j), i] = 2 * x - edges[i, int(j)]
            edges = sent

    def solved(i, right):
        return np.linalg.solve(H[i] + rho * network.degrees[i] * np.eye(50), right)

    ours = rounds_of(network, problem, rounds)
    print(f"least squares, 200 nodes, {len(target)} directed edges, d = 50, synchronous")
    loops = {
        "neighbour by neighbour": as_written,
        "with a node's edges as one array": lambda count: loop(solved, count),
        "with inverses kept too": lambda count: loop(lambda i, r: inverses[i] @ r, count),
    }
    for name, run in loops.items():
        fast, slow, _ = in_turn(ours, lambda run=run: run(10), runs=5)
        fast, slow = fast / rounds, slow / 10
        print(
            f"  accord {fast * 1e6:.0f} us a round, a loop over nodes {name} {slow * 1e3:.2f} ms: "
            f"{slow / fast:.0f}x as fast"
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        memory()
    else:
        million()
        activations()
        regressions()
