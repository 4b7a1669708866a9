"""Joins through Spark Connect: the client has no Spark of its own, only the address of a server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queries import PATIENCE, environment

CLIENT = Path(__file__).with_name("connect_client.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of Spark Connect on a free port of this machine."""
    pytest.importorskip("grpc")
    from pyspark.find_spark_home import _find_spark_home

    folder = tmp_path_factory.mktemp("connect")
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    variables = environment(SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_DIRS=str(folder))
    log = folder / "log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [f"{_find_spark_home()}/bin/spark-submit", "--master", "local[2]", *options, *main],
            env=variables,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    try:
        until, started = time.monotonic() + 120, "Spark Connect server started at: "
        while started not in (said := log.read_text()):
            assert process.poll() is None, said
            assert time.monotonic() < until, said
            time.sleep(0.1)
        yield "sc://" + said.partition(started)[2].split()[0]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


@pytest.mark.slow
def test_joins_are_those_of_replay(server: str, tmp_path: Path) -> None:
    """Without a number of shards, through relations, and by the clock; each with its ledger."""
    client = [sys.executable, str(CLIENT), server, str(tmp_path)]
    done = subprocess.run(
        client, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["key", "relation", "batch", "wall", "polled", "listener"]
