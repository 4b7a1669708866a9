"""What the figures and the benchmark have in common: workloads, operators, and how they are timed.

All operators are timed in turn on the same rows, once the window of a minute is full, without
shedding, in processor time; the least of some rounds counts. A join in bulk takes all rows in one
go: its time is the timed ones' part of the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import streamshed as ss
from streamshed.engine.batch import Batch
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_bulk_operator, build_operator
from streamshed.engine.ingest import merged
from streamshed.engine.operator import CHUNK, Operator
from streamshed.errors import StreamshedError
from streamshed.plan.plan import Plan
from streamshed_lab.baselines import Baseline, MJoin, Query, SNJoin, XJoinTree
from streamshed_lab.experiments.report import Row
from streamshed_lab.workloads import EventWorkload, SensorWorkload

WINDOW = 60
"""Seconds."""
SECOND = 1_000_000
FULL_AFTER = 75
"""Seconds after which windows are full, and arrays no longer grow."""
TRIALS = 6
"""Shares of all rows that are tried, at most."""
SPARSE = 4
"""Times as many rows as come the hash tables of the baselines are made for: they are about twice
as fast then as with tables made for the rows alone, and hardly faster with larger ones."""
RATE = 100.0
"""Rows a second of each stream of a complete join."""
SN, MJ, XJ = "SNJoin", MJoin.name, XJoinTree.name
AT_ONCE = "SNJoin in bulk"
CHOOSING = "MJoin, an order for each row"
BARE = SNJoin.name
OURS = {"our engine": (SN, ""), "bare": (BARE, " by bare")}
"""Which operator is SNJoin, and how what others save or make beside it is called."""
READINGS, EVENTS = "readings", "events"
"""The workloads of complete joins."""
ONE = ", an output for each arrival"
"""What is added to the name of a workload where an arrival makes one output, all rows that it meets
(step 5 of figure 2), and not their combinations."""
ZIPF = f"Zipf 1 to 5{ONE}"
"""The paper's values, shared by all streams for ever: results would be more than can be
counted."""
ZIPF_RATE = 10.0
"""Rows a second of each of its streams."""
SLOW = 10.0
"""Seconds between two readings of a sensor of variable arity, where values are these."""
MOVING, OWN = "moving on", "own popular ones"
"""The workloads of variable arity."""

AnyJoin = Operator | Baseline


@dataclass(frozen=True)
class Scale:
    """How much of everything to run."""

    few: tuple[int, ...] = (2, 5, 10, 15, 20)
    many: tuple[int, ...] = (200, 500, 1_000, 2_000)
    minutes: int = 3
    tuples: int = 400_000
    outputs: int = 40_000
    readings: int = 30_000
    rounds: int = 3


FULL = Scale()
QUICK = Scale(
    (2, 20), (200, 600), minutes=2, tuples=60_000, outputs=8_000, readings=6_000, rounds=2
)


@dataclass(frozen=True)
class Arrivals:
    """Rows of one workload as operators take them: those that fill the window, and the rest."""

    plan: Plan
    names: Any
    before: Batch
    timed: Batch

    @classmethod
    def of(
        cls, join: ss.Join, tables: Mapping[str, pa.Table], full_after: float = FULL_AFTER
    ) -> Arrivals:
        """Read tables, and cut them in two where the window is full."""
        plan = join.select("time").plan({name: rows.schema for name, rows in tables.items()})
        operator = build_operator(plan, whole=False)
        parts = [
            operator.read(position, rows.combine_chunks().to_batches()[0])
            for position, rows in enumerate(tables.values())
        ]
        whole = merged(parts)
        cut = int(np.searchsorted(whole.time, whole.time[0] + full_after * SECOND))
        return cls(plan, operator.ingest.names, part(whole, 0, cut), part(whole, cut, None))

    @property
    def count(self) -> int:
        """How many are timed."""
        return int(self.timed.time.size)

    def kept(self, share: float) -> Arrivals:
        """A part of them, drawn at random."""
        random = np.random.default_rng(0)
        before, timed = (
            Batch._make(column[chosen] if column.size else column for column in batch)
            for batch in (self.before, self.timed)
            for chosen in [np.flatnonzero(random.random(batch.time.size) < share)]
        )
        return replace(self, before=before, timed=timed)

    def operator(self) -> Operator:
        """SNJoin, which is the keyed operator, ready to run on them."""
        join = build_operator(self.plan, whole=False)
        join.ingest.names = self.names
        return join

    def bulk_operator(self) -> Operator:
        """The same, if it can take many of them at once."""
        return build_bulk_operator(self.plan, whole=False)


def part(batch: Batch, start: int, end: int | None) -> Batch:
    """The rows of a batch from one to another."""
    return Batch._make(column[start:end] if column.size else column for column in batch)


def drain(operator: AnyJoin, batch: Batch) -> int:
    """Process rows, and let what comes of them go; returns how much it was."""
    handed_out = 0
    for start in range(0, batch.time.size, CHUNK):
        for found in operator.process(part(batch, start, start + CHUNK)):
            handed_out += len(found.time) if isinstance(found, Block) else 0
    return handed_out


def timed(tuples: Arrivals, operator: AnyJoin) -> tuple[float, int]:
    """Seconds that an operator takes once the window is full, and the results it makes.

    Where an arrival makes one output it is outputs that count, not the results they stand for.
    """
    drain(operator, tuples.before)
    before, start = results_of(operator), time.process_time()
    handed_out = drain(operator, tuples.timed)
    seconds = time.process_time() - start
    made = handed_out if tuples.plan.factorised else results_of(operator) - before
    return seconds, made


def timed_in_bulk(tuples: Arrivals) -> tuple[float, int]:
    """The same of a join in bulk, which takes all rows in one go, as a replay does.

    The seconds are the part of the timed rows in the whole, by their number.
    """
    before = in_bulk([tuples.before], tuples)
    start = time.process_time()
    results = in_bulk([tuples.before, tuples.timed], tuples)
    seconds = time.process_time() - start
    return seconds * tuples.count / (tuples.before.time.size + tuples.count), results - before


def in_bulk(batches: list[Batch], tuples: Arrivals) -> int:
    """The results of rows that a join in bulk takes."""
    operator = tuples.bulk_operator()
    for batch in batches:
        drain(operator, batch)
    for _ in operator.finish():
        pass
    operator.close()
    return results_of(operator)


def results_of(operator: AnyJoin) -> int:
    """How many results an operator has made."""
    found = operator.ledger().results if isinstance(operator, Operator) else operator.results
    return int(found)


def baselines(query: Query) -> dict[str, Callable[[], Baseline]]:
    """What SNJoin is compared with."""
    return {
        MJ: partial(MJoin, query),
        XJ: partial(XJoinTree, query),
        CHOOSING: partial(MJoin, replace(query, ordered_every=1, forms=True)),
        BARE: partial(SNJoin, query),
    }


def times(
    tuples: Arrivals, query: Query, rounds: int, names: Iterable[str] = (SN, MJ, XJ)
) -> tuple[dict[str, float], int]:
    """Seconds that each takes, and the results, which must be the same of all."""
    makes: dict[str, Callable[[], AnyJoin]] = {SN: tuples.operator, **baselines(query)}
    least: dict[str, float] = {}
    results: dict[str, int] = {}
    for name in [*names] * rounds:
        if name == AT_ONCE:
            seconds, results[name] = timed_in_bulk(tuples)
        else:
            seconds, results[name] = timed(tuples, makes[name]())
        least[name] = min(least.get(name, seconds), seconds)
    if len(set(results.values())) != 1:
        raise StreamshedError(f"the results differ in number, so no times are compared: {results}")
    return least, results[SN]


def at_equal_work(
    tuples: Arrivals, make: Callable[[], Baseline], seconds: float, whole: float
) -> tuple[float, int]:
    """What share of the rows can be processed in a time, and how many results that makes.

    The others are dropped at random before they come. The share is the largest of some that were
    tried: with fewer rows each may cost less.

    Args:
        tuples: all of them.
        make: makes the operator.
        seconds: that it may take.
        whole: that it takes for all.
    """
    if whole <= seconds:
        return 1.0, timed(tuples, make())[1]
    best, made = 0.0, 0
    too_many, share = 1.0, seconds / whole
    for _ in range(TRIALS):
        spent, results = timed(tuples.kept(share), make())
        if spent <= seconds:
            best, made = share, results
        else:
            too_many = share
        if best > 0 and too_many - best < 0.05 * best:
            break
        guess = share * seconds / max(spent, 1e-9)
        share = guess if best < guess < too_many else (best + too_many) / 2
    return best, made


def compared(
    tuples: Arrivals, query: Query, rounds: int, names: tuple[str, ...], **said: object
) -> list[Row]:
    """Time per row of each operator, and what each makes in the time that SNJoin takes for all.

    Where bare SNJoin is among them, also what each makes in the time that this takes.

    Args:
        tuples: that all of them process.
        query: of the baselines.
        rounds: the least time of so many counts.
        names: of the operators.
        said: what else each row says.
    """
    spent, results = times(tuples, query, rounds, names)
    rows: list[Row] = []
    for operator, seconds in spent.items():
        row: Row = {
            **said,
            "operator": operator,
            "nanoseconds": seconds / tuples.count * 1e9,
            "saved": 1 - spent[SN] / seconds,
            "saved by bare": 1 - spent.get(BARE, seconds) / seconds,
            "all results": results,
        }
        for ours, suffix in ((SN, ""), (BARE, " by bare")):
            share, made = 1.0, results
            if operator not in (SN, BARE) and ours in spent:
                make = baselines(query)[operator]
                share, made = at_equal_work(tuples, make, spent[ours], seconds)
            row |= {f"dropped{suffix}": 1 - share, f"results{suffix}": made}
        rows.append(row | {"per second": row["results"] / spent[SN]})
    return rows


# -- workloads ------------------------------------------------------------------------------------


def complete_tuples(workload: str, streams: int, tuples: int) -> Arrivals:
    """The rows of a complete join of some streams, so many of them timed."""
    seconds = FULL_AFTER + tuples / RATE / streams
    if workload == READINGS:
        field = SensorWorkload(streams, seconds, every=1 / RATE, values=10_000, seed=1)
        tables = field.tables()
    elif workload == ZIPF:
        seconds = FULL_AFTER + tuples / ZIPF_RATE / streams
        every = 1 / ZIPF_RATE
        field = SensorWorkload(streams, seconds, every, values=1_000, popular="same", seed=1)
        tables = field.tables()
    else:
        tables = EventWorkload(streams, round(seconds * RATE), RATE, seed=1).tables()
    join = ss.join(*tables).on("key").within(f"{WINDOW} s", time="time", clock="max")
    return Arrivals.of(join, tables)


def complete_query(streams: int) -> Query:
    """The same for the baselines."""
    return Query(streams, WINDOW * SECOND, room=SPARSE * round(RATE * WINDOW))


def factorised(scale: Scale, streams: int) -> list[Row]:
    """SNJoin and MJoin where an arrival of a complete join makes one output; see `ZIPF`."""
    tuples = complete_tuples(ZIPF, streams, scale.outputs)
    query = replace(complete_query(streams), room=SPARSE * round(ZIPF_RATE * WINDOW))
    return one_output(tuples, query, scale.rounds, workload=ZIPF, streams=streams)


def one_output(tuples: Arrivals, query: Query, rounds: int, **said: object) -> list[Row]:
    """SNJoin, bare too, and MJoin where an arrival makes one output, all rows that it meets.

    Trees have no part in it, as they store the results of every two streams; nor has an MJoin that
    forms its partial results, which are combinations.
    """
    outputs = replace(tuples, plan=replace(tuples.plan, factorised=True))
    query = replace(query, factorised=True)
    return compared(outputs, query, rounds, (SN, MJ, BARE), **said)


def sensor_join() -> ss.Join:
    """The join of variable arity."""
    return ss.join(by="sensor").on("key").within(f"{WINDOW} s", time="time")


def sensor_query(streams: int) -> Query:
    """The same for the baselines."""
    return Query(streams, WINDOW * SECOND, at_least=2, room=SPARSE * WINDOW)


def sensors(
    streams: int, readings: int, workload: str = MOVING, changes: int = 0
) -> SensorWorkload:
    """Sensors with a reading a second each, so many of all of them once the window is full.

    Where values move on, about 40 readings come before all values are new.
    """
    seconds = FULL_AFTER + readings / streams
    if workload == ZIPF:
        seconds = FULL_AFTER + readings * SLOW / streams
        return SensorWorkload(streams, seconds, SLOW, values=1_000, popular="same", seed=1)
    if workload == OWN:
        return SensorWorkload(streams, seconds, values=50 * streams, changes=changes, seed=1)
    return SensorWorkload(
        streams,
        seconds,
        values=1_000,
        popular="same",
        lasts=40 / streams,
        changes=changes,
        seed=1,
    )
