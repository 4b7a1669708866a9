"""What all generators have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from streamshed_lab.workloads.arrivals import stream_names
from streamshed_lab.workloads.checks import require


@dataclass(frozen=True)
class Workload(ABC):
    """Some streams, equally long and equally fast.

    Attributes:
        streams: how many streams there are, named `s1`, `s2`, …
        tuples: rows per stream.
        rate: rows per second of each stream.
    """

    streams: int = 5
    tuples: int = 10_000
    rate: float = 10.0

    unique_keys: ClassVar[bool] = False
    """Whether every key is at most once in a stream; two workloads then share none."""

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        require(self.streams >= 2, "streams", self.streams, "2 or more")
        require(self.tuples >= 1, "tuples", self.tuples, "1 or more")
        require(self.rate > 0, "rate", self.rate, "more than 0 rows per second")

    @property
    def names(self) -> list[str]:
        """The names of the streams."""
        return stream_names(self.streams)

    @property
    def seconds(self) -> float:
        """The length of the trace."""
        return self.tuples / self.rate

    @abstractmethod
    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams: at least the columns `key` and `time`, in time order."""
