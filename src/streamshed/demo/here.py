"""The burst without Spark: the same streams in this process, under several policies."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from streamshed.demo import funnel
from streamshed.demo.story import Outcome, Sample, Truth, compiling
from streamshed.demo.workload import FunnelWorkload
from streamshed.join import Join

POLICIES = ("exact", "random", "oldest", "existence", "density")


def run(
    policies: Sequence[str],
    rows: int | None,
    workload: FunnelWorkload,
    seed: int,
    tell: Callable[[str], None],
) -> tuple[list[Outcome], Truth]:
    """Join the streams minute by minute under each policy.

    Args:
        policies: their names, or `exact` for no budget.
        rows: that a join may keep; by default a third of those that the exact join holds.
        workload: the streams.
        seed: of what policies draw.
        tell: is told what is being done.

    Returns:
        What each did, in seconds of the streams' time, and what is exact.
    """
    joins = {name: _join(name, rows or 1, seed) for name in dict.fromkeys(policies)}
    with compiling(["exact", *(name for name in joins if name != "exact")], tell) as compiled:
        tell("generating the streams")
        minutes = list(workload.by_minute())
        compiled()
    truth = Truth.of(workload)
    schemas = {name: table.schema for name, table in minutes[0].items()}
    outcomes = []
    for name in joins:
        tell(f"joining with {name}")
        outcome = Outcome(name)
        with _join(name, rows or truth.peak // 3, seed).open(schemas) as session:
            for minute, tables in enumerate(minutes):
                start = time.perf_counter()
                session.push(**tables)
                outcome.busy += time.perf_counter() - start
                ledger = session.ledger
                told = ledger.recall
                outcome.samples.append(
                    Sample(
                        second=60.0 * (minute + 1),
                        results=ledger.results,
                        due=float(truth.results[minute]),
                        held=sum(stream.stored for stream in ledger.streams.values()),
                        memory=ledger.state_bytes + ledger.payload_bytes + ledger.sample_bytes,
                        recall=None if told is None else (told.value, told.low, told.high),
                    )
                )
        outcomes.append(outcome)
    return outcomes, truth


def _join(policy: str, rows: int, seed: int) -> Join:
    said = funnel().seed(seed)
    return said if policy == "exact" else said.keep(total=rows).shed(policy)
