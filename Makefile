PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
COMPOSE ?= docker compose
WORKERS ?= 2
PYTEST = $(RUN) -m pytest --numprocesses $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: demo test test-compose up down check lint types bench matrix points clean

demo: $(VENV)/installed ## An agent's conversation survives a kill; worth watching
	$(RUN) examples/demo.py

test: $(VENV)/installed ## Every test, as CI runs it
	$(PYTEST)

up: ## The servers of the tests in containers, healthy when this returns
	$(COMPOSE) up --detach --wait

down: ## Remove them and their data
	$(COMPOSE) down --volumes

test-compose: export TOOLNEXUS_TEST_POSTGRES_URL = postgresql://toolnexus:not-a-secret@127.0.0.1:15432/toolnexus
test-compose: export TOOLNEXUS_TEST_REDIS_URL = redis://:not-a-secret@127.0.0.1:16379/0
test-compose: export TOOLNEXUS_TEST_S3_URL = s3://toolnexus/tests?endpoint_url=http://127.0.0.1:18333&region=us-east-1&addressing_style=path
test-compose: export AWS_ACCESS_KEY_ID = toolnexus
test-compose: export AWS_SECRET_ACCESS_KEY = toolnexus-secret
test-compose: $(VENV)/installed ## Every test, against the servers that `make up` started
	$(PYTEST)

check: lint types ## What a change must pass beside the tests

lint: $(VENV)/installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(VENV)/installed
	$(RUN) -m mypy
	$(VENV)/bin/pyright --pythonpath $(RUN)

bench: $(VENV)/installed ## Ratios against the raw drivers, measured side by side
	$(RUN) -m tests.benchmarks.sqlite_loop
	$(RUN) -m tests.benchmarks.servers
	$(RUN) -m tests.benchmarks.compacting

matrix: $(VENV)/installed ## Which check catches which broken store
	$(RUN) -m tests.contract.matrix

points: $(VENV)/installed ## What each promise of README was tested with, anew
	$(RUN) -m tests.contract.points

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --editable '.[all,dev,servers]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
