#!/usr/bin/env bash
# make stop: removes containers, networks, volumes and images of ours, and ends the dockerd that make run started.
# KEEP=1 keeps images and dockerd for the next make run.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
if ! docker version >/dev/null 2>&1; then
    say "no Docker Engine answers: nothing of ours can be running"
    exit 0
fi
ensure_compose
say "removing the stack"
compose --progress quiet --profile demo --profile grafana down --volumes --remove-orphans --timeout 5
[ "${KEEP:-}" != 1 ] || exit 0
docker image ls --format '{{.Repository}}:{{.Tag}}' --filter 'reference=stuckproof.local/*' | while read -r image; do
    docker image rm "$image" >/dev/null 2>&1 || note "$image is used by a container that is not ours, and stays"
done
docker image prune -f --filter label=io.stuckproof=1 >/dev/null
if [ "$("$ROOT/scripts/docker-engine.sh" status)" != "started by somebody else" ]; then
    others=$(docker ps -q | wc -l)
    if [ "$others" = 0 ]; then
        "$ROOT/scripts/docker-engine.sh" stop
    else
        note "dockerd stays: $others containers that are not ours run in it"
    fi
fi
note "left: Debian's packages, and the cache $CACHE ('make clean' removes it)"
