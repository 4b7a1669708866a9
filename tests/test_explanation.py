"""The plan as text: what it names, and that its bytes are those the engine allocates."""

from __future__ import annotations

import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.engine.build import build_operator
from streamshed.kernels.core import core_layout

SCHEMA = pa.schema(
    [("k", pa.int32()), ("ts", pa.timestamp("us")), ("v", pa.float64()), ("name", pa.string())]
)
TWO = ss.join("a", "b").on("k").within("1 minute", time="ts")
NEAR = ss.join("a", "b").on(ss.near("v", 1.0)).within("1 minute", time="ts")
CHAIN = ss.join("a", "b", "c").on("a.k = b.k", "b.name = c.name").within("1 minute", time="ts")
STAR = (
    ss.join("a", "b")
    .within("1 minute", time="ts")
    .through(pa.table({"k": pa.array([1], pa.int32()), "name": ["x"]}), a="k", b="name")
)
FACTS = ss.relation(
    lambda: pa.table({"k": pa.array([1], pa.int32()), "name": ["x"]}), refresh="1 h"
)
POLLED = ss.join("a", "b").within("1 minute", time="ts").through(FACTS, a="k", b="name")


def explained(said: ss.Join, shards: int = 1) -> str:
    streams = said._spec.streams
    return said.explain(dict.fromkeys(streams, SCHEMA) if streams else SCHEMA, shards=shards)


@pytest.mark.parametrize(
    ("said", "shards", "words"),
    [
        (TWO, 1, ["equal keys (a.k = b.k)", "a: 1 minute by 'ts'", "none: windows hold all"]),
        (TWO, 1, ["nothing is shed", "by the hash of their key", "25 bytes a row and the values"]),
        (
            TWO.keep(rows=10).shed(column="v"),
            4,
            ["b: 10 rows. In each of 4 shards at first: a: 3 rows", "lowest value of a.v, b.v"],
        ),
        (TWO.keep(total=9), 1, ["all windows together: 9 rows", "'density' (the default)"]),
        (TWO.keep(total=9), 1, ["for tables, and", "at the budget of 9 rows"]),
        (TWO.keep(total=9).estimate(rate=1), 1, ["from a sample of all keys"]),
        (TWO.keep(total=9).estimate(rate=0), 1, ["'density' (the default)", "not estimated"]),
        (TWO.partial(), 1, ["partial, with at least 2 members"]),
        (TWO.select("a.v"), 1, ["columns a, time"]),
        (TWO.aggregate("a.v", over="1 hour"), 1, ["a.v aggregated over 1 hour every 1 hour"]),
        (
            TWO.within("2 s", time="ts", late="1 s", clock="max", idle="9 s"),
            1,
            ["newest time of all streams", "9 seconds behind", "more than 1 second behind"],
        ),
        (ss.join("a", "b").on("k").last(5), 4, ["the last 5 rows", "one shard", "is ever late"]),
        (
            TWO.queue(rows=7).throttle(rows_per_second=2),
            1,
            ["2 rows a second", "up to 7 rows wait", "waiting rows are shed by 'density'"],
        ),
        (TWO.throttle(cpu=0.5), 1, ["at most 50% of a core's time", "every 5 seconds"]),
        (TWO.throttle("keep up"), 1, ["on the clock on the wall"]),
        (
            TWO.keep(total=9).spill(to="/tmp", deadline="5 s"),
            4,
            ["wait in '/tmp'", "within 5 seconds, or shed", "by the hash of their key", "9 rows"],
        ),
        (TWO.keep(total=9).spill(to="/tmp"), 1, ["nothing is missed", "whenever there is time"]),
        (NEAR, 4, ["near('v', 1.0), found in windows sorted by value", "cells of 'v'", "quarter"]),
        (
            NEAR.throttle(comparisons_per_second=1e6),
            1,
            ["at most 1,000,000 comparisons a second"],
        ),
        (CHAIN, 4, ["a.k = b.k, b.name = c.name", "each attribute (2 × 2 for 4 shards)"]),
        (STAR, 4, ["a.k = relation.k", "facts are divided", "the relation with its index"]),
        (STAR, 1, ["then each has a part of the facts"]),
        (POLLED, 4, ["a.k = relation.k", "each stream (2 × 2 for 4 shards)"]),
        (POLLED, 1, ["then each has copies of rows"]),
        (
            ss.join(by="name").on("k").within({"x": "5 s"}, otherwise="1 s", time="ts"),
            1,
            ["rows of different 'name'", "x: 5 seconds; each other 'name': 1 second"],
        ),
    ],
)
def test_the_plan_is_told(said: ss.Join, shards: int, words: list[str]) -> None:
    text = explained(said, shards)
    assert text.splitlines()[0] == repr(said)
    assert repr(text) == str(text)
    for word in words:
        assert word in text


def test_inputs_will_do_and_no_row_is_taken() -> None:
    table = SCHEMA.empty_table()
    reader = table.to_reader()
    assert TWO.explain(a=table, b=reader) == explained(TWO)
    assert reader.read_all().num_rows == 0


def test_bytes_are_those_of_the_engines_arrays() -> None:
    """What is said for a row is what one more row takes in the arrays of the operator."""
    said = TWO.keep(rows=4096).shed("oldest").estimate(rate=0)
    operator = build_operator(said.plan({"a": SCHEMA, "b": SCHEMA}))
    before = operator.shape.nbytes(core_layout())
    operator._make_room(8192)
    layouts = core_layout() | {
        f"policy {name}": field for name, field in operator.policy.layout(operator.shape).items()
    }
    each = (operator.shape.nbytes(layouts) - before) / operator.shape.rows
    told = explained(said).partition(" for tables, and ")[2].partition(" bytes")[0]
    assert each <= float(told) <= each + 16  # partners, and a directory that has just doubled
