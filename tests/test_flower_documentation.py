"""docs/flower.md is true: its tables are those of the code, its code runs, its claims on Flower hold."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common.secure_aggregation import quantization
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.server.workflow import SecAggPlusWorkflow
from typer.testing import CliRunner

import accord
from accord.cli import app
from accord.flower.settings import FIT, RUN, SIMULATION
from accord.report.fits import REVEALS
from deployment import PROGRAMS, SILENT, free_port, listens
from grid import LocalGrid, Message
from shown import console

PAGE = Path(__file__).parents[1] / "docs" / "flower.md"
TEXT = PAGE.read_text()


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def tables() -> dict[str, str]:
    """The tables that are made from the code, by their marks."""
    settings = ["| key | default | meaning |", "|---|---|---|"]
    for name, key in (FIT | RUN | SIMULATION).items():
        default = f"`{str(key.default).lower()}`" if key.default != "" else ""
        settings.append(f"| `{name}` | {default} | {cell(key.meaning)} |")
    told: dict[str, list[str]] = {}
    for name, method in accord.REGISTRY.items():
        told.setdefault(method.reveals, []).append(f"`{name}`")
    reveals = ["| part | what a site tells |", "|---|---|", f"| schema | {REVEALS['schema']} |"]
    reveals.append(f"| constants | {REVEALS['constants']} |")
    reveals.append(f"| measured rounds | {REVEALS['measures']} |")
    for what, names in told.items():
        reveals.append(f"| fit, each round: {', '.join(names)} | {what} |")
    reveals += [f"| {part} | {REVEALS[part]} |" for part in ("certificate", "results")]
    return {"settings": "\n".join(settings), "reveals": "\n".join(reveals)}


def filled() -> str:
    """The page with its tables as the code has them."""
    text = TEXT
    for mark, table in tables().items():
        head, rest = text.split(f"<!-- {mark} -->\n")
        text = f"{head}<!-- {mark} -->\n{table}\n<!-- end -->{rest.split('<!-- end -->', 1)[1]}"
    return text


def test_the_tables_are_those_of_the_code():
    """Else: python tests/test_flower_documentation.py writes them anew."""
    assert filled() == TEXT


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_link_leads_somewhere():
    links = [to for to in re.findall(r"\]\(([^)#]+)\)", TEXT) if not to.startswith("https:")]
    files = re.findall(r"`((?:examples|tests)/[\w.]+)`", TEXT)
    assert files
    assert all((PAGE.parent / to).exists() for to in links)
    assert all((PAGE.parents[1] / file).exists() for file in files)


def test_a_loss_of_ones_own_finds_the_optimum(tmp_path):
    server, client = re.findall(r"```python\n(.*?)```", section("A loss of your own"), re.S)
    spaces: list[dict] = [{}, {}]
    for code, space in zip((server, client), spaces, strict=True):
        exec(compile(code, str(PAGE), "exec"), space)
    rng = np.random.default_rng(0)
    rows, configs = {}, {}
    for name, n, shift in (("a", 30, 0.0), ("b", 50, 0.7), ("c", 90, -0.4)):
        x = rng.standard_normal((n, 3)) * (1 + shift) + shift
        rows[name] = x, (rng.random(n) < 1 / (1 + np.exp(1 - x[:, 0] - shift))).astype(float)
        np.savez(tmp_path / f"{name}.npz", x=x, y=rows[name][1])
        configs[name] = {"data": str(tmp_path / f"{name}.npz"), "state": str(tmp_path / "state")}
    config = {"output": str(tmp_path / "out"), "min-clients": 3, "settle": 0.0}
    grid = LocalGrid(dict.fromkeys(rows, spaces[1]["app"]), configs, config)
    spaces[0]["app"](grid, Context(1, 0, {}, RecordDict(), config))
    with np.load(tmp_path / "out" / "model.npz") as found:
        (x,) = found.values()
    problem = accord.problems.logistic(accord.Clients.from_arrays([*rows.values()]), l2=0.1)
    assert np.linalg.norm(x - problem.reference().x) < 1e-8
    assert (tmp_path / "out" / "history.csv").read_text().startswith("round,")


def test_a_pytorch_module_learns(tmp_path):
    pytest.importorskip("torch", reason="the extra torch is not installed")
    (code,) = re.findall(r"```python\n(.*?)```", section("A PyTorch module"), re.S)
    space: dict = {}
    exec(compile(code, str(PAGE), "exec"), space)
    rng = np.random.default_rng(0)
    configs = {}
    for name, n in (("a", 40), ("b", 60), ("c", 90)):
        x = rng.standard_normal((n, 3))
        np.savez(tmp_path / f"{name}.npz", x=x, y=(x[:, 0] * x[:, 1] > 0).astype(int))
        configs[name] = {"data": str(tmp_path / f"{name}.npz"), "state": str(tmp_path / "state")}
    config = {"output": str(tmp_path / "out"), "min-clients": 3, "settle": 0.0}
    grid = LocalGrid(dict.fromkeys(configs, space["client"]), configs, config)
    space["server"](grid, Context(1, 0, {}, RecordDict(), config))
    told = pl.read_csv(tmp_path / "out" / "history.csv")["objective"]
    assert told[-1] < 0.9 * told[0]


def test_the_workflow_of_secure_aggregation_wants_the_old_context():
    context = Context(1, 0, {}, RecordDict(), {})
    with pytest.raises(TypeError, match="Expect a LegacyContext"):
        SecAggPlusWorkflow(3, 2)(LocalGrid({}, {}), context)


def test_the_mod_of_secure_aggregation_wants_the_old_records():
    context = Context(1, 7, {}, RecordDict(), {})
    ours = Message(RecordDict({"arrays": ArrayRecord([np.ones(3)])}), 7, "train")
    with pytest.raises(KeyError, match="secaggplus_configs"):
        secaggplus_mod(ours, context, lambda message, _: message)
    context.state["secaggplus_state"] = ConfigRecord({"current_stage": "share_keys"})
    stage = {"stage": "collect_masked_vectors", "ctxts": [], "srcs": []}
    asked = RecordDict({"secaggplus_configs": ConfigRecord(stage)})
    with pytest.raises(KeyError, match=r"fitres\.parameters"):
        secaggplus_mod(
            Message(asked, 7, "train"),
            context,
            lambda message, _: Message(ours.content, reply_to=message),
        )


def test_secure_aggregation_rounds_and_clips():
    values = np.linspace(-9, 9, 1001)
    np.random.seed(0)  # noqa: NPY002
    (levels,) = quantization.quantize([values], 8.0, 2**22)
    (back,) = quantization.dequantize([levels], 8.0, 2**22)
    step = 16 / 2**22
    off = abs(back - np.clip(values, -8, 8))
    assert step == pytest.approx(3.8e-6, rel=0.01) and step / 2 < off.max() <= step * (1 + 1e-9)
    floor = 2 * 8 * 4 / 2**32
    assert floor == pytest.approx(1.5e-8, rel=0.01)
    with pytest.raises(ValueError, match="greater than `quantization_range`"):
        SecAggPlusWorkflow(3, 2, quantization_range=2**32)


def test_the_masks_of_secure_aggregation_have_32_bits():
    one = bytes(range(32))
    other = one[4:] + one[:4]  # the same 32-bit words in another order
    masks = [pseudo_rand_gen(key, 2**32, [(50,)])[0] for key in (one, other)]
    assert one != other and (masks[0] == masks[1]).all()


def test_the_commands_of_the_readme_are_those_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = (PAGE.parents[1] / "README.md").read_text()
    about = readme.split("\n## Where the rows stay at the sites\n")[1].split("\n## ")[0]
    shown = re.findall(r"^    \.venv/bin/(.*?) +#", about, re.M)
    init, certificates, supernode, run = (shlex.split(command) for command in shown)
    for command in (init, certificates):
        assert CliRunner().invoke(app, command[1:]).exit_code == 0
    assert (tmp_path / "study" / "pyproject.toml").exists() and (tmp_path / "keys/ca.crt").exists()
    page = [shlex.split(line.removeprefix("$ ")) for line in console(TEXT)]
    assert run in [command[: len(run)] for command in page]
    (full,) = (command for command in page if command[0] == supernode[0])
    assert supernode[1] in full and supernode[3] == "..."
    keys = re.findall(r"(\w+)=", supernode[2])
    assert keys == re.findall(r"(\w+)=", full[full.index("--node-config") + 1])[: len(keys)]


@pytest.mark.xdist_group("deployment")
def test_the_simulation_runs_as_shown(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "sites").mkdir()
    for name, n in (("a", 40), ("b", 70), ("c", 60)):
        age, ill = rng.normal(50 + 0.1 * n, 9, n), rng.integers(0, 2, n)
        table = {"age": age, "sex": rng.integers(0, 2, n), "exang": rng.integers(0, 2, n)}
        table |= {"oldpeak": rng.exponential(1, n) + ill, "disease": ill}
        pl.DataFrame(table).write_csv(tmp_path / "sites" / f"{name}.csv")
    port = str(free_port())
    told = section("Simulation").replace("18450", port)
    link, *commands = (line.removeprefix("$ ") for line in console(told))
    home = tmp_path / "home"
    home.mkdir()
    (toml,) = re.findall(r"```toml\n(.*?)```", told, re.S)
    (home / "config.toml").write_text(toml)
    environment = {**os.environ, **SILENT, "FLWR_HOME": str(home)}
    environment["PATH"] = f"{PROGRAMS}{os.pathsep}{environment['PATH']}"
    how = {"cwd": tmp_path, "env": environment, "stdin": subprocess.DEVNULL}
    with (tmp_path / "link.log").open("w") as log:
        process = subprocess.Popen(
            shlex.split(link), stdout=log, stderr=log, start_new_session=True, **how
        )
    try:
        end = time.monotonic() + 60
        while not listens(f"127.0.0.1:{port}"):
            assert process.poll() is None and time.monotonic() < end, (
                tmp_path / "link.log"
            ).read_text()
            time.sleep(0.1)
        for command in commands:
            done = subprocess.run(shlex.split(command), capture_output=True, text=True, **how)
            assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads((tmp_path / "simulated" / "result" / "fit.json").read_text())
        process.send_signal(signal.SIGINT)  # Ctrl-C
        process.wait(60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    pooled = accord.fit(tmp_path / "sites", "disease", features=["age", "sex", "exang", "oldpeak"])
    assert len(found["coefficients"]) == 5
    for told, known in zip(found["coefficients"], pooled.coefficients, strict=True):
        assert told["term"] == known.term
        assert told["estimate"] == pytest.approx(known.estimate, abs=1e-9)


if __name__ == "__main__":
    PAGE.write_text(filled())
