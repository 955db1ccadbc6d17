"""The examples run, and end where they say."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import accord
from accord.data import fetching
from shown import console

EXAMPLES = Path(__file__).parents[1] / "examples"
PAGE = EXAMPLES.parent / "docs" / "flower.md"


def test_every_example_is_in_the_list():
    listed = set(re.findall(r"examples/(\w+\.py)", (EXAMPLES / "README.md").read_text()))
    assert listed == {path.name for path in EXAMPLES.glob("*.py")}


def need(data: str) -> None:
    """Skips where a data set has not been fetched."""
    if not fetching.is_here(data) and accord.data.card(data).archive is not None:
        pytest.skip(f"{data} is not here: accord datasets fetch {data}")


def run(name: str, data: str, picture: Path) -> str:
    """What an example prints; warnings are errors, and its picture is there."""
    need(data)
    command = [sys.executable, "-W", "error", EXAMPLES / name, picture]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    return done.stdout


def numbers(pattern: str, text: str) -> list[float]:
    return [float(n) for n in re.findall(pattern, text)]


def test_the_stations_of_colorado_agree(tmp_path):
    told = run("colorado_stations.py", "colorado", tmp_path / "stations.png")
    apart = numbers(r"NumPy's pooled fit to (\S+)", told)
    assert len(apart) == 2 and max(apart) < 1e-9
    assert -5.5 < float(re.search(r"says: (\S+) degrees C a kilometre", told)[1]) < -5.3
    off = dict(re.findall(r"C: (.+) is (\S+) off", told))
    assert float(off.pop("gossip")) > 1e-3
    assert len(off) == 2 and max(map(float, off.values())) < 1e-9


def test_hospitals_fit_one_model_of_heart_disease(tmp_path):
    told = run("heart_disease.py", "heart", tmp_path / "heart.png")
    as_recorded, as_missing = numbers(r"z = (\S+)", told)
    assert as_recorded < -4 and as_missing > 2.5
    apart = re.search(r"pooled coefficients to (\S+), standard errors to (\S+)", told)
    assert float(apart[1]) < 1e-6 and float(apart[2]) < 1e-6
    assert "Switzerland alone: target: no finite fit exists" in told
    assert told.count(" alone: Fit(logistic, 1 client,") == 3
    unseen = numbers(r"AUC (\S+) without a row of its own", told)
    own = numbers(r"own, (\S+) from its own rows alone", told)
    assert all(u > 0.7 for u in unseen) and own[2] < 0.6 < unseen[2]
    assert "for the first patient, 0.0 apart" in told


def test_schools_find_slopes_that_none_has(tmp_path):
    told = run("schools.py", "hsb82", tmp_path / "schools.png")
    assert numbers(r"NumPy's pooled fit to (\S+)", told)[0] < 1e-11
    assert "of 6 coefficients a school alone determines 2 to 4" in told
    assert numbers(r"scikit-learn's coefficients to (\S+)", told)[0] < 1e-7
    assert "the same coefficients are exactly zero: True" in told


def test_writers_fit_one_classifier(tmp_path):
    told = run("digits_by_writer.py", "digits", tmp_path / "digits.png")
    certified = numbers(r"certified to (\S+),", told)
    apart = numbers(r"scikit-learn's pooled fit to (\S+)", told)
    assert len(apart) == 3 and max(certified) <= 1e-6 and max(apart) < 1.1e-6
    alone, together, others, other = numbers(r"(0\.\d+), from", told)
    assert alone > together > others > other + 0.1


def test_lecturers_fit_one_regression(tmp_path):
    told = run("lecturers.py", "insteval", tmp_path / "lecturers.png")
    exact, *inexact = numbers(r"NumPy's pooled fit to (\S+)", told)
    assert exact < 1e-12 and len(inexact) == 2 and max(inexact) < 1e-8
    own, chance = numbers(r"(\S+)%", told)
    assert own > 8 * chance


def over_flower(folder: Path) -> tuple[subprocess.Popen, int]:
    """The example over Flower, its temporary files in a folder, and the first of its ports."""
    pytest.importorskip("flwr", reason="the extra flower is not installed")
    need("heart")
    port = 20_000 + 4 * (os.getpid() % 5_000)
    while any(taken(port + k) for k in range(4)):
        port += 4
    command = [sys.executable, "-W", "error", EXAMPLES / "flower_hospitals.py", str(port)]
    environment = {**os.environ, "TMPDIR": str(folder)}
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment, **how), port


def taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def nothing_stays(folder: Path) -> bool:
    """No file in a folder, and after a moment in which they may end no process that knows it."""
    end = time.monotonic() + 20
    while living(folder) and time.monotonic() < end:
        time.sleep(0.1)
    return not living(folder) and not list(folder.iterdir())


def living(folder: Path) -> list[str]:
    """The command lines of the processes that know a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().decode().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.xdist_group("deployment")
def test_hospitals_fit_one_model_over_flower(tmp_path):
    process, port = over_flower(tmp_path)
    told, _ = process.communicate()
    assert process.returncode == 0, told
    apart = re.findall(r"^(\d+) (\w+) as those of accord fit, to (\S+)$", told, re.M)
    assert [(count, what) for count, what, _ in apart] == [
        ("5", "coefficients"),
        ("293", "predictions"),
    ]
    assert all(float(number) < 1e-9 for _, _, number in apart)
    assert nothing_stays(tmp_path)

    (here,) = re.findall(r"FLWR_HOME=(\S+)/operator$", told, re.M)[:1]
    lines = told.replace(here, "/study").replace("127.0.0.1:" + str(port), "127.0.0.1:18443")
    for k in range(4):
        lines = lines.replace(f"--port {port + k}", f"--port {18443 + k}")
    lines = {re.sub(r" > \S+ 2>&1 &$", "", line) for line in lines.splitlines()}
    shown = console(PAGE.read_text().split("\n## Simulation\n")[0])
    assert len(shown) > 15 and not set(shown) - lines


@pytest.mark.xdist_group("deployment")
def test_nothing_of_a_deployment_outlives_its_example(tmp_path):
    process, _ = over_flower(tmp_path)
    for line in process.stdout:
        if line.startswith("$ flwr run"):
            break
    running = " ".join(living(tmp_path))
    assert running.count("flower-supernode") >= 3 and "flower-superlink" in running
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 1
    assert nothing_stays(tmp_path)
