# `make` lists the targets. The environment lives in .venv and is set up by whichever target needs it first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.demo
MDPAX := $(VENV)/mdpax
AGENTS := $(VENV)/agents
WILD := $(VENV)/wild

# More than four workers gain little: each compiles its own JAX programs, and XLA runs threads of its own. Neighbours
# among the tests use the same programs: stealing work leaves them together, dealing it out parts them.
# BLAS gets one thread in each: with more, eigenvalues of small matrices wait for each other on busy cores.
# What one process compiled, the others read: workers, and the many processes that tests start, use the same programs.
PYTEST := OPENBLAS_NUM_THREADS=1 JAX_COMPILATION_CACHE_DIR=$(CURDIR)/$(VENV)/compiled \
	JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1 \
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# Without dependencies, all of which a lock has: pip would look at releases that are newer than the lock, and refuse them.
# Not compiled: Python does so for what is imported, a small part of it.
LOCKED = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes

# What most tests import is compiled at once: their workers begin together, and each would do it.
COMPILED := beartype cvxpy jax jaxlib matplotlib numba numpy pandas scipy xarray

NEW_ENOUGH = $(if $(shell $(PYTHON) -c 'import sys; print("yes" if sys.version_info >= (3, 11) else "")' 2>/dev/null),,\
	$(error jointmdp needs Python 3.11 or newer, and `$(PYTHON)` is not; name one, as in `make PYTHON=python3.12`))

# Without bytecode every process of the tests compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test slow long test-browser test-agents check docs bench wild lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

# Where the developers' environment is not there yet, the demonstration installs what it needs itself: far less.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO)) ## run the demonstration
	@$(BIN)/jointmdp demo

# Most tests spend most of their time compiling, so XLA optimises less there, as in JAX's own tests, and writes loops with
# its older emitters, which take half as long to compile. Slow tests marked `optimised` run the programs that users run.
QUICKLY := JAX_DISABLE_MOST_OPTIMIZATIONS=1 XLA_FLAGS=--xla_cpu_use_fusion_emitters=false

test: $(STAMP) ## run the everyday tests
	$(QUICKLY) $(PYTEST)

slow: $(STAMP) $(MDPAX)/.installed ## run the slow tests
	PYTHONPATH=$(MDPAX) $(PYTEST) -m "slow and optimised and not long"
	PYTHONPATH=$(MDPAX) $(QUICKLY) $(PYTEST) -m "slow and not optimised and not long"

long: $(STAMP) ## repeat the slow tests that draw at random, many more times
	$(PYTEST) -m long

test-browser: $(STAMP) ## run the tests in headless Chromium, which must be installed
	$(BIN)/python -m pytest -m browser

test-agents: $(AGENTS)/.installed ## run the tutorial with Stable-Baselines3, which is installed apart
	PYTHONPATH=$(CURDIR)/$(AGENTS) $(BIN)/python -m pytest -m slow tests/test_docs.py -k "as_notebooks and gymnasium"

check: $(STAMP) ## check formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(STAMP) ## build the documentation site in build/docs; warnings are errors
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs build/docs
	@echo "build/docs/index.html: open it in a browser"

bench: $(STAMP) ## run the benchmarks
	$(BIN)/python -m benchmarks

wild: $(WILD)/.installed ## audit third-party environments; ROWS="minigrid pgx" for some
	$(WILD)/bin/python -m wild $(ROWS)
	$(if $(ROWS),,PYTHONPATH=$(CURDIR)/src $(WILD)/bin/python -m wild.walk_call_centre)
	$(if $(ROWS),,PYTHONPATH=$(CURDIR)/src $(WILD)/bin/python -m wild.walk_agents)

# Versions already in the lock stay unless pyproject.toml forbids them; `make lock LOCKFLAGS=--upgrade` moves them all.
# One version of each package serves every Python (fewest), so that results do not depend on the interpreter.
# Nothing that names an index is written, so that the lock installs from any mirror.
# `dev` has all extras but `experiments`: that package stands in this repository, and is installed from there.
lock: $(BIN)/uv ## pin all dependencies in requirements.lock
	$(BIN)/uv pip compile --no-config --quiet --universal --python-version 3.11 --fork-strategy fewest \
		--extra dev --generate-hashes --no-emit-index-url --no-emit-find-links --no-header $(LOCKFLAGS) \
		--output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile --no-config --quiet --universal --python-version 3.11 --fork-strategy fewest \
		--extra plots --group build --constraint requirements.lock --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-header $(LOCKFLAGS) --output-file requirements-demo.lock pyproject.toml
	$(BIN)/uv pip compile --no-config --quiet --universal --python-version 3.11 --fork-strategy fewest \
		--no-deps --group mdpax --generate-hashes --no-emit-index-url --no-emit-find-links --no-header $(LOCKFLAGS) \
		--output-file requirements-mdpax.lock
	$(BIN)/uv pip compile --no-config --quiet --universal --python-version 3.11 --fork-strategy fewest \
		--extra gymnasium --extra gymnax --extra plots --group wild --override wild/overrides.txt \
		--generate-hashes --no-emit-index-url --no-emit-find-links --no-header $(LOCKFLAGS) \
		--output-file requirements-wild.lock pyproject.toml

# Not the stamp: the lock must be renewable after an edit of pyproject.toml without installing the old one again.
$(BIN)/uv:
	@$(MAKE) --no-print-directory $(STAMP)

clean: ## remove the environment, caches and build outputs; keep results/
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last and removed first: without it the environment may be half-made, and pip takes a package
# whose files were cut short for an installed one, so the environment is then built anew. Every second package of the
# lock is installed beside the others: pip takes one after the other, and leaves a core idle.
$(STAMP): pyproject.toml requirements.lock
	$(NEW_ENOUGH)
	@echo "Setting up $(VENV) from requirements.lock; from nothing this takes about a minute."
	@if [ -f $@ -o -f $(DEMO) ] && $(BIN)/python -c '' 2>/dev/null; then rm -f $@ $(DEMO); \
		else $(PYTHON) -m venv --clear $(VENV); fi
	@for part in 0 1; do awk '/^[^ #]/ { n++ } n % 2 == '$$part requirements.lock >$(VENV)/part$$part.lock; done
	@$(LOCKED) --requirement $(VENV)/part0.lock & first=$$!; \
		$(LOCKED) --requirement $(VENV)/part1.lock; second=$$?; wait $$first && exit $$second
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable experiments
	@cd $(VENV)/lib/python*/site-packages && \
		$(CURDIR)/$(BIN)/python -m compileall -q -j 0 -x /tests/ $(COMPILED) >/dev/null || true
	@touch $@

$(DEMO): pyproject.toml requirements-demo.lock
	$(NEW_ENOUGH)
	@echo "Setting up $(VENV) for the demonstration; from nothing this takes half a minute."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(LOCKED) --requirement requirements-demo.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Apart from the environment: see the dependency group in pyproject.toml.
$(MDPAX)/.installed: $(STAMP) requirements-mdpax.lock
	@rm -rf $(MDPAX)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --target $(MDPAX) \
		--requirement requirements-mdpax.lock
	@touch $@

# Apart, since PyTorch is large: a build for CPUs where there is one with that label, else the one that there is.
$(AGENTS)/.installed: $(STAMP)
	@rm -rf $(AGENTS)
	@for torch in torch==2.13.0+cpu torch==2.13.0; do \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(AGENTS) $$torch \
			stable-baselines3==2.9.2 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 && touch $@ && break; \
	done; test -f $@

# Third-party packages ask for versions that exclude each other: an environment of their own, without their bounds.
# Where the lock cannot be installed as a whole, its packages are installed one by one and those that fail are named.
# torch comes from wherever a build for CPUs is to be had; without it the walk with an agent is skipped by name.
$(WILD)/.installed: $(STAMP) requirements-wild.lock
	@echo "Setting up $(WILD) from requirements-wild.lock; from nothing this takes some minutes."
	@rm -rf $(WILD) && $(BIN)/python -m venv $(WILD)
	@$(BIN)/python -m wild.install $(WILD)/bin/python requirements-wild.lock
	@touch $@
