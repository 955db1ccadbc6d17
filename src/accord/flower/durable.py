"""Arrays on disk that an end of the process at any moment leaves whole: npz files without pickles."""

import fcntl
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from accord.files import write_whole

_ABOUT = "about"


def save(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Writes plain values and named arrays to a file, whole or not at all, and to the disk itself."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    named: dict[str, Any] = {_ABOUT: text} | {f"/{k}": v for k, v in arrays.items()}
    np.savez(buffer, **named)
    write_whole(path, buffer.getvalue(), durable=True)


def load(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """(plain values, arrays) of a file that ``save`` wrote; None where there is none, or it is damaged."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as stored:
            about = json.loads(stored[_ABOUT].tobytes())
            return about, {k[1:]: stored[k] for k in stored.files if k != _ABOUT}
    except FileNotFoundError:
        return None
    except MemoryError:
        raise
    except Exception:
        # Whatever is wrong with the file, its owner has to go on without it, and says so.
        Path(path).replace(f"{path}.damaged")
        return None


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Keeps other processes out that want the same file locked; ``BlockingIOError`` for who will not wait."""
    with Path(path).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
