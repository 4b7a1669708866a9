"""An archive in memory, and runs of a join over it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.operator import Operator
from streamshed.errors import InputError, SpecError
from streamshed.join import Join, spec_of
from streamshed.kernels.core import NEWEST
from streamshed.ledger import Keys, Ledger
from streamshed.plan.plan import Plan
from streamshed.plan.resolve import make_plan
from streamshed.policies import by_name
from streamshed.replay import Order, count, open_inputs
from streamshed.spec import Budget, Spec
from streamshed.tuning.laps import Laps, encoded, has_key, longest_window, two_laps

PARTS = 64
"""Parts of the archive whose recalls tell how far the recall varies."""
_SECONDS = 45.0
"""How long all runs together may take, if a sample of keys can make them shorter."""
_FEWEST = 20_000
"""Rows that a sample of keys has at least."""


@dataclass(frozen=True)
class Run:
    """One run of the join over the archive.

    Attributes:
        ledger: at the end.
        keys: how many keys had a result, when every row had been joined once.
        made: results made in each part of the archive.
        newest: the newest time at the end of each part.
        before: parts that were joined before these, to fill windows and to let policies learn.
        peak: the most rows that were held.
        seconds: the time of a core that it took.
    """

    ledger: Ledger
    keys: Keys | None
    made: npt.NDArray[np.float64]
    newest: npt.NDArray[np.int64]
    before: int
    peak: int
    seconds: float


@dataclass(frozen=True)
class Archive:
    """The inputs in memory, with the columns that counting needs.

    Attributes:
        spec: the join, without a budget and without bounds to its work.
        plan: of that join.
        tables: the rows of each stream.
        width: bytes of a row with all columns that the join keeps.
        part: the part of all rows that are here, where keys are sampled.
        laps: the same rows twice; None if they come once.
    """

    spec: Spec
    plan: Plan
    tables: Mapping[str, pa.Table]
    width: float
    part: float = 1.0
    laps: Laps | None = None

    @classmethod
    def read(cls, said: Spec, data: Mapping[str, Any], order: Order, part: float) -> Archive:
        """Read the inputs, which are a part of all rows."""
        # Memory is tuned, not work: what bounds that stays out of the way.
        spec = replace(
            said, throttled=None, queue_rows=None, speed=None, spilled=None, aggregation=None
        )
        spec = replace(spec, budget=None, policy=None)
        sources = [source.kept() for source in open_inputs(spec, data, order)[1]]
        firsts = [next(iter(source.batches()), None) for source in sources]
        sized = [rows for rows in firsts if rows is not None and rows.num_rows]
        if not sized:
            raise InputError("tune(): the inputs have no rows; give an archive that has some")
        width = sum(rows.nbytes for rows in sized) / sum(rows.num_rows for rows in sized)
        lean = spec_of(Join(spec).select("time"))
        plan = make_plan(lean, {source.name: source.schema for source in sources})
        tables = {
            stream.name: pa.Table.from_batches(
                list(source.of(stream.schema).batches()), stream.schema
            ).combine_chunks()
            for stream, source in zip(plan.streams, sources, strict=True)
        }
        return cls(spec, plan, tables, width, part)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(table.num_rows for table in self.tables.values())

    @property
    def chunk(self) -> int:
        """Rows of a stream that are read at once."""
        most: int = max(table.num_rows for table in self.tables.values())
        return max(64, most // PARTS)

    def warm(self, policy: str | None) -> None:
        """Have a loop compiled, on a few rows."""
        few = {name: table.slice(0, 64) for name, table in self.tables.items()}
        replace(self, tables=few).run(policy, 8)

    def fitting(self, policy: str, runs: int) -> Archive:
        """As many of the keys as let so many runs end in time, each as long as that of a policy."""
        if not has_key(self.spec):
            return self  # where rows share no key, no part of them joins as the whole does
        first = self.sampled(min(1.0, 5 * _FEWEST / self.rows))
        exact = first.run()
        one = first.run(policy, max(1, exact.peak // 5))
        # The rows come twice.
        taken = 2 * (exact.seconds + runs * one.seconds) * self.part / first.part
        part = min(1.0, _SECONDS * (os.cpu_count() or 1) / taken)
        return self if part == 1 else self.sampled(max(part, min(1.0, _FEWEST / self.rows)))

    def sampled(self, part: float) -> Archive:
        """The rows of a part of the keys."""
        if part == 1:
            return self
        if not has_key(self.spec):
            raise SpecError(
                f"tune(): `sample` is {part!r}, but the streams share no key by which to sample "
                "them; leave it out"
            )
        rows_of = encoded(self.plan, self.tables)
        kept = {
            name: table.filter(pa.array(_mixed(rows_of[name].hash) < part * 2.0**64))
            for name, table in self.tables.items()
        }
        rows = sum(table.num_rows for table in kept.values())
        if not rows:
            raise SpecError(f"tune(): `sample` is {part!r}, which leaves no rows; give more")
        return replace(self, tables=kept, part=self.part * rows / self.rows)

    def doubled(self) -> Archive:
        """With the same rows again after all of them, if they can come twice."""
        return replace(self, laps=two_laps(self.spec, self.plan, self.tables))

    def exact(self) -> Run:
        """Run the join without a budget: its results and its peak are those of the rows as given.

        Parts are those of the second lap, as in every other run.
        """
        once = replace(self, laps=None).run()
        if self.laps is None:
            return once
        twice = self.run()
        return replace(once, made=twice.made, newest=twice.newest, before=twice.before)

    def run(self, policy: str | None = None, rows: int = 0, before: int = 0, again: int = 0) -> Run:
        """Run the join, under a budget if a policy is given.

        Args:
            policy: the name of the policy.
            rows: its budget.
            before: parts of the first lap, after which keys are counted.
            again: which repetition this is; what is left to chance differs from one to the next.
        """
        spec, tables = self.spec, self.tables
        if self.laps is not None:
            spec, tables = self.laps.spec, self.laps.tables
        if policy is not None:
            spec = replace(spec, budget=Budget(None, rows), policy=by_name(policy))
            spec = replace(spec, random_seed=(spec.random_seed + again) % 2**64)
        made, newest, stored, keys = [0], [0], [0], list[Keys | None]()
        started = time.thread_time()

        def watch(operator: Operator) -> None:
            made.append(operator.made)
            newest.append(int(operator.core.numbers[NEWEST]))
            stored.append(int(operator.core.pools["held"].sum()))
            if len(made) - 1 == before:
                keys.append(operator.ledger().keys)

        ledger = count(spec, tables, "arrival", watch, self.chunk)
        peak = max(*stored, sum(stream.stored for stream in ledger.streams.values()))
        seconds = time.thread_time() - started
        ends = np.array(newest[1:], np.int64)
        first = 0
        if self.laps is not None:
            first = int(np.searchsorted(ends, ends[-1] - self.laps.length, "right"))
        return Run(
            ledger,
            keys[0] if keys else ledger.keys,
            np.diff(np.array(made, np.float64))[first:],
            ends[first:],
            first,
            peak,
            seconds,
        )

    def parts_of_window(self, exact: Run) -> int:
        """The parts of the archive that the longest window has, counted from its beginning."""
        full = exact.newest[:1] + longest_window(self.plan)
        return int(np.searchsorted(exact.newest, full)[0])

    def filling(self, exact: Run) -> int:
        """The parts at the beginning that are not measured.

        In them windows fill and policies learn, unless rows come twice; and what came last says
        most of the time to come. They are half of the archive or the longest window, whichever is
        longer, but at most three quarters.
        """
        parts = exact.made.size
        return int(np.clip(self.parts_of_window(exact), parts // 2, 3 * parts // 4))

    def nbytes(self, ledger: Ledger, rows: int) -> int:
        """The memory of a join of all keys that holds so many rows of those here."""
        return round((ledger.state_bytes + ledger.sample_bytes + rows * self.width) / self.part)


def _mixed(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hashes made anew, so that the sample has nothing to do with how keys are told apart."""
    with np.errstate(over="ignore"):
        mixed = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray(mixed ^ (mixed >> np.uint64(32)), np.uint64) * np.uint64(
            0x94D049BB133111EB
        )
