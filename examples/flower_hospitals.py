"""Three hospitals fit one model over Flower, with TLS and sites that have to show a key.

    accord datasets fetch heart
    python examples/flower_hospitals.py [PORT]

Each command is printed as it is typed in a shell, and run: the server at PORT (18443) and each hospital
at one of the three ports after it, all on this machine. Linux; it needs pip install '.[flower]'.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
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
environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
started: list[subprocess.Popen] = []


def export(**variables: str) -> None:
    print(*(f"$ export {name}={value}" for name, value in variables.items()), sep="\n")
    environment.update(variables)


def run(command: str, log: str | None = None) -> None:
    """Runs a command to its end, which must be a good one; with a log, starts one that stays."""
    print(f"$ {command}" + (f" > {log} 2>&1 &" if log else ""), flush=True)
    if log is None:
        subprocess.run(shlex.split(command), env=environment, check=True)
        return
    with Path(log).open("w") as file:
        how = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
        command = shlex.split(command)
        started.append(subprocess.Popen(command, env=environment, start_new_session=True, **how))


def end() -> None:
    """The sites sign off and the server ends, asked by their own process ids; what stays is killed."""
    for process in reversed(started):
        process.terminate()
    for process in started:
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def main(here: str, port: int) -> None:
    Path("sites").mkdir()
    table = accord.data.load("heart").with_columns(pl.col("dataset").str.replace_all(" ", "_"))
    for name in HOSPITALS:
        table.filter(dataset=name).drop("dataset").write_parquet(f"sites/{name}.parquet")

    print("# The server: an app, keys, and the process that sites and runs come to")
    export(**SETTINGS, FLWR_HOME=f"{here}/operator")
    run(f"accord flower init study {FIT} --clients {len(HOSPITALS)}")
    run(f"accord flower certificates keys --nodes {','.join(HOSPITALS)}")
    tls = (
        "--ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.crt --ssl-keyfile keys/server.key"
    )
    place = f"--database link.db --host 127.0.0.1 --port {port}"
    run(f"flower-superlink {tls} --enable-supernode-auth {place}", "link.log")
    Path("operator").mkdir()
    link = f'[superlink.consortium]\naddress = "127.0.0.1:{port}"\n'
    Path("operator/config.toml").write_text(f'{link}root-certificates = "{here}/keys/ca.crt"\n')
    run("cat operator/config.toml")
    while "Uvicorn running" not in Path("link.log").read_text() and started[0].poll() is None:
        time.sleep(0.1)
    for name in HOSPITALS:
        run(f"flwr supernode register keys/{name}.pub consortium")

    print("\n# The sites, each with its own key and its own table")
    for own, name in enumerate(HOSPITALS, port + 1):
        export(FLWR_HOME=f"{here}/{name}")
        config = f'client="{name}" data="{here}/sites/{name}.parquet" state="{here}/state"'
        server = f"--superlink 127.0.0.1:{port} --root-certificates keys/ca.crt"
        site = f"--auth-supernode-private-key keys/{name} --host 127.0.0.1 --port {own}"
        run(f"flower-supernode {server} {site} --node-config '{config}'", f"{name}.log")

    print("\n# The fit, and the same with all tables in one place")
    export(FLWR_HOME=f"{here}/operator")
    run("flwr run study consortium --stream --run-config max-clients=3")
    run(f"accord fit sites {FIT}")
    told = {}
    for folder in ("study/result", "fit"):
        run(f"accord predict {folder} sites/Hungary.parquet --output {folder}/predicted.csv")
        fit = json.loads(Path(folder, "fit.json").read_text())
        predicted = pl.read_csv(f"{folder}/predicted.csv")["probability of 1"]
        told[folder] = [c["estimate"] for c in fit["coefficients"]], list(predicted)
    for what, a, b in zip(("coefficients", "predictions"), *told.values(), strict=True):
        apart = max(abs(x - y) for x, y in zip(a, b, strict=True))
        print(f"{len(a)} {what} as those of accord fit, to {apart:.0e}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            main(folder, int(sys.argv[1]) if len(sys.argv) > 1 else 18443)
        finally:
            end()
