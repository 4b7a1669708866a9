# The shell logic is in scripts/; this file only says what depends on what.

BIN := .venv/bin
READY := .venv/.ready

# Test processes: make test WORKERS=4, or WORKERS=0 for none but the first.
WORKERS ?= 2
# More for pytest: make test PYTEST_ARGS="-k existence -x"
PYTEST_ARGS ?=
# More for the lock: make lock LOCK_ARGS=--upgrade
LOCK_ARGS ?=

# conftest.py has the order: long files first.
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo test test-slow test-compat test-kafka test-delta lint docs wheel lock clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf 'make %-10s %s\n' "$$name" "$$text"; done

setup: $(READY)  ## create .venv with the locked dependencies and the command streamshed

# A checkout that was copied or moved has a .venv made for another place.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif

$(READY): requirements.lock pyproject.toml
	@scripts/setup.sh

demo: setup  ## send a burst through Spark's own join and through ours, and compare them
	@$(BIN)/streamshed demo

test: lint docs  ## lint, build the docs, then run tests and doctests
	$(PYTEST) $(PYTEST_ARGS)

# The kernels read and write memory unchecked; once in a while the same tests run with every access
# checked.
test-slow: setup  ## run the long suites
	NUMBA_BOUNDSCHECK=1 $(PYTEST) tests/engine tests/lab/baselines tests/lab/network $(PYTEST_ARGS)
	NUMBA_BOUNDSCHECK=1 $(PYTEST) -m slow tests/spark/test_store.py -k elsewhere
	$(PYTEST) -m slow $(PYTEST_ARGS)

# Another Python: make test-compat PYTHON=python3.13. One Spark alone: make test-compat SPARKS=4.1
SPARKS ?= 4.1 4.2 4.3
test-compat: setup  ## run the Spark tests with every supported version of Spark
	PYTEST_ARGS="$(PYTEST_ARGS)" scripts/test-compat.sh $(SPARKS)

test-kafka: setup  ## test a join from Kafka to Kafka on a local broker; needs Maven
	@scripts/kafka.sh
	$(BIN)/pytest -m kafka tests/kafka $(PYTEST_ARGS)

test-delta: setup  ## a join into a Delta table, on a Spark that Delta is released for; needs Maven
	@PYTEST_ARGS="$(PYTEST_ARGS)" scripts/delta.sh

lint: setup  ## ruff, mypy, and the layers of the package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup  ## build the documentation in build/site; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --site-dir build/site

wheel: setup  ## build an sdist, and a wheel with the common kernels inside, in dist
	@scripts/wheel.sh

lock: setup  ## pin the dependencies of pyproject.toml in requirements.lock
	scripts/lock.sh $(LOCK_ARGS)

clean:  ## remove caches and build outputs (.venv stays)
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests scripts benchmarks examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
