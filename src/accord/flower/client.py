"""The client app: one for every algorithm. It answers the server's letters from the site's own rows."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

import accord
from accord.analysis.model import Model
from accord.data import read_sites
from accord.data.frames import opened as opened_table
from accord.data.sites import Site
from accord.flower.site import Own, Table, Worker, check_batches
from accord.flower.store import Kept, Store, digest_of
from accord.flower.wire import (
    RefusedError,
    flatten,
    known_classes,
    letter,
    opened,
    tree_of,
    unflatten,
)

LEAST_BATCH = 10
"""The default of ``least-batch``: a gradient of one row is that row."""


class _LostError(Exception):
    """What the server believes to be at the site is not there: "state", or "text"."""


def client_app(
    objective: Callable[[Context], Any] | Any = None,
    *,
    classes: Iterable[type] = (),
    mods: list | None = None,
) -> ClientApp:
    """A Flower client app that takes part in any of Accord's algorithms.

    ``objective`` is a problem of ``accord.problems`` with one client, this one, or a function that makes
    it from Flower's context, as ``lambda context: accord.problems.custom(loss, init, clients)``; None: the
    site's table, whose path is ``data`` in the node configuration, and whose columns the server's app
    names. ``classes`` are algorithms of your own. ``mods`` are Flower's.

    Node configuration: ``client``, the site's name, which it keeps for good; ``data``, a .csv or .parquet
    file; ``least-batch`` (10), the fewest rows that a gradient which leaves is to be of; ``state``, a folder
    for what the client must remember between rounds (default ``~/.local/state/accord/NAME``). In
    simulations, where nodes have no configuration, the run's ``data`` and ``client`` name a table with a
    client column or a folder, and node k has its k-th site.
    """
    desk = _Desk(objective, known_classes(classes))
    app = ClientApp()
    for register in (app.query, app.train, app.evaluate):
        register(mods=mods or [])(desk.answer)
    return app


class _Desk:
    """Answers letters; holds what is expensive to make between letters of one process."""

    def __init__(self, objective, classes):
        self._objective, self._classes = objective, classes
        self._sources: dict[tuple, Any] = {}
        self._workers: dict[tuple, Worker] = {}
        self._partitions: tuple[Any, list[Site]] = (None, [])

    def answer(self, message: Message, context: Context) -> Message:
        """The reply to a letter; what is wrong at the site is said in the reply, in one line."""
        told: dict[str, Any] = {"client": "", "status": "ok"}
        sent: dict[str, Any] = {}
        try:
            told["client"] = self._name(context)
            told["source"] = digest_of(repr(_data_of(context)))
            about, arrays = opened(message.content)
            found, sent = self._answer(told["client"], about, arrays, context)
            told |= found
        except _LostError as error:
            told |= {"status": "lost", "what": str(error)}
        except Exception as error:
            line = " ".join(str(error).split())
            known = isinstance(error, ValueError | TypeError | OSError) and line
            why = line if known else f"{type(error).__name__}: {line}"
            told |= {"status": "failed", "why": why}
        return Message(letter(told, sent), reply_to=message)

    def _answer(self, name, about, arrays, context):
        if about["kind"] == "hello":
            card = self._source(name, context).card(about)
            try:
                _state_folder(name, context).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueError(
                    f"node-config: state: {error.strerror}: {error.filename}; give a folder to write to"
                ) from None
            least = _least_batch(context)
            return {"version": accord.__version__, "least_batch": least, **card}, {}
        folder = _state_folder(name, context)
        _keep_programs(folder)
        store = Store(folder, about["run"])
        with store.alone():
            for text in about["texts"]:
                store.keep_text(text)
            worker = self._worker(name, _text(store, about["plan"]), about["plan"], context)
            if about["kind"] == "ask":
                return _ask(worker, about, arrays)
            return self._round(worker, store, about, arrays, _least_batch(context))

    def _name(self, context: Context) -> str:
        """The client's configured name; in simulations that of the partition's site."""
        name = context.node_config.get("client")
        if name is not None:
            if not str(name).strip() or not str(name).isprintable() or len(str(name)) > 200:
                raise ValueError(
                    f"node-config: client is {name!r}; accepted is a name of one line, up to 200 characters"
                )
            return str(name)
        if "partition-id" in context.node_config:
            if context.run_config.get("data"):
                return self._partition(context).name
            return str(context.node_config["partition-id"])
        raise ValueError(
            "node-config: client is missing; start the SuperNode with "
            """--node-config 'client="site-a" data="/path/site.parquet"'"""
        )

    def _partition(self, context: Context) -> Site:
        """In a simulation, the site that a node stands for."""
        source = _data_of(context)[:-1]
        if self._partitions[0] != source:
            column = str(context.run_config.get("client") or "") or None
            sites = read_sites(Path(str(context.run_config["data"])), column)
            self._partitions = source, sites
        sites, k = self._partitions[1], int(context.node_config["partition-id"])
        if k >= len(sites):
            raise ValueError(
                f"data: {len(sites)} sites for {k + 1} or more nodes; start fewer nodes"
            )
        return sites[k]

    def _opened(self, context: Context):
        """The site's rows, wherever they come from."""
        if self._objective is not None:
            made = self._objective(context) if callable(self._objective) else self._objective
            return Own(made)
        path = context.node_config.get("data")
        if path is not None:
            names, load = opened_table(Path(str(path)), "data")
            return Table(load(names))
        if context.run_config.get("data"):
            return Table(self._partition(context).frame)
        raise ValueError(
            "node-config: data is missing; start the SuperNode with "
            """--node-config 'client="site-a" data="/path/site.parquet"'"""
        )

    def _source(self, name, context):
        key = (name, *_data_of(context))
        if key not in self._sources:
            self._sources = {k: v for k, v in self._sources.items() if k[0] != name}
            self._sources[key] = self._opened(context)
        return self._sources[key]

    def _worker(self, name, plan: str, digest: str, context) -> Worker:
        key = (name, digest, *_data_of(context))
        if key not in self._workers:
            self._workers = {k: v for k, v in self._workers.items() if k[0] != name}
            problem = self._source(name, context).problem(json.loads(plan))
            self._workers[key] = Worker(problem, self._classes)
        return self._workers[key]

    def _round(self, worker: Worker, store: Store, about, arrays: ArrayRecord, least_batch: int):
        """The client's part of a round, once, however often it is asked for."""
        algorithm, shapes = worker.method(_text(store, about["method"]))
        check_batches(algorithm, least_batch)
        inbox = tree_of(arrays, shapes.inbox, "inbox")
        model = inbox
        if about["model"] == "apart":
            model = tree_of(arrays, worker.x, "model")
        elif hasattr(inbox, "x"):
            model = inbox.x
        told: dict[str, Any] = {"round": about["round"], "epoch": about["epoch"]}
        if not about["work"]:
            value, gradient = worker.survey(model)
            return {**told, "value": value}, flatten(gradient, "gradient")
        kept = store.load()
        if kept is not None and (kept.epoch, kept.after) == (about["epoch"], about["round"]):
            return _again(worker, kept, model, about["measure"])
        base = self._base(worker, algorithm, shapes, kept, about, arrays, model)
        step = worker.step(
            algorithm, base, inbox, model, about["seed"], about["round"], about["index"],
            about["measure"],
        )  # fmt: skip
        reply = flatten(step.message, "message")
        told |= step.info
        if about["measure"]:
            told["value"] = float(step.value)
            reply |= flatten(step.gradient, "gradient")
        old, new = flatten(base, ""), flatten(step.state, "")
        rounds = about["acknowledged"], about["round"]
        store.save(Kept(about["epoch"], *rounds, old, new, told, reply))
        return told, reply

    def _base(self, worker, algorithm, shapes, kept, about, arrays, model):
        """The state that the round starts from: the one that the server has acknowledged."""
        acknowledged = about["acknowledged"]
        if not jax.tree.leaves(shapes.state):
            return shapes.state
        if about["recover"]:
            message = tree_of(arrays, shapes.message, "recover")
            return algorithm.recover_client(model, message)
        if kept is not None and kept.epoch == about["epoch"]:
            if kept.after > about["round"]:
                # A late letter, or the server is at an older checkpoint: only it can tell which.
                raise _LostError("state")
            for label, leaves in ((kept.after, kept.new), (kept.before, kept.old)):
                if label == acknowledged:
                    return unflatten(leaves, shapes.state, "")
        if acknowledged < 0:
            return worker.first_state(algorithm, tree_of(arrays, worker.x, "start"))
        raise _LostError("state")


def _again(worker: Worker, kept: Kept, model, measured: bool):
    """The reply that was kept, which a server that was ended may want with or without measures."""
    told, reply = {**kept.about, "again": True}, dict(kept.reply)
    if measured and "value" not in told:
        told["value"], gradient = worker.survey(model)
        reply |= flatten(gradient, "gradient")
    elif not measured and told.pop("value", None) is not None:
        reply = {name: array for name, array in reply.items() if name.startswith("message")}
    return told, reply


def _ask(worker: Worker, about, arrays: ArrayRecord):
    """Sums over the site's rows at a model."""
    what = about["what"]
    if what == "constants":
        return worker.constants(), {}
    if what == "report":
        return worker.report(Model.from_json(about["model"]), about["compare_local"]), {}
    x = tree_of(arrays, worker.x, "x")
    if what == "survey":
        value, gradient = worker.survey(x)
        return {"value": value}, flatten(gradient, "gradient")
    smooth = worker.problem.without_regulariser()
    if what == "derivatives":
        gradient, rounding, hessian = smooth.derivatives(x, about["second"])
        found = {"gradient": gradient, "rounding": rounding}
        return {}, found | ({"hessian": hessian} if hessian is not None else {})
    if what == "least":
        spread = tree_of(arrays, np.zeros((len(x), len(x))), "spread")
        return {}, {"least": smooth.least_hessian(x, spread, about["radius"])}
    raise RefusedError(f"{what!r} is nothing that a site answers; the server's Accord may be newer")


def _text(store: Store, digest: str) -> str:
    text = store.text(digest)
    if text is None:
        raise _LostError("text")
    return text


def _data_of(context: Context) -> tuple:
    """What identifies the site's data: path, partition, time and size."""
    path = context.node_config.get("data") or context.run_config.get("data")
    partition = context.node_config.get("partition-id")
    if not path or not Path(str(path)).exists():
        return str(path), 0, 0, partition
    state = Path(str(path)).stat()
    return str(path), state.st_mtime_ns, state.st_size, partition


def _least_batch(context: Context) -> int:
    """The fewest rows that a gradient which leaves the site is to be of."""
    least = context.node_config.get("least-batch", LEAST_BATCH)
    if type(least) is not int or least < 1:
        raise ValueError(f"node-config: least-batch is {least!r}; accepted is a whole number >= 1")
    return least


def _keep_programs(folder: Path) -> None:
    """Keeps compiled programs at the site, since each letter may find a new process."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        jax.config.update("jax_compilation_cache_dir", str(folder / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _state_folder(name: str, context: Context) -> Path:
    given = context.node_config.get("state")
    if given is None:
        base = os.environ.get("XDG_STATE_HOME")
        folder = (Path(base) if base else Path.home() / ".local" / "state") / "accord"
    else:
        folder = Path(str(given))
    # A client's name may be anything; the folder's name may not.
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
    return folder / f"{safe}-{digest_of(name)[:8]}"
