"""The runtime on Spark: `Join.stream`, the ledger of a running query, and its listener."""

from __future__ import annotations

from streamshed.spark.progress import LedgerListener, ledger
from streamshed.spark.streaming import stream
from streamshed.spark.windows import stream_aggregate

__all__ = ["LedgerListener", "ledger", "stream", "stream_aggregate"]
