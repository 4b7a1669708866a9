#!/usr/bin/env bash
# Runs the tests on Spark with each of the given versions of pyspark, in environments under
# build/compat, which are kept. PYTHON chooses the interpreter, PYTEST_ARGS the tests.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3.11}
uv=${UV:-$PWD/.venv/bin/uv}
failed=()

for spark in "$@"; do
    venv=build/compat/spark-$spark-$(basename "$python")
    [[ -x $venv/bin/python ]] || "$uv" venv --quiet --python "$python" "$venv"
    # What is locked, but for Spark itself; pyspark is built with setuptools.
    "$uv" pip install --quiet --python "$venv/bin/python" -e '.[connect,frames]' \
        "pyspark==$spark.*" pytest hypothesis scipy \
        --constraint <(sed -n 's/^\([a-z].*==[^ ;]*\).*/\1/p' requirements.lock | grep -v '^pyspark==')
    printf '\n== Spark %s, %s\n' "$spark" "$("$venv/bin/python" --version)"
    # Spark 4.1 leaves sockets to the garbage collector, which warns of them.
    "$venv/bin/python" -m pytest -q -m 'spark and not slow' tests/spark \
        -W ignore::pytest.PytestUnraisableExceptionWarning ${PYTEST_ARGS:-} ||
        failed+=("$spark")
done

# What one version leaves behind is taken up by another: this environment's.
printf '\n== savepoints from one Spark to another\n'
.venv/bin/python -m pytest -q -m slow tests/spark/test_versions.py || failed+=("another's savepoint")

[[ ${#failed[@]} -eq 0 ]] || { printf 'failed with Spark: %s\n' "${failed[*]}" >&2; exit 1; }
