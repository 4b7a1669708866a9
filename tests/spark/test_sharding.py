"""The shards of a join follow from the partitions, which Spark records."""

from __future__ import annotations

import pytest

import streamshed as ss
from streamshed.spark.sharding import MOST, Sharding, spark_hash


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
            Sharding(2, shards=1),
            r"shards was 2 and is 1; give \.stream\(…, shards=2\), or start with a new checkpoint",
        ),
        (
            Sharding(2),
            Sharding(3),
            r"shards was 2 and is 3, spark\.sql\.shuffle\.partitions was 2 and is 3; give"
            r" \.stream\(…, shards=2\) and set spark\.sql\.shuffle\.partitions to 2, or start",
        ),
        (
            Sharding(2, shards=2),
            Sharding(3, shards=2),
            r"other shards: spark\.sql\.shuffle\.partitions was 2 and is 3; set spark\.sql\.shu",
        ),
    ],
)
def test_other_shards_are_refused(before: Sharding, after: Sharding, said: str) -> None:
    before.check(before.recorded())
    with pytest.raises(ss.StateError, match=said):
        after.check(before.recorded())
