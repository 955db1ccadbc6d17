"""The examples run, and end where they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from accord.data import fetching

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_every_example_is_in_the_list():
    listed = set(re.findall(r"examples/(\w+\.py)", (EXAMPLES / "README.md").read_text()))
    assert listed == {path.name for path in EXAMPLES.glob("*.py")}


def test_the_stations_of_colorado_agree(tmp_path):
    if not fetching.is_here("colorado"):
        pytest.skip("colorado is not here: accord datasets fetch colorado")
    picture = tmp_path / "stations.png"
    command = [sys.executable, "-W", "error", EXAMPLES / "colorado_stations.py", picture]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    apart = re.findall(r"NumPy's pooled fit to (\S+)", done.stdout)
    assert len(apart) == 2 and max(map(float, apart)) < 1e-9
    assert -5.5 < float(re.search(r"says: (\S+) degrees C a kilometre", done.stdout)[1]) < -5.3
    off = dict(re.findall(r"C: (.+) is (\S+) off", done.stdout))
    assert float(off.pop("gossip")) > 1e-3
    assert len(off) == 2 and max(map(float, off.values())) < 1e-9
    assert picture.read_bytes().startswith(b"\x89PNG")
