#!/usr/bin/env bash
# Prints a directory that holds nginx, haproxy and systemd-analyze, for the check of deploy/probes; nothing where it cannot.
# Installs no service: Debian's packages and what they need are only unpacked into the cache.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PATH=$PATH:/usr/sbin
if have nginx && have haproxy && have systemd-analyze; then
    dirname "$(command -v nginx)"
    exit 0
fi
TREE=$CACHE/probetools
BIN=$TREE/wrappers
PATH=$BIN:$PATH
works() { nginx -v && haproxy -v && systemd-analyze --version; } >/dev/null 2>&1
if works; then
    echo "$BIN"
    exit 0
fi
if ! is_debian; then
    note "nginx, haproxy or systemd-analyze is missing; install them with your package manager to have deploy/probes checked"
    exit 0
fi

say "nginx, haproxy or systemd-analyze is missing here; unpacking them into $TREE"
! is_root || apt-get -q -o DPkg::Lock::Timeout=300 update >"$CACHE/apt.log" 2>&1 || die "apt-get update failed; see $CACHE/apt.log"
mkdir -p "$BIN"
work=$(mktemp -d "$CACHE/debs.XXXXXX")
trap 'rm -rf "$work"' EXIT
mapfile -t packages < <(apt-get -s install --no-install-recommends nginx-light haproxy systemd 2>/dev/null | awk '/^Inst/ { print $2 }')
(cd "$work" && apt-get -q download "${packages[@]}") >>"$CACHE/apt.log" 2>&1 || die "download failed; see $CACHE/apt.log"
for package in "$work"/*.deb; do dpkg -x "$package" "$TREE"; done
libraries=$(find "$TREE" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
for program in usr/sbin/nginx usr/sbin/haproxy usr/bin/systemd-analyze; do
    [ -x "$TREE/$program" ] || continue # on the machine already
    # The trailing colon: after these units, those of the machine.
    printf '#!/bin/sh\nSYSTEMD_UNIT_PATH=%s LD_LIBRARY_PATH=%s exec %s "$@"\n' \
        "$TREE/lib/systemd/system:" "$libraries" "$TREE/$program" >"$BIN/${program##*/}"
    chmod 755 "$BIN/${program##*/}"
done
works || die "an unpacked program does not run; see $TREE"
echo "$BIN"
