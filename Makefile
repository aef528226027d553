# Everything runs from .venv. A stamp records a finished install, so that a second call costs nothing and one that
# was cut short starts again.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
RUNTIME := .venv/.installed
TEST := .venv/.installed-test

.PHONY: install serve test lint format bench lock docs clean
.DEFAULT_GOAL := install

install: $(RUNTIME)

# The last pip line adds what a CUDA build of torch needs on machines that get one; a CPU build has all it needs.
$(RUNTIME): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Tailrace needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python3' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) install --no-deps -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	$(PIP) install --quiet -c requirements.lock torch
	@touch $@

$(TEST): requirements-test.lock $(RUNTIME)
	$(PIP) install --no-deps -r requirements-test.lock
	@touch $@

serve: $(RUNTIME)
	@exec $(BIN)/tailrace serve $(ARGS)

lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(TEST)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Threads of OpenMP that wait by sleeping: the tests run several processes on few cores.
test: export OMP_WAIT_POLICY ?= PASSIVE
test: lint
	$(BIN)/python -m pytest $(ARGS)
	$(BIN)/python -m benchmarks.gateway --smoke

bench: $(TEST)
	$(BIN)/python -m benchmarks.gateway $(ARGS)

lock: $(TEST)
	$(BIN)/python deploy/lock.py

docs: $(TEST)
	$(BIN)/python -m deploy.docs_blocks

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
