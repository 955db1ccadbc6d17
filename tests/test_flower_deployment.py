"""A stock Flower deployment with TLS and authentication: who answers, who is refused, and that all ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

from deployment import NOT_ACTIVATED, Deployment, RefusedError, descendants

pytestmark = pytest.mark.xdist_group("deployment")

PROJECT = """
[project]
name = "echo"
version = "1.0.0"
description = "Sends a vector, asks for its multiples"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "accord"

[tool.flwr.app.components]
serverapp = "echo.apps:server"
clientapp = "echo.apps:client"

[tool.flwr.app.config]
length = 1
"""
APPS = """
import time

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


@client.query()
def answer(message, context):
    values = message.content["arrays"].to_numpy_ndarrays()[0] * context.node_config["factor"]
    record = {
        "arrays": ArrayRecord([values]),
        "names": ConfigRecord({"client": context.node_config["client"]}),
    }
    return Message(RecordDict(record), reply_to=message)


@server.main()
def ask(grid, context):
    values = np.arange(context.run_config["length"]) / 7
    arrays = RecordDict({"arrays": ArrayRecord([values])})
    messages = [
        Message(arrays, dst_node_id=node, message_type="query") for node in grid.get_node_ids()
    ]
    open_ = set(grid.push_messages(messages))
    while open_:
        time.sleep(0.1)
        for reply in grid.pull_messages(open_):
            open_.discard(reply.metadata.reply_to_message_id)
            got, name = reply.content["arrays"].to_numpy_ndarrays()[0], reply.content["names"]["client"]
            print("ANSWER", name, np.linalg.norm(got) / np.linalg.norm(values), flush=True)
"""
NODES = {f"site-{i}": f'client="clinic {i}" factor={i}.5' for i in (1, 2, 3)}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with Deployment(tmp_path_factory.mktemp("deployment"), NODES, keys=["stranger"]) as running:
        yield running
        processes = {p.pid for p in running.processes.values()}
        processes |= {below for pid in processes for below in descendants(pid)}
        assert len(processes) >= 8  # a SuperLink, three SuperNodes, and the SuperExec of each
    assert not living(processes)


def living(processes) -> set[int]:
    """Those of some processes that have not ended, after a moment in which they may."""
    end = time.monotonic() + 10
    while processes := {pid for pid in processes if runs(pid)}:
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    return processes


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_three_supernodes_answer(deployment, tmp_path):
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "echo").mkdir()
    (tmp_path / "echo" / "__init__.py").write_text("")
    (tmp_path / "echo" / "apps.py").write_text(APPS)
    run = deployment.run(tmp_path, {"length": 1000})
    assert run.wait(120) == 0, run.log
    assert run.status == "finished:completed", run.log
    answers = {
        name: float(ratio)
        for name, _, ratio in (
            line.removeprefix("ANSWER ").rpartition(" ")
            for line in run.log.splitlines()
            if line.startswith("ANSWER ")
        )
    }
    assert answers == pytest.approx({"clinic 1": 1.5, "clinic 2": 2.5, "clinic 3": 3.5}, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "key", "reason"),
    [
        ("stranger", "stranger", "No SuperNode found with the given public key"),
        ("double", "site-1", "could not be activated"),
    ],
)
def test_a_key_unknown_or_in_use_is_refused(deployment, name, key, reason):
    before = deployment.log("superlink").count(reason)
    deployment.launch(name, key=key, config="")
    with pytest.raises(RefusedError, match=r"Exit Code: 305") as refusal:
        deployment.settle(name)
    assert NOT_ACTIVATED in str(refusal.value)
    assert deployment.log("superlink").count(reason) == before + 1
    assert all(deployment.processes[site].poll() is None for site in NODES)


def test_nothing_outlives_a_test_process_that_is_killed(tmp_path):
    code = (
        "import sys, time; from deployment import *\n"
        f"with Deployment({str(tmp_path)!r}, {{'a': ''}}, start=False) as d:\n"
        "    link = d.processes['superlink'].pid\n"
        "    print(d.guard.pid, link, *descendants(link), flush=True)\n"
        "    time.sleep(600)\n"
    )
    tester = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    processes = {int(pid) for pid in tester.stdout.readline().split()}
    assert len(processes) >= 3
    os.kill(tester.pid, signal.SIGKILL)
    tester.communicate()
    assert not living(processes)
