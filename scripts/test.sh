#!/usr/bin/env bash
# usage: scripts/test.sh all|unit|rules|e2e. Starts what the tests need and stops what it started.
# In CI, and with STUCKPROOF_NO_SKIP=1, a skipped test fails (tests/conftest.py).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
VENV=${VENV:-.venv}
export VENV YES=1
[ -z "${CI:-}" ] || export STUCKPROOF_NO_SKIP=1

# Only what this run started is ended, quietly: pytest's closing line stays the last one.
cleanup() {
    [ "${DOCKER_WAS_UP:-1}" = 1 ] || "$ROOT/scripts/docker-engine.sh" stop 2>/dev/null || true
}
trap cleanup EXIT

need_venv() { [ "$VENV/bin/.ready" -nt pyproject.toml ] || scripts/venv.sh "$VENV"; }

# Programs that tests run, out of the cache where the machine has none.
need_programs() {
    local directory script
    for script in promtools probetools; do
        directory=$("scripts/$script.sh")
        [ -z "$directory" ] || export PATH="$directory:$PATH"
    done
}

need_docker() {
    DOCKER_WAS_UP=1
    "$ROOT/scripts/docker-engine.sh" status >/dev/null 2>&1 || DOCKER_WAS_UP=0
    "$ROOT/scripts/docker-engine.sh" start
    ensure_compose
    "$ROOT/scripts/images.sh" all
    load_images
    if compose_plugin; then COMPOSE="docker compose"; else COMPOSE=$CACHE/tools/bin/docker-compose; fi
    export COMPOSE
}

# The pages are tested in a real browser; Debian's is installed where we may, elsewhere those tests are skipped and say so.
need_browser() {
    have chromium || have chromium-browser || have google-chrome && return 0
    if is_debian && is_root; then apt_install chromium; else note "no Chromium here: the pages are not tested in a browser"; fi
}

# Two at a time, by file: most of them wait for something most of the time.
unit() {
    say "unit tests and rules, with branch coverage"
    "$VENV/bin/python" -m pytest -q -n 2 --dist loadfile -m "not e2e and not engines" --cov --cov-report=term:skip-covered "$@"
}

e2e() {
    say "end to end, in Docker"
    "$VENV/bin/python" -m pytest -q -m e2e tests/e2e tests/test_readme.py "$@"
}

what=${1:-all}
[ $# = 0 ] || shift
case $what in
all)
    need_venv
    need_programs
    scripts/lint.sh
    unit
    need_docker
    need_browser
    e2e
    ;;
unit) need_venv; need_programs; unit "$@" ;;
rules) need_venv; need_programs; "$VENV/bin/python" -m pytest -q tests/rules "$@" ;;
e2e) need_venv; need_programs; need_docker; need_browser; e2e "$@" ;;
*) die "usage: scripts/test.sh all|unit|rules|e2e" ;;
esac
