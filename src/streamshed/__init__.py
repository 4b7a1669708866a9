"""Window joins of many event streams that shed what they cannot hold, and say what it cost.

Example:
    >>> from streamshed import join
    >>> join("impressions", "clicks").on("ad_id").within("10 minutes", time="ts").keep(rows=500)
    join('impressions', 'clicks').on('ad_id').within('10 minutes', time='ts').keep(rows=500)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from streamshed.conditions import cosine, inner_product, near, where
from streamshed.errors import InputError, SpecError, SpillError, StateError, StreamshedError
from streamshed.join import Join, join

if TYPE_CHECKING:
    from streamshed import policies
    from streamshed.database import postgres
    from streamshed.estimates import Estimate
    from streamshed.ledger import Ledger
    from streamshed.relations import relation

__version__ = "0.1.0"

__all__ = [
    "Estimate",
    "InputError",
    "Join",
    "Ledger",
    "SpecError",
    "SpillError",
    "StateError",
    "StreamshedError",
    "__version__",
    "cosine",
    "inner_product",
    "join",
    "near",
    "policies",
    "postgres",
    "relation",
    "where",
]


def __getattr__(name: str) -> Any:
    # These bring Arrow and a compiler along; who only describes joins need not wait for them.
    if name == "policies":
        return importlib.import_module("streamshed.policies")
    if name == "postgres":
        return importlib.import_module("streamshed.database").postgres
    if name == "relation":
        return importlib.import_module("streamshed.relations").relation
    if name == "Estimate":
        return importlib.import_module("streamshed.estimates").Estimate
    if name == "Ledger":
        return importlib.import_module("streamshed.ledger").Ledger
    raise AttributeError(f"module 'streamshed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
