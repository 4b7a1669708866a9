#!/usr/bin/env bash
# Builds dist/: an sdist, and a wheel with the common kernels inside. JOINS chooses others.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
kernels=src/streamshed/_kernels
trap 'rm -rf "$kernels"' EXIT
rm -rf "$kernels" dist

"$python" -m hatchling build --target sdist
# shellcheck disable=SC2086 # several joins are several words
"$python" -m streamshed.cli compile ${JOINS:-common} --to "$kernels"
"$python" -m hatchling build --target wheel
