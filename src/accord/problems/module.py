"""Problems whose model is a PyTorch module."""

import copy
import warnings
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from accord.objectives import TorchHost, TorchObjective
from accord.problems.base import Problem, non_negative


class TorchProblem(Problem):
    """Clients with a PyTorch module and its loss: see ``torch_module``."""

    name = "torch_module"
    convex = None
    bounded = False
    offers = frozenset({"grad", "hessian_product", "minibatch"})

    def __init__(self, module, loss: Callable, clients, l2, weights, dtype):
        import torch

        super().__init__(clients, weights, dtype)
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module: got {type(module).__name__}; accepted is a torch.nn.Module")
        if not callable(loss):
            raise TypeError("loss: expected a function loss(outputs, targets) -> mean loss")
        buffers = [name for name, _ in module.named_buffers()]
        if buffers:
            raise ValueError(
                f"module: it has the buffer {buffers[0]!r}, which is no parameter that clients could agree "
                "on; take layers without running statistics, as GroupNorm for BatchNorm"
            )
        self.l2 = non_negative("l2", l2)
        kind = getattr(torch, self.dtype)
        module = copy.deepcopy(module).to(device="cpu", dtype=kind).eval()
        frozen = [n for n, p in module.named_parameters() if not p.requires_grad]
        if frozen:
            raise ValueError(
                f"module: its parameter {frozen[0]!r} is frozen; put what it makes into the rows, or train it"
            )
        self._initial = {n: p.detach().numpy().copy() for n, p in module.named_parameters()}
        if not self._initial:
            raise ValueError("module: it has no parameters")
        rows = []
        for i, (X, y) in enumerate(clients):
            if len(y) and np.ptp(clients.row_weights(i)) > 0:
                raise ValueError(
                    "clients: row weights are not for PyTorch's mean losses; leave them out"
                )
            target = torch.from_numpy(np.array(y))
            target = target.to(kind) if target.is_floating_point() else target.long()
            rows.append((torch.from_numpy(np.array(X, self.dtype)), target))
        self._host = TorchHost(module, loss, rows)
        self._check_loss()

    def _check_loss(self):
        client = int(np.flatnonzero(self.clients.sizes)[0])
        # PyTorch only warns of outputs (n, 1) against targets (n,), which it takes for n x n pairs.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                value = self._host.value(self._initial, client)
            except UserWarning as warning:
                line = str(warning).splitlines()[0]
                raise ValueError(f"loss: PyTorch warns of a client's rows: {line}") from None
        if np.shape(value) != () or value.dtype != self.dtype:
            raise ValueError(
                f"loss: returned {value.dtype} of shape {np.shape(value)} for a client's rows; expected one "
                f'{self.dtype}, their mean, as with reduction="mean"'
            )

    def initial(self):
        return self._initial

    def _build(self, bucket, dtype, layout):
        if dtype != self.dtype:
            raise ValueError(f"dtype: got {dtype}; the module was made {self.dtype}: give it there")
        return TorchObjective(
            client=jnp.asarray(bucket.clients, "int32"),
            rows=jnp.asarray(self.clients.sizes[bucket.clients], "int32"),
            l2=jnp.full(len(bucket.clients), self.l2, dtype),
            host=self._host,
        )
