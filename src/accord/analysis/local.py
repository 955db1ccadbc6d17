"""Every client's own model, from its own rows alone: what the joint model is held against."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from accord.oracles import Exact

FAINT = 1e-6
"""The weight of (1/2) ||w||^2 that keeps a client's own model finite where its rows do not."""


def local_models(problem) -> np.ndarray:
    """The minimiser of f_i(x) + (FAINT/2) ||x||^2 for every client, stacked in client order.

    f_i holds the l2 penalty; l1, which is the server's, is left out. A client without rows gets zeros.
    """
    quadratics = problem.quadratics()
    if quadratics is not None:
        return _of_quadratics(quadratics, problem.clients.sizes)
    with jax.enable_x64(True):
        prepared = problem.prepare(frozenset({"grad", "minibatch"}))
        x = jnp.zeros(problem.initial().shape, problem.dtype)
        stacks = [np.asarray(_own(o, x)) for o in prepared.objectives]
    order = np.argsort(np.concatenate([np.asarray(c) for c in prepared.clients]))
    models = np.concatenate(stacks)[order]
    models[problem.clients.sizes == 0] = 0.0
    return models


def _of_quadratics(q, sizes) -> np.ndarray:
    """The same in closed form: H (x - shift) - b + FAINT x = 0."""
    H = q.hessian + FAINT * np.eye(q.hessian.shape[-1])
    b = q.linear + np.einsum("ijk,ik->ij", q.hessian, q.shift)
    models = np.linalg.solve(H, b[..., None])[..., 0]
    models[sizes == 0] = 0.0
    return models


@jax.jit
def _own(objectives, x):
    return jax.vmap(partial(_one, x=x))(objectives)


def _one(objective, x):
    return Exact()(objective, x, jnp.zeros_like(x), jnp.zeros_like(x), FAINT, None).last
