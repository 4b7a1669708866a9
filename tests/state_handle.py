"""Spark's state API without Spark: the state of one shard in a dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Handle:
    """The handle of a stateful processor, for one key."""

    values: dict[Any, Any] = field(default_factory=dict)

    def getMapState(self, name: str, key: str, value: str) -> Handle:  # noqa: N802 - Spark's name
        return self

    def getValue(self, key: Any) -> Any:  # noqa: N802 - Spark's name
        return self.values.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802 - Spark's name
        self.values[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802 - Spark's name
        self.values.pop(key, None)

    def iterator(self) -> Iterator[Any]:
        return iter(list(self.values.items()))
