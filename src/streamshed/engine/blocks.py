"""What a running join hands out: blocks of results, and rows that came too late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import UNWEIGHTED
from streamshed.engine.outputs import choices
from streamshed.engine.payload import Payload, Places
from streamshed.engine.results import NO_UPDATES
from streamshed.engine.sink import NO_MEMBERS


class Block(NamedTuple):
    """Some results: for each its time, and the places of its members' rows.

    `ends` says where each result's members end where their number varies; `updates` which arrivals
    made the results, and which they extend, where a column names the streams; `payload` where the
    members' rows are kept. In a partial join whose keys have to be checked, and in a `factorised`
    one, where a row makes one output for all its results, `known` has what is known of each member;
    `unfinished` says whether more results of the last arrival follow. Of rows without a match
    `certain` says whether they have none for sure; it is None where members match.
    """

    time: npt.NDArray[np.int64]
    members: Places
    ends: npt.NDArray[np.int64]
    payload: Sequence[Payload]
    importance: npt.NDArray[np.float64] = UNWEIGHTED
    updates: npt.NDArray[Any] = NO_UPDATES
    known: npt.NDArray[Any] = NO_MEMBERS
    unfinished: bool = False
    certain: npt.NDArray[np.bool_] | None = None
    factorised: bool = False

    @property
    def stands_for(self) -> int:
        """How many results there are; outputs are several each."""
        return int(choices(self).sum()) if self.factorised else len(self.time)

    def split(self, most: int) -> Iterator[Block]:
        """The same results in blocks of so many at most; members to be checked stay together."""
        count = len(self.time)
        if count <= most or (self.known.size and not self.factorised):
            yield self
            return
        for start in range(0, count, most):
            some = slice(start, start + most)
            ends, begin = self.ends[some], int(self.ends[start - 1]) if start else 0
            yield self._replace(
                time=self.time[some],
                members=self.members[begin : int(ends[-1])],
                ends=ends - begin,
                importance=self.importance[some],
                updates=self.updates[some],
                certain=None if self.certain is None else self.certain[some],
                known=self.known[begin : int(ends[-1])],
            )


@dataclass(frozen=True)
class Late:
    """Rows that came too late: of which stream, and where they are kept."""

    stream: npt.NDArray[np.int32]
    payload: Places
