"""The join through a relation: how fast, and how little of that depends on the relation's size.

Two streams meet through pairs. A row of the one brings a value of a fact drawn at random from the
whole relation; soon after, the other value of the same fact comes in the other stream. So every row
is looked up at another place of the relation. Facts are deleted and others inserted while the
streams go on. The windows would hold twice the budget.

How the time grows with the relation is measured with small windows: with large ones rows would meet
by chance in a small relation, and take their time because of the results that they make. Quick runs
go up to a million facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

import streamshed as ss
from streamshed.engine.batch import Batch
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import merged
from streamshed.engine.operator import Operator
from streamshed.policies import Density, Importance, Policy
from streamshed.relations import Relation
from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.timing import best_of, processor_time

SPEED_BAR = 1_000_000
GROWTH_BAR = 3.0
CHURN = 0.01
MILLION = 1_000_000
SIZES = (1_000, MILLION, 10 * MILLION)
FEW, SOME, MANY = 100, 1_000, 10_000
"""Rows that are kept of each stream."""
QUICK, FULL = (300_000, 2), (2_000_000, 3)
"""InputRows, and how often they are timed."""
POLICY = Importance(gain_loss=(10, 0.5))
NAMES = {POLICY: "importance(gain_loss)", Density(): "density"}


@dataclass(frozen=True)
class Setting:
    """A relation, and streams.

    Attributes:
        facts: rows of the relation.
        changed: how many of them are replaced in the course of time.
        rows: the budget of each stream.
        tuples: of both streams together.
    """

    facts: int
    changed: int
    rows: int
    tuples: int

    def __str__(self) -> str:
        return f"{self.facts:,} facts, {self.rows:,} rows"

    @property
    def window(self) -> int:
        """The length of the windows; a row of each stream comes in a unit of time."""
        return 2 * self.rows

    def data(self) -> tuple[Relation, dict[str, pa.Table]]:
        """The relation with its changes, and the two streams."""
        random, each = np.random.default_rng(self.facts), self.tuples // 2
        left, right = random.permutation(self.facts), random.permutation(self.facts)
        first = pa.table({"a": left, "b": right})
        times = np.sort(random.integers(1, each, self.changed))
        replaced = random.integers(0, self.facts, self.changed)
        values = random.integers(0, self.facts, self.changed)
        fact = random.integers(0, self.facts, each)
        met = np.empty(each, np.int64)
        gone = np.empty(self.changed, np.int64)
        before = 0
        for number, (time, at, value) in enumerate(zip(times, replaced, values, strict=True)):
            met[before:time] = right[fact[before:time]]
            gone[number], right[at] = right[at], value
            before = time
        met[before:] = right[fact[before:]]
        news = pa.table(
            {
                "a": np.repeat(left[replaced], 2),
                "b": np.stack([gone, values], axis=1).ravel(),
                "time": np.repeat(times, 2),
                "change": np.tile(["delete", "insert"], self.changed),
            }
        )
        ts = np.arange(each)
        order = np.argsort(ts + random.integers(1, self.window, each), kind="stable")
        weights = random.integers(1, 100, (2, each))
        return ss.relation(first, changes=news), {
            "r": pa.table({"a": left[fact], "ts": ts, "weight": weights[0]}),
            "s": pa.table({"b": met[order], "ts": ts, "weight": weights[1]}),
        }


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    tuples, repeats = QUICK if quick else FULL
    sizes = SIZES[:2] if quick else SIZES
    costs: dict[int, float] = {}
    often = tuples // 200
    settings = [Setting(size, often, FEW, tuples) for size in sizes]
    settings += [Setting(MILLION, int(MILLION * CHURN), rows, tuples) for rows in (SOME, MANY)]
    for setting in settings:
        progress(f"{setting}: making the relation and the streams")
        # Our own policy beside the paper's, where the bar is.
        policies = NAMES if setting.rows == SOME else (POLICY,)
        bench = _Bench(setting)
        progress(f"{setting}: timing")
        seconds = best_of(repeats, {p: partial(bench.loop, p) for p in policies})
        cost = seconds[POLICY] / tuples
        churn = f"{setting.changed / setting.facts:.2%} replaced"
        for policy in policies:
            name = f"loop, {NAMES[policy]}, 2 streams, {setting}, {churn}"
            bar = SPEED_BAR if setting.rows == SOME and policy == POLICY else None
            yield Measurement(name, tuples / seconds[policy], "rows/s", bar)
        yield Measurement(f"results, {setting}", bench.results / tuples, "per row")
        if setting.rows == FEW:
            costs[setting.facts] = cost
            name = f"relation and its index, {setting.facts:,} facts"
            yield Measurement(name, bench.relation_bytes / setting.facts, "bytes/fact")
    yield Measurement(
        f"growth of the time per row from {sizes[0]:,} to {sizes[-1]:,} facts",
        costs[sizes[-1]] / costs[sizes[0]],
        "times",
        bar=GROWTH_BAR,
        at_most=True,
    )


class _Bench:
    """One setting: its data, and what was measured with it."""

    def __init__(self, setting: Setting) -> None:
        relation, self.tables = setting.data()
        self.join = (
            ss.join("r", "s")
            .within(setting.window, time="ts", clock="max")
            .through(relation, r="a", s="b")
            .weigh(column="weight")
            .keep(rows=setting.rows)
            .select("time")
        )
        self.results = 0
        self.relation_bytes = 0

    def loop(self, policy: Policy) -> float:
        """Seconds of processor time for all rows and changes, once the relation is indexed."""
        schemas = {name: table.schema for name, table in self.tables.items()}
        operator = build_operator(self.join.shed(policy).plan(schemas), whole=False)
        parts = [
            operator.read(position, table.combine_chunks().to_batches()[0])
            for position, table in enumerate(self.tables.values())
        ]
        seconds = processor_time(partial(_drain, operator, merged(parts)))
        ledger = operator.ledger()
        if policy == POLICY:
            self.results, self.relation_bytes = ledger.results, ledger.relation_bytes
        return seconds


def _drain(operator: Operator, batch: Batch) -> None:
    for _ in operator.process(batch):
        pass
