"""The examples run, and end where they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import accord
from accord.data import fetching

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_every_example_is_in_the_list():
    listed = set(re.findall(r"examples/(\w+\.py)", (EXAMPLES / "README.md").read_text()))
    assert listed == {path.name for path in EXAMPLES.glob("*.py")}


def run(name: str, data: str, picture: Path) -> str:
    """What an example prints; warnings are errors, and its picture is there."""
    if not fetching.is_here(data) and accord.data.card(data).archive is not None:
        pytest.skip(f"{data} is not here: accord datasets fetch {data}")
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
