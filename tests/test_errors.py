"""What every error says: the stream, the column, the value, and the way out."""

import resource
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamshed import InputError, SpecError, StateError, StreamshedError, join, policies
from streamshed.durations import LIMIT

TWO = join("clicks", "orders").on("k")
BY = join(by="sensor").on("k")
TIMED = TWO.within("1 s", time="ts")


def test_errors_are_value_errors():
    for kind in (SpecError, InputError, StateError):
        assert issubclass(kind, StreamshedError)
    assert issubclass(StreamshedError, ValueError)


@pytest.mark.parametrize(
    ("say", "words"),
    [
        # join
        (join, ["none", "at least two", "by="]),
        (lambda: join("a", ""), ["''", "not empty"]),
        (lambda: join("a", 3), ["3", "string"]),
        (lambda: join("a", "a"), ["'a'", "twice", "own name"]),
        (lambda: join("a", "time"), ["'time'", "time of completion", "another name"]),
        (lambda: join("a", "members"), ["'members'", "another name"]),
        (lambda: join("a", "b", by="c"), ["'a', 'b'", "'c'", "are both given"]),
        (lambda: join(by=""), ["`by`", "''", "name of a column"]),
        (lambda: join(*map(str, range(65))), ["65", "64", "join(by='sensor')"]),
        # on
        (TWO.on, ["no key column", ".on('k')"]),
        (lambda: TWO.on("k", clicks="x"), ["'k'", "'clicks'", "say either"]),
        (lambda: TWO.on("k", "k"), ["'k'", "twice"]),
        (lambda: TWO.on(["k", "l"]), ["['k', 'l']", "name of a column"]),
        (lambda: TWO.on(clicks="x = y", orders="x"), ["'x = y'", "stands for itself"]),
        (lambda: TWO.on("a.x = b.x"), ["'a.x' in 'a.x = b.x'", "'clicks', 'orders'"]),
        (lambda: TWO.on("clicks.x = orders."), ["'orders.'", "'clicks.x'"]),
        (lambda: TWO.on("clicks.x = orders.x = 3"), ["each pair by itself"]),
        (lambda: TWO.on("clicks.x == orders.x"), ["a single one", "'clicks.x = orders.x'"]),
        (
            lambda: TWO.on("clicks.x = orders.x", "k"),
            ["'k'", "not an equality", "key columns only"],
        ),
        (lambda: TWO.on("clicks.x = clicks.y"), ["two columns of stream 'clicks'", "filter"]),
        (
            lambda: join("a", "b", "c").on("a.x = b.x"),
            ["connects 'c' with 'a', 'b'", "every combination", "'a.x = c.y'"],
        ),
        (lambda: BY.on("a.x = b.x"), ["'a.x = b.x'", "'sensor'", ".on('k')"]),
        (lambda: join(*"abcdefghi").on("a.x = b.x"), ["up to 8", "9", ".on('k')"]),
        (
            lambda: TWO.on(*(f"clicks.x{i} = orders.y{i}" for i in range(65))),
            ["65", "64", "one column"],
        ),
        (lambda: TWO.on(click="x", orders="y"), ["'click'", "'clicks', 'orders'", "Did you mean"]),
        (lambda: TWO.on(clicks="x"), ["'orders'", "every stream"]),
        (
            lambda: TWO.on(clicks=["x", "y"], orders="u"),
            ["'clicks' has 2", "'x', 'y'", "'orders' has 1", "'u'", "equally many"],
        ),
        (lambda: TWO.on(clicks=[], orders="u"), ["[]", "stream 'clicks'", "name of a column"]),
        (lambda: BY.on(a="x", b="y"), ["'sensor'", "one value for all"]),
        # within
        (lambda: TWO.within("soon", time="ts"), [".within()", "the window", "'soon'"]),
        (lambda: TWO.within({"clicks": -1}, time="ts"), ["'clicks'", "-1", "negative"]),
        (lambda: TWO.within({"click": 1}, time="ts"), ["'click'", "Did you mean 'clicks'?"]),
        (lambda: TWO.within({}, time="ts"), ["empty", "'clicks', 'orders'"]),
        (lambda: TWO.within(1, time=3), ["time column", "3", "name of a column"]),
        (lambda: TWO.within(1, time={"clicks": "ts"}), ["'clicks'", "not for 'orders'"]),
        (lambda: TWO.within(1, time="ts", late="-1 s"), ["`late`", "'-1 s'", "negative"]),
        (lambda: TWO.within(1, time="ts", idle="?"), ["`idle`", "'?'"]),
        (lambda: TWO.within(1, time="ts", clock="mid"), ["'mid'", "'min' or 'max'"]),
        (lambda: BY.within({"a": 1}, time="ts"), ["window", "'a'", "'sensor'", "say `otherwise`"]),
        (lambda: BY.within({}, time="ts", otherwise=1), ["'sensor'", "at least one stream"]),
        (lambda: BY.within(1, time="ts", otherwise=1), ["`otherwise` is 1", "leave it out"]),
        (lambda: TWO.within(1, time="ts", otherwise=2), ["`otherwise` is 2", "leave it out"]),
        (lambda: BY.within(1, time="ts", idle=5), ["`idle`", "5", "'sensor'", "leave"]),
        # last, and both kinds of window
        (lambda: TWO.last(0), [".last()", "number of rows", "0", "1 or more"]),
        (lambda: TWO.last(True), ["True", "whole number"]),
        (lambda: TWO.last(np.array([1, 2])), ["array([1, 2])", "whole number"]),
        (lambda: TWO.last(2**63), [str(2**63), "below 2**31"]),
        (lambda: TWO.last({"orders": 1.5}), ["'orders'", "1.5", "whole number"]),
        (lambda: TWO.last(5, time={"clicks": "ts"}), ["'clicks'", "not for 'orders'"]),
        (
            lambda: TWO.last({"orders": 5}, time={"clicks": "ts", "orders": "ts"}),
            ["'ts'", "'clicks'", "no row window", ".within()"],
        ),
        (
            lambda: TWO.last({"orders": 5}, time={"orders": "at"}).within("1 s", time="ts"),
            ["'orders'", "'ts'", "'at'", "once"],
        ),
        (
            lambda: BY.last(5, time="at").within("1 s", time="ts"),
            ["every stream", "'ts'", "'at'", "once"],
        ),
        (
            lambda: TWO.within({"clicks": 1}, time={"clicks": "t", "orders": "u"}).last(
                {"orders": 1}, time="v"
            ),
            ["'orders'", "'u'", "'v'", "once"],
        ),
        # keep
        (TWO.keep, ["None", "exactly one", ".keep(rows=1000)"]),
        (lambda: TWO.keep(rows=1, total=2), ["1", "2", "exactly one"]),
        (lambda: TWO.keep(rows=0), ["0", "1 or more", "for no budget leave .keep() out"]),
        (lambda: TWO.keep(rows=False), ["False", "whole number"]),
        (lambda: TWO.keep(total=-3), ["`total`", "-3", "1 or more"]),
        (lambda: TWO.keep(rows={"clicks": 0}), ["budget of stream 'clicks'", "0"]),
        (lambda: TWO.keep(rows={"order": 1}), ["'order'", "Did you mean 'orders'?"]),
        (lambda: BY.keep(rows=5), ["5", "'sensor'", ".keep(total=…)"]),
        # shed
        (TWO.shed, ["None", "exactly one", ".shed(column='price')"]),
        (lambda: TWO.shed("oldest", column="price"), ["'oldest'", "'price'", "exactly one"]),
        (lambda: TWO.shed("existance"), ["'existance'", "existence"]),
        (lambda: policies.Existence(completed="x"), ["existence: `completed` is 'x'", "'first'"]),
        (lambda: policies.Frequency(scope="x"), ["frequency: `scope` is 'x'", "'window'"]),
        (
            lambda: (
                BY.last(5)
                .keep(total=5)
                .shed(policies.Frequency(scope="window"))
                .plan({"a": pa.schema([("sensor", pa.int64()), ("k", pa.int64())])})
            ),
            ["`scope` is 'window'", "known only as they come"],
        ),
        (lambda: TWO.shed(7), ["7", "streamshed.policies"]),
        (lambda: TWO.shed(policies.ByColumn), ["ByColumn", "instance"]),
        (lambda: TWO.shed(column={"clicks": "p"}), ["'clicks'", "not for 'orders'"]),
        (lambda: TWO.shed(policies.ByColumn({"clicks": "p"})), ["not for 'orders'"]),
        (lambda: BY.shed(column={"a": "p"}), ["ranking column", "'sensor'"]),
        # partial, estimate, seed
        (lambda: TWO.partial(1), ["`at_least`", "1", "2 or more"]),
        (lambda: TWO.partial(3), ["3", "only 2", "'clicks', 'orders'", "at most 2"]),
        (lambda: TWO.estimate(rate=1.5), [".estimate()", "`rate`", "1.5", "from 0 to 1"]),
        (lambda: TWO.estimate(rate=float("nan")), ["nan", "from 0 to 1"]),
        (lambda: TWO.estimate(rate="all"), ["'all'", "from 0 to 1"]),
        (lambda: TWO.estimate(rate=True), ["True", "from 0 to 1"]),
        # aggregate
        (lambda: TWO.aggregate("clicks.x", over=0), [".aggregate()", "`over` is 0", "greater"]),
        (lambda: TWO.aggregate("clicks.x", over=5, every="0 s"), ["`every` is 0", "greater"]),
        (lambda: TWO.aggregate("clicks.x", over="soon"), [".aggregate(): `over`", "'soon'"]),
        (lambda: TWO.aggregate("click.x", over=5), [".aggregate()", "Did you mean 'clicks'?"]),
        (lambda: TWO.aggregate("clicks", over=5), ["'clicks' names no column", "as in 'clicks.x'"]),
        (lambda: TWO.aggregate(7, over=5), [".aggregate()", "7", "give strings"]),
        (lambda: TWO.aggregate("clicks.x", over=5, quantiles=[50]), ["quantile", "50", "0 to 1"]),
        (lambda: TWO.aggregate("clicks.x", over=5, quantiles=0.5), ["0.5", "give a list"]),
        (
            lambda: TWO.aggregate("clicks.x", over=5, quantiles=[0.5, 0.25, 0.5]),
            [".aggregate()", "the quantile 0.5 was given twice", "once"],
        ),
        (lambda: BY.aggregate("x", over=5), [".aggregate()", "'sensor'", "'members.x'"]),
        (lambda: BY.aggregate("members", over=5), ["names no column", "as in 'members.x'"]),
        # comparisons
        (
            lambda: join("a", "b").on("a.k < b.k"),
            [".on()", "'a.k < b.k'", "'<'", "ss.where(function, 'k')", "ss.near"],
        ),
        (
            lambda: join("a", "b").on("a.x >= b.y"),
            ["'a.x >= b.y'", "'>='", "ss.where(function, 'x', 'y')"],
        ),
        (lambda: join("a", "b").on("a.x >= b.y + 1"), ["'>='", "ss.where(function, 'x', 'y')"]),
        # select
        (TWO.select, ["nothing", ".select('a.x', 'b.y')", ".select('time')"]),
        (lambda: TWO.select("click.x"), ["'click'", "'click.x'", "'clicks', 'orders'", "Did you"]),
        (lambda: TWO.select("price"), ["'price'", "'clicks', 'orders'", "as in 'clicks.x'"]),
        (lambda: TWO.select(".x"), ["no stream ''", "'.x'"]),
        (lambda: TWO.select("clicks."), ["'clicks.'", "no column", "write 'clicks' for all"]),
        (lambda: TWO.select(["clicks.x"]), ["['clicks.x']", "give strings"]),
        (lambda: TWO.select("clicks.x", 7), ["7", "give strings"]),
        (lambda: TWO.select("clicks.x", "clicks.x"), ["'x' of 'clicks'", "twice"]),
        (lambda: TWO.select("clicks", "clicks.*"), ["'clicks' was named twice"]),
        (lambda: TWO.select("time", "time"), ["'time' was named twice"]),
        (lambda: TWO.select("clicks.x", "clicks"), ["all columns of 'clicks'", "'x'", "either"]),
        (lambda: TWO.select("clicks.*", "clicks.x"), ["all columns of 'clicks'", "'x'", "either"]),
        (lambda: BY.select("room"), ["'room'", "'sensor'", "write 'members.room'"]),
        (lambda: TWO.seed(-1), ["seed", "-1", "0 or more"]),
        (lambda: TWO.seed(2**64), [str(2**64), "below 2**64"]),
        (lambda: TWO.seed("x"), ["'x'", "whole number"]),
    ],
)
def test_a_join_that_cannot_be_is_refused_at_once(say, words):
    with pytest.raises(SpecError) as error:
        say()
    for word in words:
        assert word in str(error.value)


UNION = pa.sparse_union([pa.field("y", pa.int8())])


def planned(said, clicks=(), orders=(), **other):
    """Plan over streams with a key and a time, changed as said."""
    base = {"k": pa.int64(), "ts": pa.timestamp("us")}
    schemas = {"clicks": pa.schema(base | dict(clicks)), "orders": pa.schema(base | dict(orders))}
    return said.plan(schemas | other)


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (lambda: planned(join("clicks", "orders").last(5)), ["no condition", ".on('k')"]),
        (lambda: planned(TWO), ["no window", ".within(", ".last("]),
        (lambda: planned(TWO.last({"orders": 5})), ["no window for 'clicks'", "name it"]),
        (
            lambda: planned(
                TWO.within({"clicks": "1 s"}, time={"clicks": "ts"}).last({"orders": 5})
            ),
            ["no time column for 'orders'", ".last(100, time='ts')"],
        ),
        (
            lambda: planned(TIMED.throttle(rows_per_second=5)),
            ["`rows_per_second` is 5.0", "add .queue(rows=…)"],
        ),
        (
            lambda: planned(TIMED.queue(rows=5)),
            [".queue(): 5 rows may wait", "add .throttle(rows_per_second=…)"],
        ),
        (
            lambda: planned(TIMED.shed("random")),
            [".shed('random')", "has no budget", ".keep(rows=1000)", "leave .shed() out"],
        ),
        (
            lambda: planned(TIMED.shed(column="price"), {"price": pa.int8()}),
            [".shed(column='price')", "has no budget", ".keep(total=5000)"],
        ),
        (
            lambda: planned(TIMED.select("orders").aggregate("clicks.k", over="1 s")),
            [".aggregate()", "'clicks.k' is not among", ".select()", "choose it too"],
        ),
        (
            lambda: planned(TIMED.aggregate("clicks.k", over=5)),
            [".aggregate(): `over`", "bare number 5", "'5 seconds'"],
        ),
        (lambda: planned(TWO.within(5, time="ts")), ["window of stream 'clicks'", "5", "seconds"]),
        (
            lambda: planned(TIMED, {"ts": pa.int32()}, {"ts": pa.int64()}),
            ["window of stream 'clicks'", "'1 second'", "give a number"],
        ),
        (
            lambda: planned(TWO.within("1 s", time="ts", late=5)),
            ["`late`", "bare number 5", "timestamps"],
        ),
        (lambda: planned(TWO.within("1 s", time="ts", idle=5)), ["`idle`", "bare number 5"]),
        (
            lambda: planned(
                TWO.within(LIMIT, time="n", late=LIMIT), {"n": pa.int64()}, {"n": pa.int64()}
            ),
            ["window of stream 'clicks'", "`late`", str(LIMIT), "shorter"],
        ),
        (
            lambda: join(by="k").on("k").last(5).plan({"in": pa.schema({"k": pa.int64()})}),
            ["'k'", "no two streams", "another key"],
        ),
        (
            lambda: BY.within({"a": 1}, otherwise=2, time="ts").plan({"in": SENSORS}),
            ["'a'", "no value of the column 'sensor'", "int8", "values of that type"],
        ),
        (
            lambda: BY.within({n: n + 1 for n in range(99)}, otherwise=1, time="ts").plan(SENSORS),
            ["99 different lengths", "more than 64", "round them"],
        ),
    ],
)
def test_a_join_that_cannot_be_planned(say, words):
    with pytest.raises(SpecError) as error:
        say()
    for word in words:
        assert word in str(error.value)


WORTH = TIMED.keep(rows=5).shed(column="price")
TOTAL = TIMED.keep(total=5).shed(column="price")
TWICE = pa.schema([("k", pa.int64()), ("k", pa.int64()), ("ts", pa.timestamp("us"))])
BOTH = ["column 'k' of stream 'clicks'", "column 'k' of stream 'orders'"]
SENSORS = pa.schema({"sensor": pa.int8(), "k": pa.int64(), "ts": pa.int64()})
TIMES = ["column 'ts' of stream 'clicks'", "column 'ts' of stream 'orders'"]


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (lambda: TIMED.plan({"clicks": pa.schema({})}), ["'orders'", "give one for each"]),
        (lambda: TIMED.plan(None), ["NoneType was given instead of a schema", "pyarrow.Schema"]),
        (lambda: planned(TIMED, order=pa.schema({})), ["'order'", "Did you mean 'orders'?"]),
        (lambda: planned(TIMED, x=1), ["'x'", "int", "pyarrow.Schema"]),
        (
            lambda: BY.last(5).plan({"a": TWICE, "b": TWICE}),
            ["2 inputs", "'a', 'b'", "'sensor'", "one input"],
        ),
        (lambda: BY.last(5).plan({"a": TWICE}), ["stream 'a' has no column 'sensor'", "'k'"]),
        (
            lambda: BY.last(5).plan({"a": pa.schema({"sensor": pa.float64()})}),
            ["column 'sensor' of stream 'a'", "double"],
        ),
        (
            lambda: planned(TWO.on("kk").last(5)),
            ["'clicks' has no column 'kk'", "key", "'k', 'ts'", "Did you mean 'k'?"],
        ),
        (
            lambda: planned(TWO.within("1 s", time="tss")),
            ["'clicks' has no column 'tss'", "time", "Did you mean 'ts'?"],
        ),
        (
            lambda: planned(WORTH, {"price": pa.int8()}),
            ["'orders' has no column 'price'", "worth"],
        ),
        (
            lambda: planned(TIMED.select("orders.pric"), orders={"price": pa.int8()}),
            ["'orders' has no column 'pric'", "results", "'k', 'ts', 'price'", "mean 'price'?"],
        ),
        (
            lambda: BY.last(5).select("members.x").plan({"in": pa.schema({"sensor": pa.int8()})}),
            ["'in' has no column 'k'"],
        ),
        (
            lambda: join("a", "b").on("ts").last(5).plan({"a": TWICE, "b": TWICE}),
            ["'a' has 2 columns named 'k'", "results", "rename"],
        ),
        (
            lambda: TIMED.plan({"clicks": TWICE, "orders": TWICE}),
            ["'clicks' has 2 columns named 'k'", "rename"],
        ),
        # keys
        (
            lambda: planned(TIMED, {"k": pa.float32()}),
            [BOTH[0], "float", "cast it to a decimal or an integer"],
        ),
        (
            lambda: planned(TIMED, {"k": pa.struct({"x": pa.int8()})}),
            [BOTH[0], "struct", "columns of their own"],
        ),
        (lambda: planned(TIMED, {"k": pa.time32("s")}), [BOTH[0], "time32", "cast it to"]),
        (lambda: planned(TIMED, {"k": pa.null()}), [BOTH[0], "null", "cast it to"]),
        (lambda: planned(TIMED, {"k": pa.string()}), [*BOTH, "string", "int64", "cast one"]),
        (
            lambda: planned(TIMED, {"k": pa.decimal256(76, 0)}, {"k": pa.decimal128(10, 5)}),
            [*BOTH, "81 digits", "76", "cast"],
        ),
        (
            lambda: planned(TIMED, {"k": pa.timestamp("s")}, {"k": pa.timestamp("s", tz="UTC")}),
            [*BOTH, "tz=UTC", "time zone"],
        ),
        # times
        (
            lambda: planned(TIMED, {"ts": pa.string()}),
            [TIMES[0], "string", "cast it to a timestamp"],
        ),
        (lambda: planned(TIMED, {"ts": pa.float64()}), [TIMES[0], "double", "integer"]),
        (lambda: planned(TIMED, {"ts": pa.bool_()}), [TIMES[0], "bool"]),
        (lambda: planned(TIMED, {"ts": pa.int64()}), [*TIMES, "int64", "cast both"]),
        (
            lambda: planned(TIMED, {"ts": pa.timestamp("us", tz="UTC")}),
            [*TIMES, "tz=UTC", "time zone"],
        ),
        # payload
        (
            lambda: planned(TIMED, {"x": pa.run_end_encoded(pa.int32(), pa.string())}),
            ["column 'x' of stream 'clicks'", "run_end_encoded", "cast it", ".select()"],
        ),
        (
            lambda: planned(TIMED, {}, {"x": pa.list_(UNION)}),
            ["column 'x' of stream 'orders'", "union", "cast it", ".select()"],
        ),
        (
            lambda: planned(TIMED, {"ts": pa.run_end_encoded(pa.int32(), pa.timestamp("us"))}),
            ["column 'ts' of stream 'clicks'", "run_end_encoded", "cast it"],
        ),
        # aggregates
        (
            lambda: planned(TIMED.aggregate("clicks.prise", over="1 s"), {"price": pa.int8()}),
            ["stream 'clicks' has no column 'prise'", "aggregate", "Did you mean 'price'?"],
        ),
        (
            lambda: planned(TIMED.aggregate("clicks.name", over="1 s"), {"name": pa.string()}),
            ["column 'name' of stream 'clicks'", "string", "cannot be aggregated", "numbers"],
        ),
        # worths
        (
            lambda: planned(WORTH, {"price": pa.string()}, {"price": pa.int8()}),
            ["column 'price' of stream 'clicks'", "string", "cannot rank rows", "cast it"],
        ),
        (
            lambda: planned(TOTAL, {"price": pa.date32()}, {"price": pa.int8()}),
            ["column 'price' of stream 'clicks'", "stream 'orders'", "date32", "cast both"],
        ),
    ],
)
def test_data_that_does_not_fit_is_refused(say, words):
    with pytest.raises(InputError) as error:
        say()
    for word in words:
        assert word in str(error.value)


ROWS = pa.table({"k": [1], "ts": [1]})


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (lambda: TWO.last(5).replay(ROWS, ROWS), ["2 inputs", "replay(clicks=…, orders=…)"]),
        (lambda: TWO.last(5).count(ROWS, ROWS), ["2 inputs", "count(clicks=…, orders=…)"]),
        (lambda: TWO.last(5).replay_batches(ROWS, ROWS), ["replay_batches(clicks=…, orders=…)"]),
        (lambda: TWO.last(5).stream(1, 2, 3), ["3 inputs", "stream(clicks=…, orders=…)"]),
        (lambda: TWO.last(5).explain(ROWS, ROWS), ["2 inputs", "explain(clicks=…, orders=…)"]),
        (
            lambda: TWO.last(5).explain(clicks=iter([]), orders=ROWS),
            ["explain()", "'clicks'", "list_iterator", "give its schema"],
        ),
        (
            lambda: TWO.last(5).replay(ROWS),
            ["replay()", "one input", "'clicks', 'orders'", "replay(clicks=…, orders=…)"],
        ),
        (
            lambda: TWO.last(5).stream({"clicks": ROWS}, orders=ROWS),
            ["stream()", "both by position and by name", "one mapping"],
        ),
        (lambda: BY.last(5).replay(ROWS, ROWS), ["2 inputs", "'sensor'", "give the one"]),
        (
            lambda: TWO.last(5).replay(**dict.fromkeys(["clicks", "orders"], ROWS.to_reader())),
            ["'clicks' and 'orders'", "the same RecordBatchReader", "only once", "its own"],
        ),
        (
            lambda: TWO.last(5).count(
                **dict.fromkeys(["clicks", "orders"], iter(ROWS.to_batches()))
            ),
            ["'clicks' and 'orders'", "the same list_iterator", "only once"],
        ),
        (
            lambda: TWO.last(5).replay(clicks={"k": [1]}, orders=ROWS),
            ["stream 'clicks'", "a dict cannot be read", "pyarrow.table("],
        ),
        (
            lambda: TWO.last(5).replay(clicks=ROWS, orders=[1]),
            ["stream 'orders'", "the list gives a int", "pyarrow.table("],
        ),
    ],
)
def test_inputs_that_cannot_be_read_or_told_apart(say, words):
    with pytest.raises(InputError) as error:
        say()
    for word in words:
        assert word in str(error.value)


def pandas_frame(*columns: object) -> pd.DataFrame:
    return pd.DataFrame([[1, 2]] * 2, columns=columns)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pandas_frame("k", "k"), ["DataFrame of pandas", "Duplicate column names", "one name"]),
        (
            pd.DataFrame({"k": [1, "x"], "ts": [1, 2]}),
            ["DataFrame of pandas", "column k", "one type"],
        ),
        (pd.Series([1, 2]), ["Series of pandas", "give a frame"]),
        (pl.Series([1, 2]), ["Series of polars", "give a frame"]),
        (pl.DataFrame({"k": [1]}).lazy().select("x"), ["LazyFrame of polars", '"x"']),
        ("s3://bucket/clicks", ["'s3://bucket/clicks' is a URI", "pyarrow.dataset"]),
    ],
)
def test_what_other_libraries_cannot_give_is_refused(given, words):
    with pytest.raises(InputError) as error:
        TWO.last(5).replay(clicks=given, orders=ROWS)
    for word in ["stream 'clicks'", *words]:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (pa.table({"ts": [2]}), ["1.parquet' has no column 'k', which", "0.parquet' has", "'ts'"]),
        (
            pa.table({"ts": [2], "k": ["x"]}),
            ["column 'k' is of type string in", "1.parquet', but of type int64 in", "0.parquet'"],
        ),
    ],
)
def test_files_of_a_folder_that_differ_are_refused_before_any_is_read(second, words, tmp_path):
    pq.write_table(ROWS, tmp_path / "0.parquet")
    pq.write_table(second, tmp_path / "1.parquet")
    batches = TWO.last(5).replay_batches(clicks=tmp_path, orders=ROWS)
    with pytest.raises(InputError) as error:
        next(batches)
    for word in words:
        assert word in str(error.value)


def test_files_of_a_folder_may_differ_in_what_is_not_needed(tmp_path):
    """Other columns, their order, and whether there may be nulls."""
    pq.write_table(ROWS, tmp_path / "0.parquet")
    never_null = pa.schema(
        [pa.field(name, pa.int64(), nullable=False) for name in ("x", "ts", "k")]
    )
    pq.write_table(pa.table({"x": [3], "ts": [2], "k": [1]}, never_null), tmp_path / "1.parquet")
    assert TWO.last(5).count(clicks=tmp_path, orders=ROWS).results == 2


def test_a_folder_may_have_more_files_than_can_be_open(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for number in range(100):
        pq.write_table(ROWS, tmp_path / f"{number}.parquet")
    taken = len([*Path("/proc/self/fd").iterdir()])
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 50, limits[1]))
    try:
        assert TWO.last(5).count(clicks=tmp_path, orders=ROWS).results == 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_numbers_may_be_of_any_real_type():
    said = TWO.last(5).keep(rows=9)
    assert said.estimate(rate=np.float32(0.5)) == said.estimate(rate=0.5)
    assert said.estimate(rate=np.int64(1)) == said.estimate(rate=1)
    with pytest.raises(SpecError, match="`rate` is True; give a number from 0 to 1"):
        said.estimate(rate=True)


def test_an_order_that_is_none():
    for order, said in (("random", "'random'"), (ROWS, "a Table")):
        with pytest.raises(SpecError, match=rf"is {said}; give 'time' or 'arrival'.*in a mapping"):
            TWO.last(5).replay(clicks=ROWS, orders=ROWS, order=order)


def test_explaining_for_no_shards():
    with pytest.raises(SpecError, match=r"explain\(\): `shards` is 0"):
        TWO.last(5).explain(clicks=ROWS, orders=ROWS, shards=0)
