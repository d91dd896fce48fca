# make setup, demo, test, test-all, test-tritons, docs: each begins with the set-up that it needs.
# `make -j` changes nothing: the steps need each other's results.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCKED := $(INSTALL) --require-hashes --no-deps --requirement
# PyTorch is not locked: builds of one version differ. The CPU build of the first where pip has it;
# elsewhere the second, whose CUDA build is for the Triton of constraints.txt.
TORCH ?= torch==2.13.0
TORCH_WITH_CUDA := torch==2.11.0

.PHONY: setup demo test test-all test-tritons test-sanitized docs lint types

setup: $(VENV)/.installed-dev

# What a user needs. Each file of requirements/ holds what it needs on top of those before it.
$(VENV)/.installed-run: requirements/run.txt constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "asmtune needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(LOCKED) $<
	$(INSTALL) --constraint constraints.txt $(TORCH) || $(INSTALL) --constraint constraints.txt $(TORCH_WITH_CUDA)
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

# Lint, types and tests.
$(VENV)/.installed-dev: requirements/dev.txt $(VENV)/.installed-run
	$(LOCKED) $<
	touch $@

$(VENV)/.installed-docs: requirements/docs.txt $(VENV)/.installed-dev
	$(LOCKED) $<
	touch $@

# What `make test` skips tests for want of: a browser's driver, figures.
$(VENV)/.installed-all: requirements/all.txt $(VENV)/.installed-docs
	$(LOCKED) $<
	touch $@

demo: $(VENV)/.installed-run
	$(BIN)/asmtune prune-report tiled_matmul --target H200 --shape M=4096,N=4096,K=4096

# As many processes as CPUs that a container's quota leaves. With slow tests one more: those wait
# for processes, kills and limits, and would leave a fifth of the CPUs' time unused.
WORKERS = $$($(BIN)/python -c 'from joblib import cpu_count; print(min(cpu_count(), 8))')
HAS_GPU = $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'

# What pytest is given: `python -m tests.reach` prints what a change can reach.
TESTS ?= tests

# Tests that time a GPU run first, and alone on it. Without a GPU they are skipped among the others.
# The last line tells how many tests passed. The tests start hundreds of processes: where the
# environment forbids Python to keep bytecode, as images of containers do, each of them would
# compile asmtune anew, which takes 0.3 to 1 s. They fill the CPUs: more threads in one of them would
# only wait for each other.
define run_tests
$(BIN)/python -m compileall -q -j 0 -x '/test_[^/]*$$' asmtune kernels benchmarks website tests
! $(HAS_GPU) || $(BIN)/python -m pytest -m "gpu and ($(1))" $(TESTS)
OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "$$(! $(HAS_GPU) || echo 'not gpu and') ($(1))" -n $(2) --dist worksteal $(TESTS)
endef

test: setup lint types
	$(call run_tests,not slow,$(WORKERS))

test-all: $(VENV)/.installed-all lint types
	$(call run_tests,slow or not slow,$$(($(WORKERS) + 1)))

# The tests of `make test` under each Triton that a PyTorch asks for; README's table of them.
test-tritons: setup
	$(BIN)/python -m benchmarks.tritons
	$(BIN)/python -m website.numbers

# The C launcher under AddressSanitizer and UndefinedBehaviorSanitizer. Python must load their
# libraries first. What Python itself never frees is no leak of ours.
SANITIZED := $(CURDIR)/.cache/sanitized
LIBRARIES = $(foreach name,libasan libubsan libstdc++,$(shell gcc -print-file-name=$(name).so))
test-sanitized: setup
	mkdir -p $(SANITIZED)
	printf '#!/bin/sh\nexec gcc -g -fsanitize=address,undefined "$$@"\n' > $(SANITIZED)/cc
	chmod +x $(SANITIZED)/cc
	CC=$(SANITIZED)/cc ASMTUNE_TEST_CACHE=$(SANITIZED) LD_PRELOAD="$(LIBRARIES)" PYTHONMALLOC=malloc \
		ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 \
		$(BIN)/python -m pytest tests/launch/test_descriptors.py tests/launch/test_launcher.py \
		tests/launch/test_prepared.py tests/launch/test_words.py

docs: $(VENV)/.installed-docs
	$(BIN)/python -m mkdocs build --strict

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy
