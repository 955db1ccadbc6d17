"""A Flower deployment on loopback: a SuperLink with TLS and authentication, SuperNodes, faults, runs.

Everything is stock: the programs of flwr, started as an operator would start them. Linux only (``/proc``).
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from accord.flower.certificates import write_certificates

PROGRAMS = Path(sys.executable).parent
SILENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
NOT_ACTIVATED = (
    "[code: 2004]"  # an unknown key and a key in use alike; only the SuperLink's log tells
)
# Reads the process groups that run (named again, they have ended); ends those left when its reader ends.
GUARD = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    groups ^= {int(line)}
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class RefusedError(RuntimeError):
    """The SuperLink does not let a SuperNode in; the message is what flwr printed at its end."""


class Deployment:
    """A SuperLink and the SuperNodes of ``nodes``, in ``folder``; all that was started ends with it.

    ``nodes`` maps a name to its node configuration, such as ``{"site-1": 'client="a" data="/a.parquet"'}``;
    all are registered, and started unless ``start=False``. ``keys`` adds names that get a key pair which
    is not registered. ``simulation``: a SuperLink whose runs are simulated. ``environment`` adds variables
    for every process. ``poll`` is the seconds between two looks of a SuperExec for work (flwr accepts 0.01
    to 60, its default is 1; below 0.1 the looking costs more of two cores than it gains).
    """

    def __init__(
        self, folder, nodes: dict[str, str], keys=(), environment=None, poll=0.2, start=True,
        simulation=False,
    ):  # fmt: skip
        self.folder, self.nodes, self.start_all = Path(folder), dict(nodes), start
        self.simulation = simulation
        self.certificates = write_certificates(self.folder / "keys", [*nodes, *keys] or ["none"])
        self.environment = {
            **os.environ,
            **SILENT,
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(poll),
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            **(environment or {}),
        }
        self.processes: dict[str, subprocess.Popen] = {}
        self.runs: list[Run] = []
        self.address = f"127.0.0.1:{free_port()}"
        # Where SuperNodes find the SuperLink: a test may put something in between.
        self.door = self.address

    def __enter__(self):
        self.guard = subprocess.Popen(
            [sys.executable, "-I", "-c", GUARD], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            home = self.folder / "operator"
            home.mkdir()
            (home / "config.toml").write_text(
                f'[superlink]\ndefault = "loopback"\n\n[superlink.loopback]\naddress = "{self.address}"\n'
                + (
                    "insecure = true\n"
                    if self.simulation
                    else f'root-certificates = "{self.certificates.ca}"\n'
                )
            )
            self.start_link()
            registrations = [self.flwr("supernode", "register", self.public(n)) for n in self.nodes]
            for registration in registrations:
                output = registration.communicate(timeout=60)[0]
                if registration.returncode:
                    raise RuntimeError(f"flwr supernode register: {output}")
            if self.start_all:
                for name in self.nodes:
                    self.launch(name)
                for name in self.nodes:
                    self.settle(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in [*self.processes]:
            self.stop(name)
        self.guard.stdin.close()
        self.guard.wait()

    def public(self, name: str) -> str:
        return f"{self.certificates.nodes[name]}.pub"

    def log(self, name: str) -> str:
        """What a process has printed so far: ``superlink``, a SuperNode, or a run."""
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def start_link(self, timeout: float = 60) -> None:
        """Starts the SuperLink on its address and database, again after a stop."""
        ca, _, server, server_key, _ = self.certificates
        secure = ["--ssl-ca-certfile", ca, "--ssl-certfile", server, "--ssl-keyfile", server_key]
        secure += ["--enable-supernode-auth", "--database", self.folder / "state.db"]
        where = ["--host", "127.0.0.1", "--port", self.address.split(":")[1]]
        kind = ["--insecure", "--simulation"] if self.simulation else secure
        self._spawn("superlink", ["flower-superlink", *kind, *where])
        self._await("superlink", lambda: listens(self.address), timeout)

    def start(self, name: str, timeout: float = 120) -> None:
        """Starts a registered SuperNode and waits until it is in, trying again while its key counts as used.

        The SuperLink frees the key of a SuperNode that was killed some 60 s after its last heartbeat.
        """
        end = time.monotonic() + timeout
        while True:
            self.launch(name)
            try:
                return self.settle(name)
            except RefusedError as refusal:
                if NOT_ACTIVATED not in str(refusal) or time.monotonic() > end:
                    raise
            time.sleep(2)

    def launch(self, name: str, key: str | None = None, config: str | None = None) -> None:
        """Starts a SuperNode without waiting, with its own key and configuration or the given ones."""
        command = ["flower-supernode", "--root-certificates", self.certificates.ca]
        command += ["--superlink", self.door]
        command += ["--auth-supernode-private-key", self.certificates.nodes[key or name]]
        command += ["--host", "127.0.0.1", "--port", str(free_port())]
        config = self.nodes.get(name, "") if config is None else config
        self._spawn(name, command + (["--node-config", config] if config else []))

    def settle(self, name: str, timeout: float = 60) -> None:
        """Waits until a SuperNode launched is in; raises RefusedError where the SuperLink turns it away."""
        self._await(name, lambda: "SuperNode ID:" in self.log(name), timeout)

    def stop(self, name: str) -> None:
        """SIGKILL for a process started here and for all its children; the SuperLink is not told."""
        process = self.processes.pop(name, None)
        if process is None:
            return
        # The SuperLink's SuperExec, with the ServerApp below it, leaves the SuperLink's process group.
        below = descendants(process.pid)
        for end, target in [(os.killpg, process.pid), *((os.kill, pid) for pid in below)]:
            with contextlib.suppress(ProcessLookupError):
                end(target, signal.SIGKILL)
        process.wait()
        self._tell_guard(process.pid)

    def leave(self, name: str, timeout: float = 30) -> None:
        """SIGTERM: a SuperNode signs off as it goes, and its key is free at once."""
        self.processes[name].terminate()
        self.processes[name].wait(timeout)
        self.stop(name)

    def client_app(self, name: str, timeout: float = 60) -> int:
        """The process id of the ClientApp that runs on a SuperNode, waited for."""
        return self._child(name, "flwr-clientapp", timeout)

    def server_app(self, timeout: float = 60) -> int:
        """The process id of the ServerApp that runs, waited for."""
        return self._child("superlink", "flwr-serverapp", timeout)

    def flwr(self, *arguments) -> subprocess.Popen:
        """``flwr ...`` of the operator, its output piped."""
        return subprocess.Popen(
            [PROGRAMS / "flwr", *arguments],
            env=self._variables("operator"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, app, config: dict | None = None) -> "Run":
        """``flwr run APP --stream`` with a configuration of scalars; the log is that of the run."""
        command = ["flwr", "run", str(app), "loopback", "--stream"]
        if self.simulation:
            command += [
                "--federation-config",
                "num-supernodes=3 client-resources-num-cpus=1 init-args-num-cpus=2",
            ]
        if config:
            command += ["-c", " ".join(f"{key}={toml(value)}" for key, value in config.items())]
        name = f"run-{len(self.runs) + 1}"
        self._spawn(name, command, home="operator")
        self.runs.append(Run(self, name))
        return self.runs[-1]

    def _variables(self, home: str) -> dict[str, str]:
        return {**self.environment, "FLWR_HOME": str(self.folder / home)}

    def _spawn(self, name: str, command: list, home: str | None = None) -> None:
        """In a process group of its own, which ends as a whole."""
        if name in self.processes:
            if self.processes[name].poll() is None:
                raise RuntimeError(f"{name} runs already; stop it first")
            self.stop(name)
        home = home or f"home-{name}"
        (self.folder / home).mkdir(exist_ok=True)
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [PROGRAMS / command[0], *command[1:]],
                env=self._variables(home),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[name] = process
        self._tell_guard(process.pid)

    def _tell_guard(self, group: int) -> None:
        self.guard.stdin.write(f"{group}\n".encode())
        self.guard.stdin.flush()

    def _await(self, name: str, ready, timeout: float) -> None:
        end = time.monotonic() + timeout
        while not ready():
            if self.processes[name].poll() is not None:
                self.stop(name)
                raise RefusedError(self.log(name).strip()[-2000:])
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{name} is not ready after {timeout:g} s: {self.log(name)[-2000:]}"
                )
            time.sleep(0.05)

    def _child(self, name: str, program: str, timeout: float) -> int:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for pid in descendants(self.processes[name].pid):
                if any(Path(word).name == program for word in words(pid)):
                    return pid
            time.sleep(0.02)
        raise TimeoutError(f"no {program} under {name} within {timeout:g} s")


class Run:
    """A run that was asked for with ``flwr run --stream``."""

    def __init__(self, deployment: Deployment, name: str):
        self.deployment, self.name = deployment, name
        self.process = deployment.processes[name]

    @property
    def log(self) -> str:
        return self.deployment.log(self.name)

    @property
    def id(self) -> str | None:
        found = re.search(r"Successfully started run (\d+)", self.log)
        return found and found[1]

    @property
    def status(self) -> str:
        """As the SuperLink tells it: pending, running, finished:completed, finished:failed, ..."""
        if self.id is None:
            raise RuntimeError(f"the run was not taken: {self.log}")
        output = self.deployment.flwr("list", "loopback", "--run-id", self.id).communicate()[0]
        found = re.search(r"(pending|starting|running|finished:\w+)", output)
        if found is None:
            raise RuntimeError(f"flwr list: {output}")
        return found[1]

    def wait(self, timeout: float) -> int:
        """Until the log's stream ends; the exit status of ``flwr run``, which says nothing of the app."""
        return self.process.wait(timeout)

    def wait_for(self, text: str, timeout: float = 60) -> None:
        """Until the log holds a text; raises where the stream ends or the time is over without it."""
        end = time.monotonic() + timeout
        while text not in self.log:
            if self.process.poll() is not None and text not in self.log:
                raise RuntimeError(f"the run ended without {text!r}: {self.log[-4000:]}")
            if time.monotonic() > end:
                raise TimeoutError(f"no {text!r} within {timeout:g} s: {self.log[-4000:]}")
            time.sleep(0.05)


def toml(value) -> str:
    """A scalar as ``flwr run -c`` reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if '"' in value or "\\" in value:
        raise ValueError(f"config: {value!r} holds a quote or a backslash; leave it out")
    return f'"{value}"'


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def words(pid: int) -> list[str]:
    """The command line of a process; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid: int) -> list[int]:
    """The processes under one, by parent process id."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, open_ = [], [pid]
    while open_:
        below = children.get(open_.pop(), [])
        found += below
        open_ += below
    return found
