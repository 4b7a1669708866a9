"""First results of keys and of rows, against DuckDB."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pyarrow as pa
import pytest

import streamshed as ss
from oracles.duck import BASE, NAMES, PAIR, ROWS, SORTED, SPARSE, WINDOW, asked, exact, rows


def by_newcomer(
    combinations: Counter, data: dict[str, pa.Table]
) -> list[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Combinations by the row that completes them, in the order of processing."""
    times = [data[name]["ts"].to_pylist() for name in NAMES]

    def completed(members: tuple[int, ...]) -> tuple[int, ...]:
        return max((times[i][row], i, row) for i, row in enumerate(members))

    ordered = sorted(combinations, key=completed)
    return [(newcomer, list(found)) for newcomer, found in groupby(ordered, key=completed)]


def ages(members: tuple[int, ...]) -> list[tuple[int, int]]:
    return [
        (SORTED[name]["ts"][row].as_py(), row) for name, row in zip(NAMES, members, strict=True)
    ]


def test_a_key_makes_its_first_result_only() -> None:
    until: dict[int, int] = {}
    expected = Counter()
    for newcomer, found in by_newcomer(exact(), SORTED):
        key = SORTED["a"]["k"][found[0][0]].as_py()
        if newcomer[0] > until.get(key, -1):
            chosen = min(found, key=ages)
            expected[chosen] += 1
            until[key] = max(time for time, _ in ages(chosen)) + WINDOW
    assert rows(BASE.first(per="key").replay(SORTED).table) == expected
    assert BASE.first(per="key").count(SORTED).results == expected.total()


@pytest.mark.parametrize("stream", NAMES)
@pytest.mark.parametrize("last_touch", [False, True])
def test_a_row_is_in_one_result(stream: str, last_touch: bool) -> None:
    place = NAMES.index(stream)
    where = " AND ".join(f"{name}.ts <= {stream}.ts" for name in NAMES) if last_touch else "true"
    expected: dict[int, tuple[int, ...]] = {}
    for _, found in by_newcomer(exact(where), SORTED):
        for row in {members[place] for members in found} - {*expected}:
            own = [members for members in found if members[place] == row]
            expected[row] = max(own, key=ages) if last_touch else min(own, key=ages)
    join = BASE.first(per=stream, last_touch=last_touch)
    assert rows(join.replay(SORTED).table) == Counter(expected.values())


def test_clicks_without_an_earlier_impression() -> None:
    """Attribution as a left join: the last touch of each click, or none."""
    join = PAIR.first(per="b", last_touch=True).unmatched("b")
    expected = asked(
        f"""SELECT arg_max(a.row, (a.ts, a.row)), b.row FROM b LEFT JOIN a
        ON a.k = b.k AND b.ts - a.ts BETWEEN 0 AND {WINDOW} GROUP BY b.row""",
        SPARSE,
    )
    assert rows(join.replay(SPARSE).table) == expected


def test_keys_of_streams_by_a_column_make_their_first_result_only() -> None:
    parts = [part.append_column("s", pa.array([n] * ROWS)) for n, part in SORTED.items()]
    together = pa.concat_tables(parts).sort_by([("ts", "ascending"), ("s", "ascending")])
    join = ss.join(by="s").on("k").within(WINDOW, time="ts").partial(at_least=2)
    everything, first = join.replay(together).table, join.first(per="key").replay(together).table
    until: dict[int, int] = {}
    updates = []
    for row in everything.to_pylist():
        times = [member["ts"] for member in row["members"]]
        if row["time"] > until.get(row["key"], -1) or row["update"] in updates:
            until[row["key"]] = max(until.get(row["key"], -1), min(times) + WINDOW)
            updates.append(row["update"])
    assert len(first) == len({*first["update"].to_pylist()}) < len(everything)
    assert {*first["key"].to_pylist()} == {*everything["key"].to_pylist()}
