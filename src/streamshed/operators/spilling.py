"""A join that spills: when memory is full, whole partitions of keys wait on disk.

SNJoin's global hash table makes flushing *coordinated* by itself (Ali, Aref, Kamel 2005, 2.3):
rows of equal keys, of all streams, are in memory together or on disk together. So every tuple is
joined in one place: at once if its partition is in memory, and otherwise when the partition is read
again. Nothing is made twice, and nothing has to be remembered to avoid it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamshed.kernels.core import (
    BOUNDLESS,
    CLOCK,
    EXPIRED,
    FATES,
    NEVER,
    NEWEST,
    RESULTS,
    SHED,
    STORED,
    Memory,
)
from streamshed.ledger import Ledger, Spilled
from streamshed.operators.buffers import LATECOMERS, MADE, Batch
from streamshed.operators.checkpoint import Delta, Head, Snapshot
from streamshed.operators.disk import Disk
from streamshed.operators.keyed import KeyedJoin
from streamshed.operators.keyed_loop import DONE, rebuild
from streamshed.operators.partitions import Flags, Partition, Partitions, Records
from streamshed.operators.payload import Payload
from streamshed.operators.plan import Plan
from streamshed.operators.restoring import Rows
from streamshed.operators.revisiting import Revisited, Visitor, as_tuples
from streamshed.operators.spilling_loop import (
    AWAY,
    CAME,
    LOWEST,
    NOTED,
    PARTITIONS,
    ROUND_OVER,
    UNTIL,
    arrange,
    census,
    new_door,
    run_spilling,
    take_out,
)
from streamshed.operators.table_join import Block, Late

LEAST, FREED = 6, 3
"""When memory is looked at and less than the first part of it is free, partitions go to disk until
the second part is. The more is free, the fewer rounds there are, and the less they cost."""
STEPS = 4
"""How often within a window, or a deadline, memory is looked at while something is on disk."""


Ints = npt.NDArray[np.int64]


class SpillingJoin(KeyedJoin):
    """A running join on one shared key that spills.

    Arrivals are counted in *rounds*, each of as many as there is room for in memory. At its end the
    tuples that came for partitions on disk are written there, and if memory is nearly full more
    partitions go there, the largest first. Now and then there is a *sitting*: partitions on disk
    are read again and joined, the one that has waited longest first, as long as no more rows are
    read than have come.
    """

    def __init__(
        self,
        plan: Plan,
        whole: bool = True,
        memory: Memory | None = None,
    ) -> None:
        assert plan.spill is not None
        self.said, self.deadline = plan, plan.spill.deadline
        rows = [stream.rows for stream in plan.streams]
        budgets = rows if plan.total is None else [plan.total]
        self.budget = np.array([BOUNDLESS if b is None else b for b in budgets], np.int64)
        self.sitting = sum(b for b in budgets if b is not None)
        super().__init__(plan.unbounded, whole, memory)
        self.aside = Partitions(
            Disk(plan.spill.to, AWAY), [Payload(payload.schema) for payload in self.payload]
        )
        # A part of the keys sees a part of the times: its clock is no later than that of all.
        self.visitor = Visitor(replace(self.plan, idle=None))
        self.visitor.intake = self.intake

    def _begin(self) -> None:
        super()._begin()
        self.door = new_door(len(self.budget))
        self.on_disk: Ints = np.zeros(self.shape.lanes, np.int64)
        self.credit = 0
        self.being_joined: set[int] = set()
        self.figures = Spilled()
        self.latest = NEVER
        self.coming = 0
        self._begin_round()

    # -- rounds ----------------------------------------------------------------------------------

    def _run(self, batch: Batch) -> Iterator[Block | Late]:
        status, self.coming = None, batch.time.size
        self.out.filled[:] = 0
        while status != DONE:
            self._make_room_at_door(batch.time.size)
            status = self._loop(batch)
            due = status == ROUND_OVER and self._end_round()
            if status == ROUND_OVER and not due:
                continue  # what was made can wait until there is more of it
            late = self.out.late[: self.out.filled[LATECOMERS]]
            if late.size:
                yield Late(batch.stream[late], batch.payload[late])
            if made := self.out.filled[MADE]:
                yield self._emitted(self._block(int(made)))
            self.out.filled[:] = 0
            if due:
                yield from self._sit()

    def _loop(self, batch: Batch) -> int:
        door = self.door
        status: int = run_spilling(self.core, self.state, batch, self.work, self.out, door)
        return status

    def _make_room_at_door(self, tuples: int) -> None:
        noted, filled = self.door.noted, int(self.door.numbers[NOTED])
        if filled + tuples > len(noted):
            larger = np.empty(2 * (filled + tuples), AWAY)
            larger[:filled] = noted[:filled]
            self.door = self.door._replace(noted=larger)

    def _begin_round(self) -> None:
        numbers, room = self.door.numbers, self._room()
        self.door.left[:] = room
        self.offered = int(room.min())
        numbers[CAME], numbers[UNTIL] = 0, BOUNDLESS
        if self.door.spilled.any():
            longest = int(self.core.lanes["window"].max())
            patience = longest if self.deadline is None else min(longest, self.deadline)
            numbers[UNTIL] = int(self.core.numbers[NEWEST]) + max(1, patience // STEPS)

    def _end_round(self) -> bool:
        """See to memory; whether it is time to look at the disk."""
        # A round that ends early, by time, leaves time for as many as might have come.
        self.credit += max(self.offered, int(self.door.numbers[CAME]))
        self._put_down(self._flushed())
        self._shed_overdue()
        self._begin_round()
        return self.deadline is not None or self.credit >= self.sitting

    def _sit(self) -> Iterator[Block]:
        """Look at the disk: join what waits there, and let go of what is over."""
        yield from self._revisit()
        for number in np.flatnonzero(self.door.spilled).tolist():
            # Not by what lies on disk, but by what is needed of it: who looks changes nothing.
            self.door.spilled[number] = self._needed_of(self.aside.of[number], any_of_it=True) > 0
        self._let_go()
        self._begin_round()

    def finish(self) -> Iterator[Block | Late]:
        """There is no more input: join all that waits on disk."""
        self._put_down(np.empty(0, AWAY))
        self._shed_overdue()
        self.credit = BOUNDLESS
        yield from self._sit()

    def close(self) -> None:
        """Remove all files."""
        self.aside.disk.close()

    def _room(self) -> Ints:
        """For each budget how many rows more there may be in memory, besides those noted."""
        held = self.core.pools["held"].sum(keepdims=True)
        if len(self.budget) > 1:
            stored = self.core.counts.reshape(-1, FATES)[:, STORED]
            noted = self.door.noted["stream"][: self.door.numbers[NOTED]]
            held = stored - self.on_disk - np.bincount(noted, minlength=len(stored))
        room: Ints = self.budget - held
        return room

    # -- to disk ---------------------------------------------------------------------------------

    def _flushed(self) -> Records:
        """Take partitions out of memory until enough of it is free; returns their rows."""
        room, enough = self._room(), np.maximum(1, self.budget // FREED)
        if (room >= np.maximum(1, self.budget // LEAST)).all():
            return np.empty(0, AWAY)
        sizes = np.zeros((PARTITIONS, self.shape.lanes), np.int64)
        census(self.core, sizes)
        if len(self.budget) == 1:
            sizes = sizes.sum(axis=1, keepdims=True)
        chosen = np.zeros(PARTITIONS, np.bool_)
        held = self.core.pools["held"].sum()
        while (room < enough).any():
            tightest = int(np.argmin(room / self.budget))
            largest = int(np.argmax(sizes[:, tightest]))
            room = room + sizes[largest]
            sizes[largest] = 0
            chosen[largest] = True
        away = np.empty(held, AWAY)
        taken = take_out(self.core, self.state, chosen, away)
        away = away[:taken]
        self.door.spilled[chosen] = True
        self._noted(flushed=self.figures.flushed + int(chosen.sum()))
        return away[np.argsort(away["arrival"])]

    def _put_down(self, flushed: Records) -> None:
        """Write to disk what was noted, and what was taken out of memory."""
        noted = self.door.noted[: self.door.numbers[NOTED]]
        if len(noted) + len(flushed) == 0:
            return
        joined = np.zeros(PARTITIONS, np.bool_)
        joined[flushed["hash"] & LOWEST] = True
        rows = np.concatenate([noted, flushed]) if len(flushed) else noted
        number = np.bincount((rows["hash"] & LOWEST).astype(np.int64), minlength=PARTITIONS)
        lanes = np.bincount(self._lanes(rows["stream"]), minlength=len(self.on_disk))
        ends, firsts = np.cumsum(number) - number, np.cumsum(lanes) - lanes
        arranged, places = np.empty(len(rows), AWAY), np.empty(len(rows), np.int64)
        filled = np.zeros_like(lanes)
        arrange(rows, self.plan.by is not None, ends, firsts, filled, arranged, places)
        users = [
            payload.take(places[first : first + size])
            for payload, first, size in zip(self.payload, firsts, lanes, strict=True)
        ]
        self.aside.put(arranged, users, ends, joined)
        self.on_disk += lanes
        self.door.numbers[NOTED] = 0

    def _lanes(self, streams: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        return np.zeros_like(streams) if self.plan.by is not None else streams

    # -- from disk -------------------------------------------------------------------------------

    def _revisit(self) -> Iterator[Block]:
        """Join what has waited longest, as far as there is credit for it."""
        several: list[int] = []
        rows = 0
        for number in self.aside.longest_waiting():
            cost = self._needed_of(self.aside.of[number])
            if cost > self.credit:
                break
            self.credit -= cost
            several.append(number)
            rows += cost
            if rows > self.sitting:
                yield from self._visit(several)
                several, rows = [], 0
        else:
            self.credit = 0
        if several:
            yield from self._visit(several)

    def _visit(self, numbers: list[int]) -> Iterator[Block]:
        """Join the rows of some partitions that wait, in the order of their arrival."""
        partitions = [self.aside.of[number] for number in numbers]
        rows, worth = self.aside.to_visit(partitions)
        largest = max(partition.size for partition in partitions)
        arrivals = np.ascontiguousarray(rows["arrival"])
        tuples = as_tuples(rows)._replace(worth=worth)
        self.being_joined = {*numbers}
        for block in self.visitor.visit(tuples, arrivals, largest):
            self.core.numbers[RESULTS] += len(block.time)
            yield self._emitted(block)
        self.being_joined = set()
        self._noted(revisited=self.figures.revisited + len(numbers))
        for number, partition in zip(numbers, partitions, strict=True):
            self.aside.keep(number, [*partition.pieces()], [])
            self._take_back(number)

    def _horizon(self, partition: Partition) -> int:
        """The oldest time of a tuple that rows of a partition may still be joined with."""
        clock = int(self.core.numbers[CLOCK])
        coming = NEVER if clock == NEVER else clock - self.core.settings.late
        return min([coming, *(piece.oldest for piece in partition.waiting)])

    def _needed_of(self, partition: Partition, any_of_it: bool = False) -> int:
        """How many rows of a partition can be joined with those that wait or come.

        Args:
            partition: what is on disk of it; who waits is needed.
            any_of_it: whether it is enough to know if there are any.
        """
        horizon = self._horizon(partition)
        window = int(self.core.lanes["window"].min())
        needed = 0
        for piece in reversed([*partition.pieces()]):
            if horizon == NEVER or horizon - piece.oldest <= window:
                needed += piece.size
            else:
                needed += int(self._needed(piece.known(), horizon).sum())
            if any_of_it and needed:
                break
        return needed

    def _needed(self, rows: Records, horizon: int) -> Flags:
        """Which rows are within their windows together with a tuple of that time."""
        if horizon == NEVER:
            return np.ones(len(rows), np.bool_)
        windows, lists = self.core.lanes["window"], self._lanes(rows["stream"])
        if self.plan.windows is not None:
            lists = self.core.sweep[rows["stream"]]
        needed: Flags = rows["time"] >= horizon - windows[lists]
        return needed

    def _take_back(self, number: int) -> None:
        """Take a partition into memory again if there is room for all of it."""
        room = self._room() - np.maximum(1, self.budget // FREED)
        if (room <= 0).any():
            return
        partition = self.aside.of[number]
        known = self.aside.known(partition.joined)
        needed = self._needed(known, self._horizon(partition))
        rows = known[needed]
        lanes = self._lanes(rows["stream"])
        back = np.bincount(lanes, minlength=len(self.on_disk))
        if (room < (back.sum(keepdims=True) if len(room) == 1 else back)).any():
            return
        self._leave([known[~needed]], EXPIRED)
        for position, (memory, disk) in enumerate(
            zip(self.payload, self.aside.payload, strict=True)
        ):
            mine = lanes == position
            if len(memory.schema) == 0:
                continue  # nothing is ever asked back
            rows["payload"][mine] = memory.add(disk.take(rows["payload"][mine]))
        self.intake.disorder += len(rows)  # they are older than those in memory
        cursor = self.work.cursor  # this may be in the middle of a batch
        self._make_room(len(rows) + self.coming, 0)
        self.work.cursor[:] = cursor
        arrivals = np.ascontiguousarray(rows["arrival"])
        rebuild(self.core, self.state, as_tuples(rows), arrivals, arrivals)
        self.on_disk -= back
        self.aside.keep(number, [], [])
        self.door.spilled[number] = False

    def _leave(self, gone: list[Records], fate: int) -> None:
        """Note what has become of rows on disk."""
        if not gone:
            return
        streams = np.concatenate([rows["stream"] for rows in gone])
        counts = self.core.counts.reshape(-1, FATES)
        number = np.bincount(streams, minlength=len(counts))
        counts[:, STORED] -= number
        counts[:, fate] += number
        self.on_disk -= np.bincount(self._lanes(streams), minlength=len(self.on_disk))

    def _shed_overdue(self) -> None:
        """Shed the rows that wait whose results would come too late."""
        if self.deadline is None:
            return
        since = int(self.core.numbers[NEWEST]) - self.deadline
        gone: list[Records] = []
        for number, partition in enumerate(self.aside.of):
            if any(piece.oldest < since for piece in partition.waiting):
                kept = []
                for piece in partition.waiting:
                    kept += piece.only(piece.known()["time"] >= since, gone)
                self.aside.keep(number, partition.joined, kept)
        self._leave(gone, SHED)

    def _let_go(self, exactly: bool = False) -> None:
        """Give up rows on disk that can meet nothing any more, but for those that are joined now.

        Args:
            exactly: all of them, not only where all of a piece are so.
        """
        windows = self.core.lanes["window"]
        shortest, longest = int(windows.min()), int(windows.max())
        gone: list[Records] = []
        noted = self.door.noted[: self.door.numbers[NOTED]]
        oldest = np.full(PARTITIONS, BOUNDLESS, np.int64)
        np.minimum.at(oldest, noted["hash"] & LOWEST, noted["time"])
        for number, partition in enumerate(self.aside.of):
            horizon = min(self._horizon(partition), int(oldest[number]))
            if horizon == NEVER or number in self.being_joined:
                continue
            kept = []
            for piece in partition.joined:
                if horizon - piece.newest > longest:
                    gone.append(piece.known())
                elif exactly and horizon - piece.oldest > shortest:
                    kept += piece.only(self._needed(piece.known(), horizon), gone)
                else:
                    kept.append(piece)
            if kept != partition.joined:
                self.aside.keep(number, kept, partition.waiting)
        self._leave(gone, EXPIRED)
        self.aside.tidy()

    # -- what comes out --------------------------------------------------------------------------

    def _emitted(self, block: Block) -> Block:
        """Note when results are emitted, and in which order."""
        time = block.time
        latest = np.maximum.accumulate(np.append(self.latest, time))
        self.latest = int(latest[-1])
        self._noted(overtaken=self.figures.overtaken + int((time < latest[:-1]).sum()))
        if isinstance(block, Revisited):
            delays = int(self.core.numbers[NEWEST]) - time
            results = self.figures.results + len(time)
            total = self.figures.delay * self.figures.results + float(delays.sum())
            longest = max(self.figures.longest_delay, int(delays.max()))
            self._noted(results=results, delay=total / results, longest_delay=longest)
        return block

    def _noted(self, **figures: Any) -> None:
        self.figures = replace(self.figures, **figures)

    def _kept_for(self, block: Block) -> list[Payload]:
        return self.aside.payload if isinstance(block, Revisited) else self.payload

    def ledger(self) -> Ledger:
        """The accounts as they stand, with what is on disk."""
        self._let_go(exactly=True)
        disk = self.aside.disk
        spilled = replace(
            self.figures,
            rows=self.aside.rows + int(self.door.numbers[NOTED]),
            nbytes=disk.nbytes,
            most_bytes=disk.most,
            written=disk.written,
        )
        return replace(super().ledger(), spilled=spilled)

    def shed_by(self) -> dict[str, int]:
        """How many rows were shed: only a deadline asks for it."""
        return {} if self.deadline is None else {"deadline": self.shed}

    def state_bytes(self) -> int:
        """Bytes in use, those of the partition that was read last included."""
        return super().state_bytes() + self.visitor.state_bytes() + self.door.noted.nbytes

    # -- stop and go on --------------------------------------------------------------------------

    def seal(self, whole: bool = False) -> Delta:
        """Let go of all rows that have left; those that are noted go to disk."""
        self._put_down(np.empty(0, AWAY))
        return super().seal(whole)

    def snapshot(self) -> Snapshot:
        """All that is needed to go on later; it refers to files, which stay until the next one."""
        snapshot = super().snapshot()
        self.aside.disk.stay()
        return snapshot

    def head(self) -> Head:
        """All of the state but the rows; it refers to files."""
        head = super().head()
        figures = {
            "figures": asdict(self.figures),
            "latest": self.latest,
            "credit": self.credit,
            "on disk": self.on_disk.tolist(),
            "spilled": np.flatnonzero(self.door.spilled).tolist(),
            "left": self.door.left.tolist(),
            "offered": self.offered,
            "door": self.door.numbers.tolist(),
        }
        return replace(head, numbers=head.numbers | {"spill": self.aside.saved() | figures})

    def take_up(self, head: Head, rows: Rows, changed: set[str]) -> None:
        """Store rows again as a head says, and go on with the files that it refers to."""
        super().take_up(head, rows, changed)
        said = head.numbers["spill"]
        self.aside.go_on(said)
        self.figures = Spilled(**said["figures"])
        self.latest, self.credit = said["latest"], said["credit"]
        self.on_disk[:] = said["on disk"]
        self.door.spilled[said["spilled"]] = True
        self.door.numbers[:] = said["door"]
        if "budget" in changed:
            self._put_down(self._flushed())
            self._begin_round()
        else:
            self.door.left[:] = said["left"]
            self.offered = said["offered"]

    def _about(self) -> dict[str, str]:
        return super()._about() | {"budget": self.said.about()["budget"]}
