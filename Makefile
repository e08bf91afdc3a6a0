# Everything from a bare machine with Python 3.11+, git and make. Each target sets up .venv first if it must.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready

QUICK := not (slow or compiles or process or dask or flare or browser or realdata)

.PHONY: setup demo check test lint format docs bench clean

setup: $(STAMP)

# Repeated only when the dependencies may have changed; the project itself is installed editable.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("mixfed needs Python 3.11 or newer, this is %d.%d; try: make PYTHON=python3.11 ..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m compileall -q src  # as pip does with what it copies
	touch $@

demo: $(STAMP)
	$(BIN)/mixfed demo

# Before every commit: under a minute on two cores. Nothing is compiled for it.
check: lint
	MIXFED_KERNELS=plain OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "$(QUICK)"

# A test per core: more threads inside each would only wait for each other. Tests that share processes stay together.
test: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Pages in site/, without network. A page, link, name or cell of the notebook that is broken is an error.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: $(STAMP)
	$(BIN)/python benchmarks/speed.py --json benchmarks/results/speed.json --plot benchmarks/results/growth.png
	$(BIN)/python benchmarks/recovery.py --seeds 3
	$(BIN)/python benchmarks/exchanges.py --flare --json benchmarks/results/exchanges.json

# Compiled functions are in __pycache__, too.
clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis site
	find src -type d -name __pycache__ -prune -exec rm -rf {} +
