# make demo    clears the example model with the command line
# make test    every check: ruff, types, tests
# make browser puts Chromium, for the tests of reports, on a machine with apt-get, or says how to get it
# make charts  builds what reports draw with from its pinned npm packages
# make docs    builds the documentation in build/site: open index.html there
# make fuzz    damaged files through every verb: make fuzz MUTANTS=100000 SEED=1
# make bench   measures, in one table
# make build   a wheel and an sdist in dist/
# make clean   removes everything that make made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test lint types browser charts docs fuzz bench build clean

demo: $(VENV)/runtime
	@mkdir -p build
	$(BIN)/clearstate inspect examples/digits.t7
	$(BIN)/clearstate clear examples/digits.t7 -o build/digits-small.t7
	@ls -l examples/digits.t7 build/digits-small.t7 | awk '{ printf "%9d bytes  %s\n", $$5, $$NF }'
	$(BIN)/clearstate verify examples/digits.t7 build/digits-small.t7

test: lint types browser
	$(BIN)/python -m pytest

lint: $(VENV)/development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/development
	$(BIN)/mypy

# Where it can be installed, it is there or this fails; elsewhere the tests that need it say that they did not run.
browser:
	@if { command -v chromedriver && { command -v chromium || command -v chromium-browser || command -v google-chrome; }; } >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes chromium chromium-driver >/dev/null; \
	else echo "Tests of reports in a browser are skipped: install Chromium and ChromeDriver (Debian: chromium chromium-driver)."; \
	fi

charts:
	$(PYTHON) tools/charts/build.py

docs: $(VENV)/development
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

MUTANTS ?= 10000
SEED ?= 1

fuzz: $(VENV)/development
	PYTHONPATH=src:. $(BIN)/python -m tests.fuzz --mutants $(MUTANTS) --seed $(SEED)

bench: $(VENV)/development
	$(BIN)/python benchmarks/bench.py

build: $(VENV)/development
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) .cache build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The package itself and what it needs to run. Each stamp is newer than what it was made from.
$(VENV)/runtime: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "clearstate needs Python 3.10 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable .
	@touch $@

# torch goes in by itself before anything that depends on it.
$(VENV)/development: requirements-dev.txt $(VENV)/runtime
	$(PIP) install "$$(grep '^torch==' requirements-dev.txt)"
	$(PIP) install --requirement requirements-dev.txt
	@touch $@
