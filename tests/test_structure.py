"""The layout holds: who imports whom, and what ``import accord`` brings."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "accord"

# Each part may import only parts that stand above it.
ORDER = [
    "files",
    "tree",
    "core",
    "sources",
    "data",
    "objectives",
    "reference",
    "problems",
    "oracles",
    "algorithms",
    "theory",
    "engines",
    "graph",
    "conformance",
    "report",
    "analysis",
    "estimators",
    "flower",
    "cli",
]


def part_of(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "accord":
            parts = node.module.split(".")[1:]
            found |= {parts[0]} if parts else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("accord.")}
    return found & set(ORDER)


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_imports_go_upwards(path):
    part = part_of(path)
    if part in ("__init__", "__main__"):
        return
    allowed = set(ORDER[: ORDER.index(part) + 1])
    assert imported_parts(path) <= allowed
    if part == "algorithms":
        assert imported_parts(path) <= {"tree", "core", "oracles", "algorithms"}


def test_import_brings_nothing_heavy():
    code = "import sys, accord; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {
        "flwr",
        "torch",
        "matplotlib",
        "sklearn",
        "polars",
        "plotly",
        "rich",
        "typer",
        "pandas",
        "networkx",
    }
    heavy |= {"scipy.optimize", "scipy.sparse"}
    assert not heavy & set(loaded)


def test_only_one_folder_knows_flower():
    for path in sorted(SOURCE.rglob("*.py")):
        if part_of(path) != "flower":
            for node in ast.walk(ast.parse(path.read_text())):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
                assert "flwr" not in {name.split(".")[0] for name in names}, path


def test_no_assert_in_the_library():
    for path in SOURCE.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        assert not any(isinstance(node, ast.Assert) for node in nodes), path


def test_every_public_function_and_class_has_a_docstring():
    for path in SOURCE.rglob("*.py"):
        module = ast.parse(path.read_text())
        assert ast.get_docstring(module), path
        for node in module.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path}: {node.name}"
