"""A standalone Spark cluster on this machine, to try jobs on: a master and its workers.

Each worker is a process of its own, with executors of its own, as on machines of their own.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from streamshed.errors import StreamshedError

_HERE = "127.0.0.1"
_MASTER_IS_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_IS_IN = re.compile(r"Successfully registered with master (spark://\S+)")
_TO_START, _TO_STOP = 60.0, 10.0


@contextlib.contextmanager
def cluster(
    workers: int = 2,
    cores: int = 1,
    memory: str = "1g",
    environment: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Start a cluster on free ports of the loopback interface, and stop it at the end.

    Args:
        workers: how many.
        cores: that a worker has for executors.
        memory: that a worker has for executors.
        environment: the variables of the workers and their executors; those of this process, unless
            said.

    Yields:
        What a session calls its master: `spark://127.0.0.1:…`.

    Raises:
        StreamshedError: a process ended, or was not ready in time.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamshed-")))
        variables = dict(os.environ if environment is None else environment)
        variables |= {
            "SPARK_LOCAL_IP": _HERE,
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_DAEMON_MEMORY": "256m",
            # It would take a port of its own choice, which another cluster may have.
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        place = ["--host", _HERE, "--port", "0", "--webui-port", "0"]
        started = stack.enter_context(
            _process("master.Master", place, variables, folder / "master")
        )
        (master,) = _ready([started], _MASTER_IS_AT)
        share = [*place, "--cores", str(cores), "--memory", memory, "--work-dir", str(folder)]
        _ready(
            [
                stack.enter_context(
                    _process("worker.Worker", [*share, master], variables, folder / f"worker-{i}")
                )
                for i in range(workers)
            ],
            _WORKER_IS_IN,
        )
        yield master


_Started = tuple["subprocess.Popen[bytes]", Path]


@contextlib.contextmanager
def _process(
    what: str, options: list[str], variables: dict[str, str], log: Path
) -> Iterator[_Started]:
    """A process of Spark's, which is stopped at the end, and what it writes."""
    launcher = Path(_find_spark_home()) / "bin" / "spark-class"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [str(launcher), f"org.apache.spark.deploy.{what}", *options],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            # An interrupt from the keyboard is for the job; who started the cluster stops it.
            start_new_session=True,
        )
    try:
        yield process, log
    finally:
        process.terminate()
        try:
            process.wait(_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(started: list[_Started], saying: re.Pattern[str]) -> list[str]:
    """Wait until each process has said so; returns what it said."""
    until = time.monotonic() + _TO_START
    heard = []
    for process, log in started:
        while not (found := saying.search(log.read_text(errors="replace"))):
            ended = process.poll() is not None
            if ended or time.monotonic() > until:
                last = log.read_text(errors="replace").split("\n")[-20:]
                raise StreamshedError(
                    f"Spark's {log.name} {'ended' if ended else 'is not ready'} instead of starting"
                    f" within {_TO_START:.0f} seconds; the end of its log:\n" + "\n".join(last)
                )
            time.sleep(0.05)
        heard.append(found[1])
    return heard
