"""The runtime on Spark: joins in clusters, the ledger of a query, its listener.

`Join.stream` runs a join on Spark.
"""

from __future__ import annotations

from streamshed.spark.clustered import clustered
from streamshed.spark.progress import LedgerListener, ledger

__all__ = ["LedgerListener", "clustered", "ledger"]
