# Every target makes .venv first, or refreshes it when pyproject.toml has changed.
# It needs Python 3.11 or newer and an index of packages; `make` alone lists the targets.

PYTHONS := python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for python in $(PYTHONS); do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
SEED := $(shell date +%s)
STAMP := .venv/.made
BIN := .venv/bin
BENCHMARKS := $(wildcard benchmarks/[!_]*.py)

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help venv demo check test coverage test-long fmt bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

venv: $(STAMP) ## make .venv with everything that the other targets need
	@:

demo: $(STAMP) ## eight peers on real digits, about 4 minutes: leaves runs/demo/
	@$(BIN)/peer launch deploy/examples/demo.toml --out runs/demo

check: $(STAMP) ## formatting, lint, direction of imports, types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/mypy
	@[ -z "$(BENCHMARKS)" ] || $(BIN)/mypy $(BENCHMARKS)

test: $(STAMP) ## a sample of every kind of test, at most 5 minutes
	@$(BIN)/pytest -q -m "not long"

test-long: $(STAMP) ## all tests, many examples, in a random order; SEED=... repeats one
	@echo "to repeat: make test-long SEED=$(SEED)"
	@PYTHONHASHSEED=$$(( $(SEED) % 4294967296 )) $(BIN)/pytest -q --durations=10 \
		--hypothesis-profile=long --hypothesis-seed=$(SEED) --order-seed=$(SEED)

METHODS := mixers solvers aggregators
coverage: $(STAMP) ## every branch of the methods in the three slots is taken by a test, about 2 minutes
	@$(BIN)/pytest -q -m "not long" tests/contracts tests/unit/aggregators tests/unit/common \
		tests/unit/families tests/unit/methods tests/unit/solvers tests/unit/training \
		$(METHODS:%=--cov=peer.%) --cov-branch --cov-report=term --cov-fail-under=100

fmt: $(STAMP) ## format, and mend what can be mended by machine
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix-only .

bench: $(STAMP) ## the benchmarks in turn, one line of JSON each
	@failed=; for script in $(BENCHMARKS); do \
		$(BIN)/python $$script || failed="$$failed $$script"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

clean: ## remove caches and builds; runs/, shards/ and .venv stay
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov \
		dist build *.egg-info
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# torch is large: the first time takes minutes. An interrupted set-up goes on where it stopped.
$(STAMP): pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "there is no Python 3.11 or newer among: $(PYTHONS)" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; \
		exit 2; }
	@echo "setting up .venv with $(PYTHON): some minutes the first time"
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
