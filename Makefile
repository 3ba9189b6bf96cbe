PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test check lint types fmt docs package clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)


demo: .venv/ready  ## upscale the bundled clip into demo-output/: video, side-by-side picture, scores
	$(BIN)/vsrkit demo --output demo-output

test: check  ## lint, types and all tests: what .ci/run calls

check: lint types  ## the same as `make test`
	$(BIN)/pytest --numprocesses 2

lint: .venv/ready  ## ruff: style and format, without changes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready  ## mypy in strict mode
	$(BIN)/mypy

fmt: .venv/ready  ## ruff: fix style and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/docs  ## render docs/ as a site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/docs: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

package:  ## build dist/, install wheel and sdist in clean environments, run the demo from each
	PYTHON=$(PYTHON) .ci/package

clean:  ## remove the environment and everything generated
	rm -rf .venv site dist demo-output .mypy_cache .pytest_cache .ruff_cache

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,eval,research,cluster,dev]"
	touch $@
