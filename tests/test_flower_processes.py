"""Accord over real Flower processes: simulated nodes (Ray), and SuperNodes with TLS and authentication."""

import json
import os
import signal
import time

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

from deployment import Deployment
from flower_app import NODES, ROUNDS, model_of, undisturbed, write_app

pytestmark = pytest.mark.xdist_group("deployment")


def test_three_methods_in_a_simulation(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    app = write_app(tmp_path / "app")
    (tmp_path / "link").mkdir()
    with Deployment(tmp_path / "link", {}, simulation=True) as simulation:
        methods = ["AGPDMM", "PDMM", "SCAFFOLD"]
        output = tmp_path / "out"
        run = simulation.run(app, {"output": str(output), "methods": ",".join(methods)})
        assert run.wait(300) == 0, run.log
        for name in methods:
            assert np.abs(model_of(output / name) - undisturbed(name, ROUNDS)).max() < 1e-12


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    nodes = {name: f'{config} state="{folder}/state"' for name, config in NODES.items()}
    (folder / "link").mkdir()
    with Deployment(folder / "link", nodes) as running:
        yield running


def test_three_methods_deployed(deployment, tmp_path):
    methods = ["GPDMM", "PDMM", "FedPD"]
    output = tmp_path / "out"
    config = {"output": str(output), "methods": ",".join(methods), "rounds": 2}
    run = deployment.run(write_app(tmp_path / "app"), config)
    assert run.wait(300) == 0 and run.status == "finished:completed", run.log
    for name in methods:
        assert np.abs(model_of(output / name) - undisturbed(name, 2)).max() < 1e-12


def test_ends_and_losses_leave_no_trace(deployment, tmp_path):
    """A SuperNode that signs off and returns, a state that is lost, and the server app ended: one run."""
    app, output = write_app(tmp_path / "app"), tmp_path / "out"
    config = {"output": str(output), "methods": "PDMM", "rounds": ROUNDS}
    run = deployment.run(app, config)
    log = output / "PDMM" / "log.jsonl"
    wait_for_round(log, 1)
    deployment.client_app("b")
    deployment.leave("b")
    deployment.start("b")
    wait_for_round(log, 3)
    for folder in (deployment.folder.parent / "state").glob("c-*"):
        folder.rename(tmp_path / "lost")
    wait_for_round(log, 5)
    os.kill(deployment.server_app(), signal.SIGKILL)
    os.killpg(run.process.pid, signal.SIGKILL)
    again = deployment.run(app, config)
    assert again.wait(300) == 0, again.log
    assert np.abs(model_of(output / "PDMM") - undisturbed("PDMM", ROUNDS)).max() < 1e-12
    told = {(e["event"], e.get("client")) for e in events(log)}
    assert {("node_failed", "b"), ("state_lost", "c"), ("resumed", None)} <= told


def events(log):
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def wait_for_round(log, number, timeout=120):
    """Until a run has come to a round."""
    end = time.monotonic() + timeout
    while not any(e["event"] == "round" and e["round"] >= number for e in events(log)):
        assert time.monotonic() < end, log.read_text() if log.exists() else "no log"
        time.sleep(0.05)
