"""The join as it is said, and the plan that comes of it."""

import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError
from datetime import timedelta

import pyarrow as pa
import pytest

import streamshed
from streamshed import join, policies
from streamshed.durations import LIMIT

TWO = join("a", "b").on("k")
US = pa.timestamp("us")


def schema(key=None, time=US, **more):
    return pa.schema({"k": key or pa.int64(), "ts": time, **more})


def plan(said, a=None, b=None):
    return said.plan({"a": a or schema(), "b": b or schema()})


WRITTEN = [
    "join('a', 'b')",
    "join('a', 'b').on('k').within('10 minutes', time='ts').keep(rows=500).shed('existence')",
    "join('a', 'b').on('k', 'l').within(250, time='n', late=5, clock='max', idle=70)",
    "join('a', 'b').on(a='x', b='y').within({'a': '1 second', 'b': 0}, time={'a': 't', 'b': 'u'})",
    "join('a', 'b').on(a=['x', 'y'], b=['u', 'v']).last(100).keep(rows={'b': 5})",
    "join('a', 'b').on('k').within({'a': '1 day 5 ms'}, time='ts').last({'b': 9}, time='tt')",
    "join('a', 'b-c').on(**{'a': 'x', 'b-c': 'y'}).last({'a': 1, 'b-c': 2}, time='ts')",
    "join('a', 'self').on(a='x', self='y').last(3)",
    "join('a', 'b').on('k').last(9).keep(total=50).shed(column='price').partial(at_least=2)"
    ".estimate(rate=0.5).seed(7)",
    "join('a', 'b').on('k').last(9).shed(column={'a': 'price', 'b': 'value'})",
    "join(by='sensor').on('room').within('1 week', time='ts', late='1 second').keep(total=5)",
    "join('a', 'b').on('k').last(9).partial(at_least=2).select('a', 'b.y', 'b.x.z').seed(7)",
    "join('a', 'b').on('k').last(9).select('time')",
    "join('a', 'b').on('k').last(9).aggregate('a.x', over=10)",
    "join('a', 'b').on('k').last(9).aggregate('b.x.y', over='1 minute', every='10 seconds', "
    "quantiles=[0.5], wait='5 seconds')",
    "join('a.b', 'c').on('k').last(9).select('a.b.x', 'a.b.y', 'c')",
    "join(by='sensor').on('room').last(9).select('members.room', 'members.time')",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_a_join_is_written_as_it_is_said(text):
    said = eval(text)
    assert repr(said) == str(said) == text


@pytest.mark.parametrize("text", WRITTEN)
def test_joins_are_values(text):
    said = eval(text)
    copy = pickle.loads(pickle.dumps(said))
    assert copy == said
    assert hash(copy) == hash(said)
    assert said != said.seed(99)
    with pytest.raises(FrozenInstanceError):
        said._spec = None
    with pytest.raises(FrozenInstanceError):
        said.streams = ()


def test_a_policy_is_written_by_its_name_if_it_has_one():
    class Mine(policies.Policy):
        name = "mine"

        def __repr__(self):
            return "Mine()"

    assert str(TWO.shed(Mine())).endswith(".shed(Mine())")
    assert str(TWO.shed(policies.by_name("random"))).endswith(".shed('random')")
    assert str(TWO.shed(policies.Exact())).endswith(".shed(policies.Exact())")
    assert TWO.shed(policies.ByColumn("price")) == TWO.shed(column="price")


def test_the_same_said_differently_is_equal():
    one = TWO.within("90 min", time={"a": "t", "b": "u"}).keep(rows={"a": 1, "b": 2})
    other = TWO.within(timedelta(hours=1.5), time={"b": "u", "a": "t"}).keep(rows={"b": 2, "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert TWO.select("b.y", "time", "a.*", "b.x") == TWO.select("a", "b.y", "b.x")
    assert TWO.select("b.x", "b.y") != TWO.select("b.y", "b.x")


def test_a_method_called_again_replaces_what_it_said():
    said = TWO.within("1 s", time="ts").keep(rows=5)
    assert said.within("2 s", time="ts").keep(total=9) == TWO.within("2 s", time="ts").keep(total=9)


def test_a_plan_of_timestamps():
    said = (
        TWO.within({"a": "10 s", "b": timedelta(minutes=1)}, time="ts", late="1 ms", idle="1 h")
        .keep(rows={"b": 7})
        .shed("existence")
        .seed(3)
    )
    got = plan(said, schema(pa.int16(), pa.timestamp("ms")), schema(pa.uint32(), pa.date32()))
    a, b = got.streams
    assert (a.name, a.key, a.time, a.window, a.last, a.rows, a.worth) == (
        ("a", ("k",), "ts", 10_000_000, None, None, None)
    )
    assert (b.window, b.rows, b.schema) == (60_000_000, 7, schema(pa.uint32(), pa.date32()))
    assert (got.by, got.late, got.clock, got.idle) == (None, 1_000, "min", 3_600_000_000)
    assert (got.key_types, got.time_type) == ((pa.int64(),), US)
    assert (got.total, got.at_least, got.seed) == (None, None, 3)
    assert got.policy == policies.by_name("existence")


def test_a_plan_of_numbers_and_different_columns():
    said = join("a", "b").on(a=["x", "y"], b=["u", "v"]).within(5, time="n", clock="max", late=2)
    got = said.keep(total=9).plan(
        {
            "b": pa.schema({"u": pa.string(), "v": pa.int8(), "n": pa.uint64()}),
            "a": pa.schema({"x": pa.string(), "y": pa.int8(), "n": pa.int8()}),
        }
    )
    assert [stream.name for stream in got.streams] == ["a", "b"]
    assert [stream.key for stream in got.streams] == [("x", "y"), ("u", "v")]
    assert (got.key_types, got.time_type) == ((pa.string(), pa.int64()), pa.int64())
    assert (got.streams[0].window, got.late, got.clock, got.total) == (5, 2, "max", 9)
    assert got.policy == policies.by_name("density")


def test_row_windows_know_no_lateness():
    got = plan(TWO.last({"a": 5, "b": 6}))
    assert [(s.window, s.last, s.time) for s in got.streams] == [(None, 5, None), (None, 6, None)]
    assert (got.late, got.clock, got.idle, got.time_type) == (LIMIT, "min", None, pa.int64())
    timed = plan(TWO.last(5, time="ts"))
    assert (timed.late, timed.time_type, timed.streams[1].time) == (LIMIT, US, "ts")


@pytest.mark.parametrize(
    "said",
    [
        TWO.within({"a": "1 s"}, time="ts").last({"b": 9}),
        TWO.within({"a": "1 s"}, time={"a": "ts", "b": "ts"}).last({"b": 9}),
        TWO.last({"b": 9}, time={"b": "ts"}).within({"a": "1 s"}, time={"a": "ts"}),
        TWO.last({"b": 9}, time="ts").within({"a": "1 s"}, time="ts"),
    ],
)
def test_both_kinds_of_window_in_one_join(said):
    got = plan(said)
    assert [(s.window, s.last, s.time) for s in got.streams] == [
        (1_000_000, None, "ts"),
        (None, 9, "ts"),
    ]
    assert got.late == 0


def test_the_row_windows_own_time_column_counts():
    said = TWO.within({"a": "1 s"}, time="ts").last({"b": 9}, time="other")
    assert [s.time for s in plan(said, b=schema(other=US)).streams] == ["ts", "other"]


def test_streams_told_apart_by_a_column():
    said = join(by="sensor").on("k").within("1 s", time="ts").keep(total=5)
    got = said.plan({"anything": schema(sensor=pa.string())})
    assert [stream.name for stream in got.streams] == ["anything"]
    assert (got.by, got.at_least, got.total, got.clock) == ("sensor", 2, 5, "max")
    many = said.partial(at_least=300).plan({"anything": schema(sensor=pa.string())})
    assert many.at_least == 300


def test_what_a_row_is_worth():
    said = TWO.within("1 s", time="ts").keep(rows=5).shed(column={"a": "price", "b": "flag"})
    got = plan(said, schema(price=pa.decimal128(9, 2)), schema(flag=pa.bool_()))
    assert [stream.worth for stream in got.streams] == ["price", "flag"]
    alone = plan(said, schema(price=US), schema(flag=pa.float32()))
    assert [stream.worth for stream in alone.streams] == ["price", "flag"]


def test_a_plan_has_the_columns_that_are_chosen_or_needed():
    said = TWO.within("1 s", time="ts").keep(rows=5).shed(column={"a": "price", "b": "ts"})
    wide = schema(price=pa.int8(), x=pa.string(), **{"x.y": pa.int8(), "*": pa.int8()})
    whole = plan(said, wide, wide)
    assert all(stream.schema == wide for stream in whole.streams)
    assert all(stream.chosen == tuple(wide.names) for stream in whole.streams)
    a, b = plan(said.select("b.x.y", "b.k"), wide, wide).streams
    assert (a.chosen, a.schema.names) == ((), ["k", "ts", "price"])
    assert (b.chosen, b.schema.names) == (("x.y", "k"), ["k", "ts", "x.y"])
    a, b = plan(said.select("b.*", "a.x"), wide, wide).streams
    assert (a.chosen, b.chosen, b.schema) == (("x",), tuple(wide.names), wide)
    told_apart = join(by="x").on("k").last(3)
    (only,) = told_apart.select("members.price").plan({"in": wide}).streams
    assert (only.chosen, only.schema.names) == (("price",), ["k", "price", "x"])
    (only,) = told_apart.select("time").plan({"in": wide}).streams
    assert (only.chosen, only.schema.names) == ((), ["k", "x"])


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (pa.int8(), pa.uint32(), pa.int64()),
        (pa.uint64(), pa.uint8(), pa.uint64()),
        (pa.uint64(), pa.int8(), pa.decimal128(20, 0)),
        (pa.string(), pa.string(), pa.string()),
        (pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.string_view(), pa.string_view(), pa.large_string()),
        (pa.binary(), pa.binary(), pa.binary()),
        (pa.binary(4), pa.binary_view(), pa.large_binary()),
        (pa.decimal128(10, 2), pa.decimal64(12, 0), pa.decimal128(14, 2)),
        (pa.decimal256(38, 2), pa.decimal32(5, 1), pa.decimal128(38, 2)),
        (pa.decimal128(38, 0), pa.decimal128(10, 5), pa.decimal256(43, 5)),
        (pa.timestamp("s"), pa.timestamp("ms"), US),
        (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.timestamp("s", "Asia/Tokyo"), pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.date64(), pa.date32()),
        (pa.bool_(), pa.bool_(), pa.bool_()),
    ],
)
def test_the_common_type_of_keys(one, other, common):
    for left, right in [(one, other), (other, one)]:
        assert plan(TWO.last(1), schema(left), schema(right)).key_types == (common,)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (pa.int8(), pa.uint64(), pa.int64()),
        (pa.timestamp("ns"), pa.date64(), US),
        (pa.timestamp("s", "Asia/Tokyo"),) * 2 + (pa.timestamp("us", "Asia/Tokyo"),),
        (pa.timestamp("s", "Asia/Tokyo"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
    ],
)
def test_the_common_type_of_times(one, other, common):
    said = TWO.within(0, time="ts")
    assert plan(said, schema(time=one), schema(time=other)).time_type == common


def test_the_policy_has_the_last_word():
    class Picky(policies.Policy):
        name = "picky"

        def check(self, plan):
            raise streamshed.SpecError(f"not with {len(plan.streams)} streams")

    with pytest.raises(streamshed.SpecError, match="not with 2 streams"):
        plan(TWO.last(1).keep(rows=1).shed(Picky()))


def test_runtimes_are_chosen_late(monkeypatch):
    calls = []
    runtime = type(sys)("streamshed.replay")
    runtime.replay = lambda *said: calls.append(said)
    runtime.replay_batches = runtime.replay
    monkeypatch.setitem(sys.modules, "streamshed.replay", runtime)
    TWO.replay(a=1, b=2)
    TWO.replay_batches({"a": 1, "b": 2})
    inputs = {"a": 1, "b": 2}
    assert calls == 2 * [(TWO._spec, inputs, "time", None)]


def test_a_join_shows_its_methods_only():
    shown = [name for name in dir(TWO) if not name.startswith("_")]
    assert all(callable(getattr(TWO, name)) for name in shown)
    assert shown == sorted(
        [
            "on",
            "within",
            "last",
            "keep",
            "shed",
            "partial",
            "through",
            "weigh",
            "throttle",
            "select",
            "aggregate",
            "in_order",
            "between",
            "unmatched",
            "first",
            "factorised",
            "queue",
            "spill",
            "estimate",
            "seed",
            "plan",
            "explain",
            "replay",
            "replay_batches",
            "count",
            "open",
            "stream",
            "tune",
        ]
    )


def test_describing_a_join_needs_neither_compiler_nor_arrow_nor_spark():
    script = (
        "import sys, streamshed\n"
        "streamshed.join('a', 'b').on('k').within('1 s', time='ts').keep(rows=5)\n"
        "print([name for name in ('numba', 'pyarrow', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_public_names_are_there():
    assert {name for name in dir(streamshed) if not hasattr(streamshed, name)} == set()
    with pytest.raises(AttributeError, match="no attribute 'jion'"):
        streamshed.jion  # noqa: B018
