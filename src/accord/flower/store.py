"""What a site keeps between rounds, in two phases, so that no end of a process loses or repeats a step.

A client that has done round r keeps its state before and after it. The next letter says which of its
rounds the server has acknowledged: if r, the new state stands; if the one before, the old one does. A letter
for round r again gets the stored reply.
"""

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accord.files import write_whole
from accord.flower import durable

_KEPT_RUNS = 5
"""Folders of earlier runs that stay, the newest ones."""


class Kept(NamedTuple):
    """``epoch``: which start of the method; ``before`` and ``after``: the rounds whose states ``old`` and
    ``new`` are, by leaf; ``about`` and ``reply``: what was answered to the latter."""

    epoch: int
    before: int
    after: int
    old: dict[str, np.ndarray]
    new: dict[str, np.ndarray]
    about: dict[str, Any]
    reply: dict[str, np.ndarray]


class Store:
    """The folder of one client, with a folder for each run."""

    def __init__(self, folder: Path, run: str):
        self.folder = Path(folder) / _checked("run", run)
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._forget_old_runs()

    def _forget_old_runs(self) -> None:
        runs = [f for f in self.folder.parent.iterdir() if (f / "lock").exists()]
        runs.sort(key=lambda f: f.stat().st_mtime)
        for old in runs[: 1 - _KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps out other processes of the same client, as for a letter that was sent again."""
        with durable.locked(self.folder / "lock"):
            yield

    def text(self, digest: str) -> str | None:
        """A text that the server sent earlier, by its digest."""
        path = self.folder / f"{_checked('text', digest)}.json"
        text = path.read_text(errors="replace") if path.exists() else None
        return text if text is not None and digest_of(text) == digest else None

    def keep_text(self, text: str) -> None:
        """Keeps a text of the server, to be named by its digest from now on."""
        write_whole(self.folder / f"{digest_of(text)}.json", text, durable=True)

    def load(self) -> Kept | None:
        """What was kept last, or None."""
        found = durable.load(self.folder / "state.npz")
        if found is None:
            return None
        about, arrays = found
        if set(about) != set(Kept._fields) - {"old", "new", "reply"}:
            return None
        parts: dict[str, dict[str, np.ndarray]] = {"old": {}, "new": {}, "reply": {}}
        for name, array in arrays.items():
            part, rest = name.split("/", 1)
            parts[part][rest] = array
        fields: dict[str, Any] = about | parts
        return Kept(**fields)

    def save(self, kept: Kept) -> None:
        """Keeps the states of two rounds, and the reply to the later one."""
        fields = kept._asdict()
        arrays = {
            f"{part}/{name}": array
            for part in ("old", "new", "reply")
            for name, array in fields.pop(part).items()
        }
        durable.save(self.folder / "state.npz", fields, arrays)


def _checked(what: str, name: Any) -> str:
    """A name that the server gave, fit to be that of a file: it may not lead out of the folder."""
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
        raise ValueError(f"{what}: got {name!r}; accepted are up to 64 letters, digits, - and _")
    return name


def digest_of(text: str) -> str:
    """The name of a text: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
