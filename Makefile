# Everything a fresh machine needs: Python 3.11+, pip, make and the package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
export RAY_USAGE_STATS_ENABLED := 0
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: help install quickstart test test-slow test-all lint format clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(INSTALLED) ## Create .venv and install tuneparts with its tools

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(INSTALLED)

quickstart: install ## Answer a question on this machine in minutes (handwritten digits, no downloads)
	$(BIN)/tuneparts search rotated_digits

test: install ## Run the tests (minutes)
	$(BIN)/pytest -m "not slow"

test-slow: install ## Run the slow tier: faults struck for real, browsers, fuzzing
	$(BIN)/pytest -m slow

test-all: test test-slow ## Run all tests

lint: install ## Check format, style, types and known vulnerabilities
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	.ci/audit $(BIN)

format: install ## Rewrite files in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove the environment and caches; results stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
