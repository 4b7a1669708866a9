"""Five generated streams with a third of the memory needed, under several policies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from rich.table import Table

from streamshed.demo.workloads import ExistenceWorkload
from streamshed.join import Join, join, spec_of
from streamshed.ledger import Ledger

POLICIES = ("exact", "random", "oldest", "frequency", "existence")
_SEEN = """\
An exact join holds {needed:,} rows of each stream; the others here may keep {rows:,}.
A result needs five rows, and random shedding drops each on its own: few results stay whole.
Keys pass through the streams in {orders} orders only, so that the streams which have seen a key say
what is still to come: 'existence' learns this, and keeps the rows that will complete results."""
_ALL = """\
An exact join holds {needed:,} rows of each stream; the others here may keep {rows:,}.
Keys pass through the streams in any order: the streams which have seen a key say little about what
is still to come, and 'oldest' does better than 'existence', which learns from just that."""


def run(
    policies: Sequence[str],
    rows: int,
    arrivals: int,
    orders: int,
    seed: int,
    tell: Callable[[str], None],
) -> tuple[Table, str]:
    """Replay the streams under each policy.

    Args:
        policies: their names, or `exact` for no budget.
        rows: that each stream may keep.
        arrivals: rows that arrive in each stream.
        orders: in how many orders keys pass through the streams; 325 are all that there are.
        seed: of all randomness.
        tell: is told what is being done.

    Returns:
        A table of what each has kept, and what is to be seen in it.
    """
    joins = {name: _join(name, rows, seed) for name in dict.fromkeys(policies)}
    table = Table("policy", title="Five streams, 10 rows/s each, windows of 100 seconds")
    heads = (
        "rows in",
        "results kept",
        "of the exact result",
        "as estimated",
        "shed",
        "state bytes/row",
        "rows/s",
    )
    for head in heads:
        table.add_column(head, justify="right")
    tell("generating the streams")
    workload = ExistenceWorkload(
        tuples=arrivals, spread=50.0, repertoire=None if orders == 325 else orders, seed=seed
    )
    tables = workload.tables()
    exact = workload.exact_results(100.0)
    _compile_together(joins, tell)
    for name, said in joins.items():
        tell(f"replaying with {name}")
        said.replay({stream: part.slice(0, 100) for stream, part in tables.items()})
        start = time.perf_counter()
        ledger = said.replay(tables).ledger
        table.add_row(name, *_row(ledger, exact, time.perf_counter() - start))
    seen = _ALL if orders == 325 else _SEEN
    return table, seen.format(needed=1_000, rows=rows, orders=orders)


def _join(policy: str, rows: int, seed: int) -> Join:
    said = join("s1", "s2", "s3", "s4", "s5").on("key").seed(seed)
    said = said.within("100 seconds", time="time", clock="max")
    return said if policy == "exact" else said.keep(rows=rows).shed(policy)


def _row(ledger: Ledger, exact: int, seconds: float) -> list[str]:
    streams = ledger.streams.values()
    arrived, stored, shed = (
        sum(getattr(stream, fate) for stream in streams) for fate in ("arrived", "stored", "shed")
    )
    return [
        f"{arrived:,}",
        f"{ledger.results:,}",
        f"{ledger.results / exact:.1%}" if exact else "",
        f"{ledger.recall:.1%}" if ledger.recall is not None else "",
        f"{shed / arrived:.0%}",
        f"{ledger.state_bytes / stored:.0f}",
        f"{arrived / seconds:,.0f}",
    ]


def _compile_together(joins: dict[str, Join], tell: Callable[[str], None]) -> None:
    """Compile for several policies at once, each in a process of its own, into the cache."""
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    from streamshed.engine.loop import run
    from streamshed.kernels.compiling import compiled_for
    from streamshed.policies import Exact

    missing = {
        name: said
        for name, said in joins.items()
        if not compiled_for(run, type(spec_of(said).policy or Exact()).state)
    }
    if not missing:
        return
    tell(f"compiling for {', '.join(missing)}: once, it is cached")
    workers = min(len(missing), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        # The last ones are the longest to compile: they go first, so that none is waited for alone.
        waiting = {pool.submit(_compile, missing[name]): name for name in reversed(missing)}
        for done in as_completed(waiting):
            done.result()
            tell(f"compiled for {waiting[done]}")


def _compile(said: Join) -> None:
    import pyarrow as pa

    kinds = {"key": pa.int64(), "time": pa.timestamp("us", "UTC")}
    nothing = pa.table({name: pa.array([0], pa.int64()).cast(kind) for name, kind in kinds.items()})
    said.replay(dict.fromkeys(spec_of(said).streams, nothing))
