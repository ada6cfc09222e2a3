# Every target works from a fresh clone; scripts/ has the steps, each usable alone.
SHELL := bash
.DEFAULT_GOAL := help
STUCKPROOF_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/stuckproof
export STUCKPROOF_CACHE
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help run demo stop status venv lint test test-unit test-rules test-e2e test-engines images week bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## install what is missing (asks first; YES=1 does not), start the stack with two demo engines
	@scripts/run.sh

demo: ## hang one engine, show the timeline until its verified restart; fails unless it happened exactly once
	@scripts/demo.sh

stop: ## remove containers, networks, volumes and images of ours, and the dockerd that `make run` started
	@scripts/stop.sh

status: ## what the remediator would do now, target by target
	@docker exec stuckproof-remediator-1 llm-remediator status --config.file=/etc/stuckproof/remediator.yml

venv: $(BIN)/.ready ## virtual environment with the project (editable) and its development tools

$(BIN)/.ready: pyproject.toml
	@scripts/venv.sh $(VENV)

lint: venv ## ruff, mypy --strict, import contracts, shell syntax
	@scripts/lint.sh

test: ## everything but real engines: lint, unit tests, rules, end to end in Docker
	@scripts/test.sh all

test-unit: venv ## unit tests with branch coverage
	@scripts/test.sh unit

test-rules: venv ## Prometheus rules and Alertmanager routes, with promtool and amtool
	@scripts/test.sh rules

test-e2e: venv ## the whole pipeline in Docker: hung, saturated, killed, duplicated
	@scripts/test.sh e2e

test-engines: venv ## against real engines, which it installs (long; needs the disk for it)
	@scripts/engines/run.sh

images: ## only fetch or build the images
	@scripts/docker-engine.sh start && scripts/images.sh all

week: venv ## the simulated week: ours against six other rules; writes docs/explanation/simulated-week.md
	@PYTHONPATH=common:exporter:remediator $(BIN)/python -m benchmarks.week

bench: venv ## what watching costs, beside Prometheus, in one run; then the webhook and the middleware
	@PYTHONPATH=common:exporter:remediator:heartbeat $(BIN)/python benchmarks/fleet.py
	@PYTHONPATH=common:exporter:remediator:heartbeat $(BIN)/python benchmarks/webhook.py
	@PYTHONPATH=common:exporter:remediator:heartbeat $(BIN)/python benchmarks/middleware.py

clean: ## remove the virtual environment and the cache of base images and tools
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov
	@scripts/clean.sh
