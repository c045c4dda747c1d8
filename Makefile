# Everything a newcomer needs: `make demo` and `make test`. Both set up what is missing and need only Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ROOMS := almoner cli flows tasks models_db migrations
PIP := $(BIN)/python -m pip --disable-pip-version-check
VERSIONS := $(VENV)/versions.txt

export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false
# Without compiled files every process of a test compiles almoner anew, and pytest rewrites all tests for each worker.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-dev weights demo test test-fast test-thorough test-slow test-long test-all soak lint audit bench results notebooks docs pictures lock clean

help:
	@echo "make demo      a fictional clinic: a release, and what leaks without privacy"
	@echo "               make demo MODEL=qwen2.5-coder-1.5b-instruct: by a better model, for half an hour on two cores"
	@echo "make test-fast the quick unit tests, in about a minute: for the loop of editing and trying"
	@echo "make test      the contract, the quick tests and whole stories (make test-all: with all that CI runs, and more)"
	@echo "               make test T=tests/unit/flows/schedules/test_recurrence.py: one file, folder or test, in one process"
	@echo "make soak      1,000 small scheduled releases while everything around them fails (docs/soak.md)"
	@echo "make lint      ruff, mypy, import contracts"
	@echo "make audit     pip-audit, bandit and deptry, in an environment of their own (needs the internet)"
	@echo "make bench     the benchmarks' small runs"
	@echo "make results   tables and figures of the results pages, from the data in docs/figures"
	@echo "make docs      the documentation site, in site/ (docs/index.md)"

setup: $(VENV)/.ready

# What the tests need beside the program: Ray, a browser's driver, servers that are spoken with, linters.
setup-dev: $(VENV)/.ready-dev

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit('almoner needs Python 3.11 or newer (set PYTHON=...)' if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python .ci/lock.py export versions > $(VERSIONS)
	@echo "Setting up $(VENV): $$(grep -c == $(VERSIONS)) packages, once."
	$(PIP) install --quiet -r $(VERSIONS)
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready requirements-dev.lock
	@echo "Adding to $(VENV) what development needs: $$(grep -c == requirements-dev.lock) packages, once."
	@$(BIN)/python .ci/lock.py export versions > $(VERSIONS)
	$(PIP) install --quiet -r $(VERSIONS) -r requirements-dev.lock
	@touch $@

weights: setup
	@$(BIN)/almoner models pull smollm2-135m-instruct
	@$(BIN)/almoner models pull all-minilm-l6-v2

MODEL ?= smollm2-135m-instruct
demo: setup
	@$(BIN)/almoner models pull $(MODEL)
	@$(BIN)/almoner demo --model $(MODEL)

# The contract, the quick tests and whole stories; or those of T in one process. CI runs the thorough ones too. File by
# file as they lie, so that small files come last. Three processes keep two cores busy: each waits a third of its time,
# for PostgreSQL, for a browser, or for processes that it kills.
T ?=
WORKERS ?= 3
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: setup-dev weights
ifeq ($(T),)
	$(BIN)/python -m pytest -m "not slow and not long and not thorough" $(SPREAD)
else
	$(BIN)/python -m pytest -m "not slow and not long" -n 0 $(T)
endif

test-thorough: setup-dev weights
	$(BIN)/python -m pytest -m "thorough and not slow and not long" $(SPREAD)

# No weights, no server, nothing dear.
test-fast: setup-dev
	$(BIN)/python -m pytest -m "not slow and not long and not dear" -n 2 --dist loadfile --no-loadscope-reorder tests/unit tests/test_layout.py

# All of them, or those in the files of SLOW; status 5 says that none of these runs here.
SLOW ?=
test-slow: setup-dev weights
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile $(SLOW)$(if $(SLOW), || [ $$? -eq 5 ])

# Kills and faults by the hundred: one after the other, because they time out on a machine that is busy with themselves.
test-long: setup-dev weights
	$(BIN)/python -m pytest -m long

test-all: test test-thorough test-slow test-long

SOAK ?= --releases 1000
soak: setup-dev
	$(BIN)/python -m tests.soak $(SOAK)

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

audit:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip --disable-pip-version-check install --quiet bandit==1.9.4 deptry==0.25.1 pip-audit==2.10.1
	.venv-audit/bin/bandit --quiet --recursive --exit-zero --format json $(ROOMS) | .venv-audit/bin/python .ci/audit.py
	.venv-audit/bin/deptry .
	.venv-audit/bin/pip-audit --strict --disable-pip --no-deps --requirement requirements.lock --requirement requirements-dev.lock

bench: setup-dev weights
	$(BIN)/python -m benchmarks.inference.decoding
	$(BIN)/python -m benchmarks.ledger.writes
	$(BIN)/python -m benchmarks.ingestion.ingest
	$(BIN)/python -m benchmarks.ledger.audit
	$(BIN)/python -m benchmarks.evaluation --texts 50 --documents 50
	PYTHON=$(BIN)/python benchmarks/gpu.sh --small --again

# Every table and figure of the results pages, from the data in docs/figures; tests/test_results.py compares them.
results: setup-dev
	$(BIN)/python -m benchmarks.results

# Their output is kept; tests/integration/test_notebooks.py compares its structure with what the code shows now.
notebooks: setup-dev weights
	$(BIN)/python -m tests.notebooks

# A broken link or anchor is an error. `python -m http.server -d site 8000` serves it with its search.
docs: setup-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir site

# Those of docs/pictures, from a real run; they need Chromium.
pictures: setup-dev weights
	$(BIN)/python -m tests.pictures

lock: setup-dev
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip --disable-pip-version-check install --quiet uv==0.13.9
	$(BIN)/python .ci/lock.py write .venv-lock/bin/uv

clean:
	rm -rf $(VENV) .venv-audit .venv-lock site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
