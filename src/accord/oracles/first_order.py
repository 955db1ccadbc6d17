"""Local solvers that take a number of gradient steps: full, minibatch and variance reduced."""

from dataclasses import dataclass
from typing import ClassVar

import jax

from accord import tree
from accord.core import repeat, static
from accord.oracles.base import FORMS, Oracle, Solution


def _iterate(count, start, step):
    """(last, average) of ``count`` iterates after ``start``, with ``x = step(k, x)``."""

    def one(k, carry):
        x, total = carry
        x = step(k, x)
        return x, tree.add(total, x)

    last, total = repeat(count, one, (start, tree.zeros_like(start)))
    return last, tree.scale(1 / count, total)


@dataclass(frozen=True)
class GradientDescent(Oracle):
    """``local_steps`` gradient steps of length ``step_size`` on the whole sub-problem.

    Stable for step_size <= 1 / (L + penalty), which is the default.
    """

    local_steps: int | None = None
    step_size: float | None = None

    form: ClassVar[str] = "gradient"

    def __call__(self, objective, start, dual, centre, penalty, key, memory=()):
        def step(k, x):
            return FORMS[self.form](x, objective.grad(x), dual, centre, penalty, self.step_size)

        last, average = _iterate(self.local_steps, start, step)
        return Solution(last, average, self.local_steps)


@dataclass(frozen=True)
class Linearised(GradientDescent):
    """``local_steps`` proximal steps in which f is linearised and the penalty kept exact.

    The closed form (4) of Zhang et al. (2021) and the local step of GPDMM and AGPDMM; stable for
    step_size <= 1/L at any penalty.
    """

    form: ClassVar[str] = "linearised"


@dataclass(frozen=True)
class SGD(Oracle):
    """Steps on minibatches of ``batch_size`` rows drawn with replacement, in either form.

    ``form`` is "gradient" (a step on the whole sub-problem) or "linearised" (the penalty kept exact).
    """

    needs = frozenset({"grad", "minibatch"})
    noisy = True

    batch_size: int = static(32)
    local_steps: int | None = None
    step_size: float | None = None
    form: str = "gradient"

    def __call__(self, objective, start, dual, centre, penalty, key, memory=()):
        def step(k, x):
            index = objective.draw(jax.random.fold_in(key, k), self.batch_size)
            g = objective.minibatch_grad(x, index)
            return FORMS[self.form](x, g, dual, centre, penalty, self.step_size)

        last, average = _iterate(self.local_steps, start, step)
        share = _share(self.batch_size, objective)
        return Solution(last, average, self.local_steps * share)


@dataclass(frozen=True)
class VarianceReduced(Oracle):
    """Oracle II of Zhang et al. (2021): linearised steps with a recursive gradient estimate.

    Every ``restart_interval``-th call starts from the full gradient, the others from the estimate
    carried over; each step first moves and then adds the mean over a fresh minibatch of
    grad(x_new) - grad(x_old). A call starts where the last one ended. The compiled engine evaluates the
    full gradient at every call and drops it where it is not wanted; ``gradients`` counts what the method
    needs.
    """

    needs = frozenset({"grad", "minibatch"})
    stateful = True

    batch_size: int = static(32)
    restart_interval: int = 1
    local_steps: int | None = None
    step_size: float | None = None

    def init(self, x):
        return tree.zeros_like(x), 0

    def __call__(self, objective, start, dual, centre, penalty, key, memory=()):
        carried, calls = memory
        restart = calls % self.restart_interval == 0
        full = objective.grad(start)
        estimate = tree.map(lambda a, b: restart * a + (1 - restart) * b, full, carried)

        def step(k, carry):
            x, g, total = carry
            new = FORMS["linearised"](x, g, dual, centre, penalty, self.step_size)
            index = objective.draw(jax.random.fold_in(key, k), self.batch_size)
            now, before = (objective.minibatch_grad(v, index) for v in (new, x))
            return new, tree.add(g, tree.subtract(now, before)), tree.add(total, new)

        carry = start, estimate, tree.zeros_like(start)
        last, estimate, total = repeat(self.local_steps, step, carry)
        average = tree.scale(1 / self.local_steps, total)
        used = restart + 2 * self.local_steps * _share(self.batch_size, objective)
        return Solution(last, average, used, (estimate, calls + 1))


def _share(batch_size, objective):
    """What a minibatch gradient costs, in full gradients; nothing where there are no rows."""
    return batch_size * (objective.rows > 0) / (objective.rows + (objective.rows == 0))


def steps(form: str, local_steps, step_size, batch_size) -> Oracle:
    """The gradient steps of a method: full gradients, or minibatches where a size is given."""
    if batch_size is not None:
        return SGD(batch_size, local_steps, step_size, form)
    return (Linearised if form == "linearised" else GradientDescent)(local_steps, step_size)
