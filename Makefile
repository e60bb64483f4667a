# Needs python3 (3.11 or newer, with venv), git and make. Everything else comes from requirements/.

PYTHON ?= python3
# Test processes at a time.
JOBS   ?= 2

VENV := .venv
BIN  := $(VENV)/bin
BASE := $(VENV)/.base
DEV  := $(VENV)/.dev

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench sim chaos fuzz lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(BASE) ## run the demonstration; installs only what a user would get
	$(BIN)/holdfast demo

test: check ## everything that has to be green: check, then all tests (ARGS="-k locks" for some)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

check: $(DEV) ## lint, format, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(DEV) ## put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(DEV) ## measure, for a minute or so; beside the peers with ARGS=--peers
	$(BIN)/python -m bench $(ARGS)

sim: $(DEV) ## seeded fault schedules over the real core (SEEDS=n of them; ARGS=... is passed on)
	$(BIN)/python -m tests.sim $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

chaos: $(DEV) ## kill -9, a database that goes away, power cuts, failing disks (ARGS="kills --kills 300")
	$(BIN)/python -m tests.chaos $(ARGS)

fuzz: $(DEV) ## documents and expressions at random (N=n of them; ARGS="--seed 7" is passed on)
	$(BIN)/python -m tests.fuzz --jobs $(JOBS) $(if $(N),--count $(N)) $(ARGS)

# Hashes but no addresses: a lock must hold on any registry.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
           --no-header --no-annotate --no-emit-index-url --no-emit-find-links

lock: $(DEV) ## resolve the lock files anew (ARGS=--upgrade for the newest)
	$(COMPILE) $(ARGS) pyproject.toml --all-extras --group dev -o requirements/dev.txt
	$(COMPILE) pyproject.toml -c requirements/dev.txt -o requirements/base.txt
	$(COMPILE) --group build -c requirements/dev.txt -o requirements/build.txt

clean: ## remove what was built, measured or cached
	rm -rf $(VENV) dist .holdfast .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment ------------------------------------------------------------------------------
# pip fetches uv, uv fetches the rest: less than half the time of pip alone. pip stays as the way
# round for machines where only pip is told which registry to use.
# A stamp is written last, so an installation that was cut short is done again.

INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python $(1) || $(BIN)/python -m pip install --quiet $(1)

$(VENV)/.build: requirements/build.txt
	$(PYTHON) -c 'import sys; v = sys.version_info; v < (3, 11) and sys.exit(f"holdfast needs Python 3.11 or newer, this is {v[0]}.{v[1]}; try PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	@touch $@

$(BASE): $(VENV)/.build requirements/base.txt pyproject.toml
	$(call INSTALL,--require-hashes -r requirements/base.txt)
	$(call INSTALL,--no-deps --no-build-isolation -e .)
	@touch $@

$(DEV): $(BASE) requirements/dev.txt
	$(call INSTALL,--require-hashes -r requirements/dev.txt)
	@touch $@
