"""The bytes of users' rows, as Arrow keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

Sizes = Any
"""Bits of each value of a column, as an array, or as a number if all are alike."""


def payload_bytes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The bytes of each row as Arrow keeps it: values, offsets, and a bit for null or not.

    They follow from the values and types alone, not from how rows lie in memory.
    """
    bits = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        bits += _bits_of(column)
    return -(-bits // 8)


def fixed_bits(kind: pa.DataType) -> int:
    """The bits of a value that do not depend on it, and that it is null or not."""
    if kinds.is_fixed_size_list(kind):
        return 1 + int(kind.list_size) * fixed_bits(kind.value_type)
    if kinds.is_struct(kind):
        return 1 + sum(fixed_bits(field.type) for field in kind)
    if kinds.is_dictionary(kind):
        return fixed_bits(kind.index_type)
    if isinstance(kind, pa.BaseExtensionType):
        return fixed_bits(kind.storage_type)
    if kinds.is_null(kind):
        return 0
    if kinds.is_list_view(kind) or kinds.is_large_list_view(kind):  # an offset, and a length
        return 1 + (64 if kinds.is_list_view(kind) else 128)
    try:
        return 1 + int(kind.bit_width)
    except ValueError:  # of varying width, found by offsets
        return 1 + (64 if _is_large(kind) else 32)


def is_varying(kind: pa.DataType) -> bool:
    """Whether values of a type take different numbers of bytes."""
    if kinds.is_fixed_size_list(kind):
        return is_varying(kind.value_type)
    if kinds.is_struct(kind):
        return any(is_varying(field.type) for field in kind)
    if isinstance(kind, pa.BaseExtensionType):
        return is_varying(kind.storage_type)
    if kinds.is_dictionary(kind):
        return True
    try:
        return not kinds.is_null(kind) and kind.bit_width < 0
    except ValueError:
        return True


def _is_large(kind: pa.DataType) -> bool:
    tests = (kinds.is_large_string, kinds.is_large_binary, kinds.is_large_list)
    return any(test(kind) for test in tests)


def _bits_of(column: pa.Array) -> Sizes:
    """The bits of each value of a column."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _bits_of(column.storage)
    if kinds.is_list_view(kind) or kinds.is_large_list_view(kind):
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        return fixed_bits(kind) + _in_lists(column.flatten(), np.cumsum([0, *lengths]))
    if kinds.is_struct(kind):
        return 1 + sum(_bits_of(child) for child in column.flatten())
    if kinds.is_dictionary(kind):
        values = np.broadcast_to(_bits_of(column.dictionary), len(column.dictionary))
        indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return fixed_bits(kind) + (values[indices] if len(values) else 0)
    if kinds.is_fixed_size_list(kind):
        size = kind.list_size
        child = column.values.slice(column.offset * size, len(column) * size)
        inner = np.broadcast_to(_bits_of(child), len(column) * size)
        return 1 + inner.reshape(len(column), size).sum(axis=1)
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_map(kind):
        return fixed_bits(kind) + _in_lists(column.values, column.offsets.to_numpy())
    if kinds.is_string(kind) or kinds.is_binary(kind) or _is_large(kind):
        width = np.int64 if _is_large(kind) else np.int32
        offsets = column.buffers()[1]
        if offsets is None or len(column) == 0:
            return fixed_bits(kind)
        ends = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
        return fixed_bits(kind) + 8 * np.diff(ends.astype(np.int64))
    return fixed_bits(kind)


def _in_lists(values: pa.Array, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bits of the elements of each list, given where the lists begin and end."""
    inner = np.broadcast_to(_bits_of(values), len(values))
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(inner)])
    return np.diff(before[offsets])
