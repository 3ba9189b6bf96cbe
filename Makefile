PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check lint types fmt docs clean

demo: .venv/ready  ## upscale the bundled clip: video, side-by-side picture, numbers
	$(BIN)/vsrkit demo --output demo-output

test: check  ## lint, types, all tests

check: lint types
	$(BIN)/pytest --numprocesses 2

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

fmt: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/docs  ## the pages of docs/ as a site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/docs: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

clean:
	rm -rf .venv site demo-output .mypy_cache .pytest_cache .ruff_cache

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,eval,research,dev]"
	touch $@
