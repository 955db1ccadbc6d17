"""Three hospitals fit one model over Flower, with TLS and sites that have to show a key.

    accord datasets fetch heart
    python examples/flower_hospitals.py

Each command is printed as it is typed in a shell, and run: a process for the server and one for each
hospital, all on this machine and all ended with the script. Linux; pip install 'accord[flower]'.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

import accord

HOSPITALS = ["Cleveland", "Hungary", "VA_Long_Beach"]
FIT = "--target disease --features age,sex,exang,oldpeak --missing mean"
SETTINGS = {  # no telemetry, no look for updates, no package fetched for an app; quick to see work
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
}
LINK = '[superlink.consortium]\naddress = "{}"\nroot-certificates = "{}/keys/ca.crt"'
environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
started: list[subprocess.Popen] = []


def export(**variables: str) -> None:
    print(*(f"$ export {name}={value}" for name, value in variables.items()), sep="\n")
    environment.update(variables)


def call(command: str) -> None:
    """Runs a command to its end, which must be a good one."""
    print(f"$ {command}", flush=True)
    subprocess.run(shlex.split(command), env=environment, check=True)


def start(log: str, command: str) -> None:
    """Starts a command that stays, in a process group of its own."""
    print(f"$ {command} > {log} 2>&1 &", flush=True)
    with Path(log).open("w") as output:
        how = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        command = shlex.split(command)
        started.append(subprocess.Popen(command, env=environment, start_new_session=True, **how))


def end() -> None:
    """The sites sign off and the server ends, asked by their own process ids; what stays is killed."""
    for process in reversed(started):
        process.terminate()
    for process in started:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    here, port = Path.cwd(), free_port()
    Path("sites").mkdir()
    table = accord.data.load("heart").with_columns(pl.col("dataset").str.replace_all(" ", "_"))
    for (name,), rows in table.partition_by("dataset", as_dict=True, include_key=False).items():
        if name in HOSPITALS:
            rows.write_parquet(f"sites/{name}.parquet")

    print("# The server: an app, keys, and the process that sites and runs come to")
    export(**SETTINGS, FLWR_HOME=f"{here}/operator")
    call(f"accord flower init study {FIT} --clients {len(HOSPITALS)}")
    call(f"accord flower certificates keys --nodes {','.join(HOSPITALS)}")
    start(
        "link.log",
        "flower-superlink --ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.crt --ssl-keyfile "
        f"keys/server.key --enable-supernode-auth --database link.db --host 127.0.0.1 --port {port}",
    )
    Path("operator").mkdir()
    Path("operator/config.toml").write_text(LINK.format(f"127.0.0.1:{port}", here))
    call("cat operator/config.toml")
    while "Uvicorn running" not in Path("link.log").read_text() and started[0].poll() is None:
        time.sleep(0.1)
    for name in HOSPITALS:
        call(f"flwr supernode register keys/{name}.pub consortium")

    print("\n# The sites, each with its own key and its own table")
    for name in HOSPITALS:
        config = f'client="{name}" data="{here}/sites/{name}.parquet" state="{here}/state"'
        export(FLWR_HOME=f"{here}/{name}")
        start(
            f"{name}.log",
            f"flower-supernode --superlink 127.0.0.1:{port} --root-certificates keys/ca.crt "
            f"--auth-supernode-private-key keys/{name} --host 127.0.0.1 --port {free_port()} "
            f"--node-config '{config}'",
        )

    print("\n# The fit, and the same with all tables in one place")
    export(FLWR_HOME=f"{here}/operator")
    call("flwr run study consortium --stream --run-config max-clients=3")
    call(f"accord fit sites {FIT}")
    call("accord predict study/result sites/Hungary.parquet --output deployed.csv")
    call("accord predict fit sites/Hungary.parquet --output pooled.csv")
    fits = [json.loads(Path(f, "fit.json").read_text()) for f in ("study/result", "fit")]
    deployed, pooled = ({c["term"]: c["estimate"] for c in f["coefficients"]} for f in fits)
    apart = max(abs(deployed[term] - pooled[term]) for term in deployed.keys() | pooled.keys())
    print(f"\n{len(deployed)} coefficients, those of accord fit to {apart:.0e}")
    a, b = (pl.read_csv(f"{name}.csv")["probability of 1"] for name in ("deployed", "pooled"))
    print(f"{len(a)} predictions, those of accord fit to {(a - b).abs().max():.0e}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            main()
        finally:
            end()
