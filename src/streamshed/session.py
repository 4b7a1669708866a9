"""The runtime for live data in this process: push rows, get results."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any, Literal

import pyarrow as pa

from streamshed.engine.blocks import Block, Late
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import InputRows, in_order_of_time, merged
from streamshed.engine.operator import Operator
from streamshed.engine.results import result_schema
from streamshed.errors import InputError, StateError, listed, suggestion
from streamshed.ledger import Ledger
from streamshed.plan.capabilities import check_runtime
from streamshed.plan.plan import StreamPlan
from streamshed.plan.resolve import make_plan
from streamshed.running import named_inputs
from streamshed.sources import check_order, check_shared, open_source, without_views
from streamshed.spec import Spec

logger = logging.getLogger("streamshed")


class Session:
    """A join that is running in this process; `Join.open` creates it.

    Push rows as they come; `push` returns the results. `snapshot` returns the whole state as bytes:
    `Join.open(schemas, state=...)` continues from there, in another process or after a crash. Then
    push the rows that came after the snapshot again.

    Example:
        >>> import pyarrow as pa
        >>> from streamshed import join
        >>> joined = join("views", "clicks").on("ad").within(60, time="ts").keep(rows=1000)
        >>> schema = pa.schema([("ad", pa.int64()), ("ts", pa.int64())])
        >>> with joined.open({"views": schema, "clicks": schema}) as session:
        ...     none = session.push(views=pa.table({"ad": [7, 8], "ts": [0, 5]}))
        ...     some = session.push(clicks=pa.table({"ad": [8], "ts": [20]}))
        ...     state = session.snapshot()
        >>> none.num_rows, some["time"].to_pylist()
        (0, [20])
        >>> session.ledger.streams["views"].stored
        2
    """

    def __init__(self, spec: Spec, schemas: Mapping[str, Any], state: bytes | None = None) -> None:
        check_runtime(spec, "open")
        if state is not None and not isinstance(state, bytes | bytearray | memoryview):
            raise StateError(
                f"open(): `state` is a {type(state).__name__}; give the bytes that "
                "Session.snapshot() returned"
            )
        plain = {
            name: without_views(schema) if isinstance(schema, pa.Schema) else schema
            for name, schema in schemas.items()
        }
        self._spec, self._schemas = spec, plain
        self._plan = make_plan(spec, plain)
        self._read_relation = monotonic()
        self._operator: Operator
        if state is None:
            self._operator = build_operator(self._plan)
        else:
            self._operator = restore_operator(self._plan, Snapshot.from_bytes(bytes(state)))
        self._positions = {stream.name: i for i, stream in enumerate(self._plan.streams)}
        self._begun_with = state if self._operator.has_left else None
        """The state, until rows are handed out that another budget has evicted of it."""
        self._referred = state is not None
        """Whether a state refers to files that were spilled to disk."""
        self._late: dict[str, list[pa.RecordBatch]] = {}
        self._ended: str | None = None
        self._last_ledger: Ledger | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of a result."""
        return result_schema(self._plan)

    def push(
        self, data: Any = None, /, *, order: Literal["time", "arrival"] = "time", **streams: Any
    ) -> pa.Table:
        """Process rows, and return the results that they complete.

        If the rows of one call cannot be read, an `InputError` says why, and none of them is
        processed.

        Args:
            data: The rows of the one input, with `join(by=...)`; or a mapping from streams to rows.
                Rows are a table, a frame, or anything else that `Join.replay` takes.
            order: `"time"` processes the rows of this call in the order of (time, stream, position
                in the input), like a micro-batch of Spark; `"arrival"` takes the rows of a stream
                as they stand, so that rows may be late within one call.
            streams: Or the rows of each stream; streams without new rows may be left out.

        Example:
            >>> import pyarrow as pa
            >>> from streamshed import join
            >>> joined = join("views", "clicks").on("ad").within(60, time="ts").keep(rows=1000)
            >>> rows = pa.table({"ad": [7, 8], "ts": [100, 5]})
            >>> with joined.open({"views": rows.schema, "clicks": rows.schema}) as session:
            ...     made = session.push(views=rows, clicks=rows)
            ...     late = session.push(views=rows.slice(1), clicks=rows.slice(1)), session.late
            >>> made["time"].to_pylist(), late[1]["views"]["ts"].to_pylist()
            ([5, 100], [5])
        """
        self._running()
        check_order(order, "push")
        only = self._plan.streams[0].name
        given = named_inputs(self._spec, data, (), streams, "push", only)
        check_shared(given)
        self._refresh()
        operator = self._running()
        tables = {self._position(name): self._batches(name, rows) for name, rows in given.items()}
        parts = self._read(operator, dict(sorted(tables.items())))
        self._late = {}
        if not parts:
            return self.schema.empty_table()
        if order == "time":
            parts = [in_order_of_time(part) for part in parts]
        return self._results(operator, operator.process(merged(parts)))

    def finish(self) -> pa.Table:
        """End the input, and return results that still wait: on disk (`spill`), or unmatched.

        Example:
            >>> import pyarrow as pa
            >>> from streamshed import join
            >>> joined = join("views", "clicks").on("ad").within(60, time="ts").unmatched("views")
            >>> rows = pa.table({"ad": [7], "ts": [100]})
            >>> with joined.open({"views": rows.schema, "clicks": rows.schema}) as session:
            ...     made = session.push(views=rows)
            ...     session.finish().select(["views", "clicks"]).to_pylist()
            [{'views': {'ad': 7, 'ts': 100}, 'clicks': None}]
        """
        operator = self._running()
        made = self._results(operator, operator.finish())
        self._referred = False
        self._ended = "finished"
        return made

    @property
    def late(self) -> Mapping[str, pa.Table]:
        """The rows of the last `push` that were too late, by input."""
        return {name: pa.Table.from_batches(rows) for name, rows in self._late.items()}

    @property
    def ledger(self) -> Ledger:
        """The ledger so far."""
        return self._operator.ledger() if self._last_ledger is None else self._last_ledger

    def snapshot(self) -> bytes:
        """Return the state of the session, to continue from with `Join.open(schemas, state=...)`.

        A join that spills keeps its rows on disk: the state refers to the files there, which stay
        until the next snapshot, or until the session that continues from it ends.
        """
        operator = self._running()
        if self._begun_with is not None:
            return bytes(self._begun_with)
        state = operator.snapshot().to_bytes()
        self._referred = True
        return state

    def close(self) -> None:
        """End the session; a closed session still has its ledger."""
        if self._last_ledger is not None:
            return
        self._last_ledger = self._operator.ledger()
        self._ended = self._ended or "closed"
        self._operator.close(referred=self._referred)
        del self._operator

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> Operator:
        if self._ended is not None:
            raise StateError(
                f"the session has {self._ended}; open another one, from the last snapshot with "
                ".open(schemas, state=…)"
            )
        return self._operator

    def _refresh(self) -> None:
        """Read the relation, or the table among the inputs, anew, if it is time."""
        through = self._spec.through_relation
        relation = None if through is None else through.relation
        if through is None or relation is None or relation.refresh is None:
            return
        if monotonic() - self._read_relation < relation.refresh / 1e6:
            return
        self._read_relation = monotonic()
        try:
            spec = replace(self._spec, through_relation=replace(through, relation=relation.anew()))
            plan = make_plan(spec, self._schemas)
            self._operator = restore_operator(plan, self._operator.snapshot())
        except (InputError, OSError) as error:
            logger.warning(
                "%s %r cannot be read anew (%s); rows match what was read before",
                relation.what,
                relation.name,
                error,
            )
            return
        self._plan = plan

    def _position(self, name: str) -> int:
        if name not in self._positions:
            raise InputError(
                f"push(): there is no stream {name!r} in the join; its streams are "
                f"{listed(self._positions)}.{suggestion(name, self._positions)}"
            )
        return self._positions[name]

    def _batches(self, name: str, rows: Any) -> list[pa.RecordBatch]:
        """The rows of a stream, with the columns that the join needs."""
        source = open_source(name, rows)
        stream = self._plan.streams[self._positions[name]]
        _check_types(stream, source.schema)
        return [
            pa.RecordBatch.from_arrays(batch.columns, schema=stream.schema)
            for batch in source.of(stream.schema).batches()
            if batch.num_rows
        ]

    def _read(
        self, operator: Operator, tables: Mapping[int, list[pa.RecordBatch]]
    ) -> list[InputRows]:
        """Read the rows of one call; if some cannot be read, none has been seen."""
        ingest = operator.ingest
        seen = list(ingest.rows_seen), list(ingest.newest), ingest.disorder
        try:
            return [
                InputRows.concatenated([operator.read(position, rows) for rows in batches])
                for position, batches in tables.items()
                if batches
            ]
        except Exception:
            ingest.rows_seen, ingest.newest, ingest.disorder = seen
            raise

    def _results(self, operator: Operator, found: Iterator[Block | Late]) -> pa.Table:
        """The results of a part of the input; if it fails midway, the session is over."""
        made: list[pa.RecordBatch] = []
        self._begun_with = None
        try:
            for one in found:
                if isinstance(one, Block):
                    made.append(operator.results(one))
                else:
                    for position, rows in operator.late_rows(one):
                        name = self._plan.streams[position].name
                        self._late.setdefault(name, []).append(rows)
            operator.compact()
        except BaseException:
            self._ended = "failed"
            raise
        return pa.Table.from_batches(made, self.schema)


def _check_types(stream: StreamPlan, found: pa.Schema) -> None:
    """Refuse rows of other columns, or types, than the session was opened for."""
    for field in stream.schema:
        if field.name not in found.names:
            raise InputError(
                f"push(): the rows of stream {stream.name!r} have no column {field.name!r}; they "
                f"have {listed(found.names)}.{suggestion(field.name, found.names)}"
            )
        kind = found.field(field.name).type
        if kind != field.type:
            raise InputError(
                f"push(): column {field.name!r} of stream {stream.name!r} is of type {kind}, but "
                f"the session was opened for {field.type}; cast it"
            )
