PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: demo test check lint types bench matrix clean

demo: $(VENV)/installed ## An agent's conversation survives a kill; worth watching
	$(RUN) examples/demo.py

test: $(VENV)/installed ## Every test, as CI runs it
	$(RUN) -m pytest $(PYTEST_ARGS)

check: lint types ## What a change must pass beside the tests

lint: $(VENV)/installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(VENV)/installed
	$(RUN) -m mypy
	$(VENV)/bin/pyright --pythonpath $(RUN)

bench: $(VENV)/installed ## Ratios against a raw sqlite3 loop, measured side by side
	$(RUN) tests/benchmarks/sqlite_loop.py

matrix: $(VENV)/installed ## Which check catches which broken store
	$(RUN) -m tests.contract.matrix

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --editable '.[contract,dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
