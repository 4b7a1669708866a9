"""How to run a join: plan it for its inputs, then run it in this process or on Spark."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from streamshed.errors import InputError, listed
from streamshed.spec import Spec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from streamshed.explanation import Explanation
    from streamshed.ledger import Ledger
    from streamshed.plan.plan import Plan
    from streamshed.relations import Table
    from streamshed.replay import Batches, Replay
    from streamshed.session import Session
    from streamshed.tuning import Tuning


@dataclass(frozen=True, repr=False)
class Running:
    """The methods of a join that run it.

    They import runtimes by name when they are called: runtimes are in a layer above the join, and
    import Arrow, the compiler or Spark.
    """

    _spec: Spec

    def plan(self, schemas: Mapping[str, pa.Schema] | pa.Schema) -> Plan:
        """Check the join against the schemas of its inputs without running it.

        Args:
            schemas: The schema of every stream; with `join(by=...)`, that of the one input.

        Returns:
            The plan, with durations and budgets as numbers.

        Example:
            >>> import pyarrow as pa
            >>> from streamshed import join
            >>> schema = pa.schema([("k", pa.int32()), ("ts", pa.timestamp("s"))])
            >>> said = join("a", "b").on("k").within("1 minute", time="ts")
            >>> said.plan({"a": schema, "b": schema}).streams[0].window
            60000000
        """
        from streamshed.engine.memory import within_memory
        from streamshed.plan.resolve import make_plan

        return within_memory(make_plan(*with_table(self._spec, _named_schemas(schemas))))

    def explain(
        self, data: Any = None, /, *more: Any, shards: int = 1, **streams: Any
    ) -> Explanation:
        """Describe how the join will run, and how much memory it will need, without running it.

        Args:
            data: The schema or the input of the one stream, with `join(by=...)`; or a mapping from
                streams to schemas or inputs.
            more: Not allowed; name several inputs.
            shards: The number of shards on Spark for which to divide the budget.
            streams: Or the schema or the input of each stream.

        Example:
            >>> import pyarrow as pa
            >>> from streamshed import join
            >>> schema = pa.schema([("k", pa.int32()), ("ts", pa.timestamp("s"))])
            >>> joined = join("a", "b").on("k").within("1 minute", time="ts").keep(rows=1000)
            >>> print(joined.explain(a=schema, b=schema))  # doctest: +ELLIPSIS
            join('a', 'b').on('k').within('1 minute', time='ts').keep(rows=1000)
            match     rows with equal keys (a.k = b.k), found in a hash table
            ...
        """
        given = named_inputs(self._spec, data, more, streams, "explain")
        explanation: Explanation = importlib.import_module("streamshed.explanation").explain(
            *with_table(self._spec, given), shards
        )
        return explanation

    def replay(
        self,
        data: Any = None,
        /,
        *more: Any,
        order: Literal["time", "arrival"] = "time",
        shards: int | None = None,
        **streams: Any,
    ) -> Replay:
        """Run the join in this process over whole inputs, and return all its results.

        An input is an Arrow table, record batch or reader, a pandas or Polars frame, a DuckDB
        relation, the path of a Parquet file, an iterator of record batches, or a Spark DataFrame
        that does not stream.

        Args:
            data: The one input, with `join(by=...)`; or a mapping from streams to inputs.
            more: Not allowed; name several inputs.
            order: `"time"` sorts the rows of tables and frames by time; `"arrival"` takes them as
                they stand, so that rows may come late. Readers, iterators and Parquet files are
                always read as they stand.
            shards: The number of shards, 1 by default. Each runs in its own thread with its part of
                the budget, and makes the results that a shard makes on Spark.
            streams: Or the input of each stream.

        Example:
            >>> import pyarrow as pa
            >>> from streamshed import join
            >>> views = pa.table({"ad": [7, 8], "ts": [0, 5]})
            >>> clicks = pa.table({"ad": [8], "ts": [20]})
            >>> joined = join("views", "clicks").on("ad").within(60, time="ts")
            >>> result = joined.replay(views=views, clicks=clicks)
            >>> result.table.to_pylist()
            [{'views': {'ad': 8, 'ts': 5}, 'clicks': {'ad': 8, 'ts': 20}, 'time': 20}]
            >>> result.ledger.streams["views"].stored
            2
        """
        given = named_inputs(self._spec, data, more, streams, "replay")
        runtime = importlib.import_module("streamshed.replay")
        result: Replay = runtime.replay(*with_table(self._spec, given), order, shards)
        return result

    def replay_batches(
        self,
        data: Any = None,
        /,
        *more: Any,
        order: Literal["time", "arrival"] = "time",
        shards: int | None = None,
        **streams: Any,
    ) -> Batches:
        """Run the join in this process, and return its results as an iterator of record batches.

        Use it for archives larger than memory.

        Args:
            data: The one input, with `join(by=...)`; or a mapping from streams to inputs.
            more: Not allowed; name several inputs.
            order: The order of the rows of tables and frames; see `replay`.
            shards: The number of shards; see `replay`.
            streams: Or the input of each stream.

        Example:
            >>> import pyarrow as pa
            >>> from streamshed import join
            >>> rows = pa.table({"k": [1, 2, 1], "ts": [0, 5, 9]})
            >>> joined = join("a", "b").on("k").within(5, time="ts")
            >>> batches = joined.replay_batches(a=rows.to_reader(), b=rows.to_reader())
            >>> sum(batch.num_rows for batch in batches), batches.ledger.results
            (3, 3)
        """
        given = named_inputs(self._spec, data, more, streams, "replay_batches")
        runtime = importlib.import_module("streamshed.replay")
        batches: Batches = runtime.replay_batches(*with_table(self._spec, given), order, shards)
        return batches

    def count(
        self,
        data: Any = None,
        /,
        *more: Any,
        order: Literal["time", "arrival"] = "time",
        shards: int | None = None,
        **streams: Any,
    ) -> Ledger:
        """Run the join in this process without building its results, and return the ledger.

        Args:
            data: The one input, with `join(by=...)`; or a mapping from streams to inputs.
            more: Not allowed; name several inputs.
            order: The order of the rows of tables and frames; see `replay`.
            shards: The number of shards; see `replay`.
            streams: Or the input of each stream.

        Example:
            >>> import pyarrow as pa
            >>> from streamshed import join
            >>> rows = pa.table({"k": [1, 2, 1], "ts": [0, 5, 9]})
            >>> ledger = join("a", "b").on("k").within(5, time="ts").count(a=rows, b=rows)
            >>> ledger.results, ledger.streams["a"].arrived
            (3, 3)
        """
        given = named_inputs(self._spec, data, more, streams, "count")
        runtime = importlib.import_module("streamshed.replay")
        ledger: Ledger = runtime.count(*with_table(self._spec, given), order, shards=shards)
        return ledger

    def tune(
        self,
        data: Any = None,
        /,
        *more: Any,
        recall: float = 0.95,
        policies: Sequence[str] | None = None,
        budgets: Sequence[int] | None = None,
        sample: float | None = None,
        sampled: float = 1.0,
        order: Literal["time", "arrival"] = "time",
        **streams: Any,
    ) -> Tuning:
        """Try policies and budgets on an archive, and recommend the smallest budget for a recall.

        Args:
            data: The one input, with `join(by=...)`; or a mapping from streams to inputs.
            more: Not allowed; name several inputs.
            recall: The share of all results that you want.
            policies: The names of the policies to try; by default up to five that fit the join.
            budgets: The budgets to try, in rows of all streams together; by default six fractions
                of the most rows that the join holds without a budget.
            sample: The share of the keys to replay; by default all, or as many as take about a
                minute.
            sampled: The share of all keys that the archive contains, if it is itself a sample, such
                as one by `streamshed sample`; budgets and memory are scaled to all keys.
            order: The order of the rows of tables and frames; see `replay`.
            streams: Or the input of each stream.

        Example:
            >>> import pyarrow as pa
            >>> from streamshed import join
            >>> rows = pa.table({"k": [i * i % 97 for i in range(2000)], "ts": range(2000)})
            >>> joined = join("a", "b").on("k").within(200, time="ts")
            >>> tuned = joined.tune(a=rows, b=rows, recall=0.3, policies=["random"])
            >>> tuned.join.shed("random") == tuned.join
            True
        """
        given = named_inputs(self._spec, data, more, streams, "tune")
        tuned: Tuning = importlib.import_module("streamshed.tuning").tune(
            self._spec, given, recall, policies, budgets, sample, order, sampled
        )
        return tuned

    def open(
        self,
        schemas: Mapping[str, pa.Schema] | pa.Schema,
        /,
        *,
        state: bytes | None = None,
    ) -> Session:
        """Open a session, which joins live data in this process without Spark.

        Args:
            schemas: The schema of every stream; with `join(by=...)`, that of the one input.
            state: The bytes that `Session.snapshot` returned, to continue from there.

        Example:
            >>> import pyarrow as pa
            >>> from streamshed import join
            >>> joined = join("views", "clicks").on("ad").within(60, time="ts").select("clicks.ts")
            >>> schema = pa.schema([("ad", pa.int64()), ("ts", pa.int64())])
            >>> schemas = {"views": schema, "clicks": schema}
            >>> with joined.open(schemas) as session:
            ...     made = session.push(views=pa.table({"ad": [7, 8], "ts": [0, 5]}))
            ...     state = session.snapshot()
            >>> made.num_rows
            0
            >>> with joined.open(schemas, state=state) as session:
            ...     session.push(clicks=pa.table({"ad": [8], "ts": [20]})).to_pylist()
            [{'clicks': {'ts': 20}, 'time': 20}]
        """
        session: Session = importlib.import_module("streamshed.session").Session(
            *with_table(self._spec, _named_schemas(schemas)), state
        )
        return session

    def stream(
        self,
        data: Mapping[str, DataFrame | Table] | DataFrame | None = None,
        /,
        *more: DataFrame | Table,
        shards: int | None = None,
        late_to: str | None = None,
        rates: Mapping[str, float] | None = None,
        resume: str | None = None,
        **streams: DataFrame | Table,
    ) -> DataFrame:
        """Run the join on Spark, as a DataFrame: streaming if the inputs stream, batch otherwise.

        Args:
            data: The one DataFrame, with `join(by=...)`; or a mapping from streams to DataFrames.
            more: Not allowed; name several DataFrames.
            shards: The number of shards; by default `spark.sql.shuffle.partitions`, but at most 16,
                and 1 for row windows and for streams that match different columns of a relation.
            late_to: A folder for the rows that come too late, one Parquet file for each batch and
                shard: a path that all executors can write to, or a URI (`s3://...`).
            rates: The relative rates of the streams, equal by default. Joins whose streams share no
                key copy rows to several shards, and use the rates to copy as few as possible.
            resume: A savepoint to start with: the folder that `streamshed savepoint` wrote. Give
                the query a new checkpoint, and start its sources at the positions in the savepoint.
                After the first batch, the query continues from its own checkpoint.
            streams: Or the DataFrame of each stream. If other inputs stream, a DataFrame that does
                not stream is a static table, as by `table`: its rows match at any time.
        """
        given = _with_frames_as_tables(named_inputs(self._spec, data, more, streams, "stream"))
        runtime = importlib.import_module("streamshed.spark.streaming")
        frame: DataFrame = runtime.stream(
            *with_table(self._spec, given), shards, late_to, rates, resume
        )
        return frame


def _named_schemas(schemas: Mapping[str, pa.Schema] | pa.Schema) -> Mapping[str, pa.Schema]:
    """The schemas by stream; a single one is that of the one input, with `join(by=...)`."""
    return schemas if isinstance(schemas, Mapping) else {"input": schemas}


def named_inputs(
    spec: Spec,
    data: Any,
    more: Sequence[Any],
    streams: Mapping[str, Any],
    method: str,
    only: str = "input",
) -> Mapping[str, Any]:
    """The inputs by stream, however they were given.

    Args:
        spec: the join.
        data: what was given by position: the one input, or a mapping.
        more: what else was given by position.
        streams: what was given by name.
        method: to which it was given, as it shall stand in a message.
        only: the name of the one input, with `join(by=...)`.
    """
    named = ", ".join(f"{stream}=…" for stream in spec.streams[:3])
    remedy = f"name each, as in {method}({named})"
    if spec.by is not None:
        remedy = f"give the one whose column {spec.by!r} names the streams"
    if more:
        raise InputError(
            f"{method}(): {1 + len(more)} inputs were given by position, which does not say "
            f"which stream each is of; {remedy}"
        )
    if data is not None and streams:
        raise InputError(
            f"{method}(): inputs were given both by position and by name; {remedy}, or give "
            "one mapping by position"
        )
    if data is None or isinstance(data, Mapping):
        return streams if data is None else data
    if spec.by is None:
        raise InputError(
            f"{method}(): one input was given by position, but the join has the streams "
            f"{listed(spec.streams)}; {remedy}"
        )
    return {only: data}


def with_table(spec: Spec, data: Mapping[str, Any]) -> tuple[Spec, Mapping[str, Any]]:
    """The join through a table among its inputs, and the others; see `plan.tables`."""
    from streamshed.plan import tables

    return tables.with_table(spec, data)


def _with_frames_as_tables(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs on Spark: a DataFrame that does not stream is a table if others do."""
    from streamshed.relations import table

    if not any(getattr(frame, "isStreaming", False) for frame in data.values()):
        return data
    return {
        name: frame if getattr(frame, "isStreaming", True) else table(frame)
        for name, frame in data.items()
    }
