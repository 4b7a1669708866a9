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
    from streamshed.jobs import Job
    from streamshed.ledger import Ledger
    from streamshed.relations import relation, table
    from streamshed.replay import Replay
    from streamshed.session import Session

__version__ = "0.1.0"

__all__ = [
    "Estimate",
    "InputError",
    "Job",
    "Join",
    "Ledger",
    "Replay",
    "Session",
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
    "table",
    "where",
]


_HEAVY = {
    "Estimate": "estimates",
    "Job": "jobs",
    "Ledger": "ledger",
    "Replay": "replay",
    "Session": "session",
    "policies": "policies",
    "postgres": "database",
    "relation": "relations",
    "table": "relations",
}
"""Names that bring Arrow and a compiler along, and their modules: imported when they are used."""


def __getattr__(name: str) -> Any:
    if name not in _HEAVY:
        raise AttributeError(f"module 'streamshed' has no attribute {name!r}")
    module = importlib.import_module(f"streamshed.{_HEAVY[name]}")
    return module if name == "policies" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
