"""What the documents show is true: code runs, names exist, tables and links are those of the code."""

import re
from pathlib import Path

import pytest

import accord
from accord import conformance

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def test_the_readme_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = blocks(README, "python")
    assert len(examples) == 5
    space = {}
    for example in examples:
        exec(compile(example, "README.md", "exec"), space)
    printed = capsys.readouterr().out
    assert float(re.search(r"largest error (\S+)", printed)[1]) < 1e-12
    assert printed.startswith("converged: after ")
    assert "the certified distance is at most 1e-08." in printed
    assert space["run"].certificate.distance <= 1e-8
    assert float(re.search(r"apart by (\S+) after 1 round", printed)[1]) < 1e-9
    assert float(re.search(r"certified to (\S+)", printed)[1]) < 1e-6
    assert float(re.search(r"All coefficients are within (\S+) of", printed)[1]) < 1e-6
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "model.json",
        "patients.csv",
        "report.html",
    ]
    assert "Each client under the model of the others" in printed


def test_the_first_example_has_about_ten_lines():
    lines = blocks(README, "python")[0].splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 10


def test_the_commands_of_the_documents_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for name in ("README.md", "CONTRIBUTING.md"):
        assert set(re.findall(r"make ([a-z]+)", (ROOT / name).read_text())) <= targets
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_the_table_of_methods_is_the_registry():
    table = README.split("## The methods")[1].split("## ")[0]
    named = re.findall(
        r"`([A-Za-z]+)`",
        "\n".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `")),
    )
    assert sorted(named) == sorted(accord.REGISTRY)


def test_pictures_and_links_of_the_readme_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_hyperparameter_is_in_the_glossary():
    glossary = (ROOT / "GLOSSARY.md").read_text()
    for algorithm in accord.REGISTRY.values():
        for name in algorithm.__dataclass_fields__:
            assert f"`{name}`" in glossary or name == "start", name


@pytest.mark.parametrize("algorithm", accord.REGISTRY.values(), ids=accord.REGISTRY)
def test_every_source_is_known(algorithm):
    assert algorithm.source in accord.sources.SOURCES


def test_the_skeleton_is_a_working_algorithm():
    path = ROOT / "src" / "accord" / "algorithms" / "_skeleton.py"
    (skeleton,) = conformance.algorithms_of(path)
    for check in ("contract", "optimum", "wire"):
        assert conformance.check_one(skeleton, check).passed


def test_the_changelog_knows_the_version():
    assert f"## {accord.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f'version = "{accord.__version__}"' in (ROOT / "pyproject.toml").read_text()
