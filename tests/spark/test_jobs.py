"""Jobs on Spark: the examples, and how a job ends."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import streamshed as ss
from streamshed.jobs import Job
from streamshed.jobs.sampling import read_sample, sample
from streamshed.jobs.stopping import wait
from streamshed.spark import ledger

EXAMPLES = Path(__file__).parents[2] / "examples" / "jobs"


def events(rows: int, seed: int, **columns: pa.Array) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, 1800, rows))
    return pa.table(
        {
            "session": random.integers(0, 60, rows),
            "ts": pa.array(times).cast(pa.timestamp("s")).cast(pa.timestamp("us", tz="UTC")),
            **columns,
        }
    )


def run(job: Job, spark) -> None:
    query = job.start(spark)
    wait(query)
    assert ledger(query).balanced


@pytest.fixture
def funnel(tmp_path, monkeypatch):
    """The folder of the example of files, and its tables."""
    monkeypatch.setenv("FUNNEL", str(tmp_path))
    numbers = pa.array(np.arange(300))
    tables = {
        "impressions": events(300, 1, ad=numbers),
        "clicks": events(300, 2, ad=numbers),
        "orders": events(300, 3, price=numbers.cast(pa.float64())),
    }
    for name, table in tables.items():
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "0.parquet")
    return tmp_path, tables


def test_the_example_of_files(spark, funnel):
    folder, tables = funnel
    job = Job.load(EXAMPLES / "files.toml")
    run(job, spark)
    written = spark.read.parquet(str(folder / "results")).toArrow()
    expected = job.joined.replay(tables).table.to_pylist()
    found = {
        (r["ad"], r["clicked"], r["session"], r["price"], r["time"]) for r in written.to_pylist()
    }
    assert len(expected) == written.num_rows > 100
    assert found == {
        (
            row["impressions"]["ad"],
            row["clicks"]["ts"],
            row["orders"]["session"],
            row["orders"]["price"],
            row["time"],
        )
        for row in expected
    }


def test_a_job_may_spill(spark, funnel):
    """What waits on disk when the rows end waits for more of them; the rest is made, once."""
    folder, tables = funnel
    text = (EXAMPLES / "files.toml").read_text()
    text = text.replace("total = 50_000", "total = 400").replace(
        'shed = "output"', f'spill = {{ to = "{folder}/disk" }}'
    )
    (folder / "job.toml").write_text(text)
    job = Job.load(folder / "job.toml")
    run(job, spark)
    written = spark.read.parquet(str(folder / "results")).toArrow()
    exact = Counter(
        (r["impressions"]["ad"], r["clicks"]["ts"], r["orders"]["session"], r["orders"]["price"])
        for r in job.joined.replay(tables).table.to_pylist()
    )
    made = Counter((r["ad"], r["clicked"], r["session"], r["price"]) for r in written.to_pylist())
    assert made <= exact
    assert made.total() > exact.total() // 3


def test_the_example_of_sensors(spark, tmp_path, monkeypatch):
    monkeypatch.setenv("READINGS", str(tmp_path))
    table = events(400, 4, heat=pa.array(np.arange(400) / 10))
    sensors = pa.array([f"s{i % 7}" for i in range(400)])
    rooms = pa.array([f"r{i % 5}" for i in range(400)])
    table = table.drop(["session"]).append_column("sensor", sensors).append_column("room", rooms)
    table = table.select(["sensor", "room", "ts", "heat"])
    (tmp_path / "in").mkdir()
    pa.csv.write_csv(table, tmp_path / "in" / "0.csv")
    job = Job.load(EXAMPLES / "sensors.toml")
    run(job, spark)
    lines = [
        json.loads(line)
        for file in (tmp_path / "out").glob("*.json")
        for line in file.read_text().splitlines()
    ]
    assert len(lines) == job.joined.count(table).results > 100
    assert set(lines[0]) == {"key", "time", "members"}


def test_the_example_of_conditions(spark, tmp_path, monkeypatch):
    monkeypatch.setenv("READINGS", str(tmp_path))
    tables = {}
    for seed, name in enumerate(("inside", "outside")):
        heat = pa.array(np.random.default_rng(seed).random(200) * 5)
        table = events(200, 5 + seed, heat=heat)
        room = pa.array(np.arange(200) % 3, pa.int32())
        tables[name] = table.drop(["session"]).append_column("room", room)
        (tmp_path / name).mkdir()
        rows = tables[name].to_pylist()
        text = "\n".join(json.dumps({**row, "ts": row["ts"].isoformat()}) for row in rows)
        (tmp_path / name / "0.json").write_text(text)
    job = Job.load(EXAMPLES / "conditions.toml")
    run(job, spark)
    figures = spark.read.parquet(str(tmp_path / "figures")).toArrow()
    expected = job.joined.replay(tables).table
    assert figures.num_rows > 2
    assert set(figures["end"].to_pylist()) <= set(expected["end"].to_pylist())


def test_the_example_of_attribution(spark, funnel):
    """Clicks without an impression come when their window has closed; the last ones are held."""
    folder, tables = funnel
    job = Job.load(EXAMPLES / "attribution.toml")
    run(job, spark)
    written = spark.read.parquet(str(folder / "attributed")).toArrow().to_pylist()
    found = {True: set(), False: set()}
    for row in written:
        found[row["shown"] is None].add((row["click"], row["shown"]))
    expected = {True: set(), False: set()}
    inputs = {name: tables[name] for name in ("impressions", "clicks")}
    for row in job.joined.replay(inputs).table.to_pylist():
        shown = row["impressions"] and row["impressions"]["ts"]
        expected[shown is None].add((row["clicks"]["ad"], shown))
    assert all(row["certain"] for row in written)
    assert found[False] == expected[False]
    assert 0 < len(found[True]) < len(expected[True])
    assert found[True] < expected[True]


@pytest.fixture
def with_ads(funnel):
    """The folder of the example of a table, its job, and its inputs."""
    folder, tables = funnel
    ads = pa.table({"ad": range(0, 300, 2), "name": [f"ad {i}" for i in range(150)]})
    (folder / "ads").mkdir()
    pa.csv.write_csv(ads, folder / "ads" / "0.csv")
    job = Job.load(EXAMPLES / "table.toml")
    inputs = {name: tables[name] for name in ("impressions", "clicks")}
    return folder, job, inputs | {"ads": ss.table(ads)}


def test_the_example_of_a_table(spark, with_ads):
    folder, job, inputs = with_ads
    run(job, spark)
    written = spark.read.parquet(str(folder / "named")).toArrow().to_pylist()
    found = sorted((row["name"], row["clicked"], row["shown"]) for row in written)
    expected = sorted(
        (row["ads"]["name"], row["clicks"]["ts"], row["impressions"]["ts"])
        for row in job.joined.replay(inputs).table.to_pylist()
    )
    assert found == expected
    assert len(found) > 20


def test_a_sample_is_an_archive_to_tune_with(spark, with_ads):
    """All rows of some of the keys, in the order of time, and the table as a whole."""
    folder, job, inputs = with_ads
    rows = sample(job, folder / "archive", spark, keys=0.5)
    archive, part = read_sample(job, folder / "archive")
    assert part == 0.5
    assert rows.keys() == {"clicks", "impressions"}
    found = {name: pq.read_table(file) for name, file in archive.items()}
    assert found.pop("ads").num_rows == 150
    keys = set(found["clicks"]["ad"].to_pylist())
    assert 100 < len(keys) < 200
    for name, table in found.items():
        assert table.num_rows == rows[name]
        assert table["ts"].to_pylist() == sorted(table["ts"].to_pylist())
        assert set(table["ad"].to_pylist()) == keys & set(inputs[name]["ad"].to_pylist())
    tuned = job.joined.tune(
        {**archive, "ads": ss.table(archive["ads"])}, recall=0.5, policies=["oldest"], sampled=part
    )
    assert tuned.sample == part
    with pytest.raises(ss.InputError, match="has an archive already"):
        sample(job, folder / "archive", spark)
    with pytest.raises(ss.SpecError, match="must be greater than 0"):
        sample(job, folder / "other", spark, keys=0.0)
    with pytest.raises(ss.InputError, match="is no archive of streamshed sample"):
        read_sample(job, folder)


def test_a_signal_ends_a_job_after_the_batch(spark, tmp_path, monkeypatch):
    """The example of rates has no end; the batch that it has begun it commits."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    job = Job.load(EXAMPLES / "rate.toml")
    for attempt, number in enumerate((signal.SIGTERM, signal.SIGINT)):
        query = job.start(spark)
        folder = tmp_path / "streamshed-rate"
        begun = threading.Thread(
            target=_signal_when, args=(folder / "offsets", 2 * attempt, number)
        )
        begun.start()
        wait(query)
        begun.join()
        assert not query.isActive
        assert (folder / "commits" / str(2 * attempt)).exists()


def _signal_when(folder: Path, batch: int, number: int) -> None:
    """Send this process a signal once a batch has begun."""
    for _ in range(1200):
        if (folder / str(batch)).exists():
            break
        threading.Event().wait(0.1)
    os.kill(os.getpid(), number)
