#!/usr/bin/env bash
# Prints a directory that holds promtool and amtool, or nothing if both are on the PATH already. Installs no service:
# Debian's packages are only unpacked into the cache; elsewhere the programs run out of the images.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if have promtool && have amtool; then
    exit 0
fi
BIN=$CACHE/promtools/usr/bin
if [ -x "$BIN/promtool" ] && [ -x "$BIN/amtool" ]; then
    echo "$BIN"
    exit 0
fi
mkdir -p "$BIN"

unpack_debian() {
    local work
    is_debian || return 1
    ! is_root || apt-get -q -o DPkg::Lock::Timeout=300 update >"$CACHE/apt.log" 2>&1 || return 1
    work=$(mktemp -d "$CACHE/debs.XXXXXX")
    # apt's sandbox user may not write here; that is only a warning.
    if (cd "$work" && apt-get -q download prometheus prometheus-alertmanager) >>"$CACHE/apt.log" 2>&1; then
        for package in "$work"/*.deb; do dpkg -x "$package" "$CACHE/promtools"; done
    fi
    rm -rf "$work"
    [ -x "$BIN/promtool" ] && [ -x "$BIN/amtool" ] && "$BIN/promtool" --version >/dev/null 2>&1
}

# wrapper PROGRAM IMAGE
wrapper() {
    cat >"$BIN/$1" <<END
#!/bin/sh
exec docker run --rm -i --network none -u "\$(id -u):\$(id -g)" -v "$ROOT:$ROOT:ro" -v "\${TMPDIR:-/tmp}:\${TMPDIR:-/tmp}" -w "\$PWD" --entrypoint $1 $2 "\$@"
END
    chmod 755 "$BIN/$1"
}

say "promtool and amtool are missing here; putting them into $CACHE/promtools"
if ! unpack_debian; then
    "$ROOT/scripts/images.sh" all
    load_images
    wrapper promtool "$PROMETHEUS_IMAGE"
    wrapper amtool "$ALERTMANAGER_IMAGE"
fi
echo "$BIN"
