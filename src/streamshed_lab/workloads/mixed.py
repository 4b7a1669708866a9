"""Workloads laid side by side, and one after another: mixtures, and streams that change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamshed_lab.workloads.arrivals import SECOND, Ints, stream_names, timestamps
from streamshed_lab.workloads.base import Workload
from streamshed_lab.workloads.checks import require


@dataclass(frozen=True)
class MixedWorkload:
    """Streams made of phases, one after another, each of which mixes the rows of several workloads.

    One phase of several parts is a mixture; several phases of one part each are a workload that
    changes; with several of both the shares of the parts change.

    The parts of a phase have no key in common. A part and the one in the same place of the next
    phase have, if keys repeat in both (`ZipfWorkload`, `NormalWorkload`): another seed then makes
    others of the same keys popular. Where every key is at most once in a stream
    (`ExistenceWorkload`), the next phase has new ones, and a key that is under way when a phase
    ends is cut, as at the end of any trace.

    Attributes:
        phases: the parts of each phase: workloads with the same number of streams, those of a phase
            equally long. A part's share of the rows is its share of the phase's rate.

    Examples:
        >>> from streamshed_lab.workloads import ExistenceWorkload, ZipfWorkload
        >>> unique = ExistenceWorkload(streams=3, tuples=80, rate=8.0, spread=2.0)
        >>> valued = ZipfWorkload(streams=3, tuples=20, rate=2.0)
        >>> MixedWorkload(((unique, valued),)).tables()["s1"].num_rows
        100
        >>> MixedWorkload(((unique,), (valued,))).seconds
        20.0
    """

    phases: tuple[tuple[Workload, ...], ...]

    def __post_init__(self) -> None:
        """Refuse what cannot be laid together."""
        require(
            bool(self.phases) and all(self.phases),
            "phases",
            self.phases,
            "one or more, each of one workload or more",
        )
        streams = sorted({part.streams for phase in self.phases for part in phase})
        require(len(streams) == 1, "phases", streams, "of workloads with as many streams each")
        for phase in self.phases:
            seconds = sorted({round(part.seconds, 6) for part in phase})
            require(len(seconds) == 1, "a phase", seconds, "of workloads that are equally long")

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return self.phases[0][0].streams

    @property
    def seconds(self) -> float:
        """The length of the trace."""
        return sum(phase[0].seconds for phase in self.phases)

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams.

        Returns:
            For each stream, in time order: `key` (int64), `time` (timestamp in microseconds, UTC,
            beginning with 1970) and `part` (int8: the place in its phase of the workload that the
            row is from).
        """
        kinds = 2 * max(len(phase) for phase in self.phases)
        rows: dict[str, list[tuple[Ints, Ints, Ints]]] = {
            name: [] for name in stream_names(self.streams)
        }
        taken = [0] * kinds
        begin = 0.0
        for phase in self.phases:
            for place, part in enumerate(phase):
                kind = 2 * place + part.unique_keys
                first = taken[kind]
                for name, table in part.tables().items():
                    keys = table["key"].to_numpy() + first
                    times = table["time"].cast(pa.int64()).to_numpy() + round(begin * SECOND)
                    rows[name].append((keys * kinds + kind, times, np.full(len(keys), place)))
                    if part.unique_keys:
                        taken[kind] = max(taken[kind], int(keys.max()) + 1)
            begin += phase[0].seconds
        return {name: _in_time_order(parts) for name, parts in rows.items()}


def _in_time_order(parts: list[tuple[Ints, Ints, Ints]]) -> pa.Table:
    keys, times, places = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(times, kind="stable")
    return pa.table(
        {
            "key": keys[order],
            "time": timestamps(times[order]),
            "part": places[order].astype(np.int8),
        }
    )
