# `make help` lists what can be made. BIN: where the tools are (a virtual environment with `pip install -e '.[dev]'`).
BIN ?= .venv/bin
.DEFAULT_GOAL := help
.PHONY: help install check lint types contracts format test test-all clients console console-dev docs stub release demo-svg chaos bench serve demo ci

help: ## Show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

install: ## Make .venv with the package, editable, and all development tools
	python3 -m venv .venv && .venv/bin/pip install -e '.[dev]'

check: lint types contracts ## Everything that is quick: lint, format, types, import contracts

lint: ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: ## basedpyright, strict
	$(BIN)/basedpyright

contracts: ## import-linter: which package may import which
	$(BIN)/lint-imports

format: ## Put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: ## The quick tier of the tests, on SQLite and PostgreSQL: 6 minutes
	$(BIN)/pytest

test-all: ## All tests, as CI runs them: 41 minutes
	$(BIN)/pytest --all

clients: ## Real clients and coding agents, each in an environment of its own, against a real server: 10 minutes at first, then 2
	$(BIN)/pytest -n 0 -rs tests/clients/contracts.py

console: console/node_modules ## The console's files in drsai_backend/api/pages/console, from console/ (needs node 20 or later)
	$(BIN)/python console/document.py > console/openapi.json
	cd console && npm run --silent types && npm run --silent build

console-dev: console/node_modules ## The console beside a server on port 8000, reloaded at each change
	cd console && npm run dev

console/node_modules: console/package-lock.json
	cd console && npm ci && touch node_modules

docs: ## The documents as a site with search, strictly: build/documents/site (needs `pip install -e '.[docs]'`)
	$(BIN)/python docs/make_site.py

stub: ## drsai_backend/sync.pyi, from the signatures of the asynchronous calls
	$(BIN)/python docs/make_stub.py

schema: ## drsai_backend/definitions/schema.json, from the schema of definitions
	$(BIN)/python -m drsai_backend agents schema > drsai_backend/definitions/schema.json

demo-svg: ## docs/demo.svg, the picture of a real `drsai demo`
	$(BIN)/python docs/make_demo_svg.py

chaos: ## 500 kills per database, load on many workers, outages: takes about 40 minutes
	$(BIN)/python -m tests.chaos

bench: ## The benchmarks that have a goal, as a table: about 5 minutes; all of them: python -m benchmarks --full
	$(BIN)/python -m benchmarks

serve: ## The server with the built-in teams
	$(BIN)/drsai serve

demo: ## A group chat that survives SIGKILL
	$(BIN)/drsai demo

release: ## Wheel, source distribution and documents of a tag, built and tried in a clean folder: make release TAG=v0.2.0
	.ci/release $(TAG)

ci: ## What CI runs, in a clean copy of the last commit
	.ci/run
