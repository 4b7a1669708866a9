"""Rows that came too late, kept in files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


class LateFiles:
    """Writes the late rows of one shard and batch: a Parquet file for each stream.

    The names say which state of which shard wrote them, so that a batch done again after a failure
    writes the same files again, not more of them.
    """

    def __init__(self, folder: str, lineage: str, version: int) -> None:
        self.folder = Path(folder)
        self.name = f"{lineage}-{version:09d}.parquet"
        self.waiting: dict[str, list[pa.RecordBatch]] = {}

    def write(self, stream: str, rows: pa.RecordBatch) -> None:
        """Take late rows of a stream."""
        self.waiting.setdefault(stream, []).append(rows)

    def close(self) -> None:
        """Write the files, each at once or not at all."""
        for stream, batches in self.waiting.items():
            folder = self.folder / stream
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = folder / f".{self.name}"
            pq.write_table(pa.Table.from_batches(batches), unfinished)
            unfinished.replace(folder / self.name)
