"""The steps of the Dockerfile without Docker: a user without a home, and nothing to write to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
USER = re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE)[-1]


# In a mount namespace of its own: the entry that the image has in /etc/passwd, the shared memory
# that Docker gives, and nothing of the home of root but the Python that runs this, should it be
# there.
NAMESPACE = """
set -e
mount --make-rprivate /
mount --bind "$IMAGE/passwd" /etc/passwd
mount -t tmpfs -o size="$SHARED",mode=1777 none /dev/shm
case "$BASE" in "$ROOTS_HOME"/*)
    mkdir -p "$IMAGE/base"
    mount --bind "$BASE" "$IMAGE/base"
    mount -t tmpfs -o mode=755 none "$ROOTS_HOME"
    mkdir -p "$BASE"
    mount --bind "$IMAGE/base" "$BASE" ;;
esac
unset IMAGE BASE ROOTS_HOME SHARED
cd /
exec setpriv "$@"
"""


def as_user(image: Path, *command: object, shared: str = "64m") -> subprocess.CompletedProcess[str]:
    """Run a command as the image does: as its user, without a home, without a cache."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    user = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", NAMESPACE, "sh", *user, *map(str, command)],
        env=kept
        | {
            "PYTHONPATH": str(image / "site"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "STREAMSHED_KERNELS": str(image / "kernels"),
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(image / "tmp"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "MASTER": "local[2]",
            "COLUMNS": "200",
            "IMAGE": str(image),
            "SHARED": shared,
            "BASE": sys.base_prefix,
            "ROOTS_HOME": str(Path.home()),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture
def image():
    """The package as the image has it, and a folder for temporary files."""
    if os.getuid() != 0 or not all(map(shutil.which, ("setpriv", "unshare"))):
        pytest.skip("only root can become another user, in a namespace of its own")
    # Not in a folder of pytest: others may not pass through these.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "built")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "built").glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder / "site")
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    entry = f"spark:x:{USER}:{USER}::/nonexistent:/usr/sbin/nologin\n"
    (folder / "passwd").write_text(Path("/etc/passwd").read_text() + entry)
    probe = as_user(folder, sys.executable, "-c", "import pyarrow")
    if probe.returncode:
        shutil.rmtree(folder)
        pytest.skip(f"user {USER} cannot run {sys.executable}: {probe.stderr[-200:]}")
    yield folder
    shutil.rmtree(folder)


def test_the_image_has_what_it_names():
    for source in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE):
        for name in source.split():
            assert (ROOT / name).exists(), name
    assert USER.isdigit()  # so that Kubernetes can see that it is not root


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("shared", ["64m", "64k"])
def test_the_example_runs_as_a_user_without_a_home(image, shared):
    """`streamshed compile`, then `python examples/ad_funnel.py`, as the image runs them.

    Shared memory may be full: what finds no room there stays in the memory of a worker.
    """
    kernels = str(image / "kernels")
    compiled = subprocess.run(
        [sys.executable, "-m", "streamshed.cli", "compile", "key", "key:output", "--to", kernels],
        env=os.environ | {"PYTHONPATH": str(image / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
    example = image / "examples" / "ad_funnel.py"
    done = as_user(image, sys.executable, example, image / "tmp" / "funnel", shared=shared)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "recall" in done.stdout
    assert "compiling" not in done.stderr


@pytest.mark.slow
@pytest.mark.spark
def test_doctor_finds_what_the_executors_of_the_image_lack(image):
    """Shared memory alone, of which Docker gives 64 MB."""
    found = as_user(image, sys.executable, "-m", "streamshed.cli", "doctor", "--on-executors")
    assert found.returncode == 1, found.stderr[-3_000:]
    executors = " ".join(found.stdout.partition("kernels are written to")[2].split())
    assert "185" in executors
    assert "67 MB" in executors
    assert "--shm-size" in executors
    assert "no folder is writable" not in executors
    assert "cannot be imported" not in executors
