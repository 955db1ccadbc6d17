"""Accord's own time and bytes above Flower's bare exchange of the same arrays, with three sites.

    python benchmarks/flower.py               in one process, with the real apps
    python benchmarks/flower.py deployed      real processes on loopback, TLS and authentication on

The bare exchange sends the server's vector to every site and a vector of the same size back, with the same
loop of looking for replies. The two alternate; medians are told.
"""

import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

SITES, LENGTH, ROWS, ROUNDS = ("a", "b", "c"), 1000, 200, 60
LONG = 100_000


def problem(k, length=LENGTH):
    """Site k's least squares."""
    import accord

    rng = np.random.default_rng(k)
    X = rng.normal(size=(ROWS if length == LENGTH else 3, length))
    y = X[:, :5].sum(1) + k + rng.normal(size=len(X))
    return accord.problems.least_squares(accord.Clients.from_arrays([(X, y)]), l2=1.0)


def echo():
    """A client app that sends back what it gets."""
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message, context):
        return Message(message.content, reply_to=message)

    return app


def in_process():
    """Milliseconds of a round: Accord's, bare, and the difference."""
    from flwr.app import Message

    import accord
    from accord.flower import Options, Terms, client_app
    from accord.flower.session import Session
    from accord.flower.tasks import OwnRun
    from accord.flower.wire import letter
    from grid import LocalGrid

    with tempfile.TemporaryDirectory() as folder:
        apps = {name: client_app(problem(k)) for k, name in enumerate(SITES)}
        grid = LocalGrid(apps, {name: {"state": folder} for name in SITES})
        bare = LocalGrid(dict.fromkeys(SITES, echo()), {name: {} for name in SITES})
        task = OwnRun(accord.AGPDMM(local_steps=5), np.zeros(LENGTH), ROUNDS)
        options = Options(Path(folder) / "server", Terms(settle=0, poll=1e-4))
        times, bare_times = [], []

        def exchange():
            """The same arrays, without Accord."""
            began = time.perf_counter()
            content = letter({}, {"inbox": np.zeros(LENGTH)})
            letters = [Message(content, node, "train") for node in bare.names]
            replies = bare.pull_messages(list(bare.push_messages(letters)))
            np.mean([r.content["arrays"]["inbox"].numpy() for r in replies], axis=0)
            bare_times.append(time.perf_counter() - began)

        class Timed(Session):
            """A session that notes when each round is told, and exchanges without Accord in between."""

            def open(self):
                super().open()
                tell = self.events

                def told(event, **fields):
                    tell(event, **fields)
                    if event == "round":
                        times.append(time.perf_counter())
                        exchange()

                self.sites.events = told

        Timed(grid, task.task(), task.greeting(), options, task.check).run(task.once)
    own = np.diff(times)[5:] - np.array(bare_times)[5:-1]
    print(f"in one process, d = {LENGTH:,}, three sites, AGPDMM, checkpoint and states on disk:")
    print(f"  bare exchange {1e3 * statistics.median(bare_times[5:]):.2f} ms a round")
    print(f"  Accord's own time above it {1e3 * statistics.median(own):.2f} ms a round (asked: 10)")


APP = """
import sys
import time

import numpy as np
from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

sys.path.insert(0, {here!r})
from flower import ROUNDS_DEPLOYED, echo, problem

import accord
from accord.flower import client_app, server_app
from accord.flower.wire import letter

LENGTH = {length}

def own(context):
    return problem("abc".index(context.node_config["client"]), LENGTH)

client = {client}
server = {server}
"""
BARE_SERVER = """ServerApp()

@server.main()
def main(grid, context):
    while len(list(grid.get_node_ids())) < 3:
        time.sleep(0.1)
    for _ in range(ROUNDS_DEPLOYED):
        print("MOMENT", time.time(), flush=True)
        content = letter({}, {"inbox": np.zeros(LENGTH)})
        waiting = set(grid.push_messages([Message(content, n, "train") for n in grid.get_node_ids()]))
        while waiting:
            replies = list(grid.pull_messages(waiting))
            waiting -= {r.metadata.reply_to_message_id for r in replies}
            if not replies:
                time.sleep(0.1)
    print("MOMENT", time.time(), flush=True)
"""
OWN_SERVER = "server_app(accord.AGPDMM(local_steps=5), np.zeros(LENGTH), rounds=ROUNDS_DEPLOYED)"
PROJECT = """
[project]
name = "{name}"
version = "1.0.0"
description = "A benchmark."
license = "Apache-2.0"
[tool.flwr.app]
publisher = "accord"
[tool.flwr.app.components]
serverapp = "apps:server"
clientapp = "apps:client"
[tool.flwr.app.config]
output = ""
min-clients = 3
settle = 0.0
resume = true
"""
ROUNDS_DEPLOYED = 8


class Door:
    """Forwards TCP connections to an address, and counts the bytes both ways."""

    def __init__(self, address):
        host, port = address.split(":")
        self.target, self.bytes = (host, int(port)), [0, 0]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            inside, _ = self.listener.accept()
            try:
                outside = socket.create_connection(self.target)
            except OSError:
                inside.close()
                continue
            for k, pair in enumerate(((inside, outside), (outside, inside))):
                threading.Thread(target=self._copy, args=(k, *pair), daemon=True).start()

    def _copy(self, way, source, sink):
        try:
            while data := source.recv(2**16):
                self.bytes[way] += len(data)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            sink.close()


def write_app(folder, name, client, server, length):
    """A Flower app in a folder."""
    path = folder / name
    path.mkdir()
    (path / "pyproject.toml").write_text(PROJECT.format(name=name))
    here = str(Path(__file__).parent)
    source = APP.format(here=here, client=client, server=server, length=length)
    (path / "apps.py").write_text(source)
    return path


def deployed():
    """Seconds of a round, and bytes on the wire, of three sites on loopback."""
    from deployment import Deployment

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nodes = {s: f'client="{s}" state="{folder}/state"' for s in SITES}
        bare = write_app(folder, "bare", "echo()", BARE_SERVER, LENGTH)
        own = write_app(folder, "own", "client_app(own)", OWN_SERVER, LENGTH)
        long = write_app(folder, "long", "client_app(own)", OWN_SERVER, LONG)
        (folder / "deployment").mkdir()
        deployment = Deployment(folder / "deployment", nodes)
        door = Door(deployment.address)
        deployment.door = door.address
        with deployment as d:
            wire(d, door, long, folder / "long-result")
            bare_times, own_times = [], []
            for k in range(3):
                bare_times += moments(d.run(bare))
                output = folder / f"own{k}"
                wait(d.run(own, {"output": str(output), "resume": False}))
                own_times += np.diff(rounds_of(output))[1:].tolist()
        bare_round, own_round = statistics.median(bare_times), statistics.median(own_times)
        above = own_round - bare_round
        print(
            f"deployed, d = {LENGTH:,}, three sites, TLS and authentication, {os.cpu_count()} cores:"
        )
        print(f"  bare exchange {bare_round:.2f} s a round, with Accord {own_round:.2f} s")
        print(
            f"  Accord's own time: {above:.2f} s a round of three, {above / 3:.2f} s a client-round"
        )


def wire(deployment, door, app, output):
    """Bytes between sites and server, against those that the run reports."""
    before = list(door.bytes)
    wait(deployment.run(app, {"output": str(output)}))
    moved = [b - a for a, b in zip(before, door.bytes, strict=True)]
    lines = (output / "log.jsonl").read_text().splitlines()
    (told,) = [e for e in map(json.loads, lines) if e["event"] == "ended"]
    for way, seen, name in zip(("up", "down"), moved, ("uplink", "downlink"), strict=True):
        reported = told[f"{name}_bytes"]
        print(f"d = {LONG:,}, {way}: {seen:,} bytes on the wire, {reported:,} reported:", end=" ")
        print(f"{seen / reported:.3f}x (asked: 1.1)", flush=True)


def wait(run):
    """The run's log, once it has ended well."""
    if run.wait(600) or run.status != "finished:completed":
        raise SystemExit(run.log)
    return run.log


def moments(run):
    """Seconds of each bare round but the first."""
    lines = [line for line in wait(run).splitlines() if line.startswith("MOMENT")]
    return np.diff([float(line.split()[1]) for line in lines])[1:].tolist()


def rounds_of(output):
    """When each round ended."""
    events = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return [e["time"] for e in events if e["event"] == "round"]


if __name__ == "__main__":
    deployed() if "deployed" in sys.argv else in_process()
