# Sourced by the scripts beside it. Sets where the engines live and how a step is run once.
set -euo pipefail
CACHE="${STUCKPROOF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stuckproof}/engines"
PYTHON="${STUCKPROOF_ENGINE_PYTHON:-python3.11}"
VLLM_VERSION=0.32.0
TORCH_VERSION=2.13.0
LLAMA_CPP_BUILD=11434
mkdir -p "$CACHE"

say() { printf '%s engines: %s\n' "$(date +%H:%M:%S)" "$*" >&2; }

# One set-up at a time: a second caller waits for the first and then finds everything done.
lock() {
  exec 9>"$CACHE/$1.lock"
  flock -n 9 || { say "another run is setting up $1; waiting for it"; flock 9; }
}
