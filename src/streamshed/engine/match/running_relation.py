"""A relation as a running join has it: its facts by number, and the changes still to come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.allocation import directory
from streamshed.engine.batch import Batch
from streamshed.engine.encoding import key_hash, needs_check, times_of
from streamshed.engine.match.fact_index import (
    CODE_WORDS,
    FOR_EVER,
    Changes,
    Facts,
    FactSettings,
    enter_codes,
    find_codes,
    lay_out,
    pack,
    renumber,
    widen,
    widths,
)
from streamshed.engine.observe.tallies import mixed
from streamshed.engine.payload import PLACE_BITS, Payload, Places, places_in
from streamshed.errors import InputError
from streamshed.kernels.core import FREE_KEY, KEYS_USED, NEVER, NONE, NUMBERS
from streamshed.kernels.random import GOLDEN
from streamshed.kernels.table import refill
from streamshed.plan.plan import Plan, RelationPlan
from streamshed.relations import CHANGE_TIME

NO_LOTS: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
NO_CHANGES = Changes(
    np.empty(0, np.int64), np.empty(0, np.bool_), np.empty(0, np.int32), np.empty(0, np.int32)
)
_NO_KEY = np.zeros(1, np.uint64)
"""The hash of the key that no row has."""
_FEW = 16
_MANY = 4096
"""Facts, or places, that may be given up before it is worth the while to look for them."""


class RelationIndex(NamedTuple):
    """The index of the rows that are there from the start."""

    facts: Facts
    used: int
    """Places that are in use."""


class DatedChanges(NamedTuple):
    """Changes as they were read, and the time at which each takes effect."""

    rows: pa.RecordBatch
    inserted: pa.Array
    times: npt.NDArray[np.int64]


class RunningRelation:
    """The facts of a relation, indexed; changes are read as time goes on.

    Args:
        plan: the join.
    """

    def __init__(self, plan: Plan) -> None:
        assert plan.through is not None
        self.plan = plan
        self.through: RelationPlan = plan.through
        self.payload = Payload(self._kept())
        self.segments: list[int] = []  # of the payload
        self.starts: list[int] = []  # the number of the first fact of each segment
        self.count = 0
        self.used = 0  # places of the index that are or were in use
        self.packed = 0, 0  # facts and places when they were last packed together
        self.lots = NO_LOTS  # by fact, if they are drawn
        self.news = self._code_changes(self._read_changes())
        self.relays: list[deque[DatedChanges]] = []
        self.coming = NO_CHANGES
        self.told = NEVER  # the time up to which changes have been read
        self.asked = NEVER  # the time up to which they were asked for, and made
        timed = self.through.relation.changes is not None or bool(
            self.through.begin or self.through.end
        )
        streams = len(plan.streams)
        numbers = np.zeros(NUMBERS, np.int64)
        numbers[FREE_KEY] = NONE
        self.timed = timed
        self.facts = Facts(
            FactSettings(CODE_WORDS, streams),
            np.zeros(CODE_WORDS, np.int32),
            np.zeros(2, np.uint32),
            numbers,
            np.empty(0, np.int32),
            np.empty(0, np.int64),
        )
        rows = self.through.relation.table(self.through.schema)
        if self.through.depth:
            rows = rows.filter(pa.array(self._drawn(rows)))
        self._keep(rows)
        if self.through.index is None:
            self._enter_all(rows)
        else:
            self.facts, self.used = self.through.index()
        self.packed = self.count, self.used

    def _kept(self) -> pa.Schema:
        """The columns of rows that results have, or are checked by."""
        kept = {*self.through.chosen}
        if any(needs_check(stream.key_types) for stream in self.plan.streams):
            kept.update(name for names in self.through.keys for name in names)
        return pa.schema([column for column in self.through.schema if column.name in kept])

    # -- the facts that are there from the start -------------------------------------------------

    def _enter_all(self, rows: pa.RecordBatch) -> None:
        size, streams = rows.num_rows, len(self.plan.streams)
        codes = np.empty(size * streams, np.int32)
        self._code(rows, codes)
        self._enter_no_key()
        begin, end = self._bounds(rows)
        self._grow((size + _FEW) * streams)
        order = np.empty(0, np.int64)
        if begin.size and (begin[1:] < begin[:-1]).any():
            order = np.argsort(begin, kind="stable")
        lay_out(self.facts, codes, order, begin, end)
        self.used = size * streams

    def _lots(self, rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
        """The lots of facts; those with the same keys have the same."""
        word = np.full(rows.num_rows, mixed(np.array([self.plan.seed], np.uint64))[0])
        with np.errstate(over="ignore"):
            for position, stream in enumerate(self.plan.streams):
                met = self.through.keys[position]
                hashes, _ = key_hash(rows, met, stream.key_types, self.plan.secret)
                word += hashes * (np.uint64(2 * position + 1) * GOLDEN)
        return mixed(word)

    def _drawn(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which facts are of the depth that is wanted."""
        drawn: npt.NDArray[np.bool_] = self._lots(rows) >> np.uint64(64 - self.through.depth) == 0
        return drawn

    def _keep(self, rows: pa.RecordBatch) -> None:
        self.segments.append(self.payload.put(rows))
        self.starts.append(self.count)
        self.count += rows.num_rows
        if self.through.depth:
            self.lots = np.concatenate([self.lots, self._lots(rows)])
        if self.count >= 2**31:
            raise InputError(
                f"{self.through.relation.named} has {self.count:,} rows, more than"
                " 2**31; leave out those that cannot match"
            )

    def _code(self, rows: pa.RecordBatch, codes: npt.NDArray[np.int32]) -> None:
        """The codes of all joining columns of rows, by (row, stream)."""
        for position, stream in enumerate(self.plan.streams):
            met = self.through.keys[position]
            try:
                hashes, null = key_hash(rows, met, stream.key_types, self.plan.secret)
            except pa.ArrowInvalid as error:
                raise InputError(
                    f"{self.through.relation.named}, column {', '.join(map(repr, met))}:"
                    f" a key cannot be read ({error}); use values that fit"
                    f" {', '.join(map(str, stream.key_types))}"
                ) from error
            if null.size and null.any():
                raise InputError(
                    f"{self.through.relation.named}, column"
                    f" {', '.join(map(repr, met))}: {int(null.sum()):,} of the rows have no key,"
                    f" first row {int(null.argmax()):,}; leave out rows without a key, as they"
                    " match nothing"
                )
            self._grow_codes(len(hashes))
            enter_codes(self.facts, hashes, position, codes)

    def _enter_no_key(self) -> None:
        """Enter a code that has no facts, of a stream that there is not."""
        streams = len(self.plan.streams)
        self._grow_codes(1)
        enter_codes(self.facts, _NO_KEY, streams, np.empty(streams + 1, np.int32))

    def _bounds(self, rows: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """From when on and up to when each row is valid; empty where nothing is said."""
        begin = self._times(rows, self.through.begin, NEVER)
        end = self._times(rows, self.through.end, FOR_EVER)
        if begin.size and end.size and (begin >= end).any():
            row = int((begin >= end).argmax())
            raise InputError(
                f"{self.through.relation.named}: row {row:,} is valid from"
                f" {rows.column(self.through.begin)[row]} in column {self.through.begin!r} to"
                f" {rows.column(self.through.end)[row]} in column {self.through.end!r}; let it end"
                " after it begins, or leave it out"
            )
        return begin, end

    def _times(self, rows: pa.RecordBatch, name: str | None, unknown: int) -> npt.NDArray[np.int64]:
        if name is None:
            return np.empty(0, np.int64)
        where = f"{self.through.relation.named}, column {name!r}"
        times, null = times_of(rows.column(name), self.plan.time_type, where)
        return np.where(null, unknown, times) if null.size else times

    # -- changes ---------------------------------------------------------------------------------

    def relay(self) -> Iterator[DatedChanges | None]:
        """The changes that this relation will read, for another that stands for the same.

        Changes may be there to be read once only. Where no more are known yet, there comes None.
        """
        waiting: deque[DatedChanges] = deque()
        self.relays.append(waiting)
        return iter(lambda: waiting.popleft() if waiting else None, DatedChanges)

    def follow(self, relayed: Iterable[DatedChanges | None]) -> None:
        """Change by what another relation has read, and read nothing."""
        self.news = self._code_changes(relayed)

    def _read_changes(self) -> Iterator[DatedChanges | None]:
        """All changes, batch by batch; None if there are no more yet."""
        relation = self.through.relation
        where = f"the changes of relation {relation.name!r}, column {relation.time!r}"
        latest = NEVER
        for rows, inserted in relation.read_changes(self.through.schema):
            if rows.num_rows == 0:
                if relation.grows:
                    yield None
                continue
            times, null = times_of(rows.column(CHANGE_TIME), self.plan.time_type, where)
            if null.size:
                raise InputError(f"{where}: change {int(null.argmax()):,} has no time; give it one")
            if relation.grows:  # what is read after its time takes effect from now on
                times = np.maximum.accumulate(np.maximum(times, max(latest, self.asked + 1)))
            late = np.flatnonzero(times < np.concatenate([[latest], times[:-1]]))
            if len(late):
                raise InputError(
                    f"{where}: change {int(late[0]):,} of a batch,"
                    f" {rows.column(CHANGE_TIME)[int(late[0])]}, comes after a later one; give"
                    " changes in the order of time"
                )
            latest = int(times[-1])
            yield DatedChanges(rows, inserted, times)

    def _code_changes(self, read: Iterable[DatedChanges | None]) -> Iterator[Changes]:
        """Changes with codes, and room for what they insert."""
        for found in read:
            if found is None:
                yield NO_CHANGES
                continue
            for waiting in self.relays:
                waiting.append(found)
            more = self._drawn_changes(found)
            if not len(more.times):
                continue
            codes = np.empty(len(more.times) * len(self.plan.streams), np.int32)
            self._code(more.rows, codes)
            insert = more.inserted.to_numpy(zero_copy_only=False)
            first = self.count
            self._keep(more.rows.filter(more.inserted))
            number = (first - 1 + np.cumsum(insert)).astype(np.int32)
            yield Changes(more.times, insert, number, codes)

    def _drawn_changes(self, changes: DatedChanges) -> DatedChanges:
        """The changes of facts that are drawn."""
        if not self.through.depth:
            return changes
        drawn = self._drawn(changes.rows)
        rows, inserted, times = changes
        return DatedChanges(rows.filter(pa.array(drawn)), inserted.filter(drawn), times[drawn])

    def read_until(self, time: int) -> None:
        """Read all changes up to a time, and perhaps some after it."""
        parts = []
        while (more := self._next(time)) is not None:
            parts.append(more)
        self._await(parts)
        self.asked = max(self.asked, time)

    def read_more(self, time: int) -> bool:
        """Read some more of the changes up to a time; False if all of them are read."""
        more = self._next(time)
        self._await([] if more is None else [more])
        return more is not None

    def _next(self, time: int) -> Changes | None:
        """Some more of the changes up to a time; None if all of them are read."""
        if self.told > time:
            return None
        more = next(self.news, None)
        if more is None or more.time.size == 0:
            self.told = self.told if more is not None else FOR_EVER
            return None
        self.told = int(more.time[-1])
        return more

    def _await(self, more: list[Changes]) -> None:
        """Put changes with those that are to come, and make room for the facts they insert."""
        if more:
            parts = zip(*[self.coming, *more])
            self.coming = Changes._make(np.concatenate(column) for column in parts)
            self._reserve()

    def made(self, number: int) -> None:
        """So many of the changes that were to come have been made."""
        if number:
            streams = len(self.plan.streams)
            coming = self.coming
            self.coming = Changes(
                coming.time[number:],
                coming.insert[number:],
                coming.fact[number:],
                coming.codes[number * streams :],
            )

    def _reserve(self) -> None:
        """Make room below their codes for the facts that all changes to come insert."""
        by_change = self.coming.codes.reshape(-1, len(self.plan.streams))
        codes, more = np.unique(by_change[self.coming.insert], return_counts=True)
        wanted = np.zeros(len(codes), np.int64)
        total = widths(self.facts, codes, more, wanted)
        self._grow(self.used + total)
        widen(self.facts, codes, wanted, self.used)
        self.used += total

    def warm(self) -> None:
        """Have compiled what changes need, with a relation that has no facts."""
        nothing = replace(self.through.relation, data=None)
        through = replace(self.through, relation=nothing, index=None)
        empty = RunningRelation(replace(self.plan, through=through))
        empty._reserve()
        empty.give_up(0)

    # -- room ------------------------------------------------------------------------------------

    def grown(self) -> bool:
        """Whether so many facts have come since the last time that some may be given up."""
        if self.through.relation.changes is None:
            return False
        count, used = self.packed
        return self.count > 2 * count + _MANY or self.used > 2 * used + _MANY

    def give_up(self, horizon: int) -> None:
        """Give up all facts that ended by a time; their room, and that of their keys, is free.

        Nobody is stored with an earlier time, or will come: so no code is given up that a row has.
        """
        if horizon == NEVER:
            return
        codes = int(self.facts.numbers[KEYS_USED])
        wanted = np.zeros(codes, np.bool_)
        wanted[self.coming.codes] = True
        kept = np.zeros(self.count, np.bool_)
        kept[self.coming.fact[self.coming.insert]] = True
        width = len(self.plan.streams)
        entries, bounds = np.empty(self.used * width, np.int32), np.empty(2 * self.used, np.int64)
        self.used = pack(self.facts, entries, bounds, horizon, wanted, kept)
        self.facts = self.facts._replace(
            entries=entries[: self.used * width].copy(), bounds=bounds[: 2 * self.used].copy()
        )
        number = (np.cumsum(kept) - 1).astype(np.int32)
        renumber(self.facts, self.used, number)
        self.coming.fact[self.coming.insert] = number[self.coming.fact[self.coming.insert]]
        self._gather(kept)
        self._reserve()
        self.packed = self.count, self.used

    def _gather(self, kept: npt.NDArray[np.bool_]) -> None:
        """Keep the rows of some facts only, together."""
        self.count = int(kept.sum())
        if self.through.depth:
            self.lots = self.lots[kept]
        gone, self.segments, self.starts = self.segments, [], []
        if not self.payload.segments:  # no column is kept
            self.segments, self.starts = [0], [0]
            return
        together = self.payload.gather(gone, kept, self.count)
        for number in gone:
            self.payload.drop(number)
        if together is not None:
            self.segments, self.starts = [together], [0]

    def _grow_codes(self, more: int) -> None:
        facts = self.facts
        codes = int(facts.numbers[KEYS_USED]) + more
        if codes * CODE_WORDS > facts.keys.size:
            room = codes if self.used == 0 else _some_more(codes)
            self.facts = facts = facts._replace(keys=_larger(facts.keys, room * CODE_WORDS))
        if directory(codes) > facts.table.size:
            self.facts = facts._replace(table=np.zeros(directory(codes), np.uint32))
            refill(self.facts)

    def _grow(self, places: int) -> None:
        """Room for so many places of the index."""
        facts, width = self.facts, len(self.plan.streams)
        if places * width <= facts.entries.size:
            return
        places = places if self.used == 0 else _some_more(places)
        if places >= 2**31:
            raise InputError(
                f"{self.through.relation.named} needs {places:,} places in its index,"
                " more than 2**31; leave out rows that cannot match"
            )
        bounds = places if self.timed else 0
        self.facts = facts._replace(
            entries=_larger(facts.entries, places * width),
            bounds=_larger(facts.bounds, 2 * bounds),
        )

    def nbytes(self) -> int:
        """Bytes of the index and of the rows."""
        arrays = (self.facts.keys, self.facts.table, self.facts.entries, self.facts.bounds)
        return sum(array.nbytes for array in arrays) + self.payload.nbytes()

    # -- for the loop, and for results -----------------------------------------------------------

    def codes(self, batch: Batch) -> npt.NDArray[np.int32]:
        """The codes of the keys of a batch."""
        codes = np.empty(batch.time.size, np.int32)
        find_codes(self.facts, batch.stream, batch.hash, codes)
        return codes

    def restored_codes(self, batch: Batch) -> npt.NDArray[np.int32]:
        """The codes of rows of a checkpoint, whose keys may have been in another table only.

        Those rows get the code without facts: they match nothing, and are filtered.
        """
        codes = self.codes(batch)
        gone = codes == NONE
        if gone.any():
            of = np.full(1, len(self.plan.streams), batch.stream.dtype)
            without = np.empty(1, np.int32)
            find_codes(self.facts, of, _NO_KEY, without)
            codes[gone] = without
        return codes

    def places(self, numbers: npt.NDArray[np.int64]) -> Places:
        """Where the rows of facts are kept."""
        found = np.searchsorted(self.starts, numbers, "right") - 1
        first = np.array(self.starts, np.int64)[found]
        segment = np.array(self.segments, np.int64)[found]
        return places_in(0, numbers - first) + (segment << PLACE_BITS)


def _some_more(size: int) -> int:
    """Room for as many and some more; a large relation need not be doubled for a few changes."""
    return size + size // 8 + _MANY


def _larger(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """An array of a size that begins with what another holds."""
    larger = np.empty(size, array.dtype)
    larger[: array.size] = array
    return larger
