# Everything a developer does here is one target; `make help` lists them.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

# The first Python of 3.11 or later on PATH; `make PYTHON=...` picks another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
SOURCES = $(wildcard src tests examples bench tools)

# $(call apt,COMMAND,PACKAGE): unless COMMAND succeeds, install PACKAGE where we may, else say so.
define apt
	@if ! { $(1); } >/dev/null 2>&1; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install $(2) >/dev/null; \
		else echo "please install $(2) first (as root: apt-get install $(2))" >&2; exit 1; fi; \
	fi
endef

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: .venv/.stamp .tools/.stamp ## install everything into .venv and .tools

# An environment without pip is one whose making failed halfway, so it is made again.
# The constraints hold for the build backend too: pip reads the second variable from 25.3 on, before that the first.
.venv/.stamp: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed" >&2; exit 1; }
	$(call apt,test -x $(BIN)/pip || $(PYTHON) -c 'import ensurepip',python3-venv)
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
		$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# npm 11 runs no install scripts unless told to, npm 10 runs them all; we ask for none, and need none:
# Node itself comes as a plain package for this platform. npm 10 does not link its binary, so we do.
# Scripts in tests/ts find their imports through a link, because ESM ignores NODE_PATH.
.tools/.stamp: tools/package.json
	@command -v npm >/dev/null || { echo "npm is needed" >&2; exit 1; }
	@rm -rf .tools && mkdir -p .tools/bin tests/ts && cp tools/package.json .tools/
	npm install --prefix .tools --ignore-scripts --no-package-lock --engine-strict=false \
		--no-audit --no-fund --no-progress --loglevel=error >/dev/null
	@cd .tools/bin && ln -s ../node_modules/node-*/bin/node node
	@.tools/bin/node --version >/dev/null || { echo "no Node 22 for this platform" >&2; exit 1; }
	@ln -sfn ../../.tools/node_modules tests/ts/node_modules
	@touch $@

# Real agents for the tests of delegation, in a folder of their own: they are large, and nothing else needs them.
.PHONY: agents
agents: .agents/.stamp ## install the real agents of the tests into .agents

.agents/.stamp: tools/agents/package.json .tools/.stamp
	@rm -rf .agents && mkdir .agents && cp tools/agents/package.json .agents/
	npm install --prefix .agents --ignore-scripts --no-package-lock --engine-strict=false \
		--no-audit --no-fund --no-progress --loglevel=error >/dev/null
	@touch $@

# More of them, over a gigabyte, for the long forms of tests only. Their install scripts, which do not run, would only copy
# each program out of its platform's package; the tests start it from there.
.PHONY: clients
clients: .clients/.stamp ## install large real clients and agents into .clients, for make soak

.clients/.stamp: tools/clients/package.json .tools/.stamp
	@rm -rf .clients && mkdir .clients && cp tools/clients/package.json .clients/
	npm install --prefix .clients --ignore-scripts --no-package-lock --engine-strict=false \
		--no-audit --no-fund --no-progress --loglevel=error >/dev/null
	@touch $@

# What compiles JavaScript to components for the tests: 340 MB that nothing else needs.
.PHONY: wasm-tools
wasm-tools: .wasm-tools/.stamp ## install the compiler of JavaScript components into .wasm-tools

.wasm-tools/.stamp: tools/wasm/package.json .tools/.stamp
	@rm -rf .wasm-tools && mkdir .wasm-tools && cp tools/wasm/package.json .wasm-tools/
	npm install --prefix .wasm-tools --ignore-scripts --no-package-lock --engine-strict=false \
		--no-audit --no-fund --no-progress --loglevel=error >/dev/null
	@touch $@

# A program that others sign with. It is unpacked, not installed.
.PHONY: cosign
cosign: .cosign/.stamp ## unpack cosign of Debian's trixie into .cosign

.cosign/.stamp: tools/cosign.sh
	@rm -rf .cosign && mkdir .cosign
	sh tools/cosign.sh .cosign
	@touch $@

.PHONY: run
run: setup ## a gateway over several real servers, to look at and to add to a client
	$(BIN)/python -m examples.demo

.PHONY: check
check: .venv/.stamp ## lint, formatting, types and import contracts, in seconds; advice on wording
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports --no-logo
	-@$(BIN)/python -m tools.wording --most 10

.PHONY: unit
unit: .venv/.stamp ## the fast tests only
	$(BIN)/pytest -q -n 4 --dist loadgroup -m "not slow"

# Tests that must not run beside each other share an xdist_group. What they need of Debian comes along where we may
# install it; elsewhere those few are skipped, but not on CI.
.PHONY: test
test: setup agents wasm-tools cosign check ## everything: checks, unit tests and the slow suites
	$(call apt,{ command -v wrk && command -v openssl && command -v haproxy && command -v nginx && command -v zsh && command -v fish && command -v bwrap && command -v tmux && command -v systemd-analyze && command -v docker-registry && command -v skopeo && command -v chromium-headless-shell; } || test "$$(id -u)" != 0,wrk openssl haproxy nginx-light zsh fish bubblewrap tmux systemd docker-registry skopeo chromium-headless-shell)
	$(BIN)/pytest -q -n 4 --dist loadgroup

# One at a time: each wants the machine for itself.
.PHONY: soak
soak: setup agents clients wasm-tools ## the long forms of the tests that have one; keeps the result in docs/develop/soak.md
	$(call apt,{ command -v wrk && command -v haproxy; },wrk haproxy)
	$(BIN)/python -m tests.soak

.PHONY: bench
bench: setup agents wasm-tools ## measure against peers in the same run
	$(call apt,command -v wrk,wrk)
	$(BIN)/python -m bench

.PHONY: bench-search
bench-search: .venv/.stamp ## measure search beside plainer ways and FastMCP's
	$(BIN)/python -m bench.search

.PHONY: bench-tokens
bench-tokens: setup ## count the tokens that a model reads of tools
	$(BIN)/python -m bench.tokens

.PHONY: bench-clients
bench-clients: setup agents clients ## count the tokens that the models of real clients read at the start
	$(BIN)/python -m bench.clients

.PHONY: bench-fleet
bench-fleet: setup ## measure tokens and start in front of 21 real servers
	$(BIN)/python -m bench.fleet

.PHONY: bench-windows
bench-windows: setup ## count the processes of five windows over the same servers
	$(BIN)/python -m bench.windows

.PHONY: fuzz
fuzz: MINUTES ?= 10
fuzz: .venv/.stamp ## throw broken input at it (MINUTES=10)
	$(BIN)/python tests/fuzz/fuzz.py --minutes $(MINUTES)

# The lowest versions that pyproject.toml allows, in an environment of its own; the tools of the tests as they are pinned.
.PHONY: lowest
lowest: .venv/.stamp ## run the unit tests with the lowest versions of our dependencies
	@rm -rf .lowest && $(PYTHON) -m venv .lowest
	$(BIN)/python -m tools.floors >.lowest/constraints.txt
	$(BIN)/uv pip install --quiet --python .lowest --resolution lowest-direct -c .lowest/constraints.txt -e '.[dev]'
	.lowest/bin/pytest -q -n 4 --dist loadgroup -m "not slow"

.PHONY: map
map: .venv/.stamp ## write docs/develop/map.md anew
	$(BIN)/python -m tools.map

# Made in an environment of its own, so nothing a developer happens to have installed gets in.
.PHONY: constraints
constraints: ## pin the newest versions pyproject.toml allows
	@rm -rf .pins && $(PYTHON) -m venv .pins
	.pins/bin/pip install --quiet --disable-pip-version-check hatchling editables '.[dev]'
	.pins/bin/pip freeze --exclude portico >constraints.txt
	@rm -rf .pins

.PHONY: format
format: .venv/.stamp ## fix what ruff can fix
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format --quiet .

.PHONY: clean
clean: ## remove everything the other targets made
	rm -rf .venv .tools .agents .clients .wasm-tools .wasm-cache .cosign .pins .lowest .bench .run tests/ts/node_modules build dist
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
