# Four commands: make demo, make test, make docs, and what they begin with, make setup.
# `make -j` changes nothing: the steps need each other's results.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test docs lint types

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "asmtune needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' torch==2.13.0
	touch $@

demo: setup
	$(BIN)/asmtune prune-report tiled_matmul --target H200 --shape M=4096,N=4096,K=4096

# As many processes as CPUs that a container's quota leaves; what times a GPU runs alone.
WORKERS := $$($(BIN)/python -c 'from joblib import cpu_count; print(min(cpu_count(), 8))')

test: setup lint types
	$(BIN)/python -m pytest -m 'not gpu' -n $(WORKERS) --dist loadfile
	$(BIN)/python -m pytest -m gpu tests/gpu tests/docs

docs: setup
	$(BIN)/python -m mkdocs build --strict

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy
