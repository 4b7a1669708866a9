"""The shards of a join follow from the partitions, which Spark records."""

from __future__ import annotations

import pytest

import streamshed as ss
from streamshed.spark.sharding import MOST, Sharding, spark_hash
from streamshed.spark.shipping import Cells


def test_shards_are_in_partitions_of_their_own() -> None:
    for partitions in (1, 2, 3, 16, 200):
        sharding = Sharding(partitions)
        assert sharding.count == min(partitions, MOST)
        places = {spark_hash(label) % partitions for label in sharding.labels}
        assert len(places) == sharding.count
    assert Sharding(4, shards=7).count == 7
    assert Sharding(4, most=3).count == 3
    assert Sharding(4, most=50).count == 4


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            Sharding(2, shards=2),
            Sharding(4, shards=1),
            r"made with shards=2, and now there are 1 \(spark\.sql\.shuffle\.partitions is 4\);"
            r" give \.stream\(…, shards=2\), or move its rows to a new checkpoint: streamshed",
        ),
        (
            Sharding(2, shards=2),
            Sharding(3, shards=2),
            r"made with spark\.sql\.shuffle\.partitions=2, and it is 3; set it to 2, or move",
        ),
        (
            Sharding(2, shards=2, cells=Cells(0, (), {}, "these")),
            Sharding(2, shards=2, cells=Cells(0, (), {}, "others")),
            r"other rows or changes than .* 2 shards hold a row; give the relation as it",
        ),
    ],
)
def test_other_shards_are_refused(before: Sharding, after: Sharding, said: str) -> None:
    before.check(before.recorded())
    with pytest.raises(ss.StateError, match=said):
        after.check(before.recorded())
