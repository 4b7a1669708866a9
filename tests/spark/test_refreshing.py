"""Relations and tables that the driver reads anew while a query runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamshed as ss
from databases import server
from streaming import Files
from streamshed.join import spec_of
from streamshed.spark import refreshing
from streamshed.spark.processor import JoinProcessor
from streamshed.spark.refreshing import VersionFolder, Versions
from streamshed.spark.streaming import prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

R = pa.table({"ts": [1, 2, 3], "x": [1, 2, 3]})
S = pa.table({"ts": [1, 2, 3], "y": ["p", "q", "r"]})
BEFORE = pa.table({"a": [1, 2], "b": ["p", "q"], "note": ["one", "two"]})
AFTER = pa.table({"a": [2, 3], "b": ["q", "r"], "note": ["TWO", "THREE"]})
PAIR = ss.join("r", "s").on(r="x", s="y").within(100, time="ts")
ALONE = ss.join("r").on("x").within(0, time="ts")


def polled(file: Path, folder: Path, refresh: str = "1 hour") -> ss.Relation:
    return ss.relation(str(file), refresh=refresh, versions=str(folder))


def run(frame: DataFrame, files: Files) -> dict[int, list[tuple[int, str]]]:
    """The results of each batch that a query does until all files are read."""
    made = {}

    def note(results: DataFrame, batch: int) -> None:
        found = results.toArrow().to_pylist()
        made[batch] = sorted((row["r"]["ts"], row["relation"]["note"]) for row in found)

    query = (
        frame.writeStream.foreachBatch(note)
        .option("checkpointLocation", str(files.folder / "_checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return made


def undo(files: Files, batch: int) -> None:
    """Leave the checkpoint as a driver that dies before the end of the batch."""
    for name in (str(batch), f".{batch}.crc"):
        (files.folder / "_checkpoint" / "commits" / name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("join", "shards", "fetched"), [(ALONE, 1, False), (PAIR, 1, True), (PAIR, 4, False)]
)
def test_a_batch_done_again_after_a_restart_has_the_facts_that_it_had(
    spark: SparkSession,
    files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    join: ss.Join,
    shards: int,
    fetched: bool,
) -> None:
    """Whatever the table has become meanwhile; later batches have what it has become."""
    if fetched:  # by workers, as on Spark Connect
        monkeypatch.setattr(refreshing, "context_of", lambda session: None)
    file, folder = tmp_path / "_pairs.parquet", tmp_path / "_versions"
    met = {"r": "a"} if join is ALONE else {"r": "a", "s": "b"}
    streams = list(met)

    def results() -> dict[int, list[tuple[int, str]]]:
        through = join.through(polled(file, folder), **met)
        return run(through.stream(files.frames(spark), shards=shards), files)

    pq.write_table(BEFORE, file)
    files.write([{name: {"r": R, "s": S}[name] for name in streams}])
    assert results() == {0: [(1, "one"), (2, "two")]}
    undo(files, 0)
    pq.write_table(AFTER, file)
    assert results() == {0: [(1, "one"), (2, "two")]}
    time.sleep(2.1)  # what was read counts two seconds later
    later = {
        "r": pa.table({"ts": [11, 12, 13], "x": [1, 2, 3]}),
        "s": pa.table({"ts": [12, 13], "y": ["q", "r"]}),
    }
    files.write([{name: later[name] for name in streams}])
    found = [(12, "TWO"), (13, "THREE")]
    if join is PAIR:  # rows of before match what the table has now
        found = [(2, "TWO"), *found]
        found = sorted([*found, (12, "TWO")])
    assert results() == {1: found}
    pq.write_table(BEFORE, file)
    undo(files, 1)
    assert results() == {1: found}


def test_a_relation_is_read_while_a_query_runs(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    """Each version is kept in the folder before a batch has it."""
    place, folder = tmp_path / "_pairs", tmp_path / "_versions"
    place.mkdir()
    pq.write_table(BEFORE, place / "0.parquet")
    facts = ss.relation(spark.read.parquet(str(place)), refresh="1 second", versions=str(folder))
    files.write([{"r": R}])
    frame = ALONE.through(facts, r="a").stream(files.frames(spark), shards=2)
    query = files.start(frame)
    query.awaitTermination()
    pq.write_table(AFTER, place / "1.parquet")
    until = time.monotonic() + 30
    while len(list(folder.glob("since-*"))) < 2:
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(2.1)
    files.write([{"r": pa.table({"ts": [9, 9], "x": [1, 3]})}])
    files.start(frame).awaitTermination()
    made = files.results(frame).to_pylist()
    found = sorted((row["r"]["ts"], row["relation"]["note"]) for row in made)
    assert found == [(1, "one"), (2, "two"), (9, "THREE"), (9, "one")]


def test_no_password_of_a_polled_table_is_in_a_plan(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    """The driver alone reads the table; neither plans nor the files that are handed out say how."""
    from pyspark import cloudpickle

    files.write([{"r": R}])
    with server() as database:
        database.run("CREATE TABLE pairs AS SELECT 1::bigint AS a, 'one'::text AS note")
        table = ss.postgres(database.url.replace("@", ":hunter2@"), "pairs")
        facts = ss.relation(table, refresh="1 hour", versions=str(tmp_path / "_versions"))
        spec = spec_of(ALONE.through(facts, r="a"))
        for _ in range(2):  # the second time with versions that were kept
            plan, _, sharding = prepared(spec, files.frames(spark), shards=1)
            assert b"hunter2" not in cloudpickle.dumps(JoinProcessor(plan, sharding))
            database.run("INSERT INTO pairs VALUES (2, 'two')")
    assert sharding.versions is not None
    token = sharding.versions.token
    handed = [path for path in spark.sparkContext.listFiles if f"/{token}-" in path]
    assert len(handed) == 4  # two versions: their rows, and from when on each counts
    assert not any(b"hunter2" in Path(path.removeprefix("file:")).read_bytes() for path in handed)
    kept = [path for path in (tmp_path / "_versions").iterdir() if path.is_file()]
    assert not any(b"hunter2" in path.read_bytes() for path in kept)


def opened(folder: Path, token: str) -> VersionFolder:
    found = VersionFolder.of(polled(folder / "x.parquet", folder), token)
    assert found is not None
    return found


def test_versions_that_no_batch_needs_are_removed(tmp_path: Path) -> None:
    folder, needed = opened(tmp_path, "me"), refreshing._NEEDED
    rows = {name: pa.record_batch({"a": [name]}) for name in "xyz"}

    def handed(*names: str) -> list[str]:
        for name in names:
            (tmp_path / name).touch()
            folder.hand_out(tmp_path / name)
        return sorted(path.name for path in tmp_path.glob("handed-out/*"))

    handed("other-rows-x")  # by a poller of before
    for since, name in ((0, "x"), (100, "y"), (200, "x"), (200 + needed, "z")):
        folder.keep(name, rows[name])
        handed(f"me-rows-{name}")
        folder.begin(version := refreshing._Kept(since, name))
        handed(f"me-since-{version.since}")
    # A batch that began before 200 may still be done again, and one that began before 100 may not.
    assert folder.kept() == [(100, "y"), (200, "x"), (200 + needed, "z")]
    folder.begin(refreshing._Kept(201 + needed, "x"))
    assert folder.kept() == [(200, "x"), (200 + needed, "z"), (201 + needed, "x")]
    assert sorted(path.name for path in tmp_path.glob("rows-*")) == ["rows-x", "rows-z"]
    counting = ["me-since-200", f"me-since-{200 + needed}"]
    assert handed() == ["me-rows-x", "me-rows-z", *counting]
    assert folder.rows("z", rows["z"].schema) == rows["z"]
    with pytest.raises(ss.SpecError, match=r"relation 'relation': .* lack the column 'b'"):
        folder.rows("z", pa.schema([("b", pa.int64())]))


def test_only_the_last_poller_writes(tmp_path: Path) -> None:
    """A driver that was left behind must not add versions that another's batches have not seen."""
    first = opened(tmp_path, "first")
    assert first.is_mine()
    assert opened(tmp_path, "second").is_mine()
    assert not first.is_mine()


def test_an_executor_that_cannot_reach_the_folder_says_so(tmp_path: Path) -> None:
    folder = str(tmp_path / "elsewhere")
    with pytest.raises(ss.StateError, match=r"finds no version .*/elsewhere'; let `versions` be"):
        Versions("token", folder=folder).at(1)


def test_spark_connect_needs_a_folder(spark: SparkSession, files: Files, monkeypatch) -> None:
    files.write([{"r": R}])
    monkeypatch.setattr(refreshing, "context_of", lambda session: None)
    join = ALONE.through(ss.relation(lambda: BEFORE, refresh="1 hour"), r="a")
    with pytest.raises(ss.SpecError, match=r"`refresh` needs `versions` on Spark Connect"):
        join.stream(files.frames(spark))


def test_a_version_that_is_kept_no_more_is_named() -> None:
    with pytest.raises(ss.StateError, match=r"in use at 1970-01-01 00:00:01 UTC has been removed"):
        Versions("token", 2_000_000).at(1_000_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"refresh": "1 hour", "changes": BEFORE}, "`refresh` and `changes` were both given"),
        ({"versions": "folder"}, "`versions` is 'folder', but the rows are read once"),
        ({"refresh": "1 hour", "versions": 3}, "`versions` is 3; give the path or URI"),
        ({"refresh": "0 s"}, r"relation\(\): `refresh` is '0 s'; it must be greater than 0"),
    ],
)
def test_what_cannot_be_read_anew_says_why(options: dict, message: str) -> None:
    with pytest.raises(ss.SpecError, match=message):
        ss.relation("pairs.parquet", **options)


def test_a_session_reads_its_relation_anew(tmp_path: Path) -> None:
    file = tmp_path / "pairs.parquet"
    pq.write_table(BEFORE, file)
    join = PAIR.through(ss.relation(str(file), refresh="1 us"), r="a", s="b")
    with join.open({"r": R.schema, "s": S.schema}) as session:
        assert session.push(r=R, s=S).num_rows == 2
        pq.write_table(AFTER, file)
        made = session.push(s=pa.table({"ts": [9, 9], "y": ["p", "q"]})).to_pylist()
    assert [row["relation"]["note"] for row in made] == ["TWO"]
