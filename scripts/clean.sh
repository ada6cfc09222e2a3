#!/usr/bin/env bash
# make clean: the cache goes, unless our dockerd still runs out of it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if [ "$("$ROOT/scripts/docker-engine.sh" status 2>/dev/null || true)" != "" ] &&
    [ "$("$ROOT/scripts/docker-engine.sh" status)" != "started by somebody else" ]; then
    die "the dockerd that 'make run' started still runs: run 'make stop' first"
fi
rm -rf "$CACHE"
