"""The runtime on Spark: joins in clusters, the ledgers of a query, their listener.

`Join.stream` runs a join on Spark.
"""

from __future__ import annotations

from streamshed.spark.clustered import clustered
from streamshed.spark.progress import LedgerListener, ledger, ledgers

__all__ = ["LedgerListener", "clustered", "ledger", "ledgers"]
