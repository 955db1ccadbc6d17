"""Flips signs and drops factors in the arithmetic of Accord, and asks the tests to notice.

``python tests/mutants.py [NAME ...]`` makes every mutant of the files (all, or those named), runs the
tests that concern it on a copy of the package, and prints who survived; it ends non-zero if one did.
"""

import argparse
import ast
import copy
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "accord"
TARGETS = (
    "algorithms/*.py",
    "oracles/*.py",
    "core/messages.py",
    "theory/certificate.py",
    "graph/*.py",
)
TESTS = (
    "tests/test_oracles.py",
    "tests/test_numpy_reference.py",
    "tests/conformance",
    "tests/test_identities.py",
    "tests/test_run.py",
)
GRAPH_TESTS = {
    "tests/test_graph_parts.py": ("activation", "coupling", "defaults", "nodes"),
    "tests/test_network.py": ("network", "families"),
    "tests/test_graph_constraints.py": ("constraints", "coupling", "reference", "rotated"),
    "tests/test_graph_mixing.py": ("mixing",),
    "tests/test_graph.py": ("activation", "defaults", "machine", "pdmm", "rounds", "run"),
}
"""The tests of graph/, each with the files that it is nearest to: it runs first for these."""

CACHE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
}
"""Compiled programs are kept: what a mutant leaves as it is was compiled before it."""

UNTOUCHED = ("graph/drawing.py", "graph/job.py")
"""Files without arithmetic of a method: where marks are drawn, and what is told."""

NOISE = "how far above rounding an eigenvalue must be to count as one is a choice of magnitude"

# Files that tests of their own concern: these are run first.
OWN = {
    "algorithms/newton.py": ("tests/test_newton.py",),
    "oracles/model.py": ("tests/test_newton.py", "tests/test_regulariser.py"),
    "theory/certificate.py": ("tests/test_certificate.py",),
}

# Mutants that change nothing that a method promises, each with the reason.
EQUIVALENT = {
    "oracles/first_order.py sign flipped: calls + 1": (
        "a count that falls meets the multiples of the restart interval as often as one that rises"
    ),
    "graph/activation.py sign flipped: nodes - 1": (
        "a draw in float64 that rounds up to the last node's end comes once in 2^53"
    ),
    "graph/coupling.py left factor dropped: 64 * d * np.finfo(float).eps": NOISE,
    "graph/coupling.py left factor dropped: 64 * d": NOISE,
    "graph/coupling.py right factor dropped: 64 * d": NOISE,
    "graph/families.py sign flipped: i + 1": "a ring turned the other way is the same ring",
    "graph/network.py sign flipped: self._order + size // 2": (
        "half the (even) number of directed edges, back or forth, is the same modulo their number"
    ),
}


def variants(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """The mutants of one expression: a word for each, and the expression in its place."""
    if isinstance(node, ast.BinOp):
        return _binary(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return [("sign dropped", node.operand)]
    if isinstance(node, ast.Call):
        return _call(node)
    return []


def _binary(node: ast.BinOp):
    swap = {ast.Add: ast.Sub, ast.Sub: ast.Add}
    if type(node.op) in swap:
        return [("sign flipped", ast.BinOp(node.left, swap[type(node.op)](), node.right))]
    if isinstance(node.op, ast.Mult):
        return [("left factor dropped", node.right), ("right factor dropped", node.left)]
    if isinstance(node.op, ast.Div):
        return [("divisor dropped", node.left)]
    return []


def _call(node: ast.Call):
    function = node.func
    is_tree = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "tree"
    if not is_tree:
        return []

    def call(name, *arguments):
        return ast.Call(
            ast.Attribute(ast.Name("tree", ast.Load()), name, ast.Load()), [*arguments], []
        )

    def minus(value):
        return ast.UnaryOp(ast.USub(), value)

    a = node.args
    one = ast.Constant(1)
    mutants = {
        "add": lambda: [("sign flipped", call("subtract", *a))],
        "subtract": lambda: [("sign flipped", call("add", *a))],
        "scale": lambda: [
            ("factor dropped", a[1]),
            ("sign flipped", call("scale", minus(a[0]), a[1])),
        ],
        "add_scaled": lambda: [
            ("factor dropped", call("add_scaled", a[0], one, a[2])),
            ("sign flipped", call("add_scaled", a[0], minus(a[1]), a[2])),
        ],
        "reflect": lambda: [
            ("factor 2 dropped", call("subtract", *a)),
            ("arguments swapped", call("reflect", a[1], a[0])),
        ],
        "mix": lambda: [
            ("share dropped", a[2]),
            ("arguments swapped", call("mix", a[0], a[2], a[1])),
        ],
    }
    return mutants.get(function.attr, list)()


def mutants_of(path: Path):
    """(label, source) of every mutant of a file."""
    tree = ast.parse(path.read_text())
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.expr)]
    annotations = {id(n) for n in ast.walk(tree) for n in _annotation_nodes(n)}
    for position, node in enumerate(nodes):
        if id(node) in annotations:
            continue
        for word, replacement in variants(node):
            mutated = copy.deepcopy(tree)
            target = [n for n in ast.walk(mutated) if isinstance(n, ast.expr)][position]
            new = ast.fix_missing_locations(ast.copy_location(copy.deepcopy(replacement), target))
            source = ast.unparse(ast.fix_missing_locations(_Replace(target, new).visit(mutated)))
            shown = ast.unparse(node).replace("\n", " ")[:70]
            yield f"{path.parent.name}/{path.name}:{node.lineno} {word}: {shown}", source


def without_line(label: str) -> str:
    """The label without its line number, which moves whenever the file changes above it."""
    return re.sub(r":\d+ ", " ", label, count=1)


def _annotation_nodes(node):
    for name in ("annotation", "returns"):
        annotation = getattr(node, name, None)
        if isinstance(annotation, ast.AST):
            yield from ast.walk(annotation)


class _Replace(ast.NodeTransformer):
    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return self.new if node is self.old else super().visit(node)


def concerned(place: str) -> tuple[str, ...]:
    """The tests that concern a file, the nearest first."""
    folder, _, name = place.partition("/")
    if folder != "graph":
        return (*OWN.get(place, ()), *TESTS)
    return tuple(sorted(GRAPH_TESTS, key=lambda t: Path(name).stem not in GRAPH_TESTS[t]))


def _tests(package_root: Path, *arguments: str) -> bool:
    """Whether the tests pass on a copy of the package."""
    environment = os.environ | {"PYTHONPATH": str(package_root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200
        )
    except subprocess.TimeoutExpired:
        return False  # a mutant that does not end is noticed
    if done.returncode not in (0, 1, 2, 5):
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return done.returncode in (0, 5)


def survives(label: str, source: str, near: bool = False) -> bool:
    """Whether no test notices a mutant: those of its own name, then all (or the nearest)."""
    place = label.split(":")[0]
    stem = Path(place).stem.replace("_", "")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, Path(folder) / "accord")
        (Path(folder) / "accord" / place).write_text(source)
        named = place.startswith("algorithms") and not stem.startswith("primaldual")
        if named and not _tests(Path(folder), *TESTS, "-k", stem):
            return False
        tests = concerned(place)
        nearest = tests[: max(len(OWN.get(place, ())), 1)]
        return _tests(Path(folder), *(nearest if near else tests))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", help="parts of file names, as gpdmm; default: all files"
    )
    parser.add_argument(
        "--trust", action="store_true", help="do not run the tests without a mutant"
    )
    parser.add_argument(
        "--near", action="store_true", help="after those of its name, only the nearest tests"
    )
    arguments = parser.parse_args()
    chosen = arguments.names
    paths = [p for t in TARGETS for p in sorted(PACKAGE.glob(t))]
    paths = [p for p in paths if f"{p.parent.name}/{p.name}" not in UNTOUCHED]
    paths = [p for p in paths if not chosen or any(name in str(p) for name in chosen)]
    everything = [m for p in paths for m in mutants_of(p)]
    began, alive, excused = time.time(), [], []
    used = sorted({t for p in paths for t in concerned(f"{p.parent.name}/{p.name}")})
    with tempfile.TemporaryDirectory() as programs, ThreadPoolExecutor(os.cpu_count()) as pool:
        os.environ |= CACHE | {"JAX_COMPILATION_CACHE_DIR": programs}
        if not (
            arguments.trust or _tests(ROOT / "src", *used, "-n", "auto", "--dist", "loadgroup")
        ):
            print("the tests fail on the package as it is: nothing can be said of mutants")
            return 2
        waiting = {
            pool.submit(survives, *mutant, arguments.near): mutant[0] for mutant in everything
        }
        for done in as_completed(waiting):
            label, lives = waiting[done], done.result()
            excuse = lives and EQUIVALENT.get(without_line(label))
            if lives:
                (excused if excuse else alive).append(label)
            word = "excused " if excuse else "SURVIVED" if lives else "killed  "
            print(word, label, flush=True)
    print(
        f"{len(everything)} mutants, {len(everything) - len(alive) - len(excused)} killed, "
        f"{len(excused)} equivalent, {len(alive)} survived, in {time.time() - began:.0f} s"
    )
    for label in alive:
        print("survived:", label)
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
