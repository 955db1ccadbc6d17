"""Files are written whole or not at all; where caches lie."""

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Where Accord keeps what it can make again: ``accord`` in ``$XDG_CACHE_HOME``, or in ``~/.cache``."""
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "accord"


def write_whole(path: Path, content: str | bytes, durable: bool = False) -> Path:
    """Writes a file by way of a temporary one beside it, renamed when complete.

    ``durable`` waits until the content is on the disk, for files that must outlive a loss of power.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"path: the folder {path.parent} does not exist; create it first")
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(path)
        if durable:
            _sync(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def _sync(folder: Path) -> None:
    """Waits until the names in a folder are on the disk, too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
