"""The runtime on Spark: `Join.stream`, joins in clusters, the ledger of a query, its listener."""

from __future__ import annotations

from streamshed.spark.clustered import clustered
from streamshed.spark.progress import LedgerListener, ledger
from streamshed.spark.streaming import stream
from streamshed.spark.windows import stream_aggregate

__all__ = ["LedgerListener", "clustered", "ledger", "stream", "stream_aggregate"]
