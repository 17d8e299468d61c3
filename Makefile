# Each target is one line to type; what it does is the plain commands below it.
PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo test lint docs clean

demo: .venv/demo
	$(BIN)/agnosticfair-research reproduce --dataset adult --setting shift --seeds 2

test: .venv/dev
	$(BIN)/python -m pytest -n 2

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	for script in readme privacy benchmark; do $(BIN)/python benchmarks/write_$$script.py --check || exit 1; done

docs: .venv/dev
	$(BIN)/sphinx-build -W -q docs build/docs

.venv/demo: pyproject.toml research/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -e . -e research -c constraints.txt
	touch $@

.venv/dev: pyproject.toml research/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -e '.[dev]' -e 'research[peers]' -c constraints.txt
	touch $@

clean:
	rm -rf .venv build .mypy_cache .pytest_cache .ruff_cache
