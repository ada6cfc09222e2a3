#!/usr/bin/env bash
# run.sh [pytest arguments]: sets the engines up where they are missing, then lets the real exporter judge them.
# A run of everything (no arguments) writes docs/reference/tested-engines.md.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

scripts/engines/setup-vllm
scripts/engines/setup-llamacpp
if [ $# -eq 0 ]; then
  set -- tests/engines
  export STUCKPROOF_ENGINE_RESULTS="$PWD/docs/reference/tested-engines.md"
fi
say "real engines: about 25 minutes on two idle cores"
exec "${VENV:-.venv}/bin/python" -m pytest -m engines -q -p no:cacheprovider --durations=10 "$@"
