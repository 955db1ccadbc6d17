"""Who wakes in a round, which messages are lost, and which nodes are down."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from accord.core.checks import is_number

_WAKING, _LOSING, _TIME = 2**32 - 3, 2**32 - 4, 2**32 - 5


def _probability(owner: str, name: str, value) -> None:
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{owner}({name}=...): got {value!r}; accepted is a number in [0, 1]")


@dataclass(frozen=True)
class RandomSubset:
    """In a round each node wakes with probability ``share``, independently, and they act together."""

    share: float

    def __post_init__(self):
        _probability("RandomSubset", "share", self.share)
        if self.share == 0:
            raise ValueError("RandomSubset(share=0): nobody would ever wake; accepted is (0, 1]")


@dataclass(frozen=True)
class PoissonClock:
    """Each node has a clock of its own, which rings at exponential intervals.

    ``rates`` (nodes,) are rings per unit of time, 1 for every node by default. A round is as many rings as
    there are nodes; the history tells the time.
    """

    rates: Any = None


@dataclass(frozen=True)
class GilbertElliott:
    """Losses in bursts: each directed edge is in a good or a bad state, and moves at every message.

    It turns bad with probability ``to_bad`` and good again with ``to_good``; a message is then lost with
    probability ``loss_good`` or ``loss_bad``. All edges start good. In the long run a share
    to_bad / (to_bad + to_good) of the messages meets the bad state, 1/to_good of them in a row.
    E. N. Gilbert, "Capacity of a burst-noise channel", Bell System Technical Journal, 1960;
    E. O. Elliott, "Estimates of error rates for codes on burst-noise channels", the same, 1963.
    """

    to_bad: float
    to_good: float
    loss_good: float = 0.0
    loss_bad: float = 1.0

    def __post_init__(self):
        for name in ("to_bad", "to_good", "loss_good", "loss_bad"):
            _probability("GilbertElliott", name, getattr(self, name))
        if self.to_good == 0 or self.loss_good == 1:
            raise ValueError(
                "GilbertElliott: with to_good = 0 or loss_good = 1 an edge may lose every message "
                "for ever; accepted is to_good > 0 and loss_good < 1"
            )


class Outage(NamedTuple):
    """A node that is down from round ``first`` to round ``last`` (counted from 1, both included).

    It neither acts nor hears; what is sent to it is lost. Where nodes act together, messages travel between
    rounds: what was sent in the round before ``first`` is lost, and in round ``last`` it arrives.
    """

    node: Any
    first: int
    last: int


class Waking(NamedTuple):
    """Who acts when. ``kind``: "all" nodes together, a "set" of them together, or nodes in "turn".

    ``rule``: "uniform", "share", "rates" or "schedule", with ``values`` accordingly.
    """

    kind: str
    rule: str
    values: Any


def parse_activation(activation, nodes: int, rounds: int) -> Waking:
    """The waking rule; raises ``ValueError`` for one that is not understood."""
    if isinstance(activation, str):
        if activation == "synchronous":
            return Waking("all", "uniform", ())
        if activation == "asynchronous":
            return Waking("turn", "uniform", ())
    elif isinstance(activation, RandomSubset):
        return Waking("set", "share", float(activation.share))
    elif isinstance(activation, PoissonClock):
        return Waking("turn", "rates", _rates(activation.rates, nodes))
    elif isinstance(activation, np.ndarray | list | tuple):
        try:
            return _schedule(np.asarray(activation), nodes, rounds)
        except ValueError as error:
            if "inhomogeneous" not in str(error):
                raise
            raise ValueError(
                "activation: its rounds have different lengths; one is wanted"
            ) from None
    raise ValueError(
        f'activation: got {activation!r}; accepted are "synchronous", "asynchronous", RandomSubset(share), '
        "PoissonClock(rates), and an array: node numbers (rounds,) or (rounds, turns), or booleans "
        "(rounds, nodes)"
    )


def _rates(rates, nodes: int) -> np.ndarray:
    try:
        rates = np.ones(nodes) if rates is None else np.asarray(rates, float)
    except (TypeError, ValueError):
        raise ValueError(f"PoissonClock(rates=...): got {rates!r}; expected numbers") from None
    if rates.shape != (nodes,) or not (np.isfinite(rates).all() and (rates > 0).all()):
        raise ValueError(
            f"PoissonClock(rates=...): shape {rates.shape}; expected ({nodes},) numbers > 0"
        )
    return rates


def _schedule(array: np.ndarray, nodes: int, rounds: int) -> Waking:
    if array.dtype == bool:
        if array.ndim != 2 or array.shape[1] != nodes:
            raise ValueError(
                f"activation: booleans of shape {array.shape}; expected (rounds, {nodes})"
            )
        kind = "set"
    else:
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or array.dtype.kind not in "iu" or not array.size:
            raise ValueError(
                f"activation: an array of {array.dtype} of shape {array.shape}; expected node numbers "
                "(rounds,) or (rounds, turns)"
            )
        if array.min() < 0 or array.max() >= nodes:
            raise ValueError(f"activation: node numbers must be 0 to {nodes - 1}")
        kind, array = "turn", array.astype(np.uint32)
    if len(array) < rounds:
        raise ValueError(f"activation: {len(array)} rounds in the sequence, {rounds} to run")
    return Waking(kind, "schedule", array)


class Losses(NamedTuple):
    """Loss of messages: ``rule`` "none", "independent" or "bursty", and its probabilities."""

    rule: str
    values: Any


def parse_losses(loss_probability) -> Losses:
    """The loss rule; raises ``ValueError`` for one that is not understood."""
    if isinstance(loss_probability, GilbertElliott):
        g = loss_probability
        return Losses("bursty", (g.to_bad, g.to_good, g.loss_good, g.loss_bad))
    if not is_number(loss_probability) or not 0 <= loss_probability < 1:
        raise ValueError(
            f"loss_probability: got {loss_probability!r}; accepted is a number in [0, 1), or "
            "accord.graph.GilbertElliott(to_bad, to_good)"
        )
    if loss_probability == 0:
        return Losses("none", ())
    return Losses("independent", float(loss_probability))


def parse_outages(outages, network) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(nodes, first rounds, last rounds), rounds counted from 0; None where there are none."""
    found = []
    for outage in () if outages is None else outages:
        if not isinstance(outage, tuple) or len(outage) != 3:
            raise ValueError(f"outages: got {outage!r}; expected Outage(node, first, last)")
        node, first, last = outage
        whole = all(isinstance(r, int | np.integer) for r in (first, last))
        if not whole or not 1 <= first <= last < 2**31:
            raise ValueError(
                f"outages: node {node!r} from round {first!r} to {last!r}; expected whole numbers, "
                "1 <= first <= last"
            )
        found.append((network.number(node), first - 1, last - 1))
    if not found:
        return None
    nodes, first, last = (np.array(part, np.int32) for part in zip(*found, strict=True))
    return nodes, first, last


# Traced, inside a round.


def up(outages, nodes: int, round_index):
    """Which nodes are up (nodes,), or None where none is ever down."""
    if outages is None:
        return None
    who, first, last = outages
    down = (first <= round_index) & (round_index <= last)
    return ~jnp.zeros(nodes, bool).at[who].max(down)


def wake_set(rule: str, values, nodes: int, key, round_index):
    """Which nodes act together in a round."""
    if rule == "schedule":
        return values[round_index % len(values)]
    draws = jax.random.uniform(jax.random.fold_in(key, _WAKING), (nodes,), dtype="float32")
    return draws < values


def wake_turns(rule: str, values, nodes: int, key, round_index):
    """(node numbers in the order of their turns, time that passes).

    Unsigned, since an index that may be negative costs more than the rest of a turn.
    """
    if rule == "schedule":
        return values[round_index % len(values)], 0.0
    draw = jax.random.fold_in(key, _WAKING)
    if rule == "uniform":
        return jax.random.randint(draw, (nodes,), 0, nodes, dtype="uint32"), 0.0
    ends = jnp.cumsum(values)
    marks = jax.random.uniform(draw, (nodes,)) * ends[-1]
    turns = jnp.minimum(jnp.searchsorted(ends, marks, side="right"), nodes - 1)
    spans = jax.random.exponential(jax.random.fold_in(key, _TIME), (nodes,))
    return turns.astype("uint32"), spans.sum() / ends[-1]


def loss_key(key):
    """The key that decides over a round's messages."""
    return jax.random.fold_in(key, _LOSING)


def losses(rule: str, values, bad, key, shape):
    """(lost, the edges' new states) of one message on each edge."""
    if rule == "independent":
        return jax.random.uniform(key, shape, dtype="float32") < values, bad
    to_bad, to_good, loss_good, loss_bad = values
    move, meet = jax.random.uniform(key, (2, *shape), dtype="float32")
    bad = jnp.where(bad, move >= to_good, move < to_bad)
    return meet < jnp.where(bad, loss_bad, loss_good), bad
