"""A method's rounds where clients answer by letters: the server's half, which a checkpoint holds whole.

The arithmetic is that of the compiled star engine, so that trajectories agree; who was heard, whose reply
was acknowledged and what each client sent last is kept by name.
"""

import json
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from accord.core import keys, messages, next_server, parameters
from accord.flower.shapes import Shapes, first_server
from accord.flower.store import digest_of
from accord.flower.wire import as_record, described, flatten, unflatten

NEVER = -1
"""The round that the server has acknowledged of a client not heard yet."""

_TOTALS = ("iterations", "gradients", "uplink_bytes", "downlink_bytes", "heard")


class Rounds:
    """The state of a method between rounds.

    ``algorithm`` is resolved; ``weights`` by client, in the order that numbers them, summing to one;
    ``x0`` the start; ``regulariser`` the server's h or None; ``heard`` the number of clients of a
    round. ``epoch`` counts starts of the method in a run.
    """

    def __init__(
        self, algorithm, weights: dict[str, float], x0, *, seed=0, heard=None, regulariser=None,
        epoch=0, classes=None, dtype="float64",
    ):  # fmt: skip
        self.algorithm, self.names, self.seed = algorithm, list(weights), int(seed)
        self.epoch = epoch
        self._numbers, self._structure = parameters.split(algorithm)
        self.method = json.dumps(described(algorithm, classes) if classes else described(algorithm))
        with jax.enable_x64(True):
            self.x0 = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), x0)
            self._weights = jnp.asarray(list(weights.values()), dtype)
            self._regulariser = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), regulariser)
            self.server = first_server(algorithm, self.x0)
            self.shapes = Shapes(algorithm, self.x0, self._regulariser)
            first = self._first_message()
        self.heard = len(self.names) if heard is None else heard
        self.round = 0
        self.latest = dict.fromkeys(self.names, first)
        self.acknowledged = dict.fromkeys(self.names, NEVER)
        self.totals = dict.fromkeys(_TOTALS, 0.0)
        self._inbox: Any = None
        self._drawn: tuple[int, list[str]] = NEVER, []

    def _first_message(self):
        """What a client not heard yet counts as having sent."""
        if hasattr(self.algorithm, "init_message"):
            return jax.tree.map(np.asarray, self.algorithm.init_message(self.x0))
        return jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), self.shapes.message)

    @property
    def x(self):
        """The server's model, NumPy arrays."""
        return jax.tree.map(np.asarray, self.server.x)

    @property
    def partial(self) -> bool:
        """Whether clients are absent by intent."""
        return self.heard < len(self.names)

    @property
    def _looks_back(self) -> bool:
        """Whether messages of earlier rounds are of use: to count for absent clients, or restore states."""
        rules = jax.tree.leaves(self.algorithm.absent)
        return "latest" in rules or bool(jax.tree.leaves(self.shapes.state))

    def participants(self) -> list[str]:
        """The clients of the round that comes."""
        if not self.partial:
            return list(self.names)
        if self._drawn[0] != self.round:
            with jax.enable_x64(True):
                key = keys.round_key(keys.run_key(self.seed), self.round)
                mask = np.asarray(keys.participants(key, len(self.names), self.heard))
            chosen = [name for name, taken in zip(self.names, mask, strict=True) if taken]
            self._drawn = self.round, chosen
        return self._drawn[1]

    def begin(self) -> None:
        """Draws the round's coins and makes its inbox."""
        with jax.enable_x64(True):
            args = self._structure, self._numbers, self.server, self.seed, self.round
            server, inbox = _begin(*args)
        self.server = server
        # Made once: every client gets the same.
        self._inbox = {n: as_record(a) for n, a in flatten(inbox, "inbox").items()}
        # Where the inbox is not, or does not hold, the model, it goes beside it.
        held = getattr(inbox, "x", inbox)
        (a, one), (b, other) = (jax.tree.flatten(part) for part in (held, self.server.x))
        same = str(one) == str(other) and all(map(np.array_equal, a, b))
        self._model = {} if same else flatten(self.x, "model")

    def letter(self, name: str, works: bool, measured: bool, lost: bool):
        """(plain values, arrays) of the round's letter to a client; ``lost``: it has lost its state."""
        acknowledged = self.acknowledged[name]
        recover = lost and acknowledged != NEVER
        arrays = dict(self._inbox)
        if measured:
            arrays |= self._model
        if works and acknowledged == NEVER:
            arrays |= flatten(self.x0, "start")
        if works and recover:
            arrays |= flatten(self.latest[name], "recover")
        about = {
            "kind": "round", "epoch": self.epoch, "round": self.round,
            "acknowledged": acknowledged, "index": self.names.index(name), "seed": self.seed,
            "method": digest_of(self.method), "work": works, "measure": measured, "recover": recover,
            "model": "apart" if measured and self._model else "inbox",
        }  # fmt: skip
        return about, arrays

    def take(self, replies: dict[str, Any], numbers: dict[str, dict[str, float]]) -> None:
        """The server's step from the clients' messages by name; ``numbers`` are what they counted."""
        heard = np.array([name in replies for name in self.names])
        for name, message in replies.items():
            self.latest[name] = message
            self.acknowledged[name] = self.round
        stack = jax.tree.map(lambda *leaves: np.stack(leaves), *self.latest.values())
        with jax.enable_x64(True):
            self.server = _finish(
                self._structure, self.partial or not heard.all(), self._numbers, self.server, stack,
                self._weights, heard, self._regulariser,
            )  # fmt: skip
        counted = [numbers[name] for name in replies]
        self.totals["iterations"] += max((c.get("iterations", 0.0) for c in counted), default=0.0)
        gradients = sum(c.get("gradients", 0.0) for c in counted)
        self.totals["gradients"] += gradients / len(self.names)
        self.totals["heard"] += len(replies)
        self.round += 1

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(plain values, arrays) from which ``restore`` goes on."""
        about = {
            "method": self.method, "names": self.names, "seed": self.seed, "epoch": self.epoch,
            "round": self.round, "acknowledged": self.acknowledged, "totals": self.totals,
        }  # fmt: skip
        arrays = flatten(keys.with_key(self.server, 0), "server") | flatten(self.x0, "start")
        for k, name in enumerate(self.names if self._looks_back else []):
            arrays |= flatten(self.latest[name], f"latest{k}/")
        return about, arrays

    def restore(self, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
        """Goes on where ``to_arrays`` was; False where that was another method, or other clients."""
        mine = {"method": self.method, "names": self.names, "seed": self.seed, "epoch": self.epoch}
        if any(about[name] != value for name, value in mine.items()):
            return False
        with jax.enable_x64(True):
            server = unflatten(arrays, self.shapes.server, "server")
            server = jax.tree.map(jnp.asarray, server)
            self.server = keys.with_key(server, getattr(self.server, "key", 0))
            self.x0 = jax.tree.map(jnp.asarray, unflatten(arrays, self.x0, "start"))
        for k, name in enumerate(self.names if self._looks_back else []):
            self.latest[name] = unflatten(arrays, self.shapes.message, f"latest{k}/")
        self.round, self.acknowledged = about["round"], about["acknowledged"]
        self.totals = about["totals"]
        return True


@partial(jax.jit, static_argnums=0)
def _begin(structure, numbers, server, seed, round_):
    algorithm = parameters.join(numbers, structure)
    key = keys.round_key(keys.run_key(seed), round_)
    server = keys.with_key(server, keys.server_key(key))
    return server, algorithm.broadcast(server)


@partial(jax.jit, static_argnums=(0, 1))
def _finish(structure, some_absent, numbers, server, stack, weights, heard, regulariser):
    """The server's step, as the compiled star engine takes it."""
    algorithm = parameters.join(numbers, structure)
    if not some_absent:
        mean, share = messages.everyone([stack], [weights]), 1.0
        after = next_server(algorithm, server, mean, share, regulariser)
    else:
        mean, share = messages.mean([stack], [weights], [heard], algorithm.absent)
        after = next_server(algorithm, server, mean, share, regulariser)
        after = jax.tree.map(lambda a, b: jnp.where(share > 0, a, b), after, server)
    return jax.tree.map(lambda a, b: jnp.asarray(a).astype(b.dtype), after, server)
