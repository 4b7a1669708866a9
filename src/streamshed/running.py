"""How a join is run: planned for its inputs, here or on Spark."""

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
    from streamshed.plan.plan import Plan


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
class Running(Spec):
    """What can be done with a join that has been said."""

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
        from streamshed.plan.resolve import make_plan

        return make_plan(self, schemas)

    def replay(self, data: Any = None, /, *more: Any, **streams: Any) -> Replayed:
        """Run the join here, on Arrow data; see `streamshed.replay.replay`.

        Args:
            data: The input whose streams a column tells apart, or a mapping from streams to inputs.
            more: Nothing; who gives several inputs by position is told to name them.
            streams: Or the input of each stream.
        """
        self._check_named(more, "replay")
        # Runtimes stand above the join and are chosen late, hence no import statement.
        result: Replayed = importlib.import_module("streamshed.replay").replay(self, data, streams)
        return result

    def replay_batches(self, data: Any = None, /, *more: Any, **streams: Any) -> ReplayedBatches:
        """Run the join here, batch by batch; see `streamshed.replay.replay_batches`.

        Args:
            data: The input whose streams a column tells apart, or a mapping from streams to inputs.
            more: Nothing; who gives several inputs by position is told to name them.
            streams: Or the input of each stream.
        """
        self._check_named(more, "replay_batches")
        runtime = importlib.import_module("streamshed.replay")
        batches: ReplayedBatches = runtime.replay_batches(self, data, streams)
        return batches

    def count(self, data: Any = None, /, *more: Any, **streams: Any) -> Ledger:
        """Run the join here without building its results; the ledger counts them.

        Args:
            data: The input whose streams a column tells apart, or a mapping from streams to inputs.
            more: Nothing; who gives several inputs by position is told to name them.
            streams: Or the input of each stream.
        """
        self._check_named(more, "count")
        ledger: Ledger = importlib.import_module("streamshed.replay").count(self, data, streams)
        return ledger

    def stream(
        self,
        data: Mapping[str, DataFrame] | DataFrame | None = None,
        /,
        *more: DataFrame,
        shards: int | None = None,
        late_to: str | None = None,
        rates: Mapping[str, float] | None = None,
        **streams: DataFrame,
    ) -> DataFrame:
        """Run the join on Spark; see `streamshed.spark.stream`.

        Args:
            data: The DataFrame whose streams a column tells apart, or a mapping from streams to
                DataFrames.
            more: Nothing; who gives several DataFrames by position is told to name them.
            shards: In how many parts the join is done; as many as there are cores, unless said.
            late_to: A folder for the rows that come too late.
            rates: How many rows of each stream come, relative to the others, where streams share no
                key; counted if they do not stream, and taken for equal unless said.
            streams: Or the DataFrame of each stream.
        """
        self._check_named(more, "stream")
        frames = self._frames(data, streams)
        runtime = importlib.import_module("streamshed.spark")
        frame: DataFrame = runtime.stream(self, frames, shards, late_to, rates)
        return frame

    def stream_aggregate(
        self,
        of: str,
        data: Mapping[str, DataFrame] | DataFrame | None = None,
        /,
        *more: DataFrame,
        over: str | timedelta | int,
        every: str | timedelta | int | None = None,
        quantiles: Sequence[float] = (0.25, 0.5, 0.75),
        wait: str | timedelta | int | None = None,
        shards: int | None = None,
        **streams: DataFrame,
    ) -> DataFrame:
        """Aggregate the results on Spark; see `streamshed.spark.stream_aggregate`.

        Args:
            of: A column of the results, as in `"clicks.price"`.
            data: The DataFrame whose streams a column tells apart, or a mapping from streams to
                DataFrames.
            more: Nothing; who gives several DataFrames by position is told to name them.
            over: The length of a window of time.
            every: How far apart windows end; as long as they are if not said.
            quantiles: The parts of results for which the value is asked up to which they lie.
            wait: How far results may be behind the newest one: as far as they can be, unless said.
            shards: In how many parts the join is done.
            streams: Or the DataFrame of each stream.
        """
        self._check_named(more, "stream_aggregate")
        frames = self._frames(data, streams)
        runtime = importlib.import_module("streamshed.spark")
        frame: DataFrame = runtime.stream_aggregate(
            self, frames, of, over, every, quantiles, wait, shards
        )
        return frame

    def _check_named(self, more: Sequence[Any], method: str) -> None:
        """Refuse several inputs without names."""
        if more:
            named = ", ".join(f"{stream}=…" for stream in self.streams[:3])
            remedy = f"give each by its name, as in {method}({named})"
            if self.by is not None:
                remedy = f"give the one whose column {self.by!r} tells the streams apart"
            raise InputError(
                f"{method}(): {1 + len(more)} inputs were given by position, and which stream each "
                f"is of is not said; {remedy}"
            )

    def _frames(
        self, data: Mapping[str, DataFrame] | DataFrame | None, streams: Mapping[str, DataFrame]
    ) -> Mapping[str, DataFrame]:
        """The DataFrames that were given, by stream."""
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
        return given if isinstance(given, Mapping) else {"input": given}
