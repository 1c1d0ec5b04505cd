# `make demo` shows what the program does, `make test` runs the tests; both set up what they need in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint format clean

demo: .venv/base
	$(BIN)/python -m segmentation samples/astronaut.mp4 -o samples/astronaut.segmented.mp4 -y

test: .venv/test
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

# Installed again only when pyproject.toml changes.
.venv/base: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/test: .venv/base
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@
