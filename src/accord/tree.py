"""Arithmetic on parameter pytrees.

Every function maps plain ``+ - *`` over the leaves, so that it works alike on JAX, NumPy and torch
arrays and on Python scalars. Trees that are combined must have the same structure.
"""

from functools import reduce

from jax import tree_util

map = tree_util.tree_map


def add(a, b):
    """a + b."""
    return map(lambda x, y: x + y, a, b)


def subtract(a, b):
    """a - b."""
    return map(lambda x, y: x - y, a, b)


def scale(factor, a):
    """factor * a, for one number ``factor``."""
    return map(lambda x: factor * x, a)


def add_scaled(a, factor, b):
    """a + factor * b, for one number ``factor``."""
    return map(lambda x, y: x + factor * y, a, b)


def mix(share, a, b):
    """(1 - share) * a + share * b, for one number ``share``."""
    return map(lambda x, y: (1 - share) * x + share * y, a, b)


def reflect(a, b):
    """2 a - b: the point b mirrored in a."""
    return map(lambda x, y: 2 * x - y, a, b)


def zeros_like(a):
    """The zero of the space that ``a`` lives in."""
    return map(lambda x: 0 * x, a)


def dot(a, b):
    """The inner product <a, b>, summed over all leaves."""
    products = map(lambda x, y: (x * y).sum(), a, b)
    return reduce(lambda x, y: x + y, tree_util.tree_leaves(products), 0.0)


def norm(a):
    """The Euclidean norm ||a|| over all leaves."""
    return dot(a, a) ** 0.5
