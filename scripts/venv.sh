#!/usr/bin/env bash
# usage: scripts/venv.sh DIRECTORY: a virtual environment with the project (editable) and its development tools
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
make_venv "$1"
say "installing the project and its development tools into $1"
# Dependency groups need pip 25.1.
"$1/bin/python" -m pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
"$1/bin/python" -m pip install -q --disable-pip-version-check --editable . --group dev
touch "$1/bin/.ready"
