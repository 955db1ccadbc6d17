"""Small sites in one process for tests of Accord over Flower, and what may happen to their letters."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from flwr.app import Message

import accord
from accord.flower.client import client_app
from accord.flower.session import Options, Session
from accord.flower.sites import Terms
from accord.flower.tasks import OwnRun
from accord.flower.wire import letter, opened
from grid import LocalGrid

COLUMNS = 3
TERMS = Terms(settle=0, poll=0.001, deadline=30.0, resend=0.02, start_wait=5.0)


def arrays(sites: int = 3, seed: int = 0):
    """Rows that differ between sites in number, place and truth."""
    rng = np.random.default_rng(seed)
    made = []
    for k in range(sites):
        rows = 8 + 8 * (k == 1)
        X = rng.normal(size=(rows, COLUMNS)) * [1, 1.5, 2] + rng.normal(size=COLUMNS)
        made.append((X, X @ rng.normal(size=COLUMNS) + rng.normal(size=rows)))
    return made


def problem(rows, kind: str = "least_squares"):
    """The pooled problem of the sites' rows; of one site's, with a list of one."""
    if kind == "logistic":
        rows = [(X, (y > 0).astype(float)) for X, y in rows]
    return getattr(accord.problems, kind)(accord.Clients.from_arrays(rows), l2=0.1)


def grid_of(folder: Path, rows, kind: str = "least_squares", names=None, **options) -> LocalGrid:
    """A grid whose nodes hold one array of rows each, with their state in ``folder``."""
    names = names or [f"site {k}" for k in range(len(rows))]
    apps = {n: client_app(problem([r], kind), **options) for n, r in zip(names, rows, strict=True)}
    return LocalGrid(apps, {name: {"state": str(folder / "state")} for name in names})


class Kept(Session):
    """A session that keeps every model."""

    def engine(self, plan, x, classes=None, keep=False):
        return super().engine(plan, x, classes, True)


def run(
    grid, algorithm, rounds=60, output=None, terms=TERMS, participation=1.0, seed=0, stop=None,
    classes=(), every=None,
):  # fmt: skip
    """A run over the grid: ``run``, its ``session``, and the models of its last epoch as ``xs``."""
    task = OwnRun(algorithm, np.zeros(COLUMNS), rounds, stop, classes=classes)
    options = Options(output, terms, True, participation, seed, every)
    session = Kept(grid, task.task(), task.greeting(), options, task.check)
    found = session.run(task.once)
    return SimpleNamespace(run=found, session=session, x=found.x, xs=found.xs)


def logged(output: Path, event: str) -> list[dict]:
    """The events of one name in a run's log."""
    lines = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def about(message: Message) -> dict:
    """The plain values of a letter."""
    return json.loads(str(message.content["accord"]["about"]))


def edited(message: Message, reply: Message, told=None, /, **changed) -> Message:
    """A reply with other plain values, or other arrays."""
    plain, record = opened(reply.content)
    values = {name: record[name].numpy() for name in record} | changed
    return Message(letter({**plain, **(told or {})}, values), reply_to=message)


class Fault:
    """What happens to the first ``times`` letters, or replies, of a round to a client."""

    def __init__(self, grid, client: str, round_: int, before=None, after=None, times: int = 1):
        self.client, self.round, self.left = client, round_, times
        self._before, self._after = before, after
        self._then = grid.before, grid.after
        grid.before, grid.after = self.before, self.after

    def _hits(self, name, message) -> bool:
        told = about(message)
        hit = name == self.client and told.get("round") == self.round and self.left > 0
        self.left -= hit
        return hit

    def before(self, name, message):
        """The letter that arrives, or None."""
        if self._before and self._hits(name, message):
            return self._before(message)
        return self._then[0](name, message)

    def after(self, name, message, reply):
        """The replies that arrive."""
        if self._after and self._hits(name, message):
            return self._after(message, reply)
        return self._then[1](name, message, reply)


class EndedError(Exception):
    """The server's process has ended."""


def ending(grid, when) -> None:
    """Ends the server once, as the first letter arrives of which ``when`` is true."""
    then = grid.before

    def before(name, message):
        if when(message):
            grid.before = then
            raise EndedError("the server ends")
        return then(name, message)

    grid.before = before
