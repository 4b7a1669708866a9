"""Windows of records cut into basic windows, each in order of time: the index of a user's function.

The basic windows are those of `sorted_windows`, with times for values. A function has to be asked
of each two rows, so nothing is spared where all rows are probed; where the work of a join is
bounded, only the rows of chosen parts are visited (section IV of the GrubJoin paper).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.gate.hooks import is_probed, probed_run
from streamshed.engine.match.pairs import agree, enter, in_order, mine, seek, stage, take_out
from streamshed.engine.match.sorted_windows import (
    enter_row,
    next_probed,
    places_within,
    sorted_layout,
    take_out_row,
)
from streamshed.kernels.bounds import partner_times
from streamshed.kernels.compiling import implements
from streamshed.kernels.core import NONE, Field


class RecordWindows(NamedTuple):
    """The basic windows of all lanes, and some columns of each row; see `SortedWindows`."""

    values: npt.NDArray[np.int64]  # by (basic window, place): times
    rows: npt.NDArray[np.int32]
    times: npt.NDArray[np.int64]
    basic: npt.NDArray[Any]
    sides: npt.NDArray[Any]
    free: npt.NDArray[np.int64]
    value_of: npt.NDArray[np.int64]  # by row its time, and last the newcomer's
    basic_of: npt.NDArray[np.int32]
    records: npt.NDArray[Any]  # by row, and last the newcomer's
    function: Any  # says whether two agree


def record_layout(dtype: npt.DTypeLike, basic: int) -> dict[str, Field]:
    """The arrays, with room for so many basic windows."""
    return sorted_layout(basic, np.int64) | {"records": Field("key", dtype, None)}


@implements(mine, RecordWindows)
def _mine(index):  # type: ignore[no-untyped-def]
    return index.records.size - 1


@implements(stage, RecordWindows)
def _stage(index, batch, i):  # type: ignore[no-untyped-def]
    index.value_of[index.value_of.size - 1] = batch.time[i]
    index.records[index.records.size - 1] = batch.values[i]


@implements(enter, RecordWindows)
def _on_enter(index, core, row):  # type: ignore[no-untyped-def]
    index.records[row] = index.records[index.records.size - 1]
    enter_row(index, core, row)


implements(take_out, RecordWindows)(take_out_row)


@implements(agree, RecordWindows)
def _agree(index, one, other):  # type: ignore[no-untyped-def]
    return index.function(index.records[one], index.records[other])


@implements(seek, RecordWindows)
def _seek(index, core, throttle, selectivity, batch, work, i, key, lane, step, filled):  # type: ignore[no-untyped-def]
    time, stream = batch.time[i], batch.stream[i]
    earliest, latest = partner_times(core, stream, time, lane)
    times, newcomer = index.times, index.records.size - 1
    looked = 0
    place = np.int64(index.sides[lane].newest)
    while True:
        place = next_probed(index, throttle, stream, lane, time, earliest, latest, place)
        if place == NONE:
            break
        at, end = places_within(index, place, earliest, latest)
        while at < end:
            until, chosen = probed_run(throttle, stream, lane, time, times, at, end)
            for k in range(at, until if chosen else at):
                row = np.int64(index.rows[k])
                if is_probed(throttle, core, stream, lane, time - times[k], row):
                    looked += 1
                    if in_order(index, stream, newcomer, lane, row):
                        work.partners[filled] = row
                        filled += 1
            at = until
        place = np.int64(index.basic[place].before)
    selectivity.looked[step] = looked
    return filled
