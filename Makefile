# Thin: each target brings .venv up to date and calls one tool. The stamp depends on the project
# files, so a second run sets nothing up and needs no network.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PROJECTS := pyproject.toml $(sort $(wildcard plugins/*/pyproject.toml))
PACKAGES := purra hosts/purra_hosts bridge/purra_bridge bridge/purra_sdk tck/purra_tck \
	$(wildcard plugins/*/purra_plugin_*)
# A notebook's cells await outside of functions, and no checker of types takes that.
EXAMPLES := $(filter-out %/notebook.py,$(wildcard docs/examples/*.py docs/examples/triage/*.py))
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3,$(shell command -v $(name))))
QUESTION ?= How does a caller cancel a running tool?

SOAK_MINUTES ?= 20

# Tests start hundreds of processes, each of which would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: soak help setup demo test bench bench-peers selftest check format snapshots clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with everything in it

$(STAMP): $(PROJECTS)
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/it" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11; set PYTHON=/path/to/a/newer/one" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli,dev]'
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation \
		$(patsubst %/pyproject.toml,-e ./%,$(filter plugins/%,$(PROJECTS)))
	@touch $@

demo: $(STAMP) ## one real agent over docs/, four plugins, no network
	@$(BIN)/purra run manifests/quickstart.toml "$(QUESTION)"

test: $(STAMP) ## all tests
	$(BIN)/python -m pytest -n auto

bench: $(STAMP) ## what things cost, beside a floor and a sketch (4 minutes, quiet machine)
	@mkdir -p dist
	$(BIN)/python -m tests.bench --json dist/bench.json $(if $(PAGE),--page $(PAGE))

bench-peers: $(STAMP) ## the same beside MCP and gRPC, in an environment that is thrown away
	$(BIN)/python -m tests.bench.peer_venv

soak: $(STAMP) ## storms over eight plugins for SOAK_MINUTES (20)
	$(BIN)/python -m tests.chaos.storm --minutes $(SOAK_MINUTES)

selftest: $(STAMP) ## the conformance kit and whole systems on trial; every broken one must be caught
	@mkdir -p dist
	$(BIN)/purra tck selftest --matrix dist/kill-matrix.json
	$(BIN)/python -m pytest -n auto -m trial

check: $(STAMP) ## lint, format, types, rings, gates
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES) $(EXAMPLES)
	$(BIN)/python -m pytest tests/architecture

format: $(STAMP) ## rewrite the files as check wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

snapshots: $(STAMP) ## store names, public surface and docs/reference anew; review the diff
	PURRA_SNAPSHOTS=write $(BIN)/python -m pytest tests/architecture/test_snapshots.py
	$(BIN)/python -m tests.docs.reference

clean: ## remove what the tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
