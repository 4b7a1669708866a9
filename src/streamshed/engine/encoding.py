"""Columns as the 64-bit words that the loop compares: times, keys, and what rows are worth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamshed.columns import plain_type
from streamshed.engine.batch import NO_FLAGS
from streamshed.errors import InputError
from streamshed.kernels.hashing import Secret, append_words, hash_strings, hash_words

FARTHEST = 2**61
"""Times beyond this would overflow when they are compared."""


def times_of(
    column: pa.Array, kind: pa.DataType, where: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The times in a column, and which are null (empty if none).

    Args:
        column: the times.
        kind: the type in which times are compared.
        where: the column, as it shall stand in a message.
    """
    plain = plain_values(column)
    null = mask_of(plain.is_null()) if plain.null_count else NO_FLAGS
    try:
        times = _words(plain.cast(options=_to_coarser(kind)), 0)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{where}: a time cannot be read ({error}); use times that fit {kind}"
        ) from error
    if times.size and (times.min() < -FARTHEST or times.max() > FARTHEST):
        worst = times[np.argmax(np.abs(times.astype(np.float64)))]
        raise InputError(f"{where}: the time {worst} is beyond ±2^61; use a coarser unit")
    return times, null


def key_hash(
    rows: pa.RecordBatch, columns: Sequence[str], types: Sequence[pa.DataType], secret: Secret
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """The hash of each row's key, and which keys are null (empty if none)."""
    hashed: npt.NDArray[np.uint64] | None = None
    null = NO_FLAGS
    for name, kind in zip(columns, types, strict=True):
        column = plain_values(rows.column(name)).cast(kind)
        if column.null_count:
            null = either(null, mask_of(column.is_null()))
        for words, are_hashes in _key_words(column, secret):
            if hashed is None:
                hashed = words if are_hashes else hash_words(words, secret)
            else:
                append_words(hashed, words, secret)
    return np.zeros(rows.num_rows, np.uint64) if hashed is None else hashed, null


def needs_check(types: Sequence[pa.DataType]) -> bool:
    """Whether different keys could have equal hashes: not if a key is a single word, or none."""
    if not types:
        return False
    return len(types) > 1 or not _fixed(types[0]) or types[0].bit_width > 64


def _fixed(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def _key_words(column: pa.Array, secret: Secret) -> list[tuple[npt.NDArray[np.uint64], bool]]:
    """A key column as one or more columns of 64-bit words, and whether these are hashes already."""
    kind = column.type
    if pa.types.is_decimal(kind):
        words = np.frombuffer(column.buffers()[1], np.uint64)
        wide = kind.bit_width // 64
        used = words[column.offset * wide : (column.offset + len(column)) * wide]
        return [(np.ascontiguousarray(used[word::wide]), False) for word in range(wide)]
    if _fixed(kind):
        return [(_words(column, 0).view(np.uint64), False)]
    large = column.cast(pa.large_binary())
    _, offsets, data = large.buffers()
    positions = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return [(hash_strings(positions, content, secret), True)]


def _words(column: pa.Array, null: int) -> npt.NDArray[np.int64]:
    """A fixed-width column as 64-bit integers."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date64(column.type):
        column = column.view(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    elif pa.types.is_uint64(column.type):
        column = column.view(pa.int64())
    if column.null_count:
        column = column.fill_null(bool(null) if pa.types.is_boolean(column.type) else null)
    return column.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def order_key(column: pa.Array, common: pa.DataType | None) -> npt.NDArray[np.int64]:
    """Integers in the order of the column's values, null and NaN below all."""
    order: npt.NDArray[np.int64]
    if common is not None:
        zone = column.type.tz if pa.types.is_timestamp(column.type) else None
        kind = pa.timestamp(common.unit, zone) if pa.types.is_timestamp(common) else common
        column = column.cast(kind, safe=False)
    if pa.types.is_decimal(column.type) or pa.types.is_floating(column.type):
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False).copy()
        values[np.isnan(values)] = -np.inf
        values += 0.0  # one zero only
        bits = values.view(np.int64)
        order = np.where(bits < 0, np.int64(-(2**63)) - bits, bits)
    elif pa.types.is_uint64(column.type):
        order = _words(column, 0) ^ np.int64(-(2**63))
    else:
        order = _words(column, 0)
    if column.null_count:
        order = np.where(mask_of(column.is_null()), np.iinfo(np.int64).min, order)
    return order


def plain_values(column: pa.Array) -> pa.Array:
    """The values themselves: a dictionary may hold a null, which its indices do not show."""
    return column.cast(plain_type(column.type))


def _to_coarser(kind: pa.DataType) -> pc.CastOptions:
    """A cast that may drop fractions of a unit of time, but no more."""
    return pc.CastOptions(target_type=kind, allow_time_truncate=True)


def mask_of(flags: pa.Array) -> npt.NDArray[np.bool_]:
    """Flags of Arrow as those of NumPy."""
    return flags.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def either(one: npt.NDArray[np.bool_], other: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which rows have one of two flags; an empty array has none."""
    if one.size and other.size:
        return one | other
    return one if one.size else other
