"""Blobs of rows, results and state are bounded by their bytes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import streamshed as ss
from state_handle import Handle
from streamshed.engine.budget_parts import Counted
from streamshed.engine.checkpoint import from_ipc
from streamshed.shards import counted_rows
from streamshed.spark.blobs import BLOB_BYTES, COUNTED, Pack, to_blobs
from streamshed.spark.processor import SENT_BYTES, JoinProcessor
from streamshed.spark.sharding import Sharding
from streamshed.spark.store import PART

ONE = Sharding(partitions=1)
SLACK = 1 << 16
"""Bytes of a blob besides its columns."""


@given(st.lists(st.text(max_size=60), max_size=40), st.integers(1, 3000))
def test_blobs_are_the_rows_again(texts: list[str], most: int) -> None:
    rows = pa.record_batch({"text": pa.array(texts, pa.string())})
    blobs = list(to_blobs(rows, most))
    cut = [from_ipc(blob) for blob in blobs]
    assert pa.Table.from_batches(cut) == pa.Table.from_batches([rows])
    assert all(
        len(blob) <= most or piece.num_rows <= 1 for blob, piece in zip(blobs, cut, strict=True)
    )


def test_rows_that_are_compressed_well_are_in_few_blobs() -> None:
    """As many as they need, though how well they are compressed is found out by trying."""
    texts = ["the very same text for all rows " * 8] * 200_000
    rows = pa.record_batch({"text": texts, "n": np.arange(200_000)})
    blobs = list(to_blobs(rows))
    assert max(map(len, blobs)) <= BLOB_BYTES
    assert len(blobs) <= 2 + rows.nbytes / (4 << 20)
    held = [from_ipc(blob).nbytes for blob in blobs]
    assert max(held) <= 9 << 20


def test_what_shards_are_told_is_in_small_blobs() -> None:
    """Of as many rows as are packed at once, nearly all at other moments and places."""
    count, random = 1 << 18, np.random.default_rng(1)
    keys, times = random.integers(0, 1 << 40, count), np.arange(count) * 1000
    rows = pa.record_batch({"k": keys, "ts": random.permutation(times)})
    join = ss.join("a", "b").on("k").within(1_000_000, time="ts").keep(total=1000)
    plan = join.plan({"a": rows.schema, "b": rows.schema})
    packed = [*Pack(0, plan, Sharding(partitions=2), by_key=True)(iter([rows]))]
    blobs = pa.Table.from_batches(packed).to_pylist()
    told = [blob for blob in blobs if blob["stream"] == COUNTED]
    expected = counted_rows(plan, 0, rows, 2)
    assert expected is not None
    for label in Sharding(partitions=2).labels:
        own = [Counted.of_rows(from_ipc(t["rows"])) for t in told if t["shard"] == label]
        assert Counted.concatenated(own).as_rows() == Counted.concatenated([expected]).as_rows()
    assert len(told) > 2
    assert max(len(blob["rows"]) for blob in blobs) <= BLOB_BYTES


def test_wide_rows_and_results_are_in_small_blobs() -> None:
    """Each of 20 rows meets 20 others, all of 200 KB: 160 MB of results."""
    count = 20
    random = np.random.default_rng(1)
    texts = [random.bytes(100_000).hex() for _ in range(count)]  # which hardly can be compressed
    columns = {"k": [1] * count, "ts": range(count), "text": texts}
    rows = pa.record_batch(columns)
    join = ss.join("a", "b").on("k").within(100, time="ts")
    plan = join.plan({"a": rows.schema, "b": rows.schema})
    numbered = rows.append_column("shard", pa.array([0] * count, pa.int32()))
    packed = [batch for at in (0, 1) for batch in Pack(at, plan, ONE)(iter([numbered] * 9))]
    blobs = pa.Table.from_batches(packed)
    assert max(len(blob.as_py()) for blob in blobs["rows"]) <= BLOB_BYTES + SLACK
    assert sum(from_ipc(blob.as_buffer()).num_rows for blob in blobs["rows"]) == 2 * 9 * count
    assert sum(blobs["number"].to_pylist()) == 2 * sum(range(blobs.num_rows // 2))

    handle = Handle()
    processor = JoinProcessor(plan, ONE)
    processor.init(handle)
    once = [batch for at in (0, 1) for batch in Pack(at, plan, ONE)(iter([numbered]))]
    arrived = pa.Table.from_batches(once).to_pandas()
    made: list[pd.DataFrame] = []
    for frame in processor.handleInputRows((0,), iter([arrived]), None):
        assert sum(map(len, frame.rows)) <= SENT_BYTES + BLOB_BYTES + SLACK
        made.append(frame.assign(rows=[len(blob) for blob in frame.rows]))
    sizes = [size for frame in made for size in frame.rows]
    assert max(sizes) <= BLOB_BYTES + SLACK
    assert sum(sizes) >= count**2 * 400_000
    assert made[-1].counts[0][0] == count**2
    assert max(len(part) for _, part in handle.values.values()) <= PART
