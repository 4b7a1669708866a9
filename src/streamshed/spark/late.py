"""Rows that came too late, kept in files."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from streamshed.ledger import MANY_LATE
from streamshed.spark.folders import file_system, written_at_once

logger = logging.getLogger("streamshed.spark")


class LateFiles:
    """Writes the late rows of one shard and batch: a Parquet file for each stream.

    The names say which state of which shard wrote them, so that a batch done again after a failure
    writes the same files again, not more of them.

    Args:
        folder: a path or a URI.
        lineage: the name of the shard's state.
        version: of this state.
    """

    def __init__(self, folder: str, lineage: str, version: int) -> None:
        self.folder = folder
        self.name = f"{lineage}-{version:09d}.parquet"
        self.waiting: dict[str, list[pa.RecordBatch]] = {}

    def write(self, stream: str, rows: pa.RecordBatch) -> None:
        """Take late rows of a stream."""
        self.waiting.setdefault(stream, []).append(rows)

    def close(self) -> None:
        """Write the files, each at once or not at all."""
        if not self.waiting:
            return
        system, root = file_system(self.folder)
        for stream, batches in self.waiting.items():
            with written_at_once(system, f"{root.rstrip('/')}/{stream}/{self.name}") as file:
                pq.write_table(pa.Table.from_batches(batches), file)


def late_warning(
    before: Mapping[object, int], now: Mapping[object, int], kept: bool = False
) -> str | None:
    """What to say of late rows: once there are more than a few, then at ten times as many.

    Args:
        before: the late rows of each stream before a batch.
        now: those after it.
        kept: whether they are kept in files.

    Examples:
        >>> late_warning({"a": 3}, {"a": 9})
        >>> print(late_warning({"a": 9}, {"a": 1234}, kept=True))
        1,234 rows were left out as late (1,234 of stream 'a'); allow for it, as in
        .within(…, late='30 seconds')
    """
    total = sum(now.values())
    if total < MANY_LATE or len(str(total)) == len(str(sum(before.values()))):
        return None
    worst = max(now, key=lambda stream: now[stream])
    remedy = "" if kept else ", or keep them in files, as in .stream(…, late_to='folder')"
    return (
        f"{total:,} rows were left out as late ({now[worst]:,} of stream {worst!r}); allow for it,"
        f" as in .within(…, late='30 seconds'){remedy}"
    )
