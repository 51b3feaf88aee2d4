# Everything a developer runs. A bare machine needs only make and Python 3.11 or newer: each target makes what it needs.
.DEFAULT_GOAL := help
SHELL := /bin/sh
.DELETE_ON_ERROR:
# Whatever the shell says: without bytecode each process compiles all that it imports, which takes as long again as a start.
unexport PYTHONDONTWRITEBYTECODE

# The first of these that runs and is new enough; override with `make PYTHON=/path/to/python …`.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$python"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
# protoc looks for its plugins on PATH; the scripts take the interpreter from PYTHON, which here is not the caller's.
RUN := PATH="$(CURDIR)/$(BIN):$$PATH" PYTHON="$(CURDIR)/$(BIN)/python"
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Locks are installed as they are, and then checked: nothing is resolved on the user's machine. An old pip resolves an
# extra (`coverage[toml]`) apart from its pin, so a package that is released after the lock was written would break it.
# Modules are compiled when they are first imported: most never are.
INSTALL_LOCK := $(PIP) install --require-hashes --no-deps --no-compile
UV_VERSION := 0.13.9
# Empty keeps each pinned version that still fits: make lock UPGRADE=
UPGRADE ?= --upgrade
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes $(UPGRADE) \
	--no-emit-index-url --no-emit-find-links --no-emit-package turnwire-client --custom-compile-command "make lock"
FIXED := tests/contract/fixed
ARGS ?=

.PHONY: help
help: ## Lists the targets.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Stamps: a file is newer than what it was made from, so that a second run starts at once.

$(VENV)/created:
	@test -n "$(PYTHON)" || { echo "Turnwire needs Python 3.11 or newer, and none was found. Install one or name it:" \
		"make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Turnwire needs Python 3.11 or newer; $(PYTHON) is" \
		"$$("$(PYTHON)" --version 2>/dev/null || echo "not a Python that runs here")." >&2; exit 1; }
	@echo "Creating $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -m venv --clear $(VENV)
	@touch $@

$(VENV)/runtime: $(VENV)/created requirements.txt pyproject.toml clients/python/pyproject.toml
	@echo "Installing what Turnwire needs to run into $(VENV), once: it takes about a minute"
	@$(INSTALL_LOCK) -r requirements.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation -e clients/python -e .
	@$(PIP) check
	@touch $@

$(VENV)/dev: $(VENV)/runtime requirements-dev.txt
	@echo "Installing what the checks need into $(VENV), once: it takes about a minute"
	@$(INSTALL_LOCK) -r requirements-dev.txt
	@$(PIP) check
	@touch $@

$(VENV)/docs: $(VENV)/dev requirements-docs.txt
	@echo "Installing what the site of the documents needs"
	@$(INSTALL_LOCK) --quiet -r requirements-docs.txt
	@$(PIP) check
	@touch $@

$(VENV)/release: $(VENV)/runtime requirements-release.txt
	@echo "Installing what a release needs"
	@$(INSTALL_LOCK) --quiet -r requirements-release.txt
	@$(PIP) check
	@touch $@

# Its packages have the versions of those for the checks, so one folder does for both.
$(VENV)/adapters: $(VENV)/dev requirements-adapters.txt adapters/pyproject.toml
	@echo "Installing what the adapters need"
	@$(INSTALL_LOCK) --quiet -r requirements-adapters.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation -e adapters
	@$(PIP) check
	@touch $@

# buf alone, for those who only generate clients: the pinned version, checked by its hash as all packages are.
$(VENV)/buf: $(VENV)/created requirements-dev.txt
	@sed -n '/^buf-bin==/,/[^\\]$$/p' requirements-dev.txt >$(VENV)/buf.txt
	@$(INSTALL_LOCK) --quiet -r $(VENV)/buf.txt
	@touch $@

##  Run

.PHONY: setup buf terminal adapters demo serve bench plots
FIGURES ?= figures.json
setup: $(VENV)/dev ## Makes .venv with everything that development needs.
	@echo "Ready: $(VENV) with $$($(BIN)/python --version)"

buf: $(VENV)/buf ## Puts buf, which generates clients, into .venv/bin; nothing else.
	@echo "Ready: $(BIN)/buf $$($(BIN)/buf --version)"

terminal: $(VENV)/created ## Builds the terminal program, one file that needs nothing else, into .venv/bin. Needs Go.
	@command -v go >/dev/null || { echo "The terminal program needs Go 1.26 or newer, and none was found." >&2; exit 1; }
	@cd clients/go/cmd/turnwire && CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$(BIN)/turnwire-terminal \
		-ldflags "-s -w -X main.version=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' $(CURDIR)/server/turnwire/__init__.py)" .
	@echo "Ready: $(BIN)/turnwire-terminal"

adapters: $(VENV)/adapters ## Makes .venv/bin/turnwire-adapters, which serves other systems' clients.
	@echo "Ready: $(BIN)/turnwire-adapters serve NAME"

demo: $(VENV)/runtime ## Shows a whole conversation, without a key or a network.
	@$(BIN)/turnwire demo $(ARGS)
	@echo "In this folder, 'make serve' is that server."

serve: $(VENV)/runtime ## Starts the server with the web page on 127.0.0.1:8080. Other options: make serve ARGS="--help"
	@$(BIN)/turnwire serve $(or $(ARGS),--web 127.0.0.1:8080)

bench: $(VENV)/dev ## Measures and prints; asserts nothing. Keep the figures: make bench ARGS="--save figures.json"
	@$(BIN)/python -m bench $(ARGS)

plots: $(VENV)/dev ## Draws kept figures into docs/plots: make plots FIGURES=figures.json
	@$(BIN)/python -m bench.plots $(FIGURES) docs/plots

##  Check

.PHONY: test test-slow test-all test-adapters test-fault test-cluster verify lint typecheck proto-lint proto-breaking check-generate \
	check-requirements check-vectors
PYTEST := $(BIN)/python -m pytest -q -n auto --dist worksteal
# Two runs side by side, so that none imports the tests of the other: that is a quarter of the work. Each has half of the
# processors.
QUICK = $(BIN)/python -m pytest -q -m "not slow" -n $(shell "$(PYTHON)" -c \
	"import os; n = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count(); print(n // 2 if n > 3 else 0)")
test: $(VENV)/dev ## Runs the tests of each rule but the slow ones, or those that you name: make test ARGS="-k abort -x"
ifeq ($(strip $(ARGS)),)
	@$(MAKE) --no-print-directory --jobs 2 test-inside test-outside
else
	@$(BIN)/python -m pytest $(ARGS)
endif

.PHONY: test-inside test-outside
test-inside: $(VENV)/dev
	@$(QUICK) tests/unit tests/contract

test-outside: $(VENV)/dev
	@$(QUICK) tests/e2e tests/fault tests/fuzz clients/python/tests

TURNWIRE_EXAMPLES ?= 100
# One more than there are processors: many of them wait for a process to end or for a retry.
SLOW = $(BIN)/python -m pytest -q --dist worksteal -m "slow or hypothesis" -n $(shell "$(PYTHON)" -c \
	"import os; print(1 + (len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()))")
test-slow: $(VENV)/dev ## Runs the slow tests, and each property with many examples: make test-slow TURNWIRE_EXAMPLES=1000
	@TURNWIRE_EXAMPLES=$(TURNWIRE_EXAMPLES) $(SLOW) $(ARGS)

test-all: test test-slow ## Runs all tests.

test-adapters: $(VENV)/adapters ## Runs the tests of the adapters, or some: make test-adapters ARGS="-k cut -x"
	@$(BIN)/python -m pytest -q adapters/tests $(ARGS)

TURNWIRE_FAULT_SEED ?= 1
test-fault: $(VENV)/dev ## Lets disks, files and processes fail, for minutes: make test-fault TURNWIRE_FAULT_SEED=7
	@echo "TURNWIRE_FAULT_SEED=$(TURNWIRE_FAULT_SEED)"
	@TURNWIRE_FAULT_SEED=$(TURNWIRE_FAULT_SEED) $(PYTEST) $(or $(ARGS),tests/fault)

FAULTS ?= 15
ONLY ?=
test-cluster: $(VENV)/dev ## Lets three nodes, their database and their network fail, drawn by a seed: make test-cluster FAULTS=500 TURNWIRE_FAULT_SEED=7
	@TURNWIRE_FAULT_SEED=$(TURNWIRE_FAULT_SEED) TURNWIRE_CLUSTER_FAULTS=$(FAULTS) TURNWIRE_CLUSTER_ONLY="$(ONLY)" TURNWIRE_TEST_POSTGRES=1 \
		$(BIN)/python -m pytest -q -s tests/fault/test_nodes.py

# The fuzzer is no dependency, and builds of it are for Linux on x86-64 alone.
$(VENV)/atheris: $(VENV)/dev .ci/atheris.txt
	@echo "Installing the fuzzer"
	@$(INSTALL_LOCK) --quiet --upgrade --target $@ -r .ci/atheris.txt
	@touch $@

.PHONY: fuzz
fuzz: SECONDS ?= 60
fuzz: $(VENV)/atheris ## Feeds what parses foreign bytes, each target SECONDS long: make fuzz SECONDS=10 ARGS="sse web_body"
	@PYTHONPATH="$(CURDIR)/$(VENV)/atheris" $(BIN)/python -m tests.support.fuzzing --seconds $(SECONDS) $(ARGS)

.PHONY: attacks
attacks: $(VENV)/dev ## Attacks servers beside a neighbour, for two minutes, and judges memory, failed calls and refusals (Linux).
	@$(BIN)/python -m bench.attacks $(ARGS)

verify: lint typecheck proto-lint proto-breaking check-generate check-requirements test-all ## Runs every check.

lint: imports $(VENV)/adapters ## Checks style, formatting and import rules.
	@cd adapters && ../$(BIN)/lint-imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: imports
imports: $(VENV)/dev
	@$(BIN)/lint-imports

typecheck: $(VENV)/adapters ## Checks types.
	@$(BIN)/mypy
	@cd adapters && ../$(BIN)/mypy

proto-lint: $(VENV)/dev ## Checks the style and the comments of the contract.
	@$(BIN)/buf lint

proto-breaking: $(VENV)/dev ## Compares the contract with the main branch (or BASE=ref) and with the fixed contract.
	@$(RUN) BASE="$(BASE)" ./proto/check_breaking.sh

check-generate: $(VENV)/dev ## Checks that generated/ is what proto/ gives.
	@$(RUN) ./proto/check_generated.sh

check-requirements: $(VENV)/release $(VENV)/dev ## Checks that the lock files are those of pyproject.toml and name no address.
	@$(PIP) check
	@$(BIN)/python -m release.requirements check
	@if grep -nE '://|--(index-url|extra-index-url|find-links|trusted-host)|(^|[ @])(file:|\.{0,2}/)' \
		requirements*.txt examples/typescript/package-lock.json clients/typescript/package-lock.json \
		console/package-lock.json adapters/tests/responses/programs/package-lock.json; then \
		echo "The lock files name an address or a path." >&2; exit 1; fi

check-vectors: $(VENV)/dev ## Checks that clients/vectors/ is what the server says today.
	@$(BIN)/python -m tests.support.vectors --check

SEED ?= 1
COUNT ?= 200
.PHONY: mutants soak
# In a folder of its own: only these tests need it, and it changes no version of what the others use.
$(VENV)/mutants: $(VENV)/dev .ci/mutants.txt
	@echo "Installing what makes mutants"
	@$(INSTALL_LOCK) --quiet --upgrade --target $@ -r .ci/mutants.txt
	@touch $@

mutants: $(VENV)/mutants ## Tests the tests: COUNT changes drawn by SEED, and which of them no test notices. Takes hours.
	@PYTHONPATH=$(VENV)/mutants $(BIN)/python -m tests.support.mutants --seed $(SEED) --count $(COUNT) $(ARGS)

soak: SECONDS ?= 600
soak: $(VENV)/dev ## Churns everything for SECONDS, drawn by SEED: the server must end where it began.
	@$(BIN)/python -m tests.support.soak.run --seconds $(SECONDS) --seed $(SEED)

##  Change

.PHONY: fix generate docs generate-clients vectors fixed-image console lock build clean
fix: $(VENV)/dev ## Repairs what can be repaired: style, formatting, generated code.
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(MAKE) --no-print-directory generate

generate: $(VENV)/dev ## Writes generated/ from proto/, and the documents that are generated.
	@rm -rf generated/python
	@$(RUN) ./proto/generate.sh "$(CURDIR)/generated/python"
	@$(BIN)/python -m docs.reference

docs: $(VENV)/docs ## Builds the site of the documents into build/site, and checks its links.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

# Each client has a generate.sh of its own. Those whose language is not installed here stay as they are.
generate-clients: $(VENV)/dev ## Writes the stubs of the clients in clients/ from proto/.
	@for script in clients/*/generate.sh; do $(RUN) "$$script" || exit 1; done

vectors: $(VENV)/dev ## Writes clients/vectors/ from the event streams of a server.
	@$(BIN)/python -m tests.support.vectors

NEEDS_NODE := command -v npm >/dev/null || { echo "Building the console needs Node 20.19 or newer with npm, and none was found." \
	"A server needs no build: server/turnwire/console/ has the built page." >&2; exit 1; }
# npm installs only when the lock file changed; the same sources give the same bytes.
console/node_modules/.package-lock.json: console/package-lock.json console/package.json
	@$(NEEDS_NODE)
	@cd console && npm ci --no-audit --no-fund --silent
	@touch $@

console: console/node_modules/.package-lock.json ## Builds the web page into server/turnwire/console/. Needs Node 20.19 or newer.
	@$(NEEDS_NODE)
	@cd console && npm run --silent check && npm run --silent build

# The fixed contract never changes. This target exists to show how the image was made, and to make it again if its
# sources are ever found to differ from the contract that clients were built from.
fixed-image: $(VENV)/dev ## Writes the descriptor image of the fixed contract.
	@$(BIN)/buf build $(FIXED) --exclude-source-info --output $(FIXED)_contract.binpb

lock: $(VENV)/created ## Writes requirements*.txt from pyproject.toml with the newest versions allowed.
	@$(PIP) install --quiet uv==$(UV_VERSION)
	@$(LOCK) pyproject.toml --group build --extra uvloop --output-file requirements.txt
	@$(LOCK) pyproject.toml --group dev --constraint requirements.txt --output-file requirements-dev.txt
	@$(LOCK) pyproject.toml --group release --constraint requirements-dev.txt --output-file requirements-release.txt
	@$(LOCK) pyproject.toml --group docs --constraint requirements-dev.txt --output-file requirements-docs.txt
	@$(LOCK) pyproject.toml --extra uvloop --constraint requirements-dev.txt --output-file requirements-server.txt
	@$(LOCK) pyproject.toml --all-extras --constraint requirements-dev.txt --output-file requirements-extras.txt
	@$(LOCK) adapters/pyproject.toml --constraint requirements-dev.txt --output-file requirements-adapters.txt
	@$(MAKE) --no-print-directory $(VENV)/release
	@$(BIN)/python -m release.requirements stamp

# docs/internals/release.md has the variables: WITHOUT, PLATFORMS and PYTHON_IMAGE.
build: $(VENV)/release ## Builds a release into dist/. Needs Node and Go, or: make build WITHOUT="typescript terminal"
	@$(BIN)/python -m release.build --without $(WITHOUT) --platforms $(PLATFORMS) --python-image "$(PYTHON_IMAGE)"

clean: ## Removes .venv, dist and caches.
	@rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
