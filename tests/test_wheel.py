"""What is built can be installed: the contents of sdist and wheel, and a first join after that."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILT_FROM = ("src", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE", "scripts")
FIRST = 3.0
"""Seconds from the start of Python to the end of the first join."""

JOIN = """
import pyarrow as pa
import streamshed as ss

rows = pa.table({"k": [1, 2, 3], "ts": [1, 2, 3]})
joined = ss.join("a", "b").on("k").within(10, time="ts").keep(rows=8)
assert joined.replay(a=rows, b=rows).table.num_rows == 3
assert ss.__file__.startswith(@HERE@), ss.__file__
"""


def run(*command: object, **options: object) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of what a build reads, so that nothing is left in the checkout."""
    folder = tmp_path_factory.mktemp("source")
    for name in BUILT_FROM:
        of = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__", "*.kernel")
        if of.is_dir():
            shutil.copytree(of, folder / name, ignore=ignored)
        else:
            shutil.copy(of, folder / name)
    return folder


def test_the_wheel_has_the_packages_and_their_data(source, tmp_path):
    run(sys.executable, "-m", "hatchling", "build", "-d", tmp_path, cwd=source)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    kept = [
        path
        for folder in ("streamshed", "streamshed_lab")
        for path in (source / "src" / folder).rglob("*")
        if path.is_file()
    ]
    assert {str(path.relative_to(source / "src")) for path in kept} <= names
    assert {"streamshed/py.typed", "streamshed/jobs/job.schema.json"} <= names
    assert not [name for name in names if name.startswith("tests")]
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as files:
        inside = {name.partition("/")[2] for name in files.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE"} <= inside


def test_a_wheel_with_kernels_is_for_their_compiler_and_platform(source, tmp_path):
    import numba

    kernels = source / "src" / "streamshed" / "_kernels"
    kernels.mkdir()
    (kernels / "one.kernel").write_bytes(b"compiled")
    try:
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=source)
    finally:
        shutil.rmtree(kernels)
    (wheel,) = tmp_path.glob("*.whl")
    assert f"-cp{sys.version_info.major}{sys.version_info.minor}-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as files:
        assert "streamshed/_kernels/one.kernel" in files.namelist()
        (metadata,) = [name for name in files.namelist() if name.endswith("/METADATA")]
        assert f"Requires-Dist: numba=={numba.__version__}\n" in files.read(metadata).decode()


@pytest.mark.slow
def test_the_first_join_of_an_installed_wheel_compiles_nothing(source, tmp_path):
    """As `make wheel` builds it, in an environment with nothing else; needs a package index."""
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath]))
    assert uv is not None
    paths = {"PYTHONPATH": str(source / "src")}
    joins = {"JOINS": "key key:density", "PYTHON": sys.executable}
    run("scripts/wheel.sh", cwd=source, env=os.environ | joins | paths)
    assert not (source / "src" / "streamshed" / "_kernels").exists()
    (wheel,) = (source / "dist").glob("*.whl")
    run(uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "clean")
    python = tmp_path / "clean" / "bin" / "python"
    # As pip does by itself, modules are compiled to bytecode.
    run(uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, wheel)
    # No cache of this user, and nothing of this checkout.
    clean = {"PATH": os.defpath, "STREAMSHED_CACHE": "off", "HOME": str(tmp_path)}
    code = JOIN.replace("@HERE@", repr(str(tmp_path)))
    timed = f"import time; start = time.perf_counter()\n{code}\nprint(time.perf_counter() - start)"
    seconds = min(float(run(python, "-c", timed, env=clean, cwd=tmp_path)) for _ in range(2))
    assert seconds <= FIRST
    shown = run(python, "-m", "streamshed.cli", "--version", env=clean, cwd=tmp_path)
    assert shown.startswith("streamshed ")
