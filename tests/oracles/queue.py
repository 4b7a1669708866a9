"""A queue before a join (docs/meaning.md), as a list."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .graph import Graph, GraphRun
from .rows import Row, arrival_order
from .rules import Column, Held, Random, draw
from .simulator import Simulation
from .sketch import Pairwise, SampleSketch, Sketch


@dataclass(frozen=True)
class Queued:
    """A join, how many tuples may wait for it, and how many it takes in a unit of time."""

    graph: Graph
    rows: int
    speed: float
    per_stream: bool = False


class QueuedRun:
    """Rows come, wait, and are processed or shed."""

    def __init__(self, queued: Queued) -> None:
        """Start with an empty queue."""
        self.queued = queued
        self.run = GraphRun(queued.graph)
        self.waiting: list[tuple[Row, object]] = []
        self.free_at = float("-inf")
        self.latest = -(2**63)
        self.came = 0
        self.processed = 0
        self.usual = dict.fromkeys(queued.graph.workload.names, 0.0)
        self.run.rule.waits = True
        self.turn = -1

    def come(self, row: Row) -> None:
        """A tuple comes."""
        account = self.run.ledger[row.stream]
        account.arrived += 1
        if row.key is None or row.time is None:
            account.filtered += 1
            return
        gap = 1 / self.queued.speed
        self.latest = max(self.latest, row.time)
        while self.waiting and self.free_at <= self.latest:
            first, _ = self.waiting.pop(self.next())
            self.run.ledger[first.stream].queued -= 1
            self.free_at += gap
            self.process(first)
        self.came += 1
        promise = self.urgency(row)
        if not self.waiting and self.free_at <= self.latest:
            self.free_at = self.latest + gap
            self.turn = self.queued.graph.workload.position(row.stream)
            self.process(row)
            return
        account.queued += 1
        self.waiting.append((row, promise))
        if len(self.competing(row)) > self.queued.rows:
            shed, _ = self.waiting.pop(self.victim(row))
            self.run.ledger[shed.stream].queued -= 1
            self.run.ledger[shed.stream].shed += 1

    def process(self, row: Row) -> None:
        """It is a tuple's turn."""
        self.run.ledger[row.stream].arrived -= 1
        self.run.arrive(self.processed, row)
        self.processed += 1

    def next(self) -> int:
        """Who of those that wait is taken: the first, or the first of the next stream."""
        names = self.queued.graph.workload.names
        streams = [row.stream for row, _ in self.waiting]
        if not self.queued.per_stream:
            return 0
        while True:
            self.turn = (self.turn + 1) % len(names)
            if names[self.turn] in streams:
                return streams.index(names[self.turn])

    def competing(self, newcomer: Row) -> list[int]:
        """The places of those that wait in the newcomer's queue."""
        return [
            place
            for place, (row, _) in enumerate(self.waiting)
            if not self.queued.per_stream or row.stream == newcomer.stream
        ]

    def victim(self, newcomer: Row) -> int:
        """Who of those that wait leaves: one at random, or the first that promises least."""
        places = self.competing(newcomer)
        if isinstance(self.run.rule, Random | SampleSketch):
            drawn = draw(self.queued.graph.workload.seed, 2**63 + self.came)
            return places[drawn % len(places)]
        return min(places, key=lambda place: (self.waiting[place][1], place))

    def urgency(self, row: Row) -> object:
        """What a tuple promises when it comes."""
        held = Held(row.stream, row.key, row.time, row.row, row.worth, -1, -1)
        rule = self.run.rule
        if isinstance(rule, Column):
            return rule.value(held)
        if not isinstance(rule, Sketch | Pairwise):
            return 0
        if rule.as_written:
            return rule.expected(held)
        rule.learn(held)
        promise = rule.expected(held)
        usual = self.usual[row.stream]
        self.usual[row.stream] = usual + (max(0.0, promise) - usual) / 64
        promise /= max(1.0, self.usual[row.stream])
        return promise / max(1 / 64, rule.taken[row.stream])


def simulate(queued: Queued) -> Simulation:
    """Process every tuple in its order."""
    run = QueuedRun(queued)
    for row in arrival_order(queued.graph.workload):
        run.come(row)
        run.run.outcome.trace.append({s: replace(e) for s, e in run.run.ledger.items()})
    return run.run.outcome
