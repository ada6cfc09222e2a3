#!/usr/bin/env bash
# make demo
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
docker version >/dev/null 2>&1 || die "no Docker Engine answers: run 'make run' first"
exec "$(find_python)" "$ROOT/scripts/demo.py"
