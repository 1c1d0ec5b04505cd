# `make demo` shows what the program does, `make test` runs the tests; both set up what they need in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check lint format docs wheel clean nvenc-standin

demo: .venv/base
	$(BIN)/python -m segmentation samples/astronaut.mp4 -o samples/astronaut.segmented.mp4 -y

test: .venv/test
	$(BIN)/python -m pytest -n auto --dist worksteal

# While working: lint, types, and the tests that start no program.
check: lint
	$(BIN)/python -m pytest -n auto --dist worksteal --no-programs

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The manual as a site, in build/site. `.venv/bin/python tools/docs/build_docs.py --serve` shows it.
docs: .venv/docs
	$(BIN)/python tools/docs/build_docs.py

# In dist: the sdist and the wheel, with the CUDA kernels' machine code for the usual GPUs. It takes 3 minutes and no GPU.
wheel: .venv/base
	$(BIN)/pip install --quiet --disable-pip-version-check build 'cuda-core>=1.0' 'cuda-bindings>=13,<14' 'nvidia-cuda-nvrtc>=13,<14'
	$(BIN)/python tools/build_kernels.py
	$(BIN)/python -m build

# For tests of NVENC without NVENC, see tests/support/nvenc/nvenc.c.
nvenc-standin:
	$(MAKE) -C tests/support/nvenc OUT=$(CURDIR)/build/nvenc

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

.venv/docs: .venv/base
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@
