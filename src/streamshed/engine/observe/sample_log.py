"""The log of a sample: rows that were noted, in the order of their arrival, and its checkpoints.

A second join (`sample_join`) has the rows up to a place of the log; those after it wait to be
replayed.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamshed.engine.allocation import enough
from streamshed.engine.batch import Batch
from streamshed.engine.observe.estimator import positions
from streamshed.engine.observe.recorder import (
    FINE,
    NOTE,
    NOTED,
    NUMBERS,
    PARTS,
    SEEN,
    STORED,
    Recorder,
)
from streamshed.engine.observe.sample_tallies import Sums
from streamshed.engine.observe.state import FAR, GROUPS, STEPS, TALLY
from streamshed.engine.observe.tallies import Estimator, depths, mixed
from streamshed.engine.restore import Rows, live_rows
from streamshed.kernels.core import (
    ARRIVED,
    CLOCK,
    FATES,
    FILTERED,
    FIRST_SEEN,
    LATE,
    NEWEST,
    OVERDUE,
    ROWS_USED,
    Core,
    Field,
    Memory,
    Shape,
)
from streamshed.kernels.random import GOLDEN

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator

CLOCK_NUMBERS = [CLOCK, NEWEST, FIRST_SEEN, OVERDUE]
"""The numbers of a core that are its clock, besides the newest time of each lane."""
_COLUMNS = ("stream", "time", "hash", "worth", "hashes", "values")


def depths_of(lots: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The largest levels that lots are of, as the recorder finds them."""
    whole = depths(lots)
    high = lots << np.minimum(whole, 63).astype(np.uint64)
    found: npt.NDArray[np.int64] = FINE * whole + sum((high <= part).astype(int) for part in PARTS)
    return found


class SampleLog(Estimator):
    """An observer that notes rows, to be replayed later.

    Args:
        first: the join, with its budgets.
    """

    state: Recorder
    sums: Sums

    def __init__(self, first: Operator) -> None:
        plan = first.plan
        super().__init__(plan, first.shape, first.memory)
        self.first, self.ingest = first, first.ingest
        self.lasts = np.array([stream.last or 0 for stream in plan.streams], np.int64)
        self.by_key = plan.by_whole_keys
        self.whole = self.by_key and bool(self.lasts.any())
        self.room = 0
        self.join: Operator | None = None
        self.width = self.ingest.empty_batch().values.shape[1:]
        nothing = {name: field.nothing() for name, field in self.layout().items()}
        self._lay_out(nothing)
        self.grow(first.shape, 0)
        self.sums.steps["number"] = FAR

    @abstractmethod
    def catch_up(self) -> None:
        """Let the second join have the rows that have come."""

    # -- arrays ----------------------------------------------------------------------------------

    def _columns(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The columns of rows in the log: their types, and the shape of a value."""
        like = self.ingest.empty_batch()
        there = {
            "worth": any(stream.worth is not None for stream in self.plan.streams),
            "hashes": self.plan.graph,
            "values": self.plan.pairwise is not None,
        }
        return {
            name: (getattr(like, name).dtype, getattr(like, name).shape[1:])
            for name in _COLUMNS
            if there.get(name, True)
        }

    def layout(self) -> dict[str, Field]:
        """The arrays, all of which a checkpoint keeps."""

        def once(dtype: npt.DTypeLike, times: int) -> Field:
            return Field("once", dtype, 0, times, kept=True)

        lanes = self.shape.lanes
        return {
            **{
                f"rows.{name}": once(dtype, self.room * math.prod(shape))
                for name, (dtype, shape) in self._columns().items()
            },
            "notes": once(NOTE, self.room),
            "before": once(np.int64, self.room * lanes if self._notes_numbers() else 0),
            "entered": Field("stream", np.int64, kept=True),
            "numbers": once(np.int64, NUMBERS),
            "clock": once(np.int64, len(CLOCK_NUMBERS) + lanes),
            "total": once(TALLY, 1),
            "spread": once(np.float64, (lanes + 1) * GROUPS),
            "steps": once(TALLY, STEPS),
            "step_spread": once(np.float64, STEPS * (lanes + 1) * GROUPS),
        }

    def _notes_numbers(self) -> bool:
        """Whether it is noted of a row how many have come, as the second join has not all."""
        return bool(self.lasts.any()) and not self.whole

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name, each with one dimension."""
        rows = {f"rows.{n}": getattr(self.state.rows, n).reshape(-1) for n in self._columns()}
        own = ("notes", "before", "entered", "numbers")
        clock = {"clock": self.clock}
        return rows | {n: getattr(self.state, n) for n in own} | clock | self.sums._asdict()

    def replace(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Let the log and the tallies have other arrays."""
        self._lay_out(arrays)

    def _lay_out(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        columns = {}
        for name, (_, shape) in self._columns().items():
            flat = arrays[f"rows.{name}"]
            room = len(flat) // max(1, math.prod(shape))
            columns[name] = flat[: room * math.prod(shape)].reshape(room, *shape)
        like = self.ingest.empty_batch()
        rows = Batch._make(columns.get(name, getattr(like, name)) for name in Batch._fields)
        own = (arrays[name] for name in ("notes", "entered", "before", "numbers"))
        seed, queued = np.uint64(self.plan.seed), self.plan.queue is not None
        self.state = Recorder(seed, self.by_key, self.whole, queued, rows, *own)
        self.sums = Sums(*(arrays[name] for name in Sums._fields))
        self.clock = arrays["clock"]

    def grow(self, shape: Shape, rows: int) -> None:
        """Replay what waits, and make room for so many rows more."""
        if self.state.numbers.size:
            self.catch_up()
        width = self.ingest.empty_batch().values.shape[1:]
        if width != self.width:  # the first vector has come
            self.width = width
            self._lay_out(
                {
                    n: f.nothing() if n.startswith("rows.") else self.arrays()[n]
                    for n, f in self.layout().items()
                }
            )
        used = int(self.state.numbers[NOTED]) if self.state.numbers.size else 0
        self.room = enough(self.room, used + rows)
        super().grow(shape, rows)

    def nbytes(self, used: Shape) -> int:
        """The bytes in use: those of the sample, and of the second join."""
        kept = sum(array.nbytes for array in self.kept_arrays().values())
        return kept + (0 if self.join is None else self.join.state_bytes())

    def followed_streams(self) -> npt.NDArray[np.int32]:
        """The streams that have a row in the log, some more than once."""
        self.catch_up()
        return self.state.rows.stream[: self.state.numbers[STORED]]

    def forget_streams(self, streams: npt.NDArray[np.bool_]) -> None:
        """Begin anew with some streams, of which no row is in the log."""
        self.state.entered[: len(streams)][streams] = 0
        self.join = None  # it counts the rows of streams, too

    # -- checkpoints -----------------------------------------------------------------------------

    def kept_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays as far as they are in use; nothing waits to be replayed then."""
        self.catch_up()
        used = int(self.state.numbers[STORED])
        per_row = {
            "notes": 1,
            "before": self.shape.lanes,
            **{f"rows.{name}": math.prod(shape) for name, (_, shape) in self._columns().items()},
        }
        return {
            name: array[: used * per_row[name]] if name in per_row else array
            for name, array in self.arrays().items()
        }

    def save(self) -> dict[str, Any]:
        """How many rows there are."""
        self.catch_up()
        return {"room": int(self.state.numbers[STORED])}

    def load(self, saved: dict[str, Any]) -> None:
        """Make room for as many."""
        self.room = max(self.room, saved.get("room", 0))

    def attach(self, shape: Shape, memory: Memory, saved: dict[str, Any]) -> None:
        """Take over the arrays that another process has left."""
        self.width = self.ingest.empty_batch().values.shape[1:]
        super().attach(shape, memory, saved)
        self.room = len(self.state.notes)
        self.join = None

    def restore(self, saved: dict[str, npt.NDArray[Any]], changed: set[str]) -> bool:
        """Take up the arrays of a checkpoint; False if the sample has to begin anew."""
        same = not changed & {"estimate", "seed", "budget", "queue", "throttle"}
        arrays = self.arrays()
        self.join = None  # it may have been made to be compiled
        for name in arrays if same else Sums._fields:
            found = saved.get(self.prefix + name)
            if found is not None:
                used = min(len(arrays[name]), len(found))
                arrays[name][:used] = found[:used]
        return same and self.prefix + "numbers" in saved

    def begin_anew(self, core: Core, rows: Rows, results: int, known: bool) -> None:
        """Begin with the rows that are stored: what they complete from here on will be known."""
        if not known:
            for name in ("exact", "certain", "seen"):
                self.sums.total[name] = results
        size = len(rows.arrivals)
        numbers, state = self.state.numbers, self.state
        counts = core.counts.reshape(-1, FATES)
        entered = counts[:, ARRIVED] - counts[:, FILTERED] - counts[:, LATE]
        state.entered[: len(entered)] = entered
        self.room = enough(self.room, size)
        super().grow(self.shape, 0)
        state = self.state
        for name in self._columns():
            getattr(state.rows, name)[:size] = getattr(rows.batch, name)
        order = numbers[SEEN] + np.arange(size)
        state.notes["order"][:size] = order
        state.notes["lot"][:size] = self._lots(rows.batch.hash, order)
        state.notes["level"][:size] = 0
        state.notes["number"][:size] = positions(core, rows)
        numbers[SEEN] += size
        numbers[[NOTED, STORED]] = size
        live = live_rows(core.rows[: core.numbers[ROWS_USED]])
        live = live[np.argsort(core.rows["arrival"][live])]
        self._note_marks(core, live, np.arange(size))
        self._note_clock(core)
        self._note_waiting(known)
        self.join = None

    def _note_waiting(self, known: bool) -> None:
        """Note the rows that wait in the queue, as they came after those that are stored.

        What they complete was tallied when they came, if it was tallied at all.
        """
        if self.first.queue is None:
            return
        queue, state = self.first.queue, self.state
        waiting = np.array(queue.places_in_order(), np.int64)
        start, size = int(state.numbers[NOTED]), len(waiting)
        self.room = enough(self.room, start + size)
        super().grow(self.shape, 0)
        state = self.state
        places = slice(start, start + size)
        for name in self._columns():
            getattr(state.rows, name)[places] = getattr(queue.state.rows, name)[waiting]
        order = state.numbers[SEEN] + np.arange(size)
        state.notes["order"][places] = order
        state.notes["lot"][places] = self._lots(state.rows.hash[places], order)
        state.notes["made"][places] = self.first.made
        for i, stream in enumerate(state.rows.stream[places]):
            state.entered[stream] += 1
            state.notes["number"][start + i] = state.entered[stream]
            if state.before.size:
                state.before.reshape(-1, self.shape.lanes)[start + i] = state.entered
        state.numbers[SEEN] += size
        state.numbers[NOTED] += size
        if known:
            state.numbers[STORED] += size

    def _lots(
        self, hashes: npt.NDArray[np.uint64], order: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint64]:
        """The lots of rows, as the recorder draws them."""
        counters = hashes if self.by_key else order.astype(np.uint64)
        with np.errstate(over="ignore"):
            seed = mixed(np.array([self.state.seed]))
            return mixed(seed + (counters + np.uint64(1)) * GOLDEN)

    def _batch(self, places: npt.NDArray[np.int64]) -> Batch:
        """The rows at places of the log."""
        columns = {name: getattr(self.state.rows, name)[places] for name in self._columns()}
        like = self.ingest.empty_batch()
        return Batch._make(columns.get(name, getattr(like, name)) for name in Batch._fields)

    def _note_clock(self, core: Core) -> None:
        """Remember the clock of the second join, for one that takes its place."""
        self.clock[: len(CLOCK_NUMBERS)] = core.numbers[CLOCK_NUMBERS]
        self.clock[len(CLOCK_NUMBERS) :] = core.lanes["newest"][: self.shape.lanes]

    def _note_marks(
        self, core: Core, rows: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> None:
        """Remember which rows, or keys, have made their first result, for another second join."""
        if core.until.size:
            self.state.notes["mark"][places] = core.until[core.rows["key"][rows]]
        elif core.met.size:
            self.state.notes["mark"][places] = core.met[rows]
