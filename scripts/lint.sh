#!/usr/bin/env bash
# make lint
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
BIN=${VENV:-.venv}/bin
say "ruff"
"$BIN/ruff" check -q .
say "mypy --strict"
"$BIN/mypy" --no-error-summary
"$BIN/mypy" --no-error-summary -p llm_sim
say "import contracts"
PYTHONPATH=common:exporter:heartbeat:remediator "$BIN/lint-imports" --no-cache >"$CACHE/lint-imports.log" || { cat "$CACHE/lint-imports.log"; die "an import contract is broken"; }
say "shell syntax"
for script in scripts/*.sh .ci/run; do bash -n "$script"; done
