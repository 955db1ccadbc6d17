# Every target makes the private environment it needs; PYTHON chooses the interpreter.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint data bench soak mutants clean

$(VENV)/user: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e .
	touch $@

$(VENV)/developer: $(VENV)/user
	$(BIN)/pip install --quiet -e '.[dev]'
	touch $@

# The main job on real data: a table on the terminal, report.html and pictures in demo/.
demo: $(VENV)/user
	mkdir -p demo
	$(BIN)/accord compare --output demo/report.html

# The whole suite: style, types, then every test.
test: lint data
	$(BIN)/pytest -n auto --dist loadgroup

lint: $(VENV)/developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Example data, once, into the user's cache folder; what cannot be had is told, and its tests are skipped.
data: $(VENV)/developer
	$(BIN)/accord datasets fetch --all || echo "data: not everything could be fetched; tests of the rest are skipped"

# Speed and memory as ratios measured in one run.
bench: $(VENV)/developer
	$(BIN)/python benchmarks/rounds.py
	$(BIN)/python benchmarks/gradient.py
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/network.py
	$(BIN)/python benchmarks/network.py memory
	$(BIN)/python benchmarks/fit.py
	$(BIN)/python benchmarks/flower.py
	$(BIN)/python benchmarks/flower.py deployed

# The deployment's long proof: every method and random faults with real processes, about half an hour.
soak: $(VENV)/developer
	$(BIN)/python tests/soak.py

# Flips signs and drops factors in algorithms, oracles, graph methods and messages; the tests must notice every one.
mutants: $(VENV)/developer
	$(BIN)/python tests/mutants.py

clean:
	rm -rf $(VENV) demo build dist
