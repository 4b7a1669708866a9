"""The runtime on Spark: joins in clusters, the ledgers of a query, their listener.

`Join.stream` runs a join on Spark. Names are imported when they are used: a worker of Spark that
needs one module of this package does not load all of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamshed.spark.cluster_join import clustered
    from streamshed.spark.progress import Combined, LedgerListener, combined, ledger, ledgers

__all__ = ["Combined", "LedgerListener", "clustered", "combined", "ledger", "ledgers"]

_MODULES = {
    "Combined": "progress",
    "LedgerListener": "progress",
    "clustered": "cluster_join",
    "combined": "progress",
    "ledger": "progress",
    "ledgers": "progress",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'streamshed.spark' has no attribute {name!r}")
    return getattr(importlib.import_module(f"streamshed.spark.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
