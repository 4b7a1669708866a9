"""What rows are compared by, two by two: from Arrow columns to numbers, vectors and records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as is_a

from streamshed.columns import plain_type
from streamshed.conditions import Cosine, InnerProduct, Where
from streamshed.errors import InputError

if TYPE_CHECKING:
    from streamshed.plan.plan import Plan, StreamPlan

NOTHING: npt.NDArray[np.bool_] = np.empty(0, np.bool_)


@dataclass
class Compared:
    """Reads the columns that are compared.

    Args:
        plan: the join.
        width: the number of elements that all vectors have; 0 as long as none has come.
    """

    plan: Plan
    width: int = 0

    @property
    def vectors(self) -> bool:
        """Whether rows are compared by vectors."""
        return isinstance(self.plan.pairwise, Cosine | InnerProduct)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a number, of the elements of a vector, or of a record."""
        if isinstance(self.plan.pairwise, Where):
            names = self.plan.pairwise.columns.everywhere or ()
            return np.dtype([(name, self._field(name)) for name in names], align=True)
        if not self.vectors:
            return np.dtype(np.float64)
        kinds = [s.schema.field(s.compared[0]).type.value_type for s in self.plan.streams]
        single = all(is_a.is_float32(kind) or is_a.is_float16(kind) for kind in kinds)
        return np.dtype(np.float32 if single else np.float64)

    def no_values(self) -> npt.NDArray[Any]:
        """What is compared of no row, in the type of what is compared of rows."""
        return np.empty((0, max(1, self.width)) if self.vectors else 0, self.dtype)

    def _field(self, name: str) -> type[np.generic]:
        """The type of a field of a record: one that holds what all streams have there."""
        kinds = [plain_type(stream.schema.field(name).type) for stream in self.plan.streams]
        if all(is_a.is_boolean(kind) for kind in kinds):
            return np.bool_
        return np.float64 if any(is_a.is_floating(kind) for kind in kinds) else np.int64

    def read(
        self, stream: StreamPlan, rows: pa.RecordBatch, first: int
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """What is compared of rows, and which of them have a null in it (empty if none).

        Args:
            stream: of which the rows are.
            rows: the rows.
            first: the number of the first of them in its stream.

        Raises:
            InputError: if a value is no finite number, or vectors differ in length.
        """
        null = NOTHING
        for name in stream.compared:
            column = rows.column(name)
            if column.null_count:
                absent = column.is_null().to_numpy(zero_copy_only=False)
                null = null | absent if null.size else absent
        where = f"stream {stream.name!r}, column {stream.compared[0]!r}"
        if self.vectors:
            self._check_widths(rows.column(stream.compared[0]), where, first)
        values = self._values(stream, rows)
        for name in stream.compared:
            numbers = values[name] if values.dtype.names else values
            if numbers.dtype.kind == "f":
                _check_finite(numbers, f"stream {stream.name!r}, column {name!r}", first)
        return values, null

    def _check_widths(self, column: pa.Array, where: str, first: int) -> None:
        if is_a.is_fixed_size_list(column.type):
            widths = np.full(len(column), column.type.list_size, np.int64)
        else:
            widths = column.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
        if column.null_count:
            widths = np.where(column.is_null().to_numpy(zero_copy_only=False), -1, widths)
        known = widths[widths >= 0]
        if not known.size:
            return
        width = self.width or int(known[0])
        wrong = np.flatnonzero((widths >= 0) & (widths != width))
        if wrong.size or width == 0:
            row = int(wrong[0]) if wrong.size else int(np.flatnonzero(widths == 0)[0])
            raise InputError(
                f"{where}, row {first + row}: the vector has {widths[row]} elements, and others "
                f"have {width}; give all vectors the same number of elements, 1 or more"
            )
        self.width = width

    def _values(self, stream: StreamPlan, rows: pa.RecordBatch) -> npt.NDArray[Any]:
        """The values of rows, 0 where there are none; vectors one below the other."""
        kind = self.dtype
        if isinstance(self.plan.pairwise, Where):
            records = np.zeros(rows.num_rows, kind)
            for name in stream.compared:
                records[name] = _numbers(rows.column(name), kind[name])
            return records
        if not self.vectors:
            return _numbers(rows.column(stream.compared[0]), kind)
        column = rows.column(stream.compared[0])
        vectors = np.zeros((len(column), max(1, self.width)), kind)
        if self.width == 0:  # none but nulls so far
            return vectors
        flat = column.flatten()
        if flat.null_count:
            raise InputError(
                f"stream {stream.name!r}, column {stream.compared[0]!r}: a vector has a null among "
                "its elements; fill it"
            )
        there = slice(None)
        if column.null_count:
            there = column.is_valid().to_numpy(zero_copy_only=False)
        vectors[there] = flat.to_numpy(zero_copy_only=False).reshape(-1, self.width)
        return vectors


def _check_finite(values: npt.NDArray[Any], where: str, first: int) -> None:
    finite = np.isfinite(values)
    if finite.all():
        return
    row = np.argwhere(~finite)[0]
    raise InputError(
        f"{where}, row {first + int(row[0])}: {values[tuple(row)]} cannot be compared; leave such "
        "rows out, or make it null, and the row is filtered"
    )


def _numbers(column: pa.Array, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    plain = column.cast(plain_type(column.type))
    if plain.null_count:
        plain = plain.fill_null(False if is_a.is_boolean(plain.type) else 0)
    numbers: npt.NDArray[Any] = plain.to_numpy(zero_copy_only=False).astype(kind)
    return numbers
