"""The command line: what it prints and writes, and how it refuses."""

import re
import subprocess
import sys

import numpy as np
import polars
import pytest
from typer.testing import CliRunner

import accord
from accord import cli
from accord.algorithms import parse_methods

WIDE = {"COLUMNS": "200"}


def _run(*arguments, **environment):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments], env=WIDE | environment)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((90, 3))
    columns = {f"x{k}": X[:, k] for k in range(3)}
    columns["outcome"] = (X @ [1.0, -2.0, 0.5] + 0.3 * rng.standard_normal(90) > 0).astype(int)
    columns["hospital"] = np.array(["A", "B", "C"])[np.arange(90) % 3]
    path = tmp_path_factory.mktemp("data") / "patients.csv"
    polars.DataFrame(columns).write_csv(path)
    return path


def _on(table, *more):
    given = ("--data", table, "--target", "outcome", "--client", "hospital", "--model", "logistic")
    return ("compare", *given, *more)


def test_list_tells_of_every_method():
    result = _run("list", COLUMNS="320")
    assert result.exit_code == 0
    star, network = result.stdout.split("On a network")
    lines = {line.split()[0]: line for line in star.splitlines() if line.strip()}
    assert set(accord.REGISTRY) <= set(lines)
    cells = {name: re.split(r"  +", lines[name].strip()) for name in accord.REGISTRY}
    found = {name: cell[2:6] for name, cell in cells.items()}
    assert found["GPDMM"] == ["1", "1", "yes", "exact"]
    assert found["SCAFFOLD"] == ["2", "2", "yes", "exact"]
    assert found["FedAvg"] == ["1", "1", "no", "inexact"]
    assert found["Scaffnew"] == ["1", "1", "yes", "no"]
    assert cells["ADMM"][6:8] == ["grad, prox", "boyd2011admm"]
    assert cells["FedAvg"][1] == "local gradient steps and averaging"
    lines = {line.split()[0]: line for line in network.splitlines() if line.strip()}
    found = {n: re.split(r"  +", lines[n].strip())[2:] for n in accord.graph.METHODS}
    assert found["PDMM"] == ["1", "yes", "yes", "zhang2018distributed"]
    assert found["DGD"] == ["1", "no", "no", "nedic2009distributed"]
    assert found["GradientTracking"] == ["2", "yes", "no", "nedic2017achieving"]


def test_list_fits_a_narrow_terminal():
    text = _run("list", COLUMNS="80").stdout
    assert max(len(line) for line in text.splitlines()) <= 80 and "…" not in text


def test_compare_takes_the_features_asked_for(table, tmp_path):
    given = (*_on(table), "--methods", "PDMM", "--rounds", 3, "--output", tmp_path)
    assert _run(*given, "--features", "x2, x0").exit_code == 0
    problem, _ = cli.compare._problem(
        table, "outcome", "hospital", "x2, x0", "logistic", 1, False, 0
    )
    frame = polars.read_csv(table).filter(polars.col("hospital") == "A")
    np.testing.assert_array_equal(problem.clients[0][0], frame.select("x2", "x0"))
    refused = _run(*given, "--features", "x2,x7")
    assert refused.exit_code == 2 and "features: there is no column 'x7'" in refused.stderr


def test_compare_writes_what_it_says(table, tmp_path):
    output, csv = tmp_path / "out" / "mine.html", tmp_path / "out" / "table.csv"
    methods = "GPDMM:local_steps=3,ADMM:oracle=GradientDescent,FedAvg:step_size=9.0,Scaffnew"
    result = _run(
        *_on(table, "--methods", methods, "--rounds", 40, "--seed", 5, "--participation", 0.5,
             "--intercept", "--l2", 0.05, "--output", output, "--csv", csv)
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    pictures = [f"{n}.png" for n in ("gradients", "megabytes", "rounds", "seconds")]
    assert sorted(p.name for p in output.parent.iterdir()) == [
        *pictures[:2], "mine.html", *pictures[2:], "table.csv"
    ]  # fmt: skip
    assert f"report    {output}" in result.stdout and f"table     {csv}" in result.stdout
    assert "warning: step_size: 9 is above the stable bound" in " ".join(result.stderr.split())
    assert "Scaffnew" in result.stderr and "refused" in result.stderr
    rows = {row["method"]: row for row in polars.read_csv(csv).to_dicts()}
    assert list(rows) == ["GPDMM", "ADMM", "FedAvg", "Scaffnew"]
    assert rows["Scaffnew"]["status"] == "refused"
    train, test = cli.compare._held_out(accord.data.read_table(table, "outcome", "hospital"), 5)
    assert train.sizes.tolist() == [24] * 3 and test.sizes.tolist() == [6] * 3
    problem = accord.problems.logistic(train, l2=0.05, intercept=True)
    run = accord.run(accord.GPDMM(local_steps=3), problem, 40, seed=5, participation=0.5)
    assert rows["GPDMM"]["distance"] == pytest.approx(run.history["distance"][-1], rel=1e-6)
    assert "GPDMM" in result.stdout and "accuracy" in result.stdout


def test_compare_on_the_digits(tmp_path):
    result = _run(
        "compare", "--methods", "GPDMM,AGPDMM", "--rounds", 90, "--stop", 1e-4, "--output", tmp_path
    )
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "report.html").is_file() and (tmp_path / "rounds.png").is_file()
    assert re.search(r"AGPDMM +\d+ +\d+ .*converged", result.stdout)


def test_without_held_out_rows(table, tmp_path):
    result = _run(
        *_on(table, "--methods", "PDMM", "--rounds", 5, "--test-every", 0, "--output", tmp_path)
    )
    assert result.exit_code == 0 and "accuracy" not in result.stdout


def test_the_default_methods_are_read():
    methods = parse_methods(cli.compare.METHODS)
    assert len(methods) == 15 and methods[8] == accord.FedPD(skip_probability=0.3)
    assert methods[11:13] == [accord.InexactFedSplit(start=s) for s in ("primal", "dual")]
    given = parse_methods("SCAFFOLD:local_steps=4:batch_size=None, PDMM:oracle=Linearised")
    assert given == [
        accord.SCAFFOLD(local_steps=4), accord.PDMM(oracle=accord.oracles.Linearised())
    ]  # fmt: skip


def test_cite_and_version():
    assert _run("cite", "AGPDMM").stdout.startswith("@article{zhang2022revisiting,")
    assert "Foundations" in _run("cite", "boyd2011admm").stdout
    assert _run("--version").stdout == f"accord {accord.__version__}\n"


@pytest.mark.parametrize("command", [(), ("list",), ("compare",), ("cite",), ("check",)])
def test_help_has_an_example(command):
    result = _run(*command, "--help")
    assert result.exit_code == 0
    name = "fit" if not command else command[0]
    assert re.search(rf"Examples?: accord {name}", result.stdout)
    if not command:
        assert _run().stdout == result.stdout


METHOD = """
from dataclasses import dataclass
from accord.core import Algorithm, Model

@dataclass(frozen=True)
class Lazy(Algorithm):
    step_size: float = 0.1

    def init_server(self, x):
        return Model(x)

    def client(self, state, inbox, objective, key):
        {step}

    def server(self, server, mean, share):
        return Model(mean)
"""


def test_check_fails_where_a_check_fails(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(METHOD.format(step='raise RuntimeError("no [step]")'))
    result = _run("check", path)
    assert result.exit_code == 1
    assert "Lazy" in result.stdout and "no [step]" in result.stdout
    assert re.search(r"optimum +failed", result.stdout) and "0 passed" in result.stdout


WRONG = {
    ("frobnicate",): "No such command",
    ("cite", "GPDM"): "did you mean GPDMM?",
    ("check", "absent.py"): "no file absent.py",
    ("compare", "--rounds", "many"): "--rounds",
    ("compare", "--rounds", "0"): "rounds: got 0; accepted is a whole number from 1",
    ("compare", "--frob"): "--frob",
    ("compare", "--methods", "GPDMM,AGPDM"): "did you mean AGPDMM?",
    ("compare", "--methods", "GPDMM:local_step=3"): "did you mean local_steps?",
    ("compare", "--methods", "GPDMM:3"): "GPDMM:parameter=value",
    ("compare", "--methods", "GPDMM:local_steps=0"): "GPDMM(local_steps=...): got 0",
    ("compare", "--methods", "GPDMM:penalty=big"): "penalty",
    ("compare", "--methods", "ADMM:oracle=Exakt"): "did you mean Exact?",
    ("compare", "--methods", ""): "there is no ''",
    ("compare", "--participation", "1.5"): "participation: got 1.5",
    ("compare", "--l2", "-1"): "l2: got -1.0",
    ("compare", "--seed", "-1"): "seed: got -1",
    ("compare", "--stop", "0"): "stop: got 0; accepted is a number > 0",
    ("compare", "--model", "sofmax"): "did you mean softmax?",
    ("compare", "--model", "logistic"): "accepted are 0 and 1",
    ("compare", "--target", "y"): "leave them out",
    ("compare", "--test-every", "1"): "test_every: got 1",
    ("compare", "--data", "x.csv"): "say --target COLUMN",
    ("compare", "--data", "x.csv", "--target", "y", "--client", "c"): "model: say which",
    ("compare", "--data", "x.csv", "--target", "y", "--client", "c", "--model", "huber"): "x.csv",
    ("compare", "--output", "/dev/null/report.html"): "nothing can be written to /dev/null",
    ("compare", "--participation", "1.5", "--output", "made/here.html"): "participation: got 1.5",
}


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_bad_input_is_one_line_and_status_2(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = _run(*arguments)
    assert result.exit_code == 2
    lines = result.stderr.strip().splitlines()
    assert lines[-1].startswith("accord: ") and WRONG[arguments] in lines[-1]
    assert len(lines) == 1
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []  # no folder, nothing half-written


def test_the_installed_command_refuses_in_one_line_too():
    command = [sys.executable, "-c", "from accord.cli import app; app()", "cite", "FedAvgg"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("accord: ") and done.stderr.count("\n") == 1


def test_a_traceback_on_request():
    result = _run("cite", "GPDM", ACCORD_TRACEBACK="1")
    assert isinstance(result.exception, ValueError)
