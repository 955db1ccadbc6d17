"""Repeated local iterations: a Python loop for a plain count, a compiled one for a traced count."""

import jax
from jax import lax


def repeat(count, step, carry):
    """``carry = step(k, carry)`` for k = 0 .. count - 1."""
    if isinstance(count, jax.core.Tracer):
        return lax.fori_loop(0, count, step, carry)
    for k in range(int(count)):
        carry = step(k, carry)
    return carry
