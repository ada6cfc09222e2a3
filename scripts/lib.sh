# Shared by the scripts beside it; sourced, never run. Needs bash.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${STUCKPROOF_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/stuckproof}
mkdir -p "$CACHE"

say() { printf '==> %s\n' "$*" >&2; }
note() { printf '    %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

is_root() { [ "$(id -u)" = 0 ]; }
have() { command -v "$1" >/dev/null 2>&1; }
is_debian() { [ -r /etc/debian_version ] && have apt-get; }

# Asks once on a terminal; YES=1, CI and a missing terminal mean yes (nobody could answer).
confirm() {
    if [ "${YES:-}" = 1 ] || [ -n "${CI:-}" ] || [ ! -t 0 ]; then
        return 0
    fi
    local answer
    printf '%s [y/N] ' "$1" >&2
    read -r answer
    case $answer in y | Y | yes) ;; *) die "nothing was changed. Run it again with YES=1 to skip the question." ;; esac
}

# Installs the Debian packages that are missing: apt_install PACKAGE…
apt_install() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    is_debian || die "missing: ${missing[*]}. This is no Debian; install them with your package manager."
    is_root || die "missing Debian packages: ${missing[*]}. Run 'sudo apt-get install ${missing[*]}', then run this again."
    say "apt-get install ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q -o DPkg::Lock::Timeout=300 update >"$CACHE/apt.log" 2>&1 || { tail -5 "$CACHE/apt.log" >&2; die "apt-get update failed; see $CACHE/apt.log"; }
    apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${missing[@]}" >>"$CACHE/apt.log" 2>&1 ||
        { tail -20 "$CACHE/apt.log" >&2; die "apt-get install ${missing[*]} failed; see $CACHE/apt.log"; }
}
