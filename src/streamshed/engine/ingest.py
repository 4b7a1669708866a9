"""From the user's Arrow columns to the few numbers that the loop works on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamshed.columns import plain_type, stream_names
from streamshed.engine.batch import (
    NO_ATTRIBUTES,
    NO_FLAGS,
    NO_NUMBERS,
    NO_VALUES,
    UNWEIGHTED,
    Batch,
)
from streamshed.engine.encoding import (
    FARTHEST,
    either,
    key_hash,
    mask_of,
    order_key,
    plain_values,
    times_of,
)
from streamshed.engine.match.comparison_columns import Compared
from streamshed.engine.match.probe_order import lookup_sets, most_attributes, own_attributes
from streamshed.engine.row_sizes import payload_bytes
from streamshed.errors import InputError, listed
from streamshed.kernels.core import NEVER
from streamshed.kernels.hashing import Secret, fold_hashes
from streamshed.kernels.merge import Runs, merge_rows, race_of, running_maximum
from streamshed.plan.plan import Plan, StreamPlan


class InputRows(NamedTuple):
    """Rows of one input, in the order of their arrival, as columns."""

    stream: npt.NDArray[np.int32]
    time: npt.NDArray[np.int64]
    hash: npt.NDArray[np.uint64]
    payload: npt.NDArray[np.int64]
    null: npt.NDArray[np.bool_]
    worth: npt.NDArray[np.int64]
    arrival_time: npt.NDArray[np.int64]
    """The largest time of the stream so far: where the row stands among the other streams'."""
    importance: npt.NDArray[np.float64] = UNWEIGHTED
    hashes: npt.NDArray[np.uint64] = NO_ATTRIBUTES
    visiting: npt.NDArray[np.bool_] = NO_FLAGS
    size: npt.NDArray[np.int64] = NO_NUMBERS
    values: npt.NDArray[Any] = NO_VALUES

    @classmethod
    def concatenated(cls, parts: Sequence[InputRows]) -> InputRows:
        """The rows of several parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        whole = [np.concatenate(columns) for columns in zip(*(p[:-1] for p in parts), strict=True)]
        if any(part.null.size for part in parts):
            whole[4] = np.concatenate([_or_none(part.null, part.time.size) for part in parts])
        return cls._make([*whole, concatenated_values([part.values for part in parts])])

    def part(self, start: int, end: int) -> InputRows:
        """The rows from a position to another."""
        return InputRows._make(column[start:end] if column.size else column for column in self)


class EncodedRows(NamedTuple):
    """Rows of one input before they have arrived: without a time of arrival, and a place.

    Where a column names the streams, `names` has its values, to be numbered by whoever takes them.
    """

    rows: InputRows
    no_time: npt.NDArray[np.bool_]
    names: pa.Array | None

    def take(self, order: npt.NDArray[np.int64]) -> EncodedRows:
        """The rows at some positions."""
        rows = InputRows._make(column[order] if column.size else column for column in self.rows)
        no_time = self.no_time[order] if self.no_time.size else self.no_time
        return EncodedRows(rows, no_time, None if self.names is None else self.names.take(order))


class StreamNames:
    """Numbers for streams that are named by a column, by its values; see `stream_names`.

    Args:
        number: the names that are known already, with their numbers.

    Attributes:
        new: names that were numbered since somebody took them from here.
    """

    def __init__(self, number: Mapping[Any, int] | None = None) -> None:
        self.number: dict[Any, int] = dict(number or {})
        self.new: list[Any] = [*self.number]
        self._set_free()

    def _set_free(self) -> None:
        """See which numbers are free; the smallest is taken first, also after a restart."""
        used = {*self.number.values()}
        self.free = [n for n in reversed(range(max(used, default=-1))) if n not in used]

    @property
    def size(self) -> int:
        """All numbers are below this one."""
        return len(self.number) + len(self.free)

    def numbers(self, values: pa.Array) -> npt.NDArray[np.int32]:
        """The number of each value; a new value gets one that is free, or the next one."""
        encoded = values.dictionary_encode(null_encoding="encode")
        names = stream_names(encoded.dictionary)
        known = np.array([self._number_of(name) for name in names], np.int32)
        numbers: npt.NDArray[np.int32] = known[encoded.indices.to_numpy()]
        return numbers

    def _number_of(self, name: Any) -> int:
        number = self.number.get(name)
        if number is None:
            number = self.free.pop() if self.free else len(self.number)
            self.number[name] = number
            self.new.append(name)
        return number

    def forget(self, numbers: npt.NDArray[np.int64]) -> None:
        """Forget the names that have some numbers, which others may have then."""
        gone = {*numbers.tolist()}
        self.number = {name: number for name, number in self.number.items() if number not in gone}
        self.new = [name for name in self.new if name in self.number]
        self._set_free()


@dataclass
class Ingest:
    """Reads the inputs of a join; remembers how far each has come."""

    plan: Plan
    names: StreamNames = field(default_factory=StreamNames)
    rows_seen: list[int] = field(default_factory=list)
    newest: list[int] = field(default_factory=list)
    disorder: int = 0
    """Rows that came behind their stream's newest time, so far."""
    compared: Compared = field(init=False)
    secret: Secret = field(init=False)

    def __post_init__(self) -> None:
        self.secret = self.plan.secret
        self.compared = Compared(self.plan)
        self.rows_seen = self.rows_seen or [0] * len(self.plan.streams)
        self.newest = self.newest or [-FARTHEST] * len(self.plan.streams)
        self.sets = lookup_sets(self.plan) if self.plan.graph else []

    def empty_batch(self) -> Batch:
        """A batch without rows, whose columns have the types that those of all batches have."""
        empty = Batch.empty()
        if self.plan.graph:
            width = most_attributes(self.plan)
            empty = empty._replace(hashes=np.empty((0, width), np.uint64))
        if self.plan.pairwise is not None:
            empty = empty._replace(values=self.compared.no_values())
        return empty

    def read(
        self, position: int, rows: pa.RecordBatch, payload: npt.NDArray[np.int64]
    ) -> InputRows:
        """Encode rows of the input at a position, in the order of their arrival.

        Nothing is remembered if the rows cannot be read.
        """
        return self.arrive(position, self.encode(position, rows), payload)

    def encode(self, position: int, rows: pa.RecordBatch) -> EncodedRows:
        """What can be said of rows of the input at a position whatever came before them."""
        stream = self.plan.streams[position]
        time, no_time = self._times(stream, rows, self.rows_seen[position])
        hashes = NO_ATTRIBUTES
        if stream.attributes:
            hashed, hashes, no_key = self._attributes(position, rows)
        else:
            hashed, no_key = self._keys(stream, stream.key, stream.key_types, rows)
        null = either(no_time, no_key)
        worth = NO_NUMBERS
        if stream.worth is not None:
            worth = order_key(plain_values(rows.column(stream.worth)), self._common_worth())
        importance = UNWEIGHTED
        if stream.weight is not None:
            importance, no_importance = _importances(stream, rows)
            null = either(null, no_importance)
        values = NO_VALUES
        if stream.compared:
            values, missing = self.compared.read(stream, rows, self.rows_seen[position])
            null = either(null, missing)
        names = None
        if self.plan.by is not None:
            names = plain_values(rows.column(self.plan.by))
            if names.null_count:
                null = either(null, mask_of(names.is_null()))
        size = NO_NUMBERS
        if self.plan.memory is not None:
            size = self.plan.memory.each + payload_bytes(rows.select(stream.schema.names))
            if stream.compared:  # what is compared is kept a second time
                size += math.prod(values.shape[1:]) * values.itemsize
        number = np.full(rows.num_rows, position, np.int32)
        columns = (number, time, hashed, NO_NUMBERS, null, worth, NO_NUMBERS)
        others = (importance, hashes, NO_FLAGS, size, values)
        return EncodedRows(InputRows(*columns, *others), no_time, names)

    def arrive(
        self, position: int, encoded: EncodedRows, payload: npt.NDArray[np.int64]
    ) -> InputRows:
        """Let rows come after those before them.

        Args:
            position: of their input.
            encoded: the rows.
            payload: the places where they are kept.
        """
        rows, number = encoded.rows, encoded.rows.stream
        if encoded.names is not None:
            number = self.names.numbers(encoded.names)
        arrival_time, behind = running_maximum(rows.time, encoded.no_time, self.newest[position])
        if rows.time.size:
            self.newest[position] = int(arrival_time[-1])
        self.rows_seen[position] += rows.time.size
        self.disorder += behind
        return rows._replace(stream=number, payload=payload, arrival_time=arrival_time)

    def _times(
        self, stream: StreamPlan, rows: pa.RecordBatch, first: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        if stream.time is None:
            return np.arange(first, first + rows.num_rows, dtype=np.int64), NO_FLAGS
        where = f"stream {stream.name!r}, column {stream.time!r}"
        return times_of(rows.column(stream.time), self.plan.time_type, where)

    def _keys(
        self,
        stream: StreamPlan,
        key: Sequence[str],
        types: Sequence[pa.DataType],
        rows: pa.RecordBatch,
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        try:
            return key_hash(rows, key, types, self.secret)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"stream {stream.name!r}, column {listed(key)}: a key cannot be read"
                f" ({error}); use values that fit {', '.join(map(str, types))}, the"
                " type in which the keys of all streams are compared"
            ) from error

    def _attributes(
        self, position: int, rows: pa.RecordBatch
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """The hash that rows are found by first, that of each attribute, and who has none.

        A row whose own columns of one attribute differ can match nothing.
        """
        stream = self.plan.streams[position]
        own = own_attributes(stream)
        hashes = np.empty((rows.num_rows, most_attributes(self.plan)), np.uint64)
        unfit = NO_FLAGS
        for column, number in enumerate(stream.attributes):
            place = own.index(number)
            key, kind = [stream.key[column]], [stream.key_types[column]]
            values, null = self._keys(stream, key, kind, rows)
            unfit = either(unfit, null)
            if number in stream.attributes[:column]:
                unfit = either(unfit, hashes[:, place] != values)
            hashes[:, place] = values
        first = self.sets[position][0]
        hashed = hashes[:, own.index(first[0])].copy()
        for number in first[1:]:
            fold_hashes(hashed, np.ascontiguousarray(hashes[:, own.index(number)]))
        return hashed, hashes, unfit

    def _common_worth(self) -> pa.DataType | None:
        """The type to compare worths in, where those of different types share a budget."""
        types = {
            plain_type(stream.schema.field(stream.worth).type)
            for stream in self.plan.streams
            if stream.worth is not None
        }
        if self.plan.total is None or len(types) == 1:
            return None
        in_time = any(pa.types.is_timestamp(kind) or pa.types.is_date(kind) for kind in types)
        return pa.timestamp("us") if in_time else pa.float64()


def _importances(
    stream: StreamPlan, rows: pa.RecordBatch
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """How important rows are, and of which that is not known (empty if of all)."""
    column = plain_values(rows.column(stream.weight)).cast(pa.float64(), safe=False)
    values: npt.NDArray[np.float64] = column.to_numpy(zero_copy_only=False)
    unknown = np.isnan(values)
    wrong = (values < 0) | (values == np.inf)
    if wrong.any():
        raise InputError(
            f"stream {stream.name!r}, column {stream.weight!r}: the importance"
            f" {values[wrong][0]} of a row is not a number of 0 or more; make it one"
        )
    return values, unknown if unknown.any() else NO_FLAGS


def merged(
    parts: Sequence[InputRows],
    spans: int = 1,
    side_by_side: Callable[[Callable[[Any], Any], Sequence[Any]], Any] = lambda work, items: [
        *map(work, items)
    ],
) -> Batch:
    """One batch of several inputs' rows, by (arrival time, input, order of arrival).

    Args:
        parts: the rows of each input.
        spans: the spans of time that are merged each by itself.
        side_by_side: does some work on each of several items, maybe at the same time.
    """
    if len(parts) == 1:
        only = parts[0]
        return Batch(*only[:6], *only[7:])
    cuts = cut_in_time([part.arrival_time for part in parts], spans)
    places = cuts.sum(axis=1).tolist()
    size = places[-1]
    attributed = any(part.hashes.size for part in parts)
    # Large arrays are made here, not in compiled code: NumPy asks for large pages, which come fast.
    columns = (
        np.empty(size, np.int32),
        np.empty(size, np.int64),
        np.empty(size, np.uint64),
        np.empty(size, np.int64),
        np.empty((size if attributed else 0, parts[0].hashes.shape[1]), np.uint64),
    )
    others = [name for name in _OTHERS if any(getattr(part, name).size for part in parts)]
    order = np.empty(size if others else 0, np.int64)
    firsts = np.concatenate([[0], np.cumsum([part.time.size for part in parts])])[:-1]

    def merge(span: int) -> None:
        these = slice(places[span], places[span + 1])
        runs = runs_of(parts, cuts[span], cuts[span + 1])
        taken = tuple(column[these] for column in columns)
        merge_rows(runs, race_of(len(parts)), firsts, order[these], *taken)

    side_by_side(merge, range(spans))
    batch = Batch(*columns[:4], NO_FLAGS, NO_NUMBERS, hashes=columns[4])
    values = concatenated_values([part.values for part in parts])
    batch = batch._replace(values=values[order] if values.size else values)
    for name in others:
        if name == "values":
            continue
        found = [getattr(part, name) for part in parts]
        if name == "null":
            found = [_or_none(part.null, part.time.size) for part in parts]
        batch = batch._replace(**{name: np.concatenate(found)[order]})
    return batch


_OTHERS = ("null", "worth", "importance", "size", "values")
"""Columns that not every join has."""


def runs_of(
    parts: Sequence[InputRows | Batch],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    arrival: str = "arrival_time",
) -> Runs:
    """A span of the rows of several inputs, to be merged; they must stay until that is done.

    Args:
        parts: the rows of each input.
        starts: where the span begins in each.
        ends: where it ends.
        arrival: the column by which they are merged.
    """
    names = ("stream", "time", "hash", "payload", arrival)
    columns = [
        [
            *(_address(getattr(part, name), part.time.size) for name in names),
            _address(part.hashes, part.hashes.shape[1] * part.time.size if part.hashes.size else 0),
        ]
        for part in parts
    ]
    return Runs(np.array(columns, np.int64).reshape(-1, len(names) + 1), starts, ends)


def _address(column: npt.NDArray[Any], rows: int) -> int:
    """Where a column begins in memory; it is read without any further check."""
    if column.size != rows or not column.flags.c_contiguous:
        raise ValueError(f"a column of {rows} rows to merge has {column.shape}, {column.strides}")
    return int(column.__array_interface__["data"][0])


def cut_in_time(times: Sequence[npt.NDArray[np.int64]], spans: int) -> npt.NDArray[np.int64]:
    """Where to cut each input so that all rows of a span come before those of the next."""
    cuts = np.zeros((spans + 1, len(times)), np.int64)
    longest = max(times, key=len)
    for span in range(1, spans):
        time = longest[span * longest.size // spans] if longest.size else 0
        cuts[span] = [np.searchsorted(own, time) for own in times]
    cuts[spans] = [own.size for own in times]
    return cuts


def concatenated_values(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """What is compared of the rows of several parts; all are of one type, rows or not."""
    width = max((part.shape[1] for part in parts if part.ndim == 2), default=0)
    if width == 0:
        return np.concatenate(parts)
    # Of an input without any vector yet it is not known how wide they are: its rows are all null.
    padded = [
        part if part.shape[1] == width else np.zeros((len(part), width), part.dtype)
        for part in parts
    ]
    return np.concatenate(padded)


def _or_none(mask: npt.NDArray[np.bool_], size: int) -> npt.NDArray[np.bool_]:
    return mask if mask.size else np.zeros(size, np.bool_)


def newest_time(plan: Plan, position: int, rows: pa.RecordBatch) -> int:
    """The newest time of rows of an input that can take part in the join; NEVER if there is none.

    As the clock knows it: rows that are filtered for what they lack do not move it.
    """
    stream = plan.streams[position]
    if stream.time is None or rows.num_rows == 0:
        return NEVER
    needed = [*stream.key, *stream.compared, *(name for name in (plan.by, stream.weight) if name)]
    time = plain_values(rows.column(stream.time))
    for name in needed:
        column = plain_values(rows.column(name))
        unknown = column.is_null(nan_is_null=name == stream.weight)
        if pc.any(unknown).as_py():
            time = pc.if_else(unknown, pa.scalar(None, time.type), time)
    newest = pc.max(time)
    if not newest.is_valid:
        return NEVER
    row = pc.index(time, newest).as_py()
    return int(Ingest(plan)._times(stream, rows.slice(row, 1), 0)[0][0])


def in_order_of_time(rows: InputRows) -> InputRows:
    """The rows of a batch whose order of arrival is not known, by time."""
    if (rows.time[1:] >= rows.time[:-1]).all():
        return rows._replace(arrival_time=rows.time)
    order = np.argsort(rows.time, kind="stable")
    columns = [column[order] if column.size else column for column in rows]
    return InputRows._make(columns)._replace(arrival_time=rows.time[order])
