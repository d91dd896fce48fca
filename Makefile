# Four commands: make demo, make test, make docs, and what they begin with, make setup.
# `make -j` changes nothing: the steps need each other's results.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
PINNED := --quiet --constraint constraints.txt torch==2.13.0

.PHONY: setup demo test docs lint types

setup: $(DEV_STAMP)

# What a user needs: the package and its run-time dependencies.
$(RUN_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "asmtune needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install $(PINNED) --editable .
	touch $@

# On top, what tests, site and checks need.
$(DEV_STAMP): $(RUN_STAMP)
	$(BIN)/python -m pip install $(PINNED) --editable '.[dev]'
	touch $@

demo: $(RUN_STAMP)
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
