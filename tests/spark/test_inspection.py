"""What a checkpoint says of a job, against what the job itself said."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.spark.inspection import inspect

SAID = ss.join("a", "b").on("k").within("10 minutes", time="ts").keep(total=40).shed("oldest")


def table(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    times = pa.array(np.sort(random.integers(0, 3600, 150))).cast(pa.timestamp("s"))
    return pa.table(
        {"k": random.integers(0, 9, 150), "ts": times.cast(pa.timestamp("us", tz="UTC"))}
    )


def test_a_checkpoint_tells_what_the_join_holds(spark, files):
    batch = {"a": table(1), "b": table(2)}
    files.write([{name: rows.slice(75 * i, 75) for name, rows in batch.items()} for i in (0, 1)])
    ran = files.run(spark, SAID, shards=2)
    (found,) = inspect(spark, str(files.folder / "_checkpoint"))
    assert found.ledger.streams == ran.ledger.streams
    assert found.ledger.results == ran.ledger.results
    assert len({one.shard for one in found.held}) == 2
    for stream, rows in batch.items():
        own = [one for one in found.held if one.stream == stream]
        assert sum(one.rows for one in own) == ran.ledger.streams[stream].stored > 0
        assert min(one.oldest for one in own) >= str(rows["ts"][0].as_py())
    # The oldest are evicted first, so that each shard holds the last of its rows.
    assert found.rows == sum(rows for _, rows in found.keys) <= 40
    # Each shard has its half of the budget, however full the other is.
    held = dict.fromkeys(found.shards, 0)
    for one in found.held:
        held[one.shard] += one.rows
    assert found.evicted_by(11) == {
        shard: rows - part for (shard, rows), part in zip(held.items(), (6, 5), strict=True)
    }
    assert set(found.evicted_by(1000).values()) == {0}
    assert "budget 20 rows of all streams together in each of 2 shards" in str(found)
    assert "not estimated" not in str(found)  # a checkpoint does not say
    assert "total" in found.about["budget"]
    assert "oldest row" in str(found)


def test_what_is_no_checkpoint_is_refused(spark, tmp_path):
    with pytest.raises(ss.InputError, match="holds no state of a join; give the folder that"):
        inspect(spark, str(tmp_path))
