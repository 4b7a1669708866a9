"""A job file from Kafka to Kafka on a real broker, killed in the middle: the exact answer."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from queries import environment

JARS = Path(os.environ.get("STREAMSHED_KAFKA", "build/kafka"))
TOPICS = Path(__file__).with_name("topics.py")
JOB = Path(__file__).with_name("job.toml")
EXAMPLE = Path(__file__).parents[2] / "examples" / "jobs" / "kafka.toml"
STREAMS = ("ads", "clicks", "orders")
ROWS = 2_000
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.skipif(not JARS.exists(), reason="no jars of Kafka: make test-kafka fetches them"),
]
PATIENCE = 900

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.dirs={logs}
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def java(*arguments: str) -> list[str]:
    return ["java", "-Xmx512m", "-cp", f"{JARS.resolve()}/broker/*", *arguments]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of a broker with the topics."""
    port, properties = free_port(), tmp_path / "server.properties"
    text = PROPERTIES.format(port=port, controller=free_port(), logs=tmp_path / "logs")
    properties.write_text(text)
    number = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    format_ = ("kafka.tools.StorageTool", "format", "-t", number, "-c", str(properties))
    subprocess.run(java(*format_), check=True, capture_output=True, timeout=PATIENCE)
    with (tmp_path / "broker.log").open("wb") as log:
        server = subprocess.Popen(java("kafka.Kafka", str(properties)), stdout=log, stderr=log)
    address = f"127.0.0.1:{port}"
    try:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and server.poll() is None:
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        for topic in (*STREAMS, "impressions", "results"):
            create = ("--create", "--topic", topic, "--partitions", "2")
            command = java("org.apache.kafka.tools.TopicCommand", *create)
            command += ["--bootstrap-server", address]
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        yield address
    finally:
        server.kill()
        server.wait()


def started(command: list[str], **variables: str) -> subprocess.Popen[bytes]:
    """A process of its own group, which can be killed with all that it has started."""
    settings = environment(STREAMSHED_KAFKA=str(JARS.resolve()), **variables)
    return subprocess.Popen(
        [sys.executable, *command], env=settings, start_new_session=True, stdout=subprocess.PIPE
    )


def finished(process: subprocess.Popen[bytes]) -> bytes:
    """What a process prints until its end."""
    try:
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        return out
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def job(broker: str, folder: Path, file: Path = JOB) -> subprocess.Popen[bytes]:
    """A job, by the command line."""
    jars = ",".join(map(str, sorted((JARS.resolve() / "connector").glob("*.jar"))))
    command = ["-m", "streamshed.cli", "run", str(file), "--json", "--set", f"spark.jars={jars}"]
    return started(
        command, BROKER=broker, KAFKA=broker, FOLDER=str(folder), CHECKPOINT=f"{folder}/c"
    )


def results(broker: str, folder: Path) -> list[dict[str, object]]:
    """What the topic of results holds."""
    finished(started([str(TOPICS), "read", broker, str(folder)]))
    return [json.loads(line) for line in (folder / "results.json").read_text().splitlines()]


def test_a_job_that_is_killed_ends_with_the_exact_answer(broker: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    tables = {}
    for stream in STREAMS:
        ts = pa.array(np.sort(random.integers(0, 3_600_000_000, ROWS))).cast(
            pa.timestamp("us", "UTC")
        )
        tables[stream] = pa.table(
            {"id": np.arange(ROWS), "k": random.integers(0, 40, ROWS), "ts": ts}
        )
        pq.write_table(tables[stream], tmp_path / f"{stream}.parquet")
    finished(started([str(TOPICS), "feed", broker, str(tmp_path)]))

    killed = job(broker, tmp_path)
    commits = tmp_path / "checkpoint" / "commits"
    until = time.monotonic() + PATIENCE
    while not (commits / "1").exists():
        assert killed.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert len([path for path in commits.iterdir() if path.name.isdigit()]) < ROWS // 300
    ledger = json.loads(finished(job(broker, tmp_path)).splitlines()[-1])
    assert all(stream["arrived"] == ROWS for stream in ledger["streams"].values())
    assert not any(stream["late"] for stream in ledger["streams"].values())

    made = results(broker, tmp_path)
    with duckdb.connect() as database:
        for stream, table in tables.items():
            database.register(stream, table)
        exact = database.sql(
            "select ads.id, clicks.id, orders.id"
            " from ads join clicks using (k) join orders using (k)"
            " where greatest(ads.ts, clicks.ts, orders.ts) - least(ads.ts, clicks.ts, orders.ts)"
            " <= interval 2 minutes"
        ).fetchall()
    # The sink delivers at least once: what a batch wrote before it was killed is there twice.
    found = {tuple(row[stream] for stream in STREAMS) for row in made}
    assert len(exact) > 1_000
    assert found == set(exact)
    assert ledger["results"] == len(exact)


def test_the_example_runs(broker: str, tmp_path: Path) -> None:
    """The job of the examples, for a broker that asks for no login, and until all is read.

    Clicks have the time at which they are sent, so that the others come at about that time too.
    """
    file, kept = tmp_path / "kafka.toml", []
    for line in EXAMPLE.read_text().splitlines():
        if "kafka.security" not in line and "kafka.sasl" not in line and "packages" not in line:
            kept.append(line)
    text = "\n".join(kept).replace('topic = "funnel"', 'topic = "results"')
    text = text.replace('processingTime = "10 seconds"', "availableNow = true")
    text = text.replace('"spark.sql.shuffle.partitions" = 8', '"spark.sql.shuffle.partitions" = 2')
    file.write_text(text.replace('idle = "5 minutes"', 'idle = "20 minutes"'))
    sessions, now = np.arange(50), pa.array([time.time_ns() // 1000] * 50)
    ts = now.cast(pa.timestamp("us", "UTC"))
    ads = [{"id": int(n) * 10, "campaign": "spring"} for n in sessions]
    tables = {
        "impressions": {"session": sessions, "ts": ts, "ad": ads},
        "clicks": {"session": sessions[::2], "ad": sessions[::2]},
        "orders": {"session": sessions[::5], "ts": ts[::5], "price": sessions[::5] / 4},
    }
    for stream, columns in tables.items():
        pq.write_table(pa.table(columns), tmp_path / f"{stream}.parquet")
    finished(started([str(TOPICS), "feed", broker, str(tmp_path)]))
    ledger = json.loads(finished(job(broker, tmp_path, file)).splitlines()[-1])
    assert ledger["results"] == 5
    found = sorted((row["session"], row["ad"], row["price"]) for row in results(broker, tmp_path))
    assert found == [(n, n * 10, n / 4) for n in range(0, 50, 10)]
