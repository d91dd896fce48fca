# Five commands: make demo, make test, make test-all, make docs; each begins with make setup.
# `make -j` changes nothing: the steps need each other's results.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
PINNED := --quiet --constraint constraints.txt torch==2.13.0

.PHONY: setup demo test test-all docs lint types

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

# As many processes as CPUs that a container's quota leaves.
WORKERS = $$($(BIN)/python -c 'from joblib import cpu_count; print(min(cpu_count(), 8))')
HAS_GPU = $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'

# Tests that time a GPU run first, and alone on it. Without a GPU they are skipped among the others.
# The last line tells how many tests passed.
define run_tests
! $(HAS_GPU) || $(BIN)/python -m pytest -m "gpu and ($(1))"
$(BIN)/python -m pytest -m "$$(! $(HAS_GPU) || echo 'not gpu and') ($(1))" -n $(WORKERS) --dist worksteal
endef

test: setup lint types
	$(call run_tests,not slow)

test-all: setup lint types
	$(call run_tests,slow or not slow)

docs: setup
	$(BIN)/python -m mkdocs build --strict

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy
