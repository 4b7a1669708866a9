"""The loss estimator of joins whose results are no products: a second join of a sample of rows.

Equalities between pairs, conditions and relations have no keys that could be followed in full. So
rows are drawn one by one: the second join has no budget, stores the rows of the sample, and is
probed by the rows that come, or by some of them. A result is seen if its newcomer probes, and its
other members are in the sample; it counts for the inverse of the chance of that; docs/meaning.md
(What shedding costs). Where first results are made, whole keys are drawn, and only their rows
probe. Of a large relation facts are drawn too, and only rows that one of them touches take part.

The second join must cost little beside the first. Both count what they do, in rows looked at and
results made; and where the second does more than its share, fewer rows probe from then on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamshed.conditions import Cosine, InnerProduct
from streamshed.engine.allocation import enough, first_shape
from streamshed.engine.batch import AT, NO_FLAGS, NO_NUMBERS, Batch
from streamshed.engine.component import Arrays
from streamshed.engine.loop import DONE, FULL, drop_rows, skip_results
from streamshed.engine.observe.recorder import (
    CHECK_AT,
    FACTS,
    LEAST,
    LEVEL,
    NOTE,
    NOTED,
    NUMBERS,
    PROBING,
    SECOND,
    SECOND_CHECKED,
    SEEN,
    STORED,
    WORK,
    WORK_CHECKED,
    Recorder,
)
from streamshed.engine.observe.sample_tallies import (
    VISITOR,
    Chance,
    Part,
    Sums,
    add_results,
    open_steps,
)
from streamshed.engine.observe.state import DEEPEST, FAR, GROUPS, STEPS, TALLY
from streamshed.engine.observe.tallies import (
    Estimator,
    depths,
    mixed,
    variance,
)
from streamshed.engine.restore import OF_ROWS, Rows, live_rows
from streamshed.engine.sink import MEMBERS, allocate_buffer
from streamshed.estimates import Tally
from streamshed.kernels.core import (
    ARRIVALS,
    ARRIVED,
    BOUNDLESS,
    CLOCK,
    FATES,
    FIRST_SEEN,
    NEVER,
    NEWEST,
    OVERDUE,
    ROWS_USED,
    Core,
    Field,
    Shape,
)
from streamshed.kernels.random import GOLDEN

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator

CAPACITY = 1 << 12
"""Rows that a sample may have in any case, if it chooses its rate by itself."""
PART = 20
"""Beyond that it may have one for so many rows of the budget: so it takes 5 % of the memory."""
LARGE = 1 << 20
"""The most that it may have; and what it has, if the rate was said, before it falls to that."""
THROTTLED = 3
"""The level at which a sample begins where the work of the join is bounded: an eighth of the rows
compared with an eighth of the rows are 1.6 % of the work of the whole join."""
SOONEST, LATEST, CHECKS = 1 << 8, 1 << 16, 8
"""The size of the sample, and its work, are looked at again after an eighth of the arrivals so far,
between so many."""
SHARE, GRACE = 16, 1 << 20
"""The second join may do one for so many of what the first does, and so much in any case."""
TALLY_WORK = 8
"""What it takes to tally a result, beside that of making it."""
MOST_FACTS = 1 << 16
"""The facts of a relation that the second join may have, before only some are drawn."""
MOST, BUFFER = 1 << 16, 1 << 15
"""Results that one row may make of it; and those that are handed out at once."""
_CLOCK = [CLOCK, NEWEST, FIRST_SEEN, OVERDUE]
_COLUMNS = ("stream", "time", "hash", "worth", "hashes", "values")


class SampleJoin(Estimator):
    """The observer of a running join, and the second join.

    Args:
        first: the join, with its budgets.
        build: makes a join like it, which sheds nothing, with facts of a depth.
    """

    state: Recorder
    sums: Sums

    def __init__(self, first: Operator, build: Callable[[int], Operator]) -> None:
        plan = first.plan
        super().__init__(plan, first.shape, first.memory)
        self.first, self.build, self.ingest = first, build, first.ingest
        self.lasts = np.array([stream.last or 0 for stream in plan.streams], np.int64)
        # Every row probes, unless that were too much work, or one that is not stored has no place:
        # in a window of rows, in a matrix of vectors, and beside the rows of its key.
        in_matrices = isinstance(plan.pairwise, Cosine | InnerProduct)
        self.by_key = plan.by_whole_keys
        apart = in_matrices or self.by_key or bool(self.lasts.any())
        self.visits = plan.throttle is None and not apart
        self.capacity, self.highest = LARGE, DEEPEST
        if plan.rate is None:
            self.capacity = sample_entries(first_shape(plan).budget)
        else:
            self.highest = int(np.floor(-np.log2(plan.rate)))
        self.room = 0
        self.join: Operator | None = None
        self.relayed = first.matcher.relay()
        self.width = self.ingest.empty_batch().values.shape[1:]
        nothing = {name: field.nothing() for name, field in self.layout().items()}
        self._lay_out(nothing)
        self.grow(first.shape, 0)
        self.sums.steps["number"] = FAR
        begins = min(0 if plan.throttle is None else THROTTLED, self.highest)
        self.state.numbers[[LEVEL, PROBING, LEAST]] = begins
        self.state.numbers[CHECK_AT] = SOONEST
        facts = first.matcher.facts
        too_many = (max(0, facts - 1) // MOST_FACTS).bit_length()
        self.state.numbers[FACTS] = min(too_many, self.highest)

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
            "before": once(np.int64, self.room * lanes if self.lasts.any() else 0),
            "entered": once(np.int64, lanes),
            "numbers": once(np.int64, NUMBERS),
            "clock": once(np.int64, len(_CLOCK) + lanes),
            "total": once(TALLY, 1),
            "spread": once(np.float64, (lanes + 1) * GROUPS),
            "steps": once(TALLY, STEPS),
            "step_spread": once(np.float64, STEPS * (lanes + 1) * GROUPS),
        }

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
        self.state = Recorder(seed, self.by_key, queued, rows, *own)
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

    def warm(self, core: Core, nothing: Batch) -> None:
        """Have the second join compiled."""
        join = self._second()
        join.warm()
        drop_rows(join.core, join.matcher.quiet, join.state, NO_NUMBERS)

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

    def attach(self, shape: Shape, arrays: Arrays, saved: dict[str, Any]) -> None:
        """Take over the arrays that another process has left."""
        super().attach(shape, arrays, saved)
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
        state.entered[:] = counts[: self.shape.lanes, ARRIVED]
        self.room = enough(self.room, size)
        super().grow(self.shape, 0)
        state = self.state
        for name in self._columns():
            getattr(state.rows, name)[:size] = getattr(rows.batch, name)
        order = numbers[SEEN] + np.arange(size)
        state.notes["order"][:size] = order
        state.notes["lot"][:size] = self._lots(rows.batch.hash, order)
        state.notes["level"][:size] = 0
        for stream in range(self.shape.lanes):
            mine = np.flatnonzero(rows.batch.stream == stream)
            entered = int(state.entered[stream])
            state.notes["number"][mine] = entered - np.arange(len(mine))[::-1]
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

    # -- the second join -------------------------------------------------------------------------

    def _second(self) -> Operator:
        """The second join, which holds the rows of the sample."""
        if self.join is None:
            self.join = self.build(int(self.state.numbers[FACTS]))
            self.join.core.pools["budget"][:] = BOUNDLESS
            self.join.matcher.load(self.first.matcher.save())
            self.join.matcher.follow(self.relayed)
            width = self.join.core.settings.width
            self.join.out = allocate_buffer(BUFFER, width, LATEST, weighted=False)
            # It notes no rows, only work; and the loop is compiled for observers of one type.
            self.join.observer = self.state._replace(
                numbers=np.full(NUMBERS, DEEPEST + 4, np.int64), entered=self.state.entered.copy()
            )
            self.join.observer.numbers[WORK] = 0
            if self.state.numbers[STORED]:
                self._store_again(self.join)
        return self.join

    def _store_again(self, join: Operator) -> None:
        """Store the rows of the sample in a new second join, whose clock is as it was."""
        log = self.state.notes[: self.state.numbers[STORED]]
        places = np.flatnonzero(depths(log["lot"]) >= log["level"])
        size = len(places)
        batch = self._batch(places)._replace(payload=places)
        join.core.numbers[_CLOCK] = self.clock[: len(_CLOCK)]
        join.core.lanes["newest"] = self.clock[len(_CLOCK) :]
        join.core.numbers[ARRIVALS] = size
        join.make_room(size)
        learned = self.first.matcher.arrays()
        for name, array in join.matcher.arrays().items():
            form = join.matcher.layout()[name]
            if form.kept and form.per not in OF_ROWS:
                array[:] = learned[name][: len(array)]
        join.store_again(Rows(batch, np.arange(size)), anew=True)
        self._put_marks(join.core)
        for lane, last in enumerate(self.lasts.tolist()):
            if last:
                mine = np.flatnonzero(batch.stream == lane)
                join.core.counts[lane * FATES + ARRIVED] = len(mine)
                ring = int(join.core.lanes["recent"][lane]) + np.arange(len(mine)) % last
                join.core.recent["arrival"][ring] = join.core.recent["row"][ring] = mine

    def _batch(self, places: npt.NDArray[np.int64]) -> Batch:
        """The rows at places of the log."""
        columns = {name: getattr(self.state.rows, name)[places] for name in self._columns()}
        like = self.ingest.empty_batch()
        return Batch._make(columns.get(name, getattr(like, name)) for name in Batch._fields)

    def catch_up(self) -> None:
        """Let the second join have the rows that have come."""
        numbers, notes = self.state.numbers, self.state.notes
        start, end = int(numbers[STORED]), int(numbers[NOTED])
        if start == end:
            return
        join = self._second()
        join.make_room(0)
        deep, order = depths(notes["lot"][start:end]), notes["order"][start:end].copy()
        at = 0
        while len(probing := np.flatnonzero(deep[at:] >= numbers[PROBING])):
            at += int(probing[0])
            if order[at] >= numbers[CHECK_AT]:
                self._check(join, start + at)
                continue  # fewer rows may probe now
            until = int(np.searchsorted(order, numbers[CHECK_AT]))
            probing = at + np.flatnonzero(deep[at:until] >= numbers[PROBING])
            self._replay(join, start + probing, deep[probing])
            at = until
        self._note_work(join)
        self._note_clock(join.core)
        live = live_rows(join.core.rows[: join.core.numbers[ROWS_USED]])
        self._note_marks(join.core, live, join.core.rows["payload"][live])
        numbers[NOTED] = numbers[STORED]
        numbers[LEAST] = numbers[PROBING]

    def _note_work(self, join: Operator) -> None:
        """Add up what the second join has done."""
        self.state.numbers[SECOND] += join.observer.numbers[WORK]
        join.observer.numbers[WORK] = 0

    def _note_clock(self, core: Core) -> None:
        """Remember the clock of the second join, for one that takes its place."""
        self.clock[: len(_CLOCK)] = core.numbers[_CLOCK]
        self.clock[len(_CLOCK) :] = core.lanes["newest"]

    def _note_marks(
        self, core: Core, rows: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> None:
        """Remember which rows, or keys, have made their first result, for another second join."""
        if core.until.size:
            self.state.notes["mark"][places] = core.until[core.rows["key"][rows]]
        elif core.met.size:
            self.state.notes["mark"][places] = core.met[rows]

    def _put_marks(self, core: Core) -> None:
        """Let a new second join know which rows, or keys, have made their first result."""
        live = live_rows(core.rows[: core.numbers[ROWS_USED]])
        marks = self.state.notes["mark"][core.rows["payload"][live]]
        if core.until.size:
            core.until[core.rows["key"][live]] = marks
        elif core.met.size:
            core.met[live] = marks

    def _replay(
        self, join: Operator, places: npt.NDArray[np.int64], deep: npt.NDArray[np.int64]
    ) -> None:
        """Let the second join have some rows, and keep those of the sample."""
        state, level = self.state, int(self.state.numbers[LEVEL])
        touched = join.matcher.touches(join, state.rows, places)
        if touched is not None:
            places, deep = places[touched], deep[touched]
        if not len(places):
            return
        batch, notes = self._batch(places), state.notes[places]
        steps = self._open_steps(join, batch, notes)
        before = state.before.reshape(-1, self.shape.lanes)[places] if state.before.size else None
        chosen = deep >= level
        start, size = int(state.numbers[STORED]), int(chosen.sum())
        stored = slice(start, start + size)
        for name in self._columns():
            getattr(state.rows, name)[stored] = getattr(batch, name)[chosen]
        state.notes[stored] = notes[chosen]
        state.notes["level"][stored] = level
        if before is not None:
            state.before.reshape(-1, self.shape.lanes)[stored] = before[chosen]
        state.numbers[STORED] += size
        visitors = VISITOR + np.arange(len(chosen))
        payload = np.where(chosen, start + np.cumsum(chosen) - 1, visitors)
        visiting = NO_FLAGS if chosen.all() else ~chosen
        batch = batch._replace(payload=payload, visiting=visiting)
        part = Part(start, np.flatnonzero(chosen), notes["lot"], steps)
        for row in self._run(join, batch.part(0, len(payload)), part, BOUNDLESS):
            # It is stored now, and meets those that came before it.
            alone = batch.part(row, row + 1)
            alone = alone._replace(
                payload=visitors[row : row + 1].copy(), visiting=np.ones(1, np.bool_)
            )
            while self._run(join, alone, part, int(notes["order"][row])):
                pass

    def _run(self, join: Operator, batch: Batch, part: Part, before: int) -> list[int]:
        """Process rows, and tally their results with those that came before some row.

        Returns:
            The rows that make more results than may be made. The sample is smaller now; they have
            to be processed once more.
        """
        lanes, width = self.shape.lanes, join.core.settings.width
        skipped: list[int] = []
        held = np.empty((0, width), np.int64)  # results of the row at hand
        for piece in join.matcher.pieces(join, batch):
            rest = piece
            status = None
            while status != DONE:
                status = join.run_loop(rest)
                out = join.out
                found = out.payload[: out.filled[MEMBERS]].reshape(-1, width)
                found = np.concatenate([held, found])
                out.filled[:] = 0
                at = int(join.work.cursor[AT])
                own = np.zeros(len(found), np.bool_)
                if status == FULL:
                    own = found[:, :lanes].max(axis=1) == rest.payload[at]
                held = found[own]
                self._tally_results(join, found[~own], part, before)
                level = int(self.state.numbers[LEVEL])
                if self.visits and len(held) > MOST and level < self.highest:
                    skipped.append(int(np.flatnonzero(batch.payload == rest.payload[at])[0]))
                    held = held[:0]
                    skip_results(join.core, join.matcher.quiet, join.state, rest, join.work)
                    self._thin(join, level + 1)
                if join.failed is not None:  # the user's function, of a row that is left out then
                    with suppress(Exception):
                        join.refuse(rest)
                    rest, status = rest.part(at + 1, len(rest.time)), None
        join.matcher.on_processed(join)
        return skipped

    # -- tallies ---------------------------------------------------------------------------------

    def _open_steps(
        self, join: Operator, batch: Batch, notes: npt.NDArray[Any]
    ) -> npt.NDArray[np.int64]:
        """Begin the steps of time of some rows; returns the place of each row's step."""
        now = notes["order"]
        if join.core.settings.timed:
            now = np.maximum(np.maximum.accumulate(batch.time), join.core.numbers[NEWEST])
        return open_steps(self.sums, now // self.step, notes["made"])

    def _tally_results(
        self, join: Operator, found: npt.NDArray[np.int64], part: Part, before: int
    ) -> None:
        """Count results, given the places of their members, and their facts."""
        lanes = self.shape.lanes
        newcomer = found[:, :lanes].max(axis=1)
        if before < BOUNDLESS or self.lasts.any():
            true = self._true(found[:, :lanes], newcomer, before)
            found, newcomer = found[true], newcomer[true]
        if not len(found):
            return
        self.state.numbers[SECOND] += TALLY_WORK * len(found)
        rows = part.rows(newcomer)
        chances = list(self._chances(join, found, newcomer, part, rows))
        add_results(self.sums, part.steps[rows], chances)

    def _chances(
        self,
        join: Operator,
        found: npt.NDArray[np.int64],
        newcomer: npt.NDArray[np.int64],
        part: Part,
        rows: npt.NDArray[np.int64],
    ) -> Iterator[Chance]:
        """What has to be drawn for results to be seen, as far as it is not certain."""
        numbers, notes, lanes = self.state.numbers, self.state.notes, self.shape.lanes
        stored = int(numbers[STORED])
        some = bool(notes["level"][:stored].any())
        for lane in range(lanes):
            if not some and numbers[PROBING] == 0:
                break
            probes = found[:, lane] == newcomer
            place = np.where(probes, 0, found[:, lane])
            level = 0 if self.by_key else notes["level"][place]  # one lot decides for a key
            levels = np.where(probes, numbers[PROBING], level)
            lots = np.where(probes, part.lots[rows], notes["lot"][place])
            yield Chance(lane, levels, lots)
        if numbers[FACTS]:
            levels = np.full(len(found), numbers[FACTS])
            yield Chance(lanes, levels, join.matcher.lots[found[:, lanes]])

    def _true(
        self, members: npt.NDArray[np.int64], newcomer: npt.NDArray[np.int64], before: int
    ) -> npt.NDArray[np.bool_]:
        """Which results have members that came before a row, and are in their row windows."""
        notes, true = self.state.notes, np.ones(len(members), np.bool_)
        entered = self.state.before.reshape(-1, self.shape.lanes)
        for lane, last in enumerate(self.lasts.tolist()):
            others = members[:, lane] != newcomer
            note = notes[np.where(others, members[:, lane], 0)]
            true &= ~others | (note["order"] < before)
            if last:
                true &= ~others | (note["number"] > entered[newcomer, lane] - last)
        return true

    @property
    def rate(self) -> float:
        """The part of all rows, and of all facts, that is in the sample."""
        numbers = self.state.numbers
        return float(2.0 ** -int(numbers[LEVEL] + numbers[FACTS]))

    @property
    def heaviest(self) -> float:
        """For how many results one may stand at present that was not seen; 0 if all are."""
        numbers = self.state.numbers
        levels = self.state.notes["level"][: numbers[STORED]]
        level = max(int(numbers[LEVEL]), int(levels.max(initial=0)))
        partners = 0 if self.by_key else self.shape.lanes - 1
        depth = partners * level + int(numbers[PROBING] + numbers[FACTS])
        return float(2.0**depth) if depth else 0.0

    @property
    def rows_seen(self) -> int:
        """The rows that have come."""
        return int(self.state.numbers[SEEN])

    @property
    def newest(self) -> int:
        """The newest time of these."""
        return NEVER if self.join is None else int(self.join.core.numbers[NEWEST])

    def variances(self, spread: npt.NDArray[np.float64]) -> tuple[float, float]:
        """The variance of the estimate; nothing is hidden.

        Two results vary together if they share a row: so the sum over the streams, of the variances
        between groups of their rows, counts each such pair at least once.
        """
        return sum(variance(groups) for groups in spread), 0.0

    def tally(self, made: int) -> Tally:
        """What is known of all results so far, of which so many were made."""
        self.catch_up()
        return super().tally(made)

    def tally_lately(self, core: Core) -> Tally:
        """The same in the last minute, or window."""
        self.catch_up()
        return super().tally_lately(core)

    # -- the size of the sample ------------------------------------------------------------------

    def _check(self, join: Operator, at: int) -> None:
        """See, as a row of the log comes, whether the sample is too large, or could be larger."""
        numbers, notes = self.state.numbers, self.state.notes
        order = int(notes["order"][at])
        numbers[CHECK_AT] = order + min(max(order // CHECKS, SOONEST), LATEST)
        probing = min(int(numbers[PROBING]) + self._excess(join, at), self.highest)
        stored, level = int(numbers[STORED]), max(int(numbers[LEVEL]), probing)
        alive = self._alive(join, at)
        held = int(alive.sum())
        if held > self.capacity or level > numbers[LEVEL]:
            deep = depths(notes["lot"][:stored][alive])
            while level < self.highest and 8 * int((deep >= level).sum()) > 7 * self.capacity:
                level += 1
            self._thin(join, level)
            alive &= depths(notes["lot"][:stored]) >= notes["level"][:stored]
            self._compact(join, alive)
        else:
            if level > probing and 4 * held < self.capacity and self._is_idle():
                numbers[LEVEL] = level - 1
            if stored > 2 * held + SOONEST:
                self._compact(join, alive)
        numbers[PROBING] = probing if self.visits else numbers[LEVEL]

    def _excess(self, join: Operator, at: int) -> int:
        """By how many levels fewer rows should probe: the second join does more than its share.

        It has to do so in all, and lately, as fewer rows may probe already.
        """
        self._note_work(join)
        numbers, first = self.state.numbers, int(self.state.notes["work"][at])
        second = int(numbers[SECOND])
        lately = second - int(numbers[SECOND_CHECKED])
        fair = max(1, first - int(numbers[WORK_CHECKED])) // SHARE
        numbers[[WORK_CHECKED, SECOND_CHECKED]] = first, second
        if second <= GRACE + first // SHARE or lately <= fair:
            return 0
        return 1 if lately <= 4 * fair else 2

    def _is_idle(self) -> bool:
        """Whether the second join does much less than it may."""
        numbers = self.state.numbers
        allowed = GRACE + int(numbers[WORK_CHECKED]) // SHARE
        return int(numbers[SECOND]) << self.shape.lanes < allowed

    def _alive(self, join: Operator, at: int) -> npt.NDArray[np.bool_]:
        """Which rows of the sample may still meet others, as a row of the log comes."""
        stored = int(self.state.numbers[STORED])
        stream = self.state.rows.stream[:stored]
        lanes, clock = join.core.lanes, int(join.core.numbers[CLOCK])
        alive = np.ones(stored, np.bool_)
        if clock != NEVER:
            least = clock - self.plan.late - lanes["window"][stream]
            alive = self.state.rows.time[:stored] >= least
        if self.lasts.any():
            entered = self.state.before.reshape(-1, self.shape.lanes)[at]
            last = self.lasts[stream]
            number = self.state.notes["number"][:stored]
            alive &= (last == 0) | (number > entered[stream] - last)
        return alive

    def _thin(self, join: Operator, level: int) -> None:
        """Let the second join keep only rows of a depth; those to come are of that depth too."""
        self.state.numbers[LEVEL] = level
        notes, core = self.state.notes, join.core
        live = live_rows(core.rows[: core.numbers[ROWS_USED]])
        places = core.rows["payload"][live]
        deep = depths(notes["lot"][places]) >= level
        notes["level"][places] = np.maximum(notes["level"][places], level)
        drop_rows(core, join.matcher.quiet, join.state, live[~deep])

    def _compact(self, join: Operator, alive: npt.NDArray[np.bool_]) -> None:
        """Leave rows out of the log that are not alive; the second join has them no longer."""
        core, state = join.core, self.state
        live = live_rows(core.rows[: core.numbers[ROWS_USED]])
        places = core.rows["payload"][live]
        drop_rows(core, join.matcher.quiet, join.state, live[~alive[places]])
        held = np.zeros(len(alive), np.bool_)
        held[places] = alive[places]
        moved = np.cumsum(held) - 1
        core.rows["payload"][live] = moved[places]
        kept = np.flatnonzero(held)
        for name in self._columns():
            column = getattr(state.rows, name)
            column[: len(kept)] = column[kept]
        state.notes[: len(kept)] = state.notes[kept]
        if state.before.size:
            before = state.before.reshape(-1, self.shape.lanes)
            before[: len(kept)] = before[kept]
        state.numbers[STORED] = len(kept)


def sample_entries(budget: int) -> int:
    """The rows of a sample that chooses its rate by itself, for so many rows of the budget."""
    return min(max(CAPACITY, budget // PART), LARGE)
