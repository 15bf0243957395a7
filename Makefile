# One Makefile for newcomers, contributors, pre-commit and CI. `make help` lists the targets.
# PYTHON=python3.12 chooses the interpreter, VENV=... the folder of the virtual environment.

VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# `make bench SMALL=1` takes every step of `make bench` on small data, in a folder of its own.
SUITES := $(if $(SMALL),quick quick-ablations quick-estimator,tabular ablations estimator stsb-modern)
BENCH := $(if $(SMALL),--out tailwise-bench-small --seeds 1 --epochs 1 --trials 1,)
MIN_PYTHON := 3, 11
# PyTorch and MKL compute without vector instructions, in one thread. No test may depend on how numbers are rounded.
OLD_PROCESSOR := ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 OMP_NUM_THREADS=1

# The first interpreter that is new enough. Used only when the environment is created.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < ($(MIN_PYTHON)))' >/dev/null 2>&1; \
	then echo $$p; break; fi; done)

# Packages are compiled on first import, because pip is called with --no-compile. Without compiled files, importing
# torch would take twice as long in every process.
unexport PYTHONDONTWRITEBYTECODE

# Every install uses the constraints, so that no other version of torch is installed.
INSTALL := $(BIN)/python -m pip install -qq --no-input --no-compile --disable-pip-version-check \
	--constraint constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo pictures test coverage slow slowtest gputest golden fuzz lint format bench docs tutorials clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  make \1\t/' | expand -t 16

demo: $(VENV)/.installed  ## train on the bundled table, print the comparison, save the picture
	$(BIN)/tailwise demo --force

pictures: demo  ## make the pictures of the documentation from new runs (needs Chromium)
	mkdir -p docs/img && cp tailwise-demo/demo.png docs/img/demo.png
	cp tailwise-demo/results.jsonl research/results/demo.jsonl
	PATH="$(abspath $(BIN)):$$PATH" bash examples/pictures.sh docs/img

test: lint  ## lint, type-check and run the tests
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

coverage: $(VENV)/.installed-dev  ## run the same tests with branch coverage, which takes half as long again
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow" --cov --cov-report=term $(ARGS)

slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m slow $(ARGS)

slowtest: slow  ## run the slow tests, and the others with the arithmetic of an old processor
	$(OLD_PROCESSOR) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

gputest: $(VENV)/.installed-dev  ## run the tests that need a GPU
	TAILWISE_TEST_GPU=1 $(BIN)/python -m pytest -q -m gpu $(ARGS)

fuzz: $(VENV)/.installed-dev  ## attack with 5,000 mutated models, 1,500 targeted ones and 500 tables
	$(BIN)/python -W ignore research/studies/fuzz.py $(ARGS)

golden: $(VENV)/.installed-dev  ## say what users see differently than at BASE=COMMIT, on this machine
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.golden.record --base $(BASE)

lint: $(VENV)/.installed-dev  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.installed-dev  ## fix what ruff can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: RUN = $(BIN)/tailwise-bench run --workers $(WORKERS) $(BENCH)
bench: $(VENV)/.installed-dev  ## compare the methods (research/results/), time a step; SMALL=1: a trial in minutes
	set -e; for suite in $(SUITES); do echo "== $$suite"; $(RUN) $$suite; done
	$(BIN)/python research/studies/step_overhead.py

# mkdocs is not called with -q, which would hide the warnings that --strict counts.
docs: $(VENV)/.installed-dev  ## check the documentation, and build its site into site/
	$(BIN)/python docs/check_figures.py
	$(BIN)/python -m pytest -q tests/docs -m "not slow"
	$(BIN)/python -m pytest -q research/tests/test_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

tutorials: $(VENV)/.installed-dev  ## run the tutorials and write their notebooks
	$(BIN)/python docs/notebooks.py $(ARGS)

clean:  ## remove the environment, caches and demo output
	rm -rf $(VENV) tailwise-demo tailwise-bench-small site build dist .coverage .coverage.* htmlcov
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests research examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# An installation is repeated only when one of these files changes.
$(VENV)/.installed: pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ] || ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < ($(MIN_PYTHON)))'; then \
		echo "tailwise needs Python 3.11 or later; found: '$(PYTHON)'." \
			"Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; fi
	@echo "Installing tailwise into $(VENV) (once; torch is large)"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed research/pyproject.toml
	@echo "Installing the development tools into $(VENV)"
	@$(INSTALL) --editable '.[dev]' --editable research
	@touch $@
