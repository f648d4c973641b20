# Everything runs in virtual environments inside the checkout, which make themselves.
# Another Python than python3: make PYTHON=python3.12 ...

BIN := .venv/bin

# Scenarios wait more than they work.
TOGETHER := --numprocesses 4

# What a shell has set for other projects is not to be imported here.
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

.PHONY: venv
venv: ## the virtual environment of all the others, .venv
	@scripts/make-venv .venv constraints.txt '-e . --group dev'

.PHONY: demo
demo: venv ## training jobs through a real Airflow on the embedded cluster; a minute; KEEP=1 or 0
	@$(BIN)/python -m demo

# They are all run before their first test, so one process of pytest is enough.
EXAMPLES := tests/local/test_examples.py

.PHONY: test
test: check ## all checks, then all tests, on the newest Airflow and the embedded cluster
	$(BIN)/python -m pytest $(TOGETHER) --cov --ignore $(EXAMPLES)
	$(BIN)/python -m pytest $(EXAMPLES)

.PHONY: check
check: venv ## formatting, lint, types, layers, the site of the documents; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/mkdocs build

.PHONY: fmt
fmt: venv ## format, and mend what ruff can mend
	$(BIN)/ruff check --fix --exit-zero --silent .
	$(BIN)/ruff format .

.PHONY: test-lowest
test-lowest: ## the tests on the lowest versions that pyproject.toml allows
	@scripts/make-venv .venv-lowest constraints-lowest.txt '-e . --group test'
	.venv-lowest/bin/python -m pytest --numprocesses 4 tests/airflow tests/unit

.PHONY: test-pure
test-pure: ## the unit tests without Airflow, for another Python: make test-pure PYTHON=python3.10
	@python=$$(scripts/find-python) && \
	venv=.venv-pure-$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
	scripts/make-venv "$$venv" constraints.txt '--group pure' '--no-deps -e .' && \
	"$$venv/bin/python" -m pytest --numprocesses 4 tests/unit

.PHONY: control-plane
control-plane: venv ## build a real Kubernetes with the real operators, for tests; needs Go
	$(BIN)/python -m tests.control_plane build

PROFILE := training-operator

.PHONY: control-plane-up
control-plane-up: venv ## start it and keep it until Ctrl-C; another one: PROFILE=mpi-operator
	@$(BIN)/python -m tests.control_plane up --profile $(PROFILE)

.PHONY: test-real
test-real: control-plane ## the tests on that real Kubernetes, the fault matrix among them
	$(BIN)/python -m pytest tests/real
	$(BIN)/python -m pytest tests/cluster --target real $(TOGETHER)
	$(BIN)/python -m pytest tests/e2e/test_faults.py --target real

.PHONY: test-frameworks
test-frameworks: control-plane ## real training with PyTorch and Open MPI, on both clusters; installs them on Debian
	@scripts/install-frameworks
	$(BIN)/python -m pytest tests/frameworks --target local --target real

.PHONY: conformance
conformance: control-plane ## write docs/conformance.md anew: every scenario on both targets
	$(BIN)/python -m pytest tests/cluster --target local --target real $(TOGETHER)

.PHONY: recordings
recordings: control-plane ## write the recordings of that real Kubernetes anew, and the reports on them
	$(BIN)/python -m pytest tests/cluster --target real --record
	$(BIN)/python -m pytest tests/unit/test_recordings.py --write-golden

.PHONY: test-e2e
test-e2e: venv ## the tests on a real Airflow, and in a browser, installed on Debian: minutes
	@scripts/install-browser || test $$? -eq 2  # they say by name what is skipped
	$(BIN)/python -m pytest tests/e2e

.PHONY: docs
docs: venv ## write the generated pages anew, and the site into build/site
	$(BIN)/python -m docs.generate
	$(BIN)/mkdocs build

.PHONY: bench
bench: venv ## figures beside those of others, and docs/performance.md; 25 minutes, a minute with QUICK=1
	$(BIN)/python -m bench $(if $(QUICK),--quick)

# The day of constraints-lowest.txt: Airflow 3.1.0 with what was there when it was new. Later
# releases of what it depends on break it.
LOWEST_DAY := 2025-10-15
COMPILE := .venv-uv/bin/uv pip compile --quiet --universal --python-version 3.10 \
	--no-annotate --custom-compile-command 'make constraints' --no-emit-index-url --no-emit-find-links pyproject.toml

.PHONY: constraints
constraints: ## pin anew what pyproject.toml asks for; newest of all: make constraints UPGRADE=--upgrade
	@scripts/make-venv .venv-uv constraints.txt uv
	$(COMPILE) --group dev $(UPGRADE) --output-file constraints.txt
	$(COMPILE) --group test --resolution lowest-direct --exclude-newer $(LOWEST_DAY) \
		--output-file constraints-lowest.txt

.PHONY: clean
clean: ## remove everything that make, tests and tools have made
	rm -rf .venv .venv-lowest .venv-pure-* .venv-uv .coverage .demo build dist
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
