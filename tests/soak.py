"""The long proof of the deployment: every method, and random faults, with real processes on loopback.

    python tests/soak.py [FAULTS] [SEED]

First every method of the registry follows the compiled star engine for two rounds. Then methods run to the
optimum while FAULTS (20) faults come at random moments: SuperNodes killed or ended, client apps killed, the
server app killed, the SuperLink killed, states deleted, replies spoiled, strangers at the door. Every run has
to end within 1e-8 of the optimum, with the faults in its log. About half an hour on two cores.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from deployment import Deployment, RefusedError
from flower_app import METHODS, NAMES, NODES, model_of, problem, undisturbed, write_app

SPOILS = ("nan", "shape", "dtype", "size", "key")
EXPECTED = {
    "kill node": "node_failed", "end node": "node_failed", "kill client app": "node_failed",
    "delete state": "state_lost", "kill server": "resumed", "kill link": "resumed",
    **dict.fromkeys([f"spoil {how}" for how in SPOILS], "reply_refused"),
}  # fmt: skip


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def every_method(deployment, app, folder):
    """Two rounds of each, against the compiled star engine."""
    config = {"output": str(folder), "methods": ",".join(METHODS), "rounds": 2}
    run = deployment.run(app, config)
    run.wait(3600)
    worst = 0.0
    for name in METHODS:
        apart = np.abs(model_of(folder / name) - undisturbed(name, 2)).max()
        say(f"{name}: {apart:.1e} from the compiled engine")
        worst = max(worst, apart)
    if not worst < 1e-12:
        raise SystemExit(f"a trajectory is {worst:.1e} off")


class Storm:
    """One method run to the optimum, with faults on the way."""

    def __init__(self, deployment, app, folder, name, dice):
        self.deployment, self.app, self.name, self.dice = deployment, app, name, dice
        self.output, self.state = folder / "storm", folder / "state"
        self.log = self.output / name / "log.jsonl"
        self.happened: list[str] = []
        self.run = self._start()

    def _start(self):
        config = {"output": str(self.output), "methods": self.name, "rounds": 400, "norm": 1e-10}
        return self.deployment.run(self.app, config)

    def events(self):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]

    def rounds(self) -> int:
        return max((e["round"] for e in self.events() if e["event"] == "round"), default=-1)

    def over(self) -> bool:
        return (self.output / self.name / "model.npz").exists()

    def strike(self, fault: str) -> None:
        """A fault, and what an operator does about it."""
        d, site = self.deployment, self.dice.choice(NAMES)
        say(f"{self.name}, round {self.rounds()}: {fault}, {site}")
        before = self.rounds()
        if fault == "kill node":
            d.client_app(site)
            d.stop(site)
            d.start(site, timeout=180)
        elif fault == "end node":
            d.client_app(site)
            d.leave(site)
            d.start(site, timeout=180)
        elif fault == "kill client app":
            os.kill(d.client_app(site), signal.SIGKILL)
        elif fault == "delete state":
            # At once, whatever a client app is just writing there.
            for number, folder in enumerate(self.state.glob(f"{site}-*")):
                folder.rename(self.output.parent / f"lost-{len(self.happened)}-{number}")
        elif fault == "stranger":
            d.launch("stranger", config='client="stranger"')
            with contextlib.suppress(RefusedError):
                d.settle("stranger")
                raise SystemExit("a stranger was let in")
        elif fault == "kill server":
            os.kill(d.server_app(), signal.SIGKILL)
            d.stop(self.run.name)
            self.run = self._start()
        elif fault == "kill link":
            d.stop(self.run.name)
            d.stop("superlink")
            time.sleep(1)
            d.start_link()
            for name in NAMES:
                if d.processes[name].poll() is not None:
                    d.start(name, timeout=180)
            self.run = self._start()
        else:
            (self.state / f"spoil-{site}").write_text(fault.split()[1])
        if not self.over():
            self.happened.append(fault)
        end = time.monotonic() + 400
        while self.rounds() < before + 2 and not self.over():
            if time.monotonic() > end:
                raise SystemExit(f"no round within 400 s after {fault}: {self.run.log[-3000:]}")
            time.sleep(0.2)

    def finish(self) -> None:
        """The run's end, and what has to hold then."""
        while not self.over():
            if self.run.process.poll() is not None and not self.over():
                raise SystemExit(self.run.log[-4000:])
            time.sleep(0.5)
        self.run.wait(60)
        optimum = problem(range(len(NAMES))).reference().x
        apart = np.linalg.norm(model_of(self.output / self.name) - optimum)
        say(f"{self.name}: {apart:.1e} from the optimum after {len(self.happened)} faults")
        told = [e["event"] for e in self.events()]
        for fault in self.happened:
            if EXPECTED.get(fault, "begin") not in told:
                raise SystemExit(f"{fault} left no {EXPECTED[fault]!r} in {self.log}")
        if not apart < 1e-8:
            raise SystemExit(f"{self.name} ended {apart:.1e} from the optimum")


def main(faults: int = 20, seed: int = 0) -> None:
    dice = random.Random(seed)
    kinds = [*EXPECTED, "stranger"]
    plan = (dice.sample(kinds, len(kinds)) + dice.choices(kinds, k=max(faults - len(kinds), 0)))[
        :faults
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app = write_app(folder / "app")
        (folder / "link").mkdir()
        nodes = {n: f'{config} state="{folder}/state"' for n, config in NODES.items()}
        with Deployment(folder / "link", nodes, keys=["stranger"]) as deployment:
            every_method(deployment, app, folder / "all")
            names = ["PDMM", "SCAFFOLD", "AGPDMM", "ADMM", "FedDyn", "GPDMM"]
            while plan:
                storm = Storm(deployment, app, folder, names[0], dice)
                names = [*names[1:], names[0]]
                shutil.rmtree(storm.output / storm.name, ignore_errors=True)
                while plan and not storm.over():
                    if storm.rounds() >= 0:
                        time.sleep(dice.uniform(0, 6))
                        storm.strike(plan.pop(0))
                    time.sleep(0.1)
                storm.finish()
    say(f"{faults} faults, and every run at its optimum")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
