#!/usr/bin/env bash
# Prints a directory that holds promtool, amtool, prometheus and alertmanager, or nothing if all are on the PATH. Installs no service:
# Debian's packages are only unpacked into the cache; elsewhere the programs run out of the images.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

complete() { have promtool && have amtool && have prometheus && { have alertmanager || have prometheus-alertmanager; }; }
if complete; then
    exit 0
fi
TREE=$CACHE/promtools
BIN=$TREE/bin
PATH=$BIN:$PATH
if complete; then
    echo "$BIN"
    exit 0
fi
mkdir -p "$BIN"

unpack_debian() {
    local work program
    is_root && is_debian || return 1
    apt-get -q -o DPkg::Lock::Timeout=300 update >"$CACHE/apt.log" 2>&1 || return 1
    work=$(mktemp -d "$CACHE/debs.XXXXXX")
    # apt's sandbox user may not write here; that is only a warning.
    if (cd "$work" && apt-get -q download prometheus prometheus-alertmanager) >>"$CACHE/apt.log" 2>&1; then
        for package in "$work"/*.deb; do dpkg -x "$package" "$TREE"; done
    fi
    rm -rf "$work"
    for program in prometheus promtool amtool; do ln -sf "../usr/bin/$program" "$BIN/$program"; done
    # Debian's Alertmanager reads its default template from /usr/share: it sees an overlay there, nobody else does.
    cat >"$BIN/prometheus-alertmanager" <<END
#!/bin/sh
exec unshare --mount sh -c 'mount -t overlay stuckproof -o lowerdir=$TREE/usr/share:/usr/share /usr/share && exec "\$@"' sh $TREE/usr/bin/prometheus-alertmanager "\$@"
END
    chmod 755 "$BIN/prometheus-alertmanager"
    complete && promtool --version >/dev/null 2>&1 && prometheus-alertmanager --version >/dev/null 2>&1
}

# wrapper PROGRAM IMAGE
wrapper() {
    cat >"$BIN/$1" <<END
#!/bin/sh
exec docker run --rm -i --network host -u "\$(id -u):\$(id -g)" -v "$ROOT:$ROOT:ro" -v "\${TMPDIR:-/tmp}:\${TMPDIR:-/tmp}" -w "\$PWD" --entrypoint $1 $2 "\$@"
END
    chmod 755 "$BIN/$1"
}

say "the programs of Prometheus and Alertmanager are missing here; putting them into $CACHE/promtools"
if ! unpack_debian; then
    "$ROOT/scripts/images.sh" all
    load_images
    wrapper promtool "$PROMETHEUS_IMAGE"
    wrapper prometheus "$PROMETHEUS_IMAGE"
    wrapper amtool "$ALERTMANAGER_IMAGE"
    wrapper alertmanager "$ALERTMANAGER_IMAGE"
fi
echo "$BIN"
