"""``accord flower init``: a Flower app that makes a joint fit, ready for ``flwr run``."""

import json
import re
from pathlib import Path
from typing import Any

from accord import __version__
from accord.files import write_whole
from accord.flower.settings import FIT, RUN, SIMULATION, Key, options_of, table_fit_of

PACKAGE = "joint_fit"
"""The app's Python package."""

_CLIENT = '''"""What runs at every site: it answers from the site's table, which never leaves it."""

from accord.flower import client_app

app = client_app()
'''

_SERVER = '''"""What runs at the server: the joint fit that pyproject.toml describes."""

from accord.flower import server_app

app = server_app()
'''

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "A joint fit of the sites' tables, made with Accord."
license = "Apache-2.0"
requires-python = ">=3.11"
dependencies = ["accord[flower]=={version}"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "{name}"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

# The fit. Every key can be given for one run, too: flwr run . NAME --stream -c 'l2=0.1'
[tool.flwr.app.config]
{fit}

# Who takes part, and where the server keeps its files.
{run}

# Simulations only, where nodes have no configuration of their own.
{simulation}
"""

_README = """\
# {name}: a joint fit of `{target}`

One model for the rows of all sites, which stay where they are; made with `accord flower init`. What is
fitted stands in `pyproject.toml`.

The server has a SuperLink, and a name for it in Flower's `config.toml`, here NAME. Each site starts a
SuperNode that names the site and its own table:

    flower-supernode --superlink SERVER:PORT --root-certificates ca.crt \\
      --auth-supernode-private-key KEY --host 127.0.0.1 --port 19200 \\
      --node-config 'client="site-a" data="/data/site-a.parquet"'

Then, at the server:

    flwr run . NAME --stream

Lines that begin with `accord:` tell how it goes; Ctrl-C ends these lines, not the run, which
`flwr stop RUN-ID NAME` ends. The model, the result and the report are in `{output}` at the end, and
`accord predict` predicts with them. Accord's docs/flower.md has every process from keys to faults.
"""


def write_app(folder, *, target: str, **chosen: Any) -> list[Path]:
    """Writes a Flower app into a folder, which must not exist or be empty; the paths of its files.

    ``chosen`` are keys of the configuration (``accord.flower.settings``), with underscores for dashes;
    ``output`` is ``result`` in the folder unless given. Raises ``ValueError`` before anything is written.
    """
    folder = Path(folder).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"folder: {folder} exists and is not empty; give a new folder")
    config = {name.replace("_", "-"): value for name, value in chosen.items() if value is not None}
    config = {"output": str(folder / "result"), **config, "target": target}
    table_fit_of(config)
    options_of(config)
    name = app_name(folder)
    parts = {
        part: "\n".join(_line(key, told, config) for key, told in keys.items())
        for part, keys in (("fit", FIT), ("run", RUN), ("simulation", SIMULATION))
    }
    project = _PROJECT.format(name=name, version=__version__, package=PACKAGE, **parts)
    readme = _README.format(name=name, target=target, output=config["output"])
    files = {
        "pyproject.toml": project,
        "README.md": readme,
        f"{PACKAGE}/__init__.py": '"""A joint fit over Flower."""\n',
        f"{PACKAGE}/client_app.py": _CLIENT,
        f"{PACKAGE}/server_app.py": _SERVER,
    }
    (folder / PACKAGE).mkdir(parents=True)
    return [write_whole(folder / path, content) for path, content in files.items()]


def _line(name: str, key: Key, config: dict[str, Any]) -> str:
    """A line of the configuration, with what the key means."""
    value = config.get(name, key.default)
    setting = f"{name} = {_toml(value)}"
    return f"{setting:<28} # {key.meaning}" if len(setting) < 28 else f"# {key.meaning}\n{setting}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # TOML's basic strings are JSON's.
        return json.dumps(value, ensure_ascii=False)
    return f"{value:g}" if isinstance(value, float) and 0 < abs(value) < 1e-3 else repr(value)


def app_name(folder: Path) -> str:
    """A name that Flower accepts: at most 32 letters, digits and hyphens, from a letter on."""
    name = re.sub("[^a-z0-9]+", "-", folder.name.lower()).strip("-")
    return (name if name[:1].isalpha() else f"fit-{name}".strip("-"))[:32].strip("-")
