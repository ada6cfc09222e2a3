#!/usr/bin/env bash
# make run: Docker, images, then the stack with its two demo engines. GRAFANA=1 adds Grafana.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

plan() {
    say "make run will, where they are missing:"
    have dockerd || docker version >/dev/null 2>&1 || note "install Debian's docker.io, iptables, ca-certificates and procps, and start dockerd"
    compose_plugin || note "put Docker Compose into $CACHE/tools"
    note "pull the images of Python, Prometheus and Alertmanager, or build them from Debian's packages if no registry answers"
    note "build the images of exporter, remediator and the simulated engine"
    note "start them; ports on 127.0.0.1 only: ${EXPORTER_PORT:-10140} ${REMEDIATOR_PORT:-10141} ${PROMETHEUS_PORT:-9090} ${ALERTMANAGER_PORT:-9093}"
    note "'make stop' removes all of it but Debian's packages and $CACHE"
}

plan
confirm "Go on?"
export YES=1
"$ROOT/scripts/docker-engine.sh" start
ensure_compose
"$ROOT/scripts/images.sh" all
load_images

profiles=(--profile demo)
if [ "${GRAFANA:-}" = 1 ]; then
    "$ROOT/scripts/images.sh" grafana
    profiles+=(--profile grafana)
fi
cd "$ROOT"
say "starting the stack"
compose --progress quiet "${profiles[@]}" up -d --wait --wait-timeout 180 --no-build --remove-orphans ||
    { compose "${profiles[@]}" ps -a >&2; die "the stack did not become healthy; 'docker logs NAME' of the service that is not says why"; }

cat <<END

Two simulated engines are watched: demo-a has a little to do, demo-b is saturated.
  exporter       http://127.0.0.1:${EXPORTER_PORT:-10140}/         states, with the sentence that says why
  Prometheus     http://127.0.0.1:${PROMETHEUS_PORT:-9090}/alerts
  Alertmanager   http://127.0.0.1:${ALERTMANAGER_PORT:-9093}/
  remediator     http://127.0.0.1:${REMEDIATOR_PORT:-10141}/         any user, password: docker exec stuckproof-remediator-1 cat /run/stuckproof/token
$([ "${GRAFANA:-}" = 1 ] && echo "  Grafana        http://127.0.0.1:${GRAFANA_PORT:-3000}/")
Next: 'make demo' hangs demo-a and shows how it is found and restarted; 'make stop' removes all this.
END
