"""Joins by a graph of equalities (docs/meaning.md), on lists; and without a budget, in SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from hypothesis import strategies as st

from . import exact
from .rows import Member, Workload, arrival_order, tables
from .rules import Held, hash_of
from .simulator import Simulation, _Run
from .sketch import Attributes, Expecting
from .workloads import workloads

COLUMNS = ("x", "y", "z")
RESULTS = 4000

Place = tuple[int, str]
"""The position of a stream, and a column of it."""
Cells = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Graph:
    """Streams with three columns each, and which of them are equal in results.

    A row's `key` is null if it can have no part in any result, and says no more than that.
    """

    workload: Workload
    pairs: tuple[tuple[Place, Place], ...]
    cells: dict[Member, Cells]

    def value(self, member: Member, column: str) -> int | str | None:
        """What a row has in a column."""
        return self.cells[member][COLUMNS.index(column)]

    def equal_to(self, place: Place) -> set[Place]:
        """All columns that equal a given one, directly or by way of others."""
        found = {place}
        while more := {p for pair in self.pairs if found & {*pair} for p in pair} - found:
            found |= more
        return found

    def attributes(self) -> list[set[Place]]:
        """The columns that are equal, in the order in which the pairs first name them."""
        found: list[set[Place]] = []
        for pair in self.pairs:
            if not any(pair[0] in places for places in found):
                found.append(self.equal_to(pair[0]))
        return found

    def shares_one_key(self) -> bool:
        """Whether every attribute has one column of each stream."""
        many = range(len(self.workload.names))
        return all(sorted(p for p, _ in places) == [*many] for places in self.attributes())

    def conditions(self) -> list[str]:
        """The equalities, as a user says them."""
        names = self.workload.names
        return [f"{names[p]}.{x} = {names[q]}.{y}" for (p, x), (q, y) in self.pairs]

    def inputs(self) -> dict[str, pa.Table]:
        """A table for each stream."""
        found = {}
        text = any(isinstance(cell, str) for cells in self.cells.values() for cell in cells)
        kind = pa.string() if text else pa.int64()
        for name, table in tables(self.workload).items():
            rows = [self.cells[name, row] for row in table.column("row").to_pylist()]
            values = {
                column: pa.array([row[place] for row in rows], kind)
                for place, column in enumerate(COLUMNS)
            }
            rest = {column: table.column(column) for column in ("ts", "row", "worth")}
            found[str(name)] = pa.table(rest | values)
        return found

    def with_nulls(self) -> Graph:
        """With the keys of rows that can have no part set to null."""
        rows = tuple(
            row._replace(key=0 if self.takes_part((row.stream, row.row)) else None)
            for row in self.workload.rows
        )
        return replace(self, workload=replace(self.workload, rows=rows))

    def takes_part(self, member: Member) -> bool:
        """Whether no column that is compared is null, and those of one attribute are equal."""
        position = self.workload.position(member[0])
        for places in self.attributes():
            own = {self.value(member, column) for p, column in places if p == position}
            if None in own or len(own) > 1:
                return False
        return True


def judged(graph: Graph) -> Counter[tuple[tuple[Member, ...], int]]:
    """All results of a join without a budget, by DuckDB."""
    workload = graph.workload
    if not workload.rows:
        return Counter()
    con = exact._database()
    exact._arrivals(con, workload)
    exact._take(con, workload, exact._fates(con, workload))
    many = range(len(workload.names))
    for position, table in enumerate(graph.inputs().values()):
        con.register(f"cells{position}", table)
    latest = f"greatest({', '.join(f's{p}.time' for p in many)})"
    made_by = f"greatest({', '.join(f's{p}.arrival' for p in many)})"
    where = [f"s{p}.position = {p} AND s{p}.row = c{p}.row" for p in many]
    where += [f"c{p}.{x} = c{q}.{y}" for (p, x), (q, y) in graph.pairs]
    where += [f"{made_by} < s{p}.ends" for p in many]
    for p, (kind, size) in enumerate(workload.windows):
        if kind == "time":
            where.append(f"{latest} - s{p}.time <= {size}")
    tables_of = ", ".join(f"taken AS s{p}, cells{p} AS c{p}" for p in many)
    found = con.execute(f"""
        SELECT {", ".join(f"s{p}.row" for p in many)}, {latest}
        FROM {tables_of} WHERE {" AND ".join(where)}""").fetchall()
    return Counter((exact._members(workload, rows), time) for *rows, time in found)


class GraphRun(_Run):
    """The life of a tuple where members match pair by pair."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.one_key = graph.shares_one_key()
        super().__init__(graph.workload)
        if isinstance(self.rule, Expecting):
            self.rule.attributes_of = self.attributes_of
            self.rule.own = {
                name: [0]
                if self.one_key
                else [n for n, places in enumerate(graph.attributes()) if _own(places, position)]
                for position, name in enumerate(graph.workload.names)
            }

    def attributes_of(self, held: Held) -> Attributes:
        """The hash of each attribute of a tuple; of a shared key, all in one."""
        position = self.workload.position(held.stream)
        values = {
            number: self.value(held, _own(places, position)[0])
            for number, places in enumerate(self.graph.attributes())
            if _own(places, position)
        }
        if self.one_key:
            return {0: hash_of(self.workload, *values.values())}
        return {number: hash_of(self.workload, value) for number, value in values.items()}

    def completed(self, t: Held) -> list[list[Held]]:
        """The members of every result, the newcomer last."""
        others = [p for p, name in enumerate(self.workload.names) if name != t.stream]
        chosen = {self.workload.position(t.stream): t}
        return [members for members in self.choices(chosen, others) if self.within(members)]

    def choices(self, chosen: dict[int, Held], others: list[int]) -> Iterator[list[Held]]:
        """All ways to choose a member of each other stream."""
        if not others:
            first, *rest = chosen.values()
            yield [*rest, first]
            return
        position = others[0]
        for held in self.windows[self.workload.names[position]]:
            more = {**chosen, position: held}
            if self.match(more):
                yield from self.choices(more, others[1:])

    def match(self, chosen: dict[int, Held]) -> bool:
        """Whether those chosen so far are equal where they have to be."""
        return all(
            self.value(chosen[p], x) == self.value(chosen[q], y)
            for (p, x), (q, y) in self.graph.pairs
            if p in chosen and q in chosen
        )

    def value(self, held: Held, column: str) -> int | str | None:
        return self.graph.value((held.stream, held.row), column)


def _own(places: set[Place], position: int) -> list[str]:
    return [column for p, column in places if p == position]


def simulate(graph: Graph) -> Simulation:
    """Process every tuple in its order."""
    run = GraphRun(graph)
    for number, row in enumerate(arrival_order(graph.workload)):
        run.arrive(number, row)
        run.outcome.trace.append({s: replace(e) for s, e in run.ledger.items()})
    return run.outcome


@st.composite
def graphs(
    draw: st.DrawFn,
    *,
    budget: bool,
    policies: tuple[str, ...] = ("oldest",),
    most_streams: int = 6,
    max_rows: int = 25,
) -> Graph:
    """Small joins by chains, stars, trees, cycles and composite edges."""
    workload = draw(
        workloads(
            partial=False,
            budget=budget,
            policies=policies,
            max_streams=most_streams,
            max_rows=max_rows,
        )
    )
    many = len(workload.names)
    column = st.sampled_from(COLUMNS)
    pairs: list[tuple[Place, Place]] = []
    for position in range(1, many):
        other = draw(st.integers(0, position - 1))
        pairs.append(((other, draw(column)), (position, draw(column))))
    for _ in range(draw(st.integers(0, 3))):
        one = draw(st.integers(0, many - 1))
        other = (one + draw(st.integers(1, many - 1))) % many
        pairs.append(((one, draw(column)), (other, draw(column))))
    values: st.SearchStrategy[int | str] = st.integers(0, draw(st.sampled_from([1, 2, 4, 9])))
    if draw(st.booleans()):
        values = values.map("v{}".format)
    nulls = draw(st.booleans())
    cell = st.one_of(values, values, values, values, st.none()) if nulls else values
    cells = {(row.stream, row.row): draw(st.tuples(cell, cell, cell)) for row in workload.rows}
    return _tamed(Graph(workload, tuple(pairs), cells).with_nulls())


def _tamed(graph: Graph) -> Graph:
    """With fewer rows in each stream, until unlimited windows make no more than RESULTS."""
    while sum(_unlimited(graph).values()) > RESULTS:
        rows = [row for row in graph.workload.rows if row.row % 4 != 3]
        numbers: Counter[object] = Counter()
        cells, kept = {}, []
        for row in rows:
            number = numbers[row.stream]
            numbers[row.stream] += 1
            cells[row.stream, number] = graph.cells[row.stream, row.row]
            kept.append(row._replace(row=number))
        graph = replace(graph, workload=replace(graph.workload, rows=tuple(kept)), cells=cells)
    return graph


def _unlimited(graph: Graph) -> Counter[tuple[int, ...]]:
    """How many partial combinations there are, stream by stream, as the plain version tries."""
    attributes = graph.attributes()
    found: Counter[tuple[object, ...]] = Counter({(None,) * len(attributes): 1})
    total: Counter[tuple[int, ...]] = Counter()
    for position, name in enumerate(graph.workload.names):
        following: Counter[tuple[object, ...]] = Counter()
        for row in graph.workload.of(name):
            if row.key is None:
                continue
            own = {
                number: graph.value((name, row.row), column)
                for number, places in enumerate(attributes)
                for p, column in places
                if p == position
            }
            for known, count in found.items():
                if all(known[n] in (None, value) for n, value in own.items()):
                    joined = tuple(own.get(n, value) for n, value in enumerate(known))
                    following[joined] += count
        found = following
        total[(position,)] = sum(found.values())
        if total[(position,)] > 50 * RESULTS:
            break
    return total
