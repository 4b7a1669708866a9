"""Spilling: when memory is full, whole partitions of keys wait on disk.

SNJoin's global hash table makes flushing *coordinated* by itself (Ali, Aref, Kamel 2005, 2.3):
rows of equal keys, of all streams, are in memory together or on disk together. So every row is
joined in one place: at once if its partition is in memory, and otherwise when the partition is read
again. Nothing is made twice, and nothing has to be remembered to avoid it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import NO_FLAGS, NO_NUMBERS, UNWEIGHTED, Batch
from streamshed.engine.checkpoint import Fetch
from streamshed.engine.component import Component
from streamshed.engine.gate.disk import Disk
from streamshed.engine.gate.needed import Horizon, Needed, RowWindows
from streamshed.engine.gate.partitions import Flags, Partition, Partitions, Records, taken_by
from streamshed.engine.gate.spill_router import (
    AWAY,
    CAME,
    ENTERED,
    LISTED,
    LOWEST,
    MOST,
    NEEDED,
    NOTED,
    NOTED_SIZE,
    OVER,
    PARTITIONS,
    PIECE,
    UNTIL,
    Revisit,
    arrange,
    census,
    measure,
    new_router,
    take_out,
)
from streamshed.engine.observe.loss import MadeLater
from streamshed.engine.outputs import choices
from streamshed.engine.payload import Payload
from streamshed.engine.restore import Rows
from streamshed.kernels.core import (
    BOUNDLESS,
    EXPIRED,
    FATES,
    KEYS_USED,
    NEVER,
    NEWEST,
    RESULTS,
    ROWS_USED,
    SHED,
    STORED,
    TOTAL_IMPORTANCE,
    Field,
    Shape,
)
from streamshed.ledger import Spilled
from streamshed.plan.plan import Plan, SpillPlan

if TYPE_CHECKING:
    from streamshed.engine.blocks import Block
    from streamshed.engine.bulk.by_key import KeyBulk
    from streamshed.engine.operator import Operator

LEAST, FREED = 6, 2
"""When memory is looked at and less than the first part of it is free, partitions go to disk until
the second part is. The more is free, the fewer rounds there are, and the less they cost."""
PAUSE = 2
"""There is a sitting when so many times as much has come as there is room for in memory: fewer and
larger ones cost less, and results from disk wait a little longer."""
STEPS = 4
"""How often within a window, or a deadline, memory is looked at while something is on disk."""

Ints = npt.NDArray[np.int64]
Streams = npt.NDArray[np.int32]


class DiskSpill(Component):
    """The disk of a running join on one shared key.

    Arrivals are counted in *rounds*, each of as many as there is room for in memory; where the
    budget is in bytes, so are all sizes, and otherwise each row counts 1. At the end of a round the
    rows that came for partitions on disk are written there, and if memory is nearly full more
    partitions go there, the largest first. Now and then there is a *sitting*: partitions on disk
    are read again and joined, the one that has waited longest first, as long as no more rows are
    read than have come.

    Args:
        plan: the join, with its budgets.
        spill: what was said of the disk.
        join: the join in memory, whose budgets are kept here.
        visitor: a join of the same kind, by which rows from disk are joined.
        bulk: the same for rows in the order of time, if many can be joined at once.
    """

    prefix = "spill."
    state = None

    def __init__(
        self,
        plan: Plan,
        spill: SpillPlan,
        join: Operator,
        visitor: Operator,
        bulk: KeyBulk | None,
    ) -> None:
        super().__init__(join.shape, join.memory)
        self.plan, self.join, self.visitor, self.bulk = plan, join, visitor, bulk
        self.deadline = spill.deadline
        rows = [stream.rows for stream in plan.streams]
        budgets = rows if plan.total is None else [plan.total]
        self.sized = plan.memory is not None
        if plan.memory is not None:
            budgets = [plan.memory.for_rows]
        self.budget = np.array([BOUNDLESS if b is None else b for b in budgets], np.int64)
        self.sitting = sum(b for b in budgets if b is not None)
        payload = [Payload(payload.schema) for payload in join.payload]
        self.aside = Partitions(Disk(spill.to, AWAY), payload)
        visitor.ingest = join.ingest
        self.router = join.router = new_router(len(self.budget))
        self.router.numbers[MOST] = self.sitting if self.sized else 0
        self.row_windows = RowWindows(plan)
        self.needed = Needed(join, self.row_windows, self.sized)
        self.on_disk: Ints = np.zeros(join.shape.lanes, np.int64)
        self.credit = 0
        self.being_joined: set[int] = set()
        self.figures: dict[str, Any] = asdict(Spilled())
        """What the ledger says of results from disk, and of partitions; see `account`."""
        self.latest = NEVER
        self._begin_round()

    def grow(self, shape: Shape, rows: int) -> None:
        """Make room for so many rows more that may be noted."""
        self.shape = shape
        noted, filled = self.router.noted, int(self.router.numbers[NOTED])
        if filled + rows > len(noted):
            larger = np.empty(2 * (filled + rows), AWAY)
            larger[:filled] = noted[:filled]
            self._route(noted=larger)
        self._list_entered()
        if self.row_windows.present and rows > len(self.router.entered):
            self._route(entered=np.empty(2 * rows, ENTERED))

    def _route(self, **arrays: npt.NDArray[Any]) -> None:
        self.router = self.join.router = self.router._replace(**arrays)

    def _list_entered(self) -> None:
        """Take over the list of rows that entered row windows."""
        numbers = self.router.numbers
        if numbers[LISTED]:
            self.row_windows.enter(self.router.entered[: numbers[LISTED]])
            numbers[LISTED] = 0

    def layout(self) -> dict[str, Field]:
        """The list of rows in row windows; all else is said by `save`."""
        return {"entered": Field("once", ENTERED, kept=True)}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The same list."""
        return {"entered": self.row_windows.entered}

    def nbytes(self, used: Shape) -> int:
        """Bytes in use, those of the partition that was read last included."""
        listed = self.router.noted.nbytes + self.router.entered.nbytes
        listed += self.row_windows.entered.nbytes
        at_once = 0 if self.bulk is None else self.bulk.bytes_used
        return self.visitor.state_bytes() + at_once + int(listed)

    # -- rounds ----------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        numbers, room = self.router.numbers, self._room()
        self.router.left[:] = room
        self.offered = int(room.min())
        numbers[CAME], numbers[UNTIL], numbers[OVER] = 0, BOUNDLESS, 0
        if self.router.spilled.any():
            patience = self.needed.longest
            if self.deadline is not None:
                patience = min(patience, self.deadline)
            numbers[UNTIL] = int(self.join.core.numbers[NEWEST]) + max(1, patience // STEPS)

    def end_round(self) -> bool:
        """See to memory; whether it is time to look at the disk."""
        # A round that ends early, by time, leaves time for as many as might have come.
        self.credit += max(self.offered, int(self.router.numbers[CAME]))
        self._put_down(self._flushed())
        self._list_entered()
        self._shed_overdue()
        self._begin_round()
        return self.deadline is not None or self.credit >= PAUSE * self.sitting

    def join_spilled(self) -> Iterator[Block]:
        """Look at the disk: join what waits there, and let go of what is over."""
        yield from self._revisit()
        for number in np.flatnonzero(self.router.spilled).tolist():
            # Not by what lies on disk, but by what is needed of it: who looks changes nothing.
            self.router.spilled[number] = self.needed.any_of(self.aside.of[number])
        self._let_go()
        self._begin_round()

    def finish(self) -> Iterator[Block]:
        """There is no more input: join all that waits on disk."""
        self.flush_noted()
        self._shed_overdue()
        self.credit = BOUNDLESS
        yield from self.join_spilled()

    def close(self, referred: bool) -> None:
        """Remove all files, or those only that no snapshot refers to."""
        if self.bulk is not None:
            self.bulk.close()
        if referred:
            self.aside.disk.leave()
        else:
            self.aside.disk.close()

    def _room(self) -> Ints:
        """For each budget what more there may be in memory, besides the rows noted."""
        held = self.join.core.pools["bytes" if self.sized else "held"].sum(keepdims=True)
        if len(self.budget) > 1:
            stored = self.join.core.counts.reshape(-1, FATES)[:, STORED]
            noted = self.router.noted["stream"][: self.router.numbers[NOTED]]
            held = stored - self.on_disk - np.bincount(noted, minlength=len(stored))
        room: Ints = self.budget - held
        return room

    # -- to disk ---------------------------------------------------------------------------------

    def _flushed(self) -> Records:
        """Take partitions out of memory until enough of it is free; returns their rows."""
        room, enough = self._room(), self._part(FREED)
        if (room >= self._part(LEAST)).all():
            return np.empty(0, AWAY)
        sizes = np.zeros((PARTITIONS, self.join.shape.lanes), np.int64)
        census(self.join.core, sizes)
        if len(self.budget) == 1:
            sizes = sizes.sum(axis=1, keepdims=True)
        chosen = np.zeros(PARTITIONS, np.bool_)
        held = self.join.core.pools["held"].sum()
        while (room < enough).any():
            tightest = int(np.argmin(room / self.budget))
            largest = int(np.argmax(sizes[:, tightest]))
            room = room + sizes[largest]
            sizes[largest] = 0
            chosen[largest] = True
        away = np.empty(held, AWAY)
        taken = take_out(self.join.core, self.join.matcher.state, self.join.state, chosen, away)
        away = away[:taken]
        self.router.spilled[chosen] = True
        self.figures["flushed"] += int(chosen.sum())
        return away[np.argsort(away["arrival"])]

    def _part(self, divisor: int) -> Ints:
        """A part of each budget, with room for the next row."""
        return np.maximum(max(1, int(self.router.numbers[NEEDED])), self.budget // divisor)

    def _put_down(self, flushed: Records) -> None:
        """Write to disk what was noted, and what was taken out of memory."""
        noted = self.router.noted[: self.router.numbers[NOTED]]
        number = len(noted) + len(flushed)
        if number == 0:
            return
        apart, inputs = self.plan.by is not None, np.zeros_like(self.on_disk)
        pieces = np.zeros(PARTITIONS, PIECE)
        for rows in (noted, flushed):
            measure(rows, apart, pieces, inputs)
        pieces["start"] = pieces["end"] = np.cumsum(pieces["end"]) - pieces["end"]
        firsts, filled = np.cumsum(inputs) - inputs, np.zeros_like(inputs)
        arranged, places = np.empty(number, AWAY), np.empty(number, np.int64)
        for rows in (noted, flushed):  # of other partitions each
            arrange(rows, apart, pieces, firsts, filled, arranged, places)
        users = [
            payload.take(places[first : first + size])
            for payload, first, size in zip(self.join.payload, firsts, inputs, strict=True)
        ]
        joined = np.zeros(PARTITIONS, np.bool_)
        joined[flushed["hash"] & LOWEST] = True
        self.aside.put(arranged, users, pieces, joined)
        self.on_disk += inputs
        self.router.numbers[[NOTED, NOTED_SIZE]] = 0

    def _lanes(self, streams: Streams) -> Streams:
        return np.zeros_like(streams) if self.plan.by is not None else streams

    # -- from disk -------------------------------------------------------------------------------

    def _revisit(self) -> Iterator[Block]:
        """Join what has waited longest, as far as there is credit for it."""
        groups: list[list[int]] = [[]]
        rows = 0
        for number in self.aside.longest_waiting():
            cost = self.needed.size_of(self.aside.of[number])
            if cost > self.credit:
                break
            self.credit -= cost
            if rows > self.sitting:
                groups.append([])
                rows = 0
            groups[-1].append(number)
            rows += cost
        else:
            self.credit = 0
        self.being_joined = {number for group in groups for number in group}
        if not self.being_joined:
            return
        for found in self._visited(groups):
            block = found._replace(payload=self.aside.payload)
            self.join.core.numbers[RESULTS] += block.stands_for
            if block.importance.size:
                self.join.core.totals[TOTAL_IMPORTANCE] += block.importance.sum()
            if not self.join.checked:
                self.note_emitted(block)
            yield block
        joined, self.being_joined = self.being_joined, set()
        self.figures["revisited"] += len(joined)
        for number in (number for group in groups for number in group):
            self.aside.of[number] = Partition([*self.aside.of[number].pieces()])
        for number in (number for group in groups for number in group):
            if (self._room() <= self._part(FREED)).any():
                break
            self._take_back(number)

    def _visited(self, groups: list[list[int]]) -> Iterator[Block]:
        """The results of rows that wait in some groups of partitions."""
        row_by_row: list[list[Partition]] = []
        for group in groups:
            partitions = [self.aside.of[number] for number in group]
            at_once = None
            if self.bulk is not None:
                at_once = self.aside.to_join_at_once(partitions, self.bulk.workspace)
            if self.bulk is None or at_once is None:
                row_by_row.append(partitions)
            else:
                yield from self.bulk.results(*at_once)
        yield from self.visitor.run_on(map(self._prepared, row_by_row))

    def _prepared(self, partitions: list[Partition]) -> Batch:
        """The rows of some partitions in the order of arrival; those that wait are to be joined."""
        batch, arrivals, to_do = self.aside.to_visit(partitions, self.plan.weighed)
        visitor = self.visitor
        if self.join.loss is not None:
            visitor.observer = MadeLater(self.join.loss.state)
        leaving, before = self.row_windows.leaving(batch.stream, arrivals, partitions)
        visitor.router = Revisit(to_do, arrivals, leaving, before, np.zeros(1, np.int64))
        # What there was of partitions before is over.
        visitor.core.pools["held"] = 0
        visitor.core.numbers[[ROWS_USED, KEYS_USED]] = 0
        largest = max(partition.size for partition in partitions)
        visitor.make_room(largest, on_the_way=0)  # a large table takes long to clear
        if self.plan.windows is not None:  # a column names the streams, and they come to the join
            known = self.join.ingest.names.size
            visitor.core.sweep[:known] = self.join.core.sweep[:known]
        return batch

    def _take_back(self, number: int) -> None:
        """Take a partition into memory again if there is room for all of it."""
        room = self._room() - self._part(FREED)
        partition = self.aside.of[number]
        if self.needed.size_of(partition) > room.sum(dtype=float):
            return
        known = self.aside.known(partition.joined)
        needed = self.needed.rows(known, self.needed.horizon(partition))
        rows = known[needed]
        lanes = self._lanes(rows["stream"])
        back = np.bincount(lanes, minlength=len(self.on_disk))
        if (room < (taken_by(rows) if len(room) == 1 else back)).any():
            return
        self._leave([known[~needed]], EXPIRED)
        for position, (memory, disk) in enumerate(
            zip(self.join.payload, self.aside.payload, strict=True)
        ):
            mine = lanes == position
            if len(memory.schema) == 0:
                continue  # nothing is ever asked back
            rows["payload"][mine] = memory.add(disk.take(rows["payload"][mine]))
        join = self.join
        join.ingest.disorder += len(rows)  # they are older than those in memory
        join.make_room(len(rows))
        arrivals = np.ascontiguousarray(rows["arrival"])
        batch = as_batch(rows, self.plan.weighed)
        if self.sized:
            batch = batch._replace(size=rows["size"].astype(np.int64))
        join.store_again(Rows(batch, arrivals), anew=False)
        if self.row_windows.present:
            self._enter_again(arrivals)
        self.on_disk -= back
        self.aside.of[number] = Partition()
        self.router.spilled[number] = False

    def _enter_again(self, arrivals: Ints) -> None:
        """Let row windows know where rows are that were taken into memory again."""
        core = self.join.core
        numbers = core.rows["arrival"][: core.numbers[ROWS_USED]]
        stored = np.flatnonzero(np.isin(numbers, arrivals))
        stored = stored[np.argsort(numbers[stored])]
        entered = np.flatnonzero(np.isin(core.recent["arrival"], arrivals))
        place = np.searchsorted(numbers[stored], core.recent["arrival"][entered])
        core.recent["row"][entered] = stored[place]

    def _leave(self, gone: list[Records], fate: int) -> None:
        """Note what has become of rows on disk."""
        if not gone:
            return
        streams = np.concatenate([rows["stream"] for rows in gone])
        counts = self.join.core.counts.reshape(-1, FATES)
        number = np.bincount(streams, minlength=len(counts))
        counts[:, STORED] -= number
        counts[:, fate] += number
        self.on_disk -= np.bincount(self._lanes(streams), minlength=len(self.on_disk))

    def _shed_overdue(self) -> None:
        """Shed the rows that wait whose results would come too late."""
        if self.deadline is None:
            return
        since = int(self.join.core.numbers[NEWEST]) - self.deadline
        gone: list[Records] = []
        for partition in self.aside.of:
            if any(piece.oldest < since for piece in partition.waiting):
                kept = []
                for piece in partition.waiting:
                    kept += piece.only(piece.known()["time"] >= since, gone)
                partition.waiting = kept
        self._leave(gone, SHED)

    def _let_go(self, exactly: bool = False) -> None:
        """Give up rows on disk that can meet nothing any more, but for those that are joined now.

        Args:
            exactly: all of them, not only where all of a piece are so.
        """
        gone: list[Records] = []
        by_rows = self.row_windows.present
        noted = self.router.noted[: self.router.numbers[NOTED]]
        oldest, first = np.full((2, PARTITIONS), BOUNDLESS, np.int64)
        if len(noted):
            np.minimum.at(oldest, noted["hash"] & LOWEST, noted["time"])
            np.minimum.at(first, noted["hash"] & LOWEST, noted["arrival"])
        for number, partition in enumerate(self.aside.of):
            time, arrival = self.needed.horizon(partition)
            time, arrival = min(time, int(oldest[number])), min(arrival, int(first[number]))
            if (time == NEVER and not by_rows) or number in self.being_joined:
                continue
            kept = []
            for piece in partition.joined:
                if time != NEVER and time - piece.newest > self.needed.longest:
                    gone.append(piece.known())
                elif by_rows or (exactly and time - piece.oldest > self.needed.shortest):
                    needed = self.needed.rows(piece.known(), Horizon(time, arrival))
                    kept += piece.only(needed, gone)
                else:
                    kept.append(piece)
            partition.joined = kept
        self._leave(gone, EXPIRED)
        self.aside.tidy()
        if by_rows:
            eldest = min((piece.first for piece in self.aside.pieces()), default=BOUNDLESS)
            self.row_windows.forget_before(eldest)

    # -- what comes out --------------------------------------------------------------------------

    def note_emitted(self, block: Block) -> None:
        """Note when results are emitted, and in which order."""
        time = block.time
        number = choices(block) if block.factorised else np.ones(len(time), np.int64)
        latest = np.maximum.accumulate(np.append(self.latest, time))
        self.latest = int(latest[-1])
        self.figures["overtaken"] += int(number[time < latest[:-1]].sum())
        if block.payload is self.aside.payload and len(time):
            delays = int(self.join.core.numbers[NEWEST]) - time
            figures = self.figures
            total = figures["delay"] * figures["results"] + float((delays * number).sum())
            figures["results"] += int(number.sum())
            figures["delay"] = total / figures["results"]
            figures["longest_delay"] = max(figures["longest_delay"], int(delays.max()))

    @property
    def budget_in_words(self) -> str:
        """The budget as a checkpoint knows it."""
        return self.plan.about()["budget"]

    def settle_accounts(self) -> None:
        """Give up all rows on disk that can meet nothing any more, so that the ledger says so."""
        self._let_go(exactly=True)

    @property
    def noted_bytes(self) -> int:
        """The bytes of rows in memory that are not written yet, where the budget is in bytes."""
        return int(self.router.numbers[NOTED_SIZE]) if self.sized else 0

    def account(self) -> Spilled:
        """What is on disk, and what came from there."""
        disk = self.aside.disk
        now = {
            "rows": self.aside.rows + int(self.router.numbers[NOTED]),
            "nbytes": disk.nbytes,
            "most_bytes": disk.most,
            "written": disk.written,
        }
        return Spilled(**(self.figures | now))

    def shed_by(self, shed: int) -> dict[str, int]:
        """For which reasons how many rows were shed: a deadline, or a throttle."""
        throttle = self.join.throttle
        dropped = 0 if throttle is None else throttle.dropped
        reasons = {} if self.deadline is None else {"deadline": shed - dropped}
        return reasons | ({"throttle": dropped} if dropped else {})

    # -- checkpoints -----------------------------------------------------------------------------

    def flush_noted(self) -> None:
        """Write to disk what was noted."""
        self._put_down(np.empty(0, AWAY))
        self._list_entered()

    def keep_files(self) -> None:
        """Let the files stay that a snapshot refers to, until the next one."""
        self.aside.disk.keep_files()

    def save(self) -> dict[str, Any]:
        """What is on disk; a checkpoint refers to files."""
        return self.aside.saved() | {
            "secret": [int(word) for word in self.join.ingest.secret],
            "figures": dict(self.figures),
            "latest": self.latest,
            "credit": self.credit,
            "on disk": self.on_disk.tolist(),
            "spilled": np.flatnonzero(self.router.spilled).tolist(),
            "left": self.router.left.tolist(),
            "offered": self.offered,
            "router": self.router.numbers.tolist(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Hash keys as those on disk were: a join may go on with another seed."""
        first, second = map(np.uint64, saved["secret"])
        self.join.ingest.secret = first, second

    def forget_streams(self, gone: Flags) -> None:
        """Forget streams that are gone: others may have their numbers."""
        self.row_windows.forget_streams(gone)

    def restore(
        self, said: dict[str, Any], entered: Records, another_budget: bool, fetch: Fetch | None
    ) -> None:
        """Go on with the files that a checkpoint refers to, or that are fetched."""
        self.aside.go_on(said, fetch)
        self.row_windows.entered = entered.astype(ENTERED)
        self.figures = asdict(Spilled()) | said["figures"]
        self.latest, self.credit = said["latest"], said["credit"]
        self.on_disk[:] = said["on disk"]
        self.router.spilled[said["spilled"]] = True
        self.router.numbers[:] = said["router"]
        self.router.numbers[MOST] = self.sitting if self.sized else 0
        if another_budget:
            self._put_down(self._flushed())
            self._begin_round()
        else:
            self.router.left[:] = said["left"]
            self.offered = said["offered"]


def as_batch(rows: Records, weighed: bool) -> Batch:
    """Rows from disk as the loop takes them."""
    stream, time, hashed, payload = (
        np.ascontiguousarray(rows[name]) for name in ("stream", "time", "hash", "payload")
    )
    importance = np.ascontiguousarray(rows["importance"]) if weighed else UNWEIGHTED
    return Batch(stream, time, hashed, payload, NO_FLAGS, NO_NUMBERS, importance)
