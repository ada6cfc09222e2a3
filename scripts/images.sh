#!/usr/bin/env bash
# usage: scripts/images.sh [all|base|prometheus|alertmanager|ours|grafana]
# Gets or builds every image that compose.yaml needs and writes their names to $CACHE/images.env.
# A registry's images are pulled where one answers. Where none does, root on Debian builds stand-ins from Debian's
# packages, under stuckproof.local/… so that nobody takes them for the originals. BASE_IMAGE, PROMETHEUS_IMAGE,
# ALERTMANAGER_IMAGE and GRAFANA_IMAGE replace any of them; STUCKPROOF_SUITE=sid takes Debian's newest packages instead.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The pinned originals; compose.yaml names the same ones.
BASE_ORIGINAL=python:3.12-slim-bookworm
PROMETHEUS_ORIGINAL=prom/prometheus:v3.5.0
ALERTMANAGER_ORIGINAL=prom/alertmanager:v0.28.1
GRAFANA_ORIGINAL=grafana/grafana:12.1.0

LOCAL=stuckproof.local
SUITE=${STUCKPROOF_SUITE:-bookworm}
TAG=${STUCKPROOF_TAG:-dev}

present() { docker image inspect "$1" >/dev/null 2>&1; }

REGISTRY=
# The first pull tells whether a registry answers; later ones do not wait again for one that does not.
pull() {
    present "$1" && return 0
    [ "$REGISTRY" != none ] || return 1
    note "docker pull $1"
    if docker pull -q "$1" >/dev/null 2>"$CACHE/pull.log"; then
        REGISTRY=answers
    else
        [ "$REGISTRY" = answers ] && die "docker pull $1 failed: $(tail -1 "$CACHE/pull.log")"
        REGISTRY=none
        note "no image registry answers"
        return 1
    fi
}

debian_mirror() {
    apt-get indextargets --format '$(REPO_URI) $(CODENAME)' "Created-By: Packages" 2>/dev/null |
        awk -v suite="$SUITE" '$2 == suite { print $1; exit }'
}

debian_base() {
    local tar=$CACHE/base-$SUITE.tar root
    present "$LOCAL/base:$SUITE" && return 0
    if [ ! -s "$tar" ]; then
        is_root && is_debian || die "no image registry answers, and base images can only be built by root on Debian. Give names of images that you have: BASE_IMAGE (Python 3.11 or later), PROMETHEUS_IMAGE, ALERTMANAGER_IMAGE."
        apt_install debootstrap
        say "building a base image from Debian $SUITE (about a minute)"
        root=$(mktemp -d "$CACHE/root.XXXXXX")
        debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates,wget "$SUITE" "$root" $(debian_mirror) >"$CACHE/debootstrap.log" 2>&1 ||
            { tail -5 "$CACHE/debootstrap.log" >&2; rm -rf --one-file-system "$root"; die "debootstrap failed; see $CACHE/debootstrap.log"; }
        # pip and apt inside the builds must trust what this machine trusts (a proxy that re-signs, for example).
        mkdir -p "$root/etc/stuckproof"
        cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/stuckproof/ca-bundle.crt"
        rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/usr/share/doc/* "$root"/usr/share/man/*
        tar -C "$root" --numeric-owner -cf "$tar.part" .
        mv "$tar.part" "$tar"
        rm -rf --one-file-system "$root"
    fi
    docker import -c 'ENV PIP_CERT=/etc/stuckproof/ca-bundle.crt' -c 'CMD ["python3"]' "$tar" "$LOCAL/base:$SUITE" >/dev/null
}

# build TAG DOCKERFILE ARG=VALUE…: no buildx needed; the host's network, because a machine's proxy or DNS is often reachable only there.
build() {
    local image=$1 file=$2 arg args=()
    shift 2
    for arg in "$@" HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy PIP_INDEX_URL; do
        case $arg in
        *=*) args+=(--build-arg "$arg") ;;
        *) [ -z "${!arg:-}" ] || args+=(--build-arg "$arg=${!arg}") ;;
        esac
    done
    say "docker build $image"
    docker build --network=host -q --label io.stuckproof=1 "${args[@]}" -t "$image" -f "$ROOT/$file" "$ROOT" >"$CACHE/build.log" 2>&1 ||
        { docker build --network=host "${args[@]}" -t "$image" -f "$ROOT/$file" "$ROOT" 2>&1 | tail -30 >&2; die "building $image failed"; }
}

base() {
    if [ -z "${BASE_IMAGE:-}" ]; then
        if pull "$BASE_ORIGINAL"; then BASE_IMAGE=$BASE_ORIGINAL; else
            debian_base
            BASE_IMAGE=$LOCAL/base:$SUITE
        fi
    fi
}

# service NAME ORIGINAL: sets NAME_IMAGE from the environment, a registry or Debian's package.
service() {
    local variable=$1_IMAGE original=$2 package=$3 image
    if [ -n "${!variable:-}" ]; then
        return 0
    elif pull "$original"; then
        printf -v "$variable" %s "$original"
    else
        image=$LOCAL/$package:debian-$SUITE
        if ! present "$image"; then
            debian_base
            build "$image" deploy/compose/debian.Dockerfile "BASE_IMAGE=$LOCAL/base:$SUITE" "PACKAGE=$package"
        fi
        printf -v "$variable" %s "$image"
    fi
}

ours() {
    base
    EXPORTER_IMAGE=$LOCAL/exporter:$TAG REMEDIATOR_IMAGE=$LOCAL/remediator:$TAG DEMO_IMAGE=$LOCAL/demo:$TAG
    build "$EXPORTER_IMAGE" exporter/Dockerfile "BASE_IMAGE=$BASE_IMAGE"
    build "$REMEDIATOR_IMAGE" remediator/Dockerfile "BASE_IMAGE=$BASE_IMAGE"
    build "$DEMO_IMAGE" demo/Dockerfile "BASE_IMAGE=$BASE_IMAGE"
}

prometheus() { service PROMETHEUS "$PROMETHEUS_ORIGINAL" prometheus; }
alertmanager() { service ALERTMANAGER "$ALERTMANAGER_ORIGINAL" prometheus-alertmanager; }

# Grafana has no package in Debian: it comes from a registry or from GRAFANA_IMAGE.
grafana() {
    [ -n "${GRAFANA_IMAGE:-}" ] || pull "$GRAFANA_ORIGINAL" ||
        die "Grafana needs an image registry, and none answers. Run it without GRAFANA=1, or name an image that you have: GRAFANA_IMAGE."
}

case ${1:-all} in
all)
    base
    prometheus
    alertmanager
    ours
    for name in BASE PROMETHEUS ALERTMANAGER EXPORTER REMEDIATOR DEMO; do
        variable=${name}_IMAGE
        echo "$variable=${!variable}"
    done >"$CACHE/images.env"
    ;;
base | prometheus | alertmanager | ours | grafana) "$1" ;;
*) die "usage: scripts/images.sh [all|base|prometheus|alertmanager|ours|grafana]" ;;
esac
