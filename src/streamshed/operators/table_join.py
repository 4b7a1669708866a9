"""The join on one shared key at work: what comes in, what comes out, and room for both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.estimates import Tally
from streamshed.kernels.core import (
    BOUNDLESS,
    FATES,
    KEYS_USED,
    RESULTS,
    ROWS_USED,
    SHED,
    Memory,
    Shape,
    core_layout,
    grown,
    make,
)
from streamshed.kernels.sampling import count_followed, sample_layout
from streamshed.ledger import Ledger, StreamLedger
from streamshed.operators.buffers import (
    EMITTING,
    LATECOMERS,
    MADE,
    MEMBERS,
    WEIGHTLESS,
    Batch,
    out_room,
    work_room,
)
from streamshed.operators.intake import Intake, Tuples, needs_check, shown_names
from streamshed.operators.keyed_loop import (
    DONE,
    advance,
    run,
)
from streamshed.operators.payload import Payload, Places
from streamshed.operators.plan import Plan, WindowPlan
from streamshed.operators.restoring import (
    owned,
)
from streamshed.operators.results import NO_UPDATES, UPDATES, named_results, told_apart_results
from streamshed.operators.room import allowed, directory, empty_core, enough, roomier
from streamshed.operators.sample import (
    SAMPLE,
    TRUE,
    new_sample,
    sample_bytes,
    sample_room,
    tallied,
    tallied_lately,
)
from streamshed.policies import Exact, Policy
from streamshed.selection import KEY

CHUNK = 1 << 16
"""Tuples handed to the loop at once: room is made for so many before it starts."""
OUTPUT = 1 << 16
"""Results in the output buffer."""

CORE, POLICY = "core.", "policy."
"""What the names of the arrays begin with."""


class Block(NamedTuple):
    """Some results: for each its time, and the places of its members' rows.

    `ends` says where each result's members end where their number varies; `updates` which arrivals
    made the results, and which they extend, where streams are told apart by a column.
    """

    time: npt.NDArray[np.int64]
    members: Places
    ends: npt.NDArray[np.int64]
    importance: npt.NDArray[np.float64] = WEIGHTLESS
    updates: npt.NDArray[Any] = NO_UPDATES


@dataclass(frozen=True)
class Late:
    """Rows that came too late: which input, and where they stand in the batch."""

    stream: npt.NDArray[np.int32]
    payload: Places


class TableJoin:
    """A running join on one shared key.

    Args:
        plan: the join, checked against its inputs.
        whole: whether all columns of the plan are kept: checkpoints and late rows need them.
        memory: where the arrays are.

    Attributes:
        counting: whether results are only counted, and not handed out.
    """

    def __init__(
        self,
        plan: Plan,
        whole: bool = True,
        memory: Memory | None = None,
    ) -> None:
        self.plan = plan
        self.checked = self._is_checked()
        self.intake = Intake(plan)
        with_keys = self.checked or KEY in plan.besides
        self.payload = [Payload(stream.kept(with_keys, whole)) for stream in plan.streams]
        self.policy: Policy = plan.policy if plan.bounded else Exact()
        self.memory = memory or Memory()
        self.rejected = 0
        self.expected = 0
        self.counting = False
        self._begin()

    def _is_checked(self) -> bool:
        """Whether results are checked on the true keys."""
        return any(needs_check(stream.key_types) for stream in self.plan.streams)

    def _begin(self) -> None:
        """Make everything that rows are stored in, and that the policy knows, empty."""
        plan = self.plan
        lanes = len(plan.streams)
        pools = lanes if any(stream.rows is not None for stream in plan.streams) else 1
        lasts = [stream.last or 0 for stream in plan.streams]
        self.shape = Shape(
            rows=0,
            keys=1,
            table=2,
            streams=lanes,
            lanes=lanes,
            sweeps=len(plan.windows.lengths) if plan.windows else lanes,
            pools=pools,
            held=0,
            recent=sum(lasts),
            disorder=0,
            out_of_order=False,
            budget=plan.total or sum(stream.rows or 0 for stream in plan.streams),
        )
        self.core = empty_core(plan, self.shape, self.memory, CORE)
        layout = self.policy.layout(self.shape)
        self.state: Any = make(self.policy.state, layout, self.shape, self.memory, POLICY)
        self.policy.prepare(self.state, plan)
        self.work = work_room(0, lanes, plan.by is not None)
        self.out = out_room(OUTPUT, lanes, CHUNK)
        self.sample = new_sample(plan, self.core, self.shape, self.memory, plan.policy.follows)
        self.restored = 0
        self.refollowed = 0
        self.placed = 0

    @property
    def sampling(self) -> bool:
        """Whether some keys are followed to estimate what is missed."""
        return self.sample_rate > 0

    @property
    def sample_rate(self) -> float:
        """The part of all keys that is followed now."""
        return float(self.sample.sieve[0]["rate"])

    # -- what comes in ---------------------------------------------------------------------------

    def read(self, position: int, rows: pa.RecordBatch, places: Places | None = None) -> Tuples:
        """Take rows of the input at a position, in the order of their arrival.

        Args:
            position: which input.
            rows: the rows, with the schema of the plan.
            places: where the payload keeps the rows already, if it does.
        """
        tuples = self.intake.read(position, rows, np.empty(0, np.int64))
        kept = self.payload[position].add(rows) if places is None else places
        return tuples._replace(payload=kept)

    def process(self, batch: Batch) -> Iterator[Block | Late]:
        """Process tuples in their order; results come in blocks as they are made."""
        size = batch.time.size
        for start in range(0, size, CHUNK):
            end = min(start + CHUNK, size)
            part = Batch(*(owned(column[start:end]) for column in batch))
            self._make_room(end - start, self._followed(part))
            yield from self._run(part)

    def _run(self, batch: Batch) -> Iterator[Block | Late]:
        status = None
        while status != DONE:
            self.out.filled[:] = 0
            status = self._loop(batch)
            late = self.out.late[: self.out.filled[LATECOMERS]]
            if late.size:
                processed = self._processed(batch)
                yield Late(processed.stream[late], processed.payload[late])
            if (made := self.out.filled[MADE]) and not self.counting:
                yield self._block(int(made))

    def _processed(self, batch: Batch) -> Batch:
        """Where the tuples stand that the loop processes: here as they come."""
        return batch

    def _loop(self, batch: Batch) -> int:
        """Let the loop run until the batch is done or the output buffer is full."""
        status: int = run(self.core, self.teller, self.sample, batch, self.work, self.out)
        return status

    def _block(self, made: int) -> Block:
        """The results in the output buffer."""
        return Block(
            self.out.results["time"][:made].copy(),
            self.out.payload[: self.out.filled[MEMBERS]].copy(),
            self.out.results["end"][:made].copy(),
            updates=self.out.results[list(UPDATES)][:made].copy() if self.plan.by else NO_UPDATES,
        )

    def finish(self) -> Iterator[Block | Late]:
        """There is no more input: make what results are still to be made."""
        yield from ()

    def close(self) -> None:
        """Give back what the join has outside of memory."""

    @property
    def teller(self) -> Any:
        """What the loops tell of rows that come and go: the policy, or who tells it in turn."""
        return self.state

    def advance(self, newest: npt.NDArray[np.int64]) -> None:
        """Let time go on between batches: for each input the newest time seen of it anywhere.

        A part of a join sees a part of the rows; what it holds expires by the time of all. A time
        that is not known is `NEVER`.
        """
        if self.core.settings.timed:
            advance(self.core, self.teller, newest)

    def expect(self, tuples: int) -> None:
        """Say how many tuples will come, so that the arrays need not grow; unused room is free."""
        self.expected = tuples

    def _followed(self, batch: Batch) -> int:
        """How many of the tuples to come may be followed; not counted where room is bounded."""
        if self.sampling and self.sample.sieve[0]["capacity"] == BOUNDLESS:
            return int(count_followed(self.sample, batch.hash))
        return batch.time.size

    def _make_room(self, tuples: int, followed: int) -> None:
        """Let the arrays grow so that the loop never runs out of room.

        Args:
            tuples: that will come.
            followed: those of them that may be of keys in the sample.
        """
        core, plan, old = self.core, self.plan, self.shape
        held, budget = core.pools["held"], core.pools["budget"]
        stored, fullest = int(held.sum()), int(held.max())
        # After a restart there may be more rows than the budget allows now, for a moment.
        most = max(allowed(budget), self.restored)
        rows = enough(old.rows, max(stored + tuples, self.expected // 4), most)
        streams = enough(old.streams, len(self.intake.names.number)) if plan.by else old.streams
        disordered = self.intake.disorder > 0
        disorder = int(core.sizes.max()) + tuples if disordered else 0
        shape = replace(
            old,
            rows=rows,
            keys=rows + 1,
            table=max(old.table, directory(min(rows, int(core.numbers[KEYS_USED]) + tuples))),
            streams=streams,
            recent=streams * (plan.streams[0].last or 0) if plan.by else old.recent,
            held=enough(old.held, fullest + tuples, max(int(budget.max()), self.restored))
            if self.plan.bounded
            else 0,
            disorder=enough(old.disorder, disorder, rows),
            out_of_order=disordered,
            **sample_room(self.sample, old, followed, self.refollowed, disordered),
        )
        if shape != old:
            self._grow(shape)
        if plan.windows is not None:
            self._place(plan.windows)

    def _grow(self, shape: Shape) -> None:
        """Give the arrays the room of a shape."""
        core = self.core
        self.core = roomier(core, shape, self.memory, CORE)
        true = roomier(self.sample.core, shape.of_sample, self.memory, TRUE)
        tallies = self.sample._replace(core=true)
        self.sample = grown(tallies, sample_layout(), shape, self.memory, SAMPLE)
        self.state = grown(self.state, self.policy.layout(shape), shape, self.memory, POLICY)
        by = self.plan.by is not None
        self.work = work_room(max(shape.rows, shape.sample_rows), shape.streams, by)
        if by and shape.streams + 1 > self.out.payload.size:
            self.out = out_room(OUTPUT, 1 + shape.streams // OUTPUT, CHUNK)
        self.shape = shape

    def _place(self, windows: WindowPlan) -> None:
        """Give the streams that are new the windows that were said of them."""
        own = dict(windows.named)
        names = list(islice(self.intake.names.number, self.placed, None))
        places = [own.get(name, windows.otherwise) for name in names]
        for core in (self.core, self.sample.core):
            core.sweep[self.placed : self.placed + len(places)] = places
        self.placed += len(places)

    # -- what comes out --------------------------------------------------------------------------

    def results(self, block: Block) -> pa.RecordBatch:
        """The results of a block, checked on the true keys: a struct for each stream, and time."""
        about = (self.plan, self._kept_for(block), self.checked, block.time, block.members)
        if self.plan.by is None:
            batch, rejected = named_results(*about)
        else:
            batch, rejected = told_apart_results(*about, block.ends, block.updates)
        self.rejected += rejected
        return batch

    def _kept_for(self, block: Block) -> list[Payload]:
        """Where the rows of a block's results are kept."""
        return self.payload

    def late_rows(self, late: Late) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows that came too late, input by input."""
        inputs = np.zeros_like(late.stream) if self.plan.by else late.stream
        for position in np.unique(inputs).tolist():
            yield position, self.payload[position].take(late.payload[inputs == position])

    def ledger(self) -> Ledger:
        """The accounts as they stand."""
        counts = self.core.counts.reshape(-1, FATES).tolist()
        names: list[Any] = [stream.name for stream in self.plan.streams]
        if self.plan.by is not None:
            kind = self.plan.streams[0].schema.field(self.plan.by).type
            names = shown_names([*self.intake.names.number], kind)
        streams = {name: StreamLedger(*row) for name, row in zip(names, counts, strict=False)}
        if self.work.cursor[EMITTING]:  # whose results are still handed out is yet to come
            streams = {name: replace(s, arrived=s.settled) for name, s in streams.items()}
        return Ledger(
            streams,
            results=int(self.core.numbers[RESULTS]) - self.rejected,
            state_bytes=self.state_bytes(),
            payload_bytes=sum(payload.nbytes() for payload in self.payload),
            shed_by=self.shed_by(),
            **self._estimates(),
        )

    def shed_by(self) -> dict[str, int]:
        """How many rows were shed by each policy."""
        return {self.policy.name: self.shed} if self.plan.bounded else {}

    @property
    def shed(self) -> int:
        """Rows shed so far."""
        return int(self.core.counts.reshape(-1, FATES)[:, SHED].sum())

    def _estimates(self) -> dict[str, Any]:
        """What the sample says, if there is one or nothing is missed."""
        missed, lately = self.missed(), self.missed(lately=True)
        return {
            "missed": missed and missed.estimate(),
            "missed_lately": lately and lately.estimate(),
            "sample_rate": self.sample_rate,
            "sample_bytes": sample_bytes(self.sample, self.used()),
        }

    def missed(self, lately: bool = False) -> Tally | None:
        """What is known of the results missed so far, or lately; None if nothing is estimated."""
        if self.shed == 0:
            return Tally() if self.sampling or not self.plan.bounded else None
        if not self.sampling:
            return None
        if lately:
            return tallied_lately(self.sample, self.plan, self.core)
        return tallied(self.sample)

    def state_bytes(self) -> int:
        """Bytes in use: the key table, the rows' bookkeeping, the policy's state, room to work."""
        used = self.used()
        partners = np.dtype(np.int32).itemsize * used.rows * (2 if self.plan.by else 1)
        return partners + used.nbytes(core_layout()) + used.nbytes(self.policy.layout(self.shape))

    def used(self) -> Shape:
        """The part of the room that is or was in use: rows and keys are numbered from 0."""
        return replace(
            self.shape,
            rows=int(self.core.numbers[ROWS_USED]),
            keys=int(self.core.numbers[KEYS_USED]),
            held=min(self.shape.held, int(self.core.pools["held"].max())),
            disorder=min(self.shape.disorder, int(self.core.sizes.max())),
            sample_rows=int(self.sample.core.numbers[ROWS_USED]),
        )
