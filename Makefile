PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo studio test check lint types fmt docs package fuzz kills soak clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)


demo: .venv/ready  ## upscale the bundled clip into demo-output/: video, side-by-side picture, scores
	$(BIN)/vsrkit demo --output demo-output

studio: .venv/ready  ## open the page for upscaling on the bundled clip, in studio-videos/
	mkdir -p studio-videos
	cp -n src/vsrkit/assets/city.mp4 studio-videos/ || true
	$(BIN)/vsrkit studio studio-videos

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

N ?= 1000
SEED ?= 0

fuzz: .venv/ready  ## damage N files and run the commands on them (make fuzz N=10000 SEED=a)
	PYTHONPATH=. $(BIN)/python -m tests.fuzz $(N) --seed $(SEED)

kills: .venv/ready  ## kill N jobs, or let their writes fail, and resume them
	PYTHONPATH=. $(BIN)/python -m tests.kills $(N) --seed $(SEED)

soak: .venv/ready  ## upscale 20000 generated frames; memory, files and threads stay flat
	$(BIN)/python benchmarks/soak.py --frames 20000 --save

package:  ## build dist/, install wheel and sdist in clean environments, run the demo from each
	PYTHON=$(PYTHON) .ci/package

clean:  ## remove the environment and everything generated
	rm -rf .venv site dist demo-output .mypy_cache .pytest_cache .ruff_cache

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,eval,research,cluster,studio,export,dev]"
	touch $@
