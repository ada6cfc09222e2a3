#!/usr/bin/env bash
# run.sh [pytest arguments]: sets the engines up where they are missing, then lets the real exporter judge them, and writes
# docs/reference/tested-engines.md. With arguments only those tests are run, and only their rows change.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

scripts/engines/setup-vllm
scripts/engines/setup-llamacpp
export STUCKPROOF_ENGINE_RESULTS="$PWD/docs/reference/tested-engines.md" STUCKPROOF_ENGINE_ROWS="$CACHE/results.json"
if [ $# -eq 0 ]; then
  set -- tests/engines
  rm -f "$STUCKPROOF_ENGINE_ROWS"
fi
# On a machine with other work an engine that is never scheduled looks hung, and rightly so: that is not what is tried here.
export ENGINE_NICE="${ENGINE_NICE:-5}"
say "real engines: about 35 minutes on two busy cores"
exec "${VENV:-.venv}/bin/python" -m pytest -m engines -q -p no:cacheprovider --durations=10 "$@"
