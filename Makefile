# Everything runs in virtual environments in the checkout, which are created when they are needed.
# To use another Python than python3: make PYTHON=python3.12 ...

BIN := .venv/bin

# The provider and its embedded cluster.
BOTH := -e . -e ./kftrain-local

# More processes than cores: scenarios mostly wait.
TOGETHER := --numprocesses 4

# What a shell has set for other projects is not to be imported here, nor is each start of Python, of
# which the tests make thousands, to compile all modules anew.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

.PHONY: venv
venv: ## create the virtual environment of the other targets, .venv
	@scripts/make-venv .venv constraints.txt '$(BOTH) --group dev'

.PHONY: demo
demo: venv ## run training jobs through a real Airflow on the embedded cluster; a minute or two; KEEP=1 or 0
	@$(BIN)/python -m demo

CORE := tests/e2e/test_core.py
CONTRACT := tests/cluster/contract

# The longest tests come first. An idle process steals tests from the others, so tests
# that share a fixture mostly stay together.
.PHONY: test
test: check ## run all checks, then the tests on the newest Airflow and the embedded cluster
	$(BIN)/python -m pytest $(TOGETHER) --dist worksteal --ignore $(CONTRACT) \
		tests/local tests/packaging tests/airflow tests/cluster tests/unit

.PHONY: test-contract
test-contract: venv ## what the embedded cluster and the real one do alike, on the embedded one
	$(BIN)/python -m pytest $(TOGETHER) --dist worksteal $(CONTRACT)

.PHONY: check
check: venv ## check formatting, lint, types, layers, documents and changelog; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m docs.generate --check
	$(BIN)/mkdocs build
	$(BIN)/towncrier build --draft --version next >build/changelog.md

.PHONY: fmt
fmt: venv ## format, and fix what ruff can fix
	$(BIN)/ruff check --fix --exit-zero --silent .
	$(BIN)/ruff format .

.PHONY: test-lowest
test-lowest: ## run the tests on the lowest versions that pyproject.toml allows
	@scripts/make-venv .venv-lowest constraints-lowest.txt '$(BOTH) --group test'
	.venv-lowest/bin/python -m pytest --numprocesses 4 tests/airflow tests/unit
	.venv-lowest/bin/python -m pytest $(CORE)

.PHONY: test-next
test-next: ## run the tests on the next Airflow or its pre-release; needs Python 3.11
	@scripts/make-venv .venv-next constraints-next.txt '$(BOTH) --group test --group e2e'
	@scripts/install-browser || test $$? -eq 2  # the tests name what is skipped
	.venv-next/bin/python -m pytest --numprocesses 4 tests/airflow
	.venv-next/bin/python -m pytest $(CORE) tests/e2e/test_training_tab.py

.PHONY: test-pure
test-pure: ## run the unit tests without Airflow on another Python: make test-pure PYTHON=python3.10
	@python=$$(scripts/find-python) && \
	venv=.venv-pure-$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
	scripts/make-venv "$$venv" constraints.txt '--group pure' '--no-deps $(BOTH)' && \
	"$$venv/bin/python" -m pytest --numprocesses 4 tests/unit $(COV)

.PHONY: coverage
coverage: ## the same, and how much of the pure modules they reach; at least 95 %
	@$(MAKE) test-pure COV=--cov

.PHONY: control-plane
control-plane: venv ## build a real Kubernetes with the real operators, for tests; needs Go
	$(BIN)/python -m tests.control_plane build

.PHONY: schemas
schemas: control-plane ## rewrite the embedded cluster's schemas, from what that real Kubernetes publishes
	$(BIN)/python -m tests.control_plane schemas

PROFILE := training-operator

.PHONY: control-plane-up
control-plane-up: venv ## start it and keep it running until Ctrl-C; PROFILE=mpi-operator for MPIJob v2beta1
	@$(BIN)/python -m tests.control_plane up --profile $(PROFILE)

# GATE=1 runs only the part of the slow suites that every change has to pass.
ONLY := $(if $(GATE),-m gate)
FAULTS := tests/e2e/test_faults.py $(ONLY)

.PHONY: test-real
test-real: control-plane ## run the tests on that real Kubernetes, including the fault matrix
	$(BIN)/python -m pytest tests/real
	$(if $(GATE),,$(BIN)/python -m pytest tests/cluster --target real $(TOGETHER))
	$(BIN)/python -m pytest $(FAULTS) --target real

.PHONY: test-frameworks
test-frameworks: control-plane ## real training with PyTorch, Open MPI and TensorFlow, on both clusters; installs them on Debian
	@scripts/install-frameworks
	$(BIN)/python -m pytest tests/frameworks --target local --target real

.PHONY: conformance
conformance: control-plane ## rewrite docs/conformance.md: run every scenario on both targets
	$(BIN)/python -m pytest tests/cluster --target local --target real $(TOGETHER)

.PHONY: recordings
recordings: control-plane ## rewrite the recordings of that real Kubernetes, and the reports on them
	$(BIN)/python -m pytest tests/cluster --target real --record
	$(BIN)/python -m pytest tests/unit/test_recordings.py --write-golden

POSTGRES := tests/e2e/test_postgres.py

.PHONY: test-e2e
test-e2e: venv ## run the tests on a real Airflow and in a browser, which it installs on Debian; minutes
	@scripts/install-browser || test $$? -eq 2  # the tests name what is skipped
	$(BIN)/python -m pytest tests/e2e --ignore $(POSTGRES) --ignore tests/e2e/test_faults.py $(ONLY)
	$(BIN)/python -m pytest $(FAULTS)

.PHONY: test-postgres
test-postgres: venv ## inject faults on PostgreSQL with two schedulers; installs it on Debian; 15 minutes
	@scripts/install-postgres || test $$? -eq 2  # the tests name what is skipped
	$(BIN)/python -m pytest $(POSTGRES)

.PHONY: everything
everything: ## all that .ci/run runs, and all that it leaves out: hours; notes it in .ci/everything.txt
	.ci/run everything

.PHONY: docs
docs: venv ## regenerate the generated pages, and build the site in build/site
	$(BIN)/python -m docs.generate
	$(BIN)/mkdocs build

.PHONY: changelog
changelog: venv ## move the fragments of changelog.d into CHANGELOG.md: make changelog VERSION=0.1.0
	$(BIN)/towncrier build --yes --version $(VERSION)

.PHONY: bench
bench: venv ## measure performance, and write docs/performance.md; 25 minutes, a minute with QUICK=1
	$(BIN)/python -m bench $(if $(QUICK),--quick)

# The date of constraints-lowest.txt: Airflow 3.1.1 with the dependencies of that time. Later releases
# of its dependencies break it.
LOWEST_DAY := 2025-10-29
# The Airflow of constraints-next.txt, which needs Python 3.11. Only of these packages pre-releases
# are used.
NEXT := apache-airflow>=3.4.0b1 apache-airflow-core>=3.4.0b1 apache-airflow-task-sdk>=1.4.0b1
COMPILE := .venv-uv/bin/uv pip compile --quiet --universal --no-annotate \
	--custom-compile-command 'make constraints' --no-emit-index-url --no-emit-find-links \
	pyproject.toml kftrain-local/pyproject.toml

.PHONY: constraints
constraints: ## pin what pyproject.toml requires; the newest versions: make constraints UPGRADE=--upgrade
	@scripts/make-venv .venv-uv constraints.txt uv
	$(COMPILE) --python-version 3.10 --group dev $(UPGRADE) --output-file constraints.txt
	$(COMPILE) --python-version 3.10 --group test --resolution lowest-direct \
		--exclude-newer $(LOWEST_DAY) --output-file constraints-lowest.txt
	printf '%s\n' $(NEXT:%='%') | \
		$(COMPILE) --python-version 3.11 --group test --group e2e $(UPGRADE) --output-file constraints-next.txt -

.PHONY: clean
clean: ## remove everything that make, tests and tools have created
	rm -rf .venv .venv-lowest .venv-next .venv-pure-* .venv-uv .coverage .demo build dist
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
