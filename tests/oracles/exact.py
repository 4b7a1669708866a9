"""The results of a join without a budget, stated in SQL (docs/meaning.md, Results)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from .rows import Member, Newest, Row, Stream, Workload, table, tables

Results = Counter[tuple[tuple[Member, ...], int]]

NEVER = 2**62


class Judged(NamedTuple):
    """Who takes part: all arrivals in order, and for each its fate and the clock after it.

    `expiries` are the (arrival number, (stream, row)) of who leaves its window, in that order.
    """

    arrivals: list[tuple[Stream, int | None]]
    fates: list[str]
    clocks: list[int | None]
    expiries: list[tuple[int, Member]]

    def having(self, fate: str) -> Counter[Stream]:
        """How many rows of each stream had this fate: "taken", "filtered" or "late"."""
        pairs = zip(self.arrivals, self.fates, strict=True)
        return Counter(stream for (stream, _), given in pairs if given == fate)


def exact(workload: Workload, order: Sequence[Row] | None = None) -> Results:
    """All results as (members in order of (stream, row), time), with their multiplicity."""
    return judged(workload, order)[0]


def judged(workload: Workload, order: Sequence[Row] | None = None) -> tuple[Results, Judged]:
    """The results, and who was filtered or late."""
    assert not workload.bounded, "the results of a join with a budget depend on what it sheds"
    if not workload.rows:
        return Counter(), Judged([], [], [], [])
    con = _database()
    judgement = _prepared(con, workload, order)
    query = _complete(workload) if workload.at_least is None else _partial(workload)
    found = con.execute(query).fetchall()
    return Counter((_members(workload, rows), time) for *rows, time in found), judgement


def judged_by(workload: Workload, conditions: Sequence[str]) -> Results:
    """The results of a complete join by conditions on rows `s0`, `s1`, … instead of equal keys."""
    con = _database()
    _prepared(con, workload, None)
    found = con.execute(_complete(workload, conditions)).fetchall()
    return Counter((_members(workload, rows), time) for *rows, time in found)


def _prepared(
    con: duckdb.DuckDBPyConnection, workload: Workload, order: Sequence[Row] | None
) -> Judged:
    """Make the table `taken`; returns who takes part."""
    if order is None:
        _arrivals(con, workload)
    else:
        _given_arrivals(con, workload, order)
    judgement = _fates(con, workload)
    _take(con, workload, judgement)
    return judgement


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One database for all calls: opening it takes longer than most joins here."""
    return duckdb.connect(config={"threads": 1})


def _members(workload: Workload, rows: Sequence[int | None]) -> tuple[Member, ...]:
    pairs = zip(workload.names, rows, strict=True)
    return tuple(sorted((name, row) for name, row in pairs if row is not None))


def _given_arrivals(
    con: duckdb.DuckDBPyConnection, workload: Workload, order: Sequence[Row]
) -> None:
    """Table `arrivals` in the order that was given."""
    columns = {
        "position": [workload.position(row.stream) for row in order],
        "k": [row.key for row in order],
        "time": [row.time for row in order],
        "row": [row.row for row in order],
        "arrival": range(len(order)),
    }
    con.register("given", pa.table(columns))
    con.execute("CREATE OR REPLACE TABLE arrivals AS SELECT * FROM given")


def _arrivals(con: duckdb.DuckDBPyConnection, workload: Workload) -> None:
    """Table `arrivals`: every row with its arrival number (Time and order)."""
    if workload.by:
        time = "ts" if workload.timed else "place"
        numbered = table(workload)
        place = pa.array(range(numbered.num_rows), pa.int64())
        con.register("input", numbered.append_column("place", place))
        names = ", ".join(f"({p}, {_literal(n)})" for p, n in enumerate(workload.names))
        time = "ts" if workload.timed else "place"
        con.execute(f"""
            CREATE OR REPLACE TABLE arrivals AS
            SELECT position, k, {time} AS time, row, place AS arrival
            FROM input JOIN (VALUES {names}) AS streams(position, stream)
            USING (stream)""")
        return
    time = "ts" if workload.timed else "row"
    parts = []
    for position, (name, part) in enumerate(tables(workload).items()):
        con.register(f"input{position}", part)
        parts.append(f"SELECT {position} AS position, k, {time} AS time, row FROM input{position}")
        assert name == workload.names[position]
    con.execute(f"""
        CREATE OR REPLACE TABLE arrivals AS
        SELECT position, k, time, row,
               row_number() OVER (ORDER BY coming NULLS FIRST, position, row) - 1 AS arrival
        FROM (SELECT *, max(time) OVER (
                  PARTITION BY position ORDER BY row ROWS UNBOUNDED PRECEDING) AS coming
              FROM ({" UNION ALL ".join(parts)}))""")


def _fates(con: duckdb.DuckDBPyConnection, workload: Workload) -> Judged:
    """Steps 1 to 4 of the life of a tuple: they do not depend on what is stored."""
    rows = con.execute("SELECT position, k IS NULL, time FROM arrivals ORDER BY arrival").fetchall()
    judgement = Judged([(workload.names[p], time) for p, _, time in rows], [], [], [])
    seen: list[list[int]] = []
    newest = Newest(workload)
    clock = None
    for position, null, time in rows:
        if null or time is None:
            judgement.fates.append("filtered")
        elif clock is not None and time < clock - workload.late:
            judgement.fates.append("late")
        else:
            judgement.fates.append("taken")
            seen.append([position, time])
            time_seen = newest.move(position, time)
            clock = time_seen if workload.by else _clock(workload, seen, clock)
            clock = clock if workload.timed else None
        judgement.clocks.append(clock)
    return judgement


def _clock(workload: Workload, seen: list[list[int]], clock: int | None) -> int | None:
    """The clock after all that was seen, from what it was before (The clock)."""
    if not workload.timed:
        return None
    if workload.clock == "max":
        return seen[-1][1] if clock is None else max(clock, seen[-1][1])
    positions, times = np.array(seen).T
    newest = times.max()
    latest = [
        times[positions == p].max() if (positions == p).any() else None
        for p in range(len(workload.names))
    ]
    if workload.idle is not None:
        # A stream never seen is idle by the first time seen, the others by their own newest.
        since = [times[0] if time is None else time for time in latest]
        latest = [
            time
            for time, start in zip(latest, since, strict=True)
            if newest - start <= workload.idle
        ]
    if None in latest:
        return clock
    return int(min(latest)) if clock is None else max(clock, int(min(latest)))


def _take(con: duckdb.DuckDBPyConnection, workload: Workload, judgement: Judged) -> None:
    """Table `taken`: the rows that take part, each with the arrival number that ends its life.

    A row ends with the N-th row of its stream after it, and at the first later arrival by which the
    clock has passed it by more than its window and `late`.
    """
    clocks = np.array([-NEVER if c is None else c for c in judgement.clocks], dtype=np.int64)
    taken = np.array([fate == "taken" for fate in judgement.fates])
    ends = []
    for number, (stream, time) in enumerate(judgement.arrivals):
        kind, size = workload.window(stream)
        past = np.zeros(0, dtype=bool)
        if kind == "time" and taken[number]:
            past = taken[number + 1 :] & (clocks[number + 1 :] > time + size + workload.late)
        ends.append(number + 1 + int(past.argmax()) if past.any() else NEVER)
    con.register("fates", pa.table({"arrival": range(len(ends)), "taken": taken, "ends": ends}))
    lasts = " ".join(
        f"WHEN {position} THEN lead(arrival, {size}) OVER life"
        for position, name in enumerate(workload.names)
        for size in [workload.last(name)]
        if size is not None
    )
    last = f"CASE position {lasts} END" if lasts else "NULL"
    con.execute(f"""
        CREATE OR REPLACE TABLE taken AS
        SELECT position, k, time, row, arrival, least({last}, ends) AS ends
        FROM arrivals JOIN fates USING (arrival)
        WHERE taken
        WINDOW life AS (PARTITION BY position ORDER BY arrival)""")
    left = con.execute("SELECT ends, position, row FROM taken WHERE ends < ? ORDER BY ALL", [NEVER])
    judgement.expiries.extend((end, (workload.names[p], row)) for end, p, row in left.fetchall())


def _complete(workload: Workload, conditions: Sequence[str] | None = None) -> str:
    """One row of every stream, with equal keys unless said, each within its window (Results)."""
    many = range(len(workload.names))
    latest = f"greatest({', '.join(f's{p}.time' for p in many)})"
    made_by = f"greatest({', '.join(f's{p}.arrival' for p in many)})"
    within = [f"s{p}.position = {p}" for p in many]
    within += [f"s{p}.k = s0.k" for p in many[1:]] if conditions is None else conditions
    within += [f"{made_by} < s{p}.ends" for p in many]
    for p, (kind, size) in enumerate(workload.windows):
        if kind == "time":
            within.append(f"{latest} - s{p}.time <= {size}")
    return f"""
        SELECT {", ".join(f"s{p}.row" for p in many)}, {latest}
        FROM {", ".join(f"taken AS s{p}" for p in many)}
        WHERE {" AND ".join(within)}"""


def _partial(workload: Workload) -> str:
    """Variable arity: one partner of every stream that has any (definition 2 of SNJoin)."""
    many = range(len(workload.names))
    sizes = [workload.window(name) for name in workload.names]
    widths = " ".join(
        f"WHEN {p} THEN {size if kind == 'time' else NEVER}" for p, (kind, size) in enumerate(sizes)
    )
    chosen = " ".join(
        f"LEFT JOIN pairs AS p{p} ON p{p}.newcomer = t.arrival AND p{p}.position = {p}"
        for p in many
    )
    members = " + ".join(f"(p{p}.row IS NOT NULL)::INT" for p in many)
    own = [f"CASE t.position WHEN {p} THEN t.row ELSE p{p}.row END" for p in many]
    times = ", ".join(f"p{p}.time" for p in many)
    return f"""
        WITH sized AS MATERIALIZED (
            SELECT *, CASE position {widths} END::BIGINT AS width FROM taken),
        pairs AS MATERIALIZED (
            SELECT t.arrival AS newcomer, u.position, u.row, u.time
            FROM sized AS t JOIN sized AS u ON t.k = u.k AND t.position <> u.position
            WHERE u.arrival < t.arrival AND t.arrival < u.ends
              AND greatest(t.time, u.time) - t.time <= t.width
              AND greatest(t.time, u.time) - u.time <= u.width)
        SELECT {", ".join(own)}, greatest(t.time, {times})
        FROM sized AS t
        {chosen}
        WHERE 1 + {members} >= {workload.at_least}"""


def _literal(name: Stream) -> str:
    return str(name) if isinstance(name, int) else "'" + name.replace("'", "''") + "'"
