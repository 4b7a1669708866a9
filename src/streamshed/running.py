"""A join is run: checked against its inputs, here or on Spark."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from streamshed.errors import InputError, listed
from streamshed.spec import Spec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from streamshed.ledger import Ledger
    from streamshed.operators.plan import Plan


class Replayed(Protocol):
    """What `Join.replay` gives back."""

    @property
    def table(self) -> pa.Table:
        """The results: one struct column per stream, as far as selected, and `time`."""

    @property
    def ledger(self) -> Ledger:
        """What became of every row."""

    def aggregate(
        self,
        of: str,
        over: str | timedelta | int,
        every: str | timedelta | int | None = None,
        quantiles: Sequence[float] = ...,
    ) -> pa.Table:
        """Aggregates of a column in windows of time; see `streamshed.replay.Replay.aggregate`."""


class ReplayedBatches(Protocol):
    """What `Join.replay_batches` gives back: record batches, made as they are asked for."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of a result."""

    @property
    def ledger(self) -> Ledger:
        """What became of the rows so far."""

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def __next__(self) -> pa.RecordBatch: ...


@dataclass(frozen=True, slots=True, repr=False)
class Runnable(Spec):
    """What was said of a join, and what can be done with it."""

    def plan(self, schemas: Mapping[str, pa.Schema]) -> Plan:
        """Check the join against the schemas of its inputs, and resolve it to plain numbers.

        Args:
            schemas: The schema of every stream; for streams told apart by a column, that of the
                one input, under any name.

        Example:
            >>> import pyarrow as pa
            >>> from streamshed import join
            >>> schema = pa.schema([("k", pa.int32()), ("ts", pa.timestamp("s"))])
            >>> said = join("a", "b").on("k").within("1 minute", time="ts")
            >>> said.plan({"a": schema, "b": schema}).streams[0].window
            60000000
        """
        from streamshed.planning import make_plan

        return make_plan(self, schemas)

    def replay(self, data: Any = None, /, **streams: Any) -> Replayed:
        """Run the join here, on Arrow data; see `streamshed.replay.replay`.

        Args:
            data: The input whose streams a column tells apart, or a mapping from streams to inputs.
            streams: Or the input of each stream.
        """
        # Runtimes stand above the join and are chosen late, hence no import statement.
        result: Replayed = importlib.import_module("streamshed.replay").replay(self, data, streams)
        return result

    def replay_batches(self, data: Any = None, /, **streams: Any) -> ReplayedBatches:
        """Run the join here, batch by batch; see `streamshed.replay.replay_batches`.

        Args:
            data: The input whose streams a column tells apart, or a mapping from streams to inputs.
            streams: Or the input of each stream.
        """
        runtime = importlib.import_module("streamshed.replay")
        batches: ReplayedBatches = runtime.replay_batches(self, data, streams)
        return batches

    def count(self, data: Any = None, /, **streams: Any) -> Ledger:
        """Run the join here without building its results; the ledger counts them.

        Args:
            data: The input whose streams a column tells apart, or a mapping from streams to inputs.
            streams: Or the input of each stream.
        """
        ledger: Ledger = importlib.import_module("streamshed.replay").count(self, data, streams)
        return ledger

    def stream(
        self,
        data: Mapping[str, DataFrame] | DataFrame | None = None,
        /,
        *,
        shards: int | None = None,
        late_to: str | None = None,
        **streams: DataFrame,
    ) -> DataFrame:
        """Run the join on Spark; see `streamshed.spark.stream`.

        Args:
            data: The DataFrame whose streams a column tells apart, or a mapping from streams to
                DataFrames.
            shards: In how many parts the join is done; as many as there are cores, unless said.
            late_to: A folder for the rows that come too late.
            streams: Or the DataFrame of each stream.
        """
        if data is not None and streams:
            raise InputError(
                "inputs were given both by position and by name; give them by name, as in"
                " stream(a=…, b=…), or one mapping or DataFrame by position"
            )
        given = data if data is not None else streams
        if self.by is None and not isinstance(given, Mapping):
            raise InputError(
                f"one input was given by position, but the join has the streams"
                f" {listed(self.streams)}; give each by its name, as in"
                f" stream({self.streams[0]}=…)"
            )
        frames = given if isinstance(given, Mapping) else {"input": given}
        runtime = importlib.import_module("streamshed.spark")
        frame: DataFrame = runtime.stream(self, frames, shards, late_to)
        return frame
