# Everything a fresh machine needs: Python 3.11+, pip, make and the package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Clusters, servers and browsers are killed on purpose in the slow tier: what they leave open is no fault.
KILLED := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning
INSTALLED := $(VENV)/.installed
export RAY_USAGE_STATS_ENABLED := 0
export MLFLOW_DISABLE_TELEMETRY := true
# Ray's workers are polite by default, and would starve beside the other tests.
export RAY_worker_niceness := 0
# Without compiled files every process compiles the tests and the package anew.
unexport PYTHONDONTWRITEBYTECODE

# A worker per core and one more, since the tests of Ray wait more than they compute. Tests that share
# something costly stay together (tests/conftest.py).
WORKERS := $(shell $(PYTHON) -c "import os; print(min(os.cpu_count() or 1, 8) + 1)")
PARALLEL := -n $(WORKERS) --dist loadscope --no-loadscope-reorder

.PHONY: help install quickstart quick test test-slow test-all fuzz faults map docs lint format clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(INSTALLED) ## Create .venv and install tuneparts with its tools

# Every file by its hash, but for torch, whose builds differ: that one by its version.
$(INSTALLED): pyproject.toml constraints.txt requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(INSTALLED)

quickstart: install ## Answer a question on this machine in minutes (handwritten digits, no downloads)
	$(BIN)/tuneparts search rotated_digits

quick: install ## Run the unit tests alone, between two edits (a minute)
	$(BIN)/pytest $(PARALLEL) -m "not slow and not ray and not mlflow and not browser and not contract"

test: install ## Run the tests (minutes)
	$(BIN)/pytest $(PARALLEL) --durations=15 -m "not slow"

test-slow: install ## Run the slow tier: faults struck for real, fuzzing
	$(BIN)/pytest --durations=15 -m slow $(KILLED)

fuzz: install ## Feed sixty thousand broken inputs to the readers of data, images, configs and pages (under a minute on an idle machine)
	$(BIN)/pytest $(PARALLEL) tests/fuzz

test-all: test test-slow ## Run all tests

faults: install ## Strike seventeen faults at a real search (JSON=1: as JSON; ONLY="driver killed": one)
	@$(BIN)/python -m tests.harness $(if $(JSON),--json) $(if $(ONLY),--only "$(ONLY)")

map: ## Write docs/map.md anew: the rooms and what each is for
	$(PYTHON) docs/map.py > docs/map.md

docs: .venv-docs/.installed ## Build the site into site/, strictly (seconds)
	.venv-docs/bin/python docs/site.py

# An environment of its own, so that the tested one stays lean.
.venv-docs/.installed: docs/requirements.txt
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --requirement docs/requirements.txt
	touch .venv-docs/.installed

lint: install ## Check format, style, types and known vulnerabilities
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	.ci/audit $(BIN)

format: install ## Rewrite files in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove the environment and caches; results stay
	rm -rf $(VENV) .venv-audit .venv-docs site .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
