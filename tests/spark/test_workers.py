"""What was imported is left out of garbage collections in workers, and there alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest

from streamshed.spark import workers


def test_nothing_is_frozen_outside_of_workers() -> None:
    before = gc.get_freeze_count()
    workers.begin_task()
    assert gc.get_freeze_count() == before


@pytest.mark.spark
def test_imports_are_frozen_unless_a_join_is_at_hand(spark) -> None:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        import streamshed.spark.processor  # noqa: F401 - with all that it needs
        from streamshed.spark import workers

        gc.unfreeze()
        workers._frozen.clear()
        at_hand, found = dict(workers.AT_HAND), []
        for kept in ({"token": 1}, {}):
            workers.AT_HAND.clear()
            workers.AT_HAND.update(kept)
            workers.begin_task()
            found.append(gc.get_freeze_count())
        workers.AT_HAND.clear()
        workers.AT_HAND.update(at_hand)
        for _ in batches:
            pass
        yield pa.record_batch({"with_join": found[:1], "without": found[1:]})

    frozen = spark.range(1).coalesce(1).mapInArrow(counted, "with_join long, without long").first()
    assert frozen.with_join == 0
    assert frozen.without > 50_000
