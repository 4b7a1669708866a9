#!/usr/bin/env bash
# Makes an environment with a Spark that Delta Lake is released for, build/compat/spark-4.1-…, copies Delta's jars to
# build/delta with Maven, and runs the tests marked `delta` there. PYTEST_ARGS chooses among them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v mvn >/dev/null || { echo "delta: Maven is needed (on Debian: apt-get install maven)" >&2; exit 1; }
python=${PYTHON:-python3.11}
uv=${UV:-$PWD/.venv/bin/uv}
venv=build/compat/spark-4.1-$(basename "$python")
[[ -x $venv/bin/python ]] || "$uv" venv --quiet --python "$python" "$venv"
"$uv" pip install --quiet --python "$venv/bin/python" -e '.[connect,frames]' "pyspark==4.1.*" pytest hypothesis scipy \
    --constraint <(sed -n 's/^\([a-z].*==[^ ;]*\).*/\1/p' requirements.lock | grep -v '^pyspark==')
jars=$PWD/build/delta
if [[ ! -e $jars/.ready ]]; then
    for artifact in io.delta:delta-spark_2.13:4.3.0 io.delta:delta-storage:4.3.0; do
        mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory="$jars"
    done
    touch "$jars/.ready"
fi
"$venv/bin/python" -m pytest -m delta tests/delta ${PYTEST_ARGS:-}
