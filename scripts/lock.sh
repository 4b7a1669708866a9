#!/usr/bin/env bash
# Pins everything pyproject.toml asks for, with hashes, in requirements.lock. Pins already there stay
# unless they must move; options are handed on: scripts/lock.sh --upgrade, or --upgrade-package NAME.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# One version of each package for all platforms and Pythons: what is tested is what runs. The lock
# names no index, so that it installs from whichever one a machine is set up to use.
export UV_CUSTOM_COMPILE_COMMAND="make lock"
exec "${UV:-.venv/bin/uv}" --quiet pip compile pyproject.toml \
    --extra dev \
    --universal --python-version 3.11 --fork-strategy fewest \
    --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
    --no-emit-package streamshed \
    --output-file requirements.lock "$@" >/dev/null
