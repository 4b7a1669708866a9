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
from streamshed.engine.allocation import first_shape
from streamshed.engine.batch import AT, NO_FLAGS, NO_NUMBERS, Batch
from streamshed.engine.loop import DONE, FULL, drop_rows, skip_results
from streamshed.engine.observe.recorder import (
    CHECK_AT,
    FACTS,
    FINE,
    LEAST,
    LEVEL,
    NOTED,
    NUMBERS,
    PROBING,
    SECOND,
    SECOND_CHECKED,
    SEEN,
    STORED,
    WORK,
    WORK_CHECKED,
    OfSample,
)
from streamshed.engine.observe.sample_log import CLOCK_NUMBERS, SampleLog, depths_of
from streamshed.engine.observe.sample_tallies import (
    VISITOR,
    Chance,
    Part,
    add_results,
    open_steps,
)
from streamshed.engine.observe.state import DEEPEST, GROUPS
from streamshed.engine.observe.tallies import (
    Sums,
)
from streamshed.engine.restore import OF_ROWS, Rows, live_rows
from streamshed.engine.sink import MADE, MEMBERS, Buffer, allocate_buffer
from streamshed.estimates import Tally
from streamshed.kernels.core import (
    ARRIVALS,
    ARRIVED,
    BOUNDLESS,
    CLOCK,
    FATES,
    NEVER,
    NEWEST,
    ROWS_USED,
    Core,
)

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator

CAPACITY = 1 << 12
"""Rows that a sample may have in any case, if it chooses its rate by itself."""
PART = 20
"""Beyond that it may have one for so many rows of the budget: so it takes 5 % of the memory."""
LARGE = 1 << 20
"""The most that it may have; and what it has, if the rate was said, before it falls to that."""
THROTTLED = 3 * FINE
"""The level at which a sample begins where the work of the join is bounded: an eighth of the rows
compared with an eighth of the rows are 1.6 % of the work of the whole join."""
SOONEST, LATEST, CHECKS = 1 << 8, 1 << 16, 8
"""The size of the sample, and its work, are looked at again after an eighth of the arrivals so far,
between so many."""
SHARE, GRACE = 16, 1 << 22
"""The second join may do one for so many of what the first does, and so much in any case."""
TALLY_WORK = 8
"""What it takes to tally a result, beside that of making it."""
MOST_FACTS = 1 << 16
"""The facts of a relation that the second join may have, before only some are drawn."""
MOST, BUFFER = 1 << 16, 1 << 15
"""Results that one row may make of it; and those that are handed out at once."""


class SampleJoin(SampleLog):
    """The observer of a running join, and the second join.

    Args:
        first: the join, with its budgets.
        build: makes a join like it, which sheds nothing, with facts of a depth.
    """

    def __init__(self, first: Operator, build: Callable[[int], Operator]) -> None:
        super().__init__(first)
        plan, self.build = first.plan, build
        # Every row probes, unless that were too much work, or one that is not stored has no place:
        # in a window of rows, in a matrix of vectors, and beside the rows of its key.
        in_matrices = isinstance(plan.pairwise, Cosine | InnerProduct)
        apart = in_matrices or self.by_key or bool(self.lasts.any())
        self.visits = plan.throttle is None and not apart
        self.capacity, self.highest = LARGE, FINE * DEEPEST
        if plan.rate is None:
            self.capacity = sample_entries(first_shape(plan).budget)
        else:
            self.highest = FINE * int(np.floor(-np.log2(plan.rate)))
        self.relayed = first.matcher.relay()
        self.begins = min(0 if plan.throttle is None else THROTTLED, self.highest)
        self.state.numbers[[LEVEL, PROBING, LEAST]] = self.begins
        self.state.numbers[CHECK_AT] = SOONEST
        facts = first.matcher.facts
        too_many = (max(0, facts - 1) // MOST_FACTS).bit_length()
        self.state.numbers[FACTS] = min(too_many, self.highest // FINE)

    # -- the second join -------------------------------------------------------------------------

    def warm(self, core: Core, nothing: Batch) -> None:
        """Have the second join compiled."""
        join = self._second()
        join.warm()
        drop_rows(join.core, join.matcher.quiet, join.state, NO_NUMBERS)

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
            silent = np.full(NUMBERS, FINE * DEEPEST + FINE, np.int64)
            silent[WORK] = 0
            self.join.observer = self.state._replace(numbers=silent, whole=False)
            if self.whole:
                self.join.router = OfSample(self.state.seed, self.state.numbers)
            if self.state.numbers[STORED]:
                self._store_again(self.join)
        # What it would count of streams is of no use; but all of them have a place there.
        entered = np.zeros_like(self.state.entered)
        self.join.observer = self.join.observer._replace(entered=entered)
        return self.join

    def _grow_second(self, join: Operator) -> None:
        """Let the second join have room for rows to come, and the same streams as the first."""
        names = self.ingest.names
        new, names.new = names.new, []  # the first join has not given them their windows yet
        join.make_room(0)
        names.new = new
        if self.plan.windows is not None:
            placed = min(len(join.core.sweep), len(self.first.core.sweep))
            join.core.sweep[:placed] = self.first.core.sweep[:placed]

    def _store_again(self, join: Operator) -> None:
        """Store the rows of the sample in a new second join, whose clock is as it was."""
        log = self.state.notes[: self.state.numbers[STORED]]
        places = np.flatnonzero(depths_of(log["lot"]) >= log["level"])
        if self.whole:
            places = places[self._within_last(places)]
        size = len(places)
        batch = self._batch(places)._replace(payload=places)
        join.core.numbers[CLOCK_NUMBERS] = self.clock[: len(CLOCK_NUMBERS)]
        join.core.lanes["newest"][: self.shape.lanes] = self.clock[len(CLOCK_NUMBERS) :]
        join.core.numbers[ARRIVALS] = size
        join.make_room(size)
        self._grow_second(join)
        learned = self.first.matcher.arrays()
        for name, array in join.matcher.arrays().items():
            form = join.matcher.layout()[name]
            if form.kept and form.per not in OF_ROWS:
                array[:] = learned[name][: len(array)]
        join.store_again(Rows(batch, np.arange(size)), anew=True)
        self._put_marks(join.core)
        if self.lasts.any():
            self._put_recent(join.core, batch.stream, log["number"][places])

    def _within_last(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which rows of the log are in their row windows, or have none."""
        streams = self.state.rows.stream[places]
        last = self._last_of(streams)
        number = self.state.notes["number"][places]
        within: npt.NDArray[np.bool_] = (last == 0) | (number > self._replayed()[streams] - last)
        return within

    def _last_of(self, streams: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """The lengths of the row windows of streams, 0 for none."""
        return self.lasts[streams if self.plan.by is None else np.zeros_like(streams)]

    def _put_recent(
        self, core: Core, streams: npt.NDArray[np.int32], numbers: npt.NDArray[np.int64]
    ) -> None:
        """Let the row windows of a new second join be as they were.

        Args:
            core: of the second join.
            streams: by row.
            numbers: that the rows have in their streams.
        """
        counts = core.counts.reshape(-1, FATES)[:, ARRIVED]
        if self.whole:
            replayed = self._replayed()[: len(counts)]
            counts[: len(replayed)] = replayed
        for stream in np.unique(streams[self._last_of(streams) > 0]).tolist():
            mine = np.flatnonzero(streams == stream)
            number = numbers[mine]
            if not self.whole:  # the others did not come here
                number = 1 + np.arange(len(mine))
                counts[stream] = len(mine)
            lane = 0 if core.settings.by else stream
            last = int(self.lasts[lane])
            start = stream * last if core.settings.by else int(core.lanes["recent"][lane])
            ring = start + (number - 1) % last
            core.recent["arrival"][ring] = core.recent["row"][ring] = mine

    def _replayed(self) -> npt.NDArray[np.int64]:
        """By stream, how many rows came that do not wait to be replayed."""
        numbers = self.state.numbers
        waiting = self.state.rows.stream[numbers[STORED] : numbers[NOTED]]
        replayed: npt.NDArray[np.int64] = self.state.entered.copy()
        np.subtract.at(replayed, waiting, 1)
        return replayed

    def catch_up(self) -> None:
        """Let the second join have the rows that have come."""
        numbers, notes = self.state.numbers, self.state.notes
        start, end = int(numbers[STORED]), int(numbers[NOTED])
        if start == end:
            return
        join = self._second()
        self._grow_second(join)
        deep, order = depths_of(notes["lot"][start:end]), notes["order"][start:end].copy()
        at = 0
        while len(coming := np.flatnonzero(self._come(deep[at:]))):
            at += int(coming[0])
            if order[at] >= numbers[CHECK_AT]:
                self._check(join, start + at)
                continue  # fewer rows may probe now
            until = int(np.searchsorted(order, numbers[CHECK_AT]))
            coming = at + np.flatnonzero(self._come(deep[at:until]))
            self._replay(join, start + coming, deep[coming])
            at = until
        self._note_work(join)
        self._note_clock(join.core)
        live = live_rows(join.core.rows[: join.core.numbers[ROWS_USED]])
        self._note_marks(join.core, live, join.core.rows["payload"][live])
        numbers[NOTED] = numbers[STORED]
        if not self.visits:  # the level never falls
            numbers[LEAST] = numbers[PROBING]

    def _come(self, deep: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which rows, by their depth, the second join has to see."""
        return deep >= (0 if self.whole else self.state.numbers[PROBING])

    def _note_work(self, join: Operator) -> None:
        """Add up what the second join has done."""
        self.state.numbers[SECOND] += join.observer.numbers[WORK]
        join.observer.numbers[WORK] = 0

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
        visiting = NO_FLAGS if self.whole or chosen.all() else ~chosen
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
                found = np.concatenate([held, self._members(out, width)])
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
                    self._thin(join, min(level + FINE, self.highest))
                if join.failed is not None:  # the user's function, of a row that is left out then
                    with suppress(Exception):
                        join.refuse(rest)
                    rest, status = rest.part(at + 1, len(rest.time)), None
        join.matcher.on_processed(join)
        return skipped

    def _members(self, out: Buffer, width: int) -> npt.NDArray[np.int64]:
        """The places of the members of results; where a column names streams, of the newcomer."""
        if self.plan.by is None:
            return out.payload[: out.filled[MEMBERS]].reshape(-1, width)
        ends = out.results["end"][: out.filled[MADE]]
        begins = np.append(0, ends)[: len(ends)]
        newcomers: npt.NDArray[np.int64] = out.payload[begins].reshape(-1, 1)
        return newcomers

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
        if before < BOUNDLESS or self._notes_numbers():
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
        if self.by_key:  # one lot decides for a key, whichever of its rows is the newcomer
            yield Chance(0, np.full(len(found), numbers[PROBING]), part.lots[rows])
            return
        stored = int(numbers[STORED])
        some = bool(notes["level"][:stored].any())
        for lane in range(lanes):
            if not some and numbers[PROBING] == 0:
                break
            probes = found[:, lane] == newcomer
            place = np.where(probes, 0, found[:, lane])
            levels = np.where(probes, numbers[PROBING], notes["level"][place])
            lots = np.where(probes, part.lots[rows], notes["lot"][place])
            yield Chance(lane, levels, lots)
        if numbers[FACTS]:
            levels = np.full(len(found), FINE * numbers[FACTS])
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
        return float(2.0 ** (-int(numbers[LEVEL] + FINE * numbers[FACTS]) / FINE))

    @property
    def heaviest(self) -> float:
        """For how many results one may stand at present that was not seen; 0 if all are."""
        numbers = self.state.numbers
        levels = self.state.notes["level"][: numbers[STORED]]
        level = max(int(numbers[LEVEL]), int(levels.max(initial=0)))
        partners = 0 if self.by_key else self.shape.lanes - 1
        depth = partners * level + int(numbers[PROBING] + FINE * numbers[FACTS])
        return float(2.0 ** (depth / FINE)) if depth else 0.0

    @property
    def rows_seen(self) -> int:
        """The rows that have come."""
        return int(self.state.numbers[SEEN])

    @property
    def newest(self) -> int:
        """The newest time of these."""
        return NEVER if self.join is None else int(self.join.core.numbers[NEWEST])

    def arranged(self, spread: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The sums of groups: nothing is predicted, hidden or merged."""
        return np.vstack([np.zeros((3, GROUPS)), spread])

    def tally(self, made: int) -> Tally:
        """What is known of all results so far, of which so many were made."""
        self.catch_up()
        return super().tally(made)

    def sums_so_far(self) -> Sums:
        """What was tallied of the results so far; it stays what it is."""
        self.catch_up()
        return super().sums_so_far()

    def known_since(self, before: Sums, shed: bool, made: float) -> npt.NDArray[np.float64]:
        """What is known of the results since a moment, of which so many were made."""
        self.catch_up()
        return super().known_since(before, shed, made)

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
        excess = self._excess(join, at)
        if not self.visits:  # rows that came before were not stored, nor noted
            excess = max(0, excess)
        probing = min(max(self.begins, int(numbers[PROBING]) + excess), self.highest)
        stored, level = int(numbers[STORED]), max(int(numbers[LEVEL]), probing)
        alive = self._alive(join, at)
        held = int(alive.sum())
        if held > self.capacity or level > numbers[LEVEL]:
            deep = depths_of(notes["lot"][:stored][alive])
            while level < self.highest and 8 * int((deep >= level).sum()) > 7 * self.capacity:
                level += 1
            self._thin(join, level)
            alive &= depths_of(notes["lot"][:stored]) >= notes["level"][:stored]
            self._compact(join, alive)
        else:
            room = math.floor(FINE * math.log2(0.8 * self.capacity / max(1, held)))
            numbers[LEVEL] = max(probing, level - max(0, min(-excess, room)))
            if stored > 2 * held + SOONEST:
                self._compact(join, alive)
        numbers[PROBING] = probing if self.visits else numbers[LEVEL]

    def _excess(self, join: Operator, at: int) -> int:
        """By how many levels fewer rows should probe, as the second join did too much lately.

        Besides its share it may do a part of what is left of the grace: that lasts longer than if
        all rows probed as long as there is any. Where it did less than half, more rows may probe.
        """
        self._note_work(join)
        numbers, first = self.state.numbers, int(self.state.notes["work"][at])
        second = int(numbers[SECOND])
        lately = second - int(numbers[SECOND_CHECKED])
        fair = max(1, first - int(numbers[WORK_CHECKED])) / SHARE
        fair += max(0.0, GRACE + first / SHARE - second) / CHECKS
        numbers[[WORK_CHECKED, SECOND_CHECKED]] = first, second
        # Rows that probe meet fewer that are stored: work falls by the square, or faster.
        excess = math.ceil(FINE / 2 * math.log2(max(1, lately) / fair))
        if excess > 0:
            return min(excess, 2 * FINE)
        return max(excess, -FINE) if 2 * lately < fair else 0

    def _alive(self, join: Operator, at: int) -> npt.NDArray[np.bool_]:
        """Which rows of the sample may still meet others, as a row of the log comes."""
        stored = int(self.state.numbers[STORED])
        stream = self.state.rows.stream[:stored]
        clock = int(join.core.numbers[CLOCK])
        alive = np.ones(stored, np.bool_)
        if clock != NEVER:
            sweep = stream if self.plan.by is None else join.core.sweep[stream]
            least = clock - self.plan.late - join.core.lanes["window"][sweep]
            alive = self.state.rows.time[:stored] >= least
        if self.whole:  # the second join knows which rows have left their row windows
            held = np.zeros(stored, np.bool_)
            live = live_rows(join.core.rows[: join.core.numbers[ROWS_USED]])
            held[join.core.rows["payload"][live]] = True
            alive &= held
        elif self.lasts.any():
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
        deep = depths_of(notes["lot"][places]) >= level
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
