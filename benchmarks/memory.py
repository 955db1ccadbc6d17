"""Peak memory of a run beside its data and state. Wanted: at most 1.5x.

Each case is a process of its own: resident memory before the data exist, and its peak during the run. The
compiler takes some 25 MiB per bucket of clients for a moment, whatever the size of the data.
"""

import ctypes
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

CASES = {
    "softmax": (20, 5000, 784),
    "least_squares": (20, 20000, 200),
    "ragged logistic": (60, 40000, 400),
}


def resident() -> int:
    """Bytes resident now."""
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def measure(case: str) -> None:
    """Runs one case and prints its line."""
    import jax

    import accord
    from accord.engines import Star, make_job
    from accord.engines.measures import Yardstick

    m, n, d = CASES[case]
    rng = np.random.default_rng(0)
    sizes = np.geomspace(10, n, m).astype(int) if case.startswith("ragged") else np.full(m, n)
    # A small run first, so that compiler and runtime are resident before the data are.
    small = [(rng.standard_normal((9, 3)), rng.integers(0, 2, 9)) for _ in range(3)]
    accord.run(accord.GPDMM(), _problem(case, accord.Clients.from_arrays(small)), 3)
    before = resident()
    problem = _problem(case, _clients(sizes, d, rng))
    machine = Star(make_job(accord.AGPDMM(local_steps=5, step_size=0.01, penalty=1.0), problem))
    data = sum(sizes) * d * 8
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(machine.init()))
    # Freed blocks that the allocator keeps for later are no part of the run.
    ctypes.CDLL(None).malloc_trim(0)
    with Path("/proc/self/clear_refs").open("w") as file:
        file.write("5")  # the peak counts from here: a run, with its data there
    machine.advance(machine.init(), Yardstick(), 20, 20, 20, 1, False)
    peak = _peak() - before
    print(
        f"{case}: data {data / 2**20:.0f} MiB, state {state / 2**20:.1f} MiB, peak of the run "
        f"{peak / 2**20:.0f} MiB: {peak / (data + state):.2f}x"
    )


def _peak() -> int:
    with Path("/proc/self/status").open() as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _clients(sizes, d, rng):
    import accord

    return accord.Clients.from_arrays(
        (rng.standard_normal((n, d)), rng.integers(0, 2, n)) for n in sizes
    )


def _problem(case, clients):
    import accord

    kind = case.split()[-1]
    return getattr(accord.problems, kind)(clients, l2=1e-2)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        for case in CASES:
            subprocess.run([sys.executable, __file__, case], check=True)
