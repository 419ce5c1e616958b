# Every target sets up what it needs: python3 (3.11 or newer, with venv and pip) is enough.
#   PYTHON=python3.12 make test     another interpreter
#   TORCH=torch==2.12.0 make test   another torch of the supported range

PYTHON ?= python3
# Installed before everything else, so that no later step chooses another build of it.
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ADAPTERS ?= .venv-integrations
ADAPTED := $(ADAPTERS)/.installed
PEERS := $(VENV)/.peers
PYTEST_ARGS ?=
BENCH_ARGS ?=

# Nothing is fetched from a model hub at run time: the models are packages (the extra `offline`).
export HF_HUB_OFFLINE = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Bytecode is written even where containers forbid it: every command that the tests start would
# compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test integrations bench lint format wheel clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## create .venv and install the package in it, editable, with all development tools

$(STAMP): pyproject.toml
	@echo "setting up $(VENV) (once; a few minutes)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[offline,dev]"
	@touch $@

demo: $(STAMP)  ## graph memory beside a flat search, on a conversation written for it
	$(BIN)/graphmem demo

test: $(STAMP)  ## the whole test suite
	$(BIN)/python -m pytest $(PYTEST_ARGS)

$(ADAPTED): pyproject.toml
	@echo "setting up $(ADAPTERS) (once; a few minutes)"
	test -x $(ADAPTERS)/bin/python || $(PYTHON) -m venv $(ADAPTERS)
	$(ADAPTERS)/bin/python -m pip install --quiet "$(TORCH)"
	$(ADAPTERS)/bin/python -m pip install --quiet --editable ".[offline,integrations]"
	@touch $@

integrations: $(ADAPTED)  ## the adapters, against the real packages
	ALL_ADAPTERS=1 $(ADAPTERS)/bin/python -m pytest tests/integrations $(PYTEST_ARGS)

$(PEERS): $(STAMP)
	@echo "installing the peers that the benchmarks compare with (once)"
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	@touch $@

bench: $(PEERS)  ## speed against the best peers; BENCH_ARGS="--json OUT -k NAME"
	$(BIN)/python -m bench.perf $(BENCH_ARGS)

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(STAMP)  ## dist/*.whl and dist/*.tar.gz
	$(BIN)/python -m build --no-isolation

clean:  ## remove everything that the targets made
	rm -rf $(VENV) $(ADAPTERS) dist build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .benchmarks
