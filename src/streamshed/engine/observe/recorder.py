"""The observer of joins whose rows share no key: it notes rows, which a second join replays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import Batch
from streamshed.engine.clock import note_recent
from streamshed.engine.gate import hooks as gate
from streamshed.engine.observe import hooks
from streamshed.engine.store import count
from streamshed.kernels.compiling import copy_element, implements, kernel
from streamshed.kernels.core import ARRIVALS, NONE, RESULTS, SHED
from streamshed.kernels.intrinsics import bit_length
from streamshed.kernels.random import draw

# The scalars of a recorder, in `Recorder.numbers`.
(
    NOTED,  # rows in the log, those that wait to be replayed included
    SEEN,  # all rows that came
    LEAST,  # rows of a lesser depth are not noted
    STORED,  # rows in the log that the second join holds, or held
    LEVEL,  # newcomers of a lesser depth are not stored
    PROBING,  # newcomers of a lesser depth look for no partners
    FACTS,  # facts of a lesser depth are not in the relation of the second join
    CHECK_AT,  # how many rows have come at the next check
    WORK,  # what the join has done
    SECOND,  # what the second join has done
    WORK_CHECKED,  # both at the last check
    SECOND_CHECKED,
) = range(12)
NUMBERS = 12

ROW_WORK = 32
"""What it takes to let a row come, be stored and leave, in rows looked at or results made."""

FINE = 4
"""Levels of rows are that many times as fine as powers of 2: a row is of a level with the chance
2^(-level / FINE)."""
PARTS = tuple(np.uint64(2 ** (63 + part / FINE)) for part in range(FINE - 1, 0, -1))
"""The lots up to which a number is deeper by such a part, if its highest bit is set."""
_1, _2, _3 = PARTS
_64 = np.uint64(64)

NOTE = np.dtype(
    [
        ("lot", np.uint64),
        ("order", np.int64),  # how many rows came before
        ("number", np.int64),  # of the row in its stream
        ("made", np.int64),  # results of the join before it
        ("work", np.int64),  # what the join had done before it
        ("level", np.int64),  # it is in the sample with the chance 2^(-level / FINE)
        ("mark", np.int64),  # where first results are made: what the second join knows of it
    ],
    align=True,
)
"""What is known of a row in the log besides its columns."""


class Recorder(NamedTuple):
    """The log: rows of the sample in the order of their arrival, then those to be replayed."""

    seed: np.uint64
    by_key: bool  # rows of a key have one lot, so that all of them are in the sample, or none
    whole: bool  # all rows are noted: those that are in no sample move its row windows
    queued: bool  # rows are noted as they come to the queue, which they leave in another order
    rows: Batch
    notes: npt.NDArray[np.void]
    entered: npt.NDArray[np.int64]  # by stream: the rows that came
    before: npt.NDArray[np.int64]  # by (row, stream), if there are row windows: `entered` then
    numbers: npt.NDArray[np.int64]


@implements(hooks.observe, Recorder)
def _observe(recorder, core, rows, at):  # type: ignore[no-untyped-def]
    if not recorder.queued:
        _note(recorder, core, rows, at)


@implements(hooks.on_queued, Recorder)
def _on_queued(recorder, core, rows, at):  # type: ignore[no-untyped-def]
    if recorder.queued:
        _note(recorder, core, rows, at)


@implements(hooks.on_probed, Recorder)
def _on_probed(recorder, work):  # type: ignore[no-untyped-def]
    recorder.numbers[WORK] += ROW_WORK + work


class OfSample(NamedTuple):
    """The router of a second join that all rows come to: those of other keys only come."""

    seed: np.uint64
    numbers: npt.NDArray[np.int64]  # of the recorder


@implements(gate.is_spilled, OfSample)
def _is_spilled(router, matcher, core, rows, at, shift):  # type: ignore[no-untyped-def]
    lot = draw(router.seed, rows.hash[at])
    if depth_of(lot) >= router.numbers[LEVEL]:
        return False
    count(core, rows.stream[at], SHED, 1)
    note_recent(core, rows.stream[at], core.numbers[ARRIVALS] - 1, NONE)
    return True


@kernel
def depth_of(lot):  # type: ignore[no-untyped-def]
    """The largest level that a lot is of; `sample_log.depths_of` finds the same."""
    bits = bit_length(lot)
    high = lot << (_64 - np.uint64(max(1, bits)))
    return FINE * (64 - bits) + (high <= _1) + (high <= _2) + (high <= _3)


@kernel
def _note(recorder, core, rows, at):  # type: ignore[no-untyped-def]
    """Note a row, if it is deep enough."""
    numbers, stream = recorder.numbers, np.int64(rows.stream[at])
    order = numbers[SEEN]
    numbers[SEEN] += 1
    recorder.entered[stream] += 1
    lot = draw(recorder.seed, rows.hash[at] if recorder.by_key else np.uint64(order))
    if not recorder.whole and depth_of(lot) < numbers[LEAST]:
        return
    place = numbers[NOTED]
    numbers[NOTED] += 1
    log, note = recorder.rows, recorder.notes[place]
    note.lot = lot
    note.order = order
    note.number = recorder.entered[stream]
    note.made = core.numbers[RESULTS]
    note.work = numbers[WORK]
    log.stream[place] = rows.stream[at]
    log.time[place] = rows.time[at]
    log.hash[place] = rows.hash[at]
    if log.worth.size > 0:
        log.worth[place] = rows.worth[at]
    if log.hashes.size > 0:
        copy_element(log.hashes, place, rows.hashes, at)
    if log.values.size > 0:
        copy_element(log.values, place, rows.values, at)
    if recorder.before.size > 0:
        streams = recorder.entered.size
        for other in range(streams):
            recorder.before[place * streams + other] = recorder.entered[other]
