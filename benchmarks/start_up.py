"""What ``import accord`` costs above ``import jax``, as whole processes in turn. Wanted: at most 0.2 s."""

import statistics
import subprocess
import sys
import time


def seconds(module: str) -> float:
    """The wall time of a Python process that imports a module."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    return time.perf_counter() - began


def main():
    pairs = [(seconds("jax"), seconds("accord")) for _ in range(12)][1:]
    jax, accord = (statistics.median(column) for column in zip(*pairs, strict=True))
    above = statistics.median(b - a for a, b in pairs)
    print(f"import jax {jax:.3f} s, import accord {accord:.3f} s: {above:.3f} s above")


if __name__ == "__main__":
    main()
