"""Which types may serve as keys, times and worths, and what they have in common over streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as is_a

from streamshed.errors import InputError, listed, suggestion


class Column(NamedTuple):
    """A column of a stream; in a message it reads as `column 'k' of stream 'a'`."""

    stream: str
    name: str
    type: pa.DataType
    what: str = "stream"

    def __str__(self) -> str:
        return f"column {self.name!r} of {self.what} {self.stream!r}"


def find(schema: pa.Schema, stream: str, name: str, role: str, what: str = "stream") -> Column:
    """The column of that name, its dictionary type taken off.

    Args:
        schema: The schema of the stream.
        stream: The name of the stream.
        name: The name of the column.
        role: What the column is for, as it shall stand in a message.
        what: What has the column, if that is no stream.
    """
    places = schema.get_all_field_indices(name)
    if not places:
        raise InputError(
            f"{what} {stream!r} has no column {name!r}, which the join uses as its {role}; its "
            f"columns are {listed(schema.names)}.{suggestion(name, schema.names)}"
        )
    if len(places) > 1:
        raise InputError(
            f"{what} {stream!r} has {len(places)} columns named {name!r}, and the join uses one "
            f"as its {role}; rename the others"
        )
    found = schema.field(places[0]).type
    return Column(stream, name, plain_type(found), what)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of a schema without rows."""
    arrays = [column.chunk(0) for column in schema.empty_table().columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def common_key_type(columns: Sequence[Column]) -> pa.DataType:
    """The type in which the key columns of all streams are compared.

    Example:
        >>> common_key_type([Column("a", "k", pa.int32()), Column("b", "k", pa.uint8())])
        DataType(int64)
    """
    first = columns[0]
    family = key_family(first)
    for column in columns[1:]:
        if key_family(column) != family:
            raise _incompatible(first, column, "cast one of them to the type of the other")
    return _COMMON[family](columns)


def common_time_type(columns: Sequence[Column]) -> pa.DataType:
    """The type of the times of results: int64, or timestamp in microseconds.

    Example:
        >>> common_time_type(
        ...     [Column("a", "ts", pa.timestamp("s")), Column("b", "day", pa.date32())]
        ... )
        TimestampType(timestamp[us])
    """
    first = columns[0]
    integers = _time_is_integer(first)
    for column in columns[1:]:
        if _time_is_integer(column) != integers:
            raise _incompatible(first, column, "cast both to timestamps, or both to integers")
    return pa.int64() if integers else pa.timestamp("us", tz=_common_zone(columns))


def check_worth(columns: Sequence[Column], compete: bool) -> None:
    """Refuse worths that have no order, or that cannot be compared although they compete.

    Args:
        columns: The worth column of each stream.
        compete: Whether rows of different streams compete for one budget.
    """
    for column in columns:
        if not (_is_number(column.type) or _is_time(column.type)):
            raise InputError(
                f"{column} is of type {column.type} and cannot rank rows; cast it "
                "to a number, a timestamp, a date or a boolean"
            )
        if compete and _is_number(column.type) != _is_number(columns[0].type):
            raise _incompatible(columns[0], column, "cast both to numbers, or both to timestamps")


def check_importance(column: Column) -> None:
    """Refuse an importance that is no number."""
    if not _is_number(column.type) or is_a.is_boolean(column.type):
        raise InputError(
            f"{column} is of type {column.type} and cannot be an importance; cast it to a number"
        )


def check_aggregated(column: Column) -> None:
    """Refuse to aggregate a column that holds no numbers."""
    if not _is_number(column.type):
        raise InputError(
            f"{column} is of type {column.type} and cannot be aggregated; name a column of numbers"
        )


def check_payload(column: Column) -> None:
    """Refuse a column of a type of which Arrow cannot pick single rows."""
    unfit = _unpickable(column.type)
    if unfit is not None:
        raise InputError(
            f"{column} is of type {column.type}, and rows of a {unfit} type cannot be kept one by "
            f"one; cast it to a plain type, or leave it out with .select()"
        )


def _unpickable(kind: pa.DataType) -> str | None:
    """What is wrong with a type, or with a part of it."""
    if is_a.is_run_end_encoded(kind):
        return "run-end-encoded"
    if is_a.is_union(kind):
        return "union"
    if is_a.is_dictionary(kind):
        return _unpickable(kind.value_type)
    parts = [kind.field(number).type for number in range(kind.num_fields)]
    return next(filter(None, map(_unpickable, parts)), None)


def check_number(column: Column, condition: str) -> None:
    """Refuse a column that a condition cannot compare because it holds no numbers."""
    number = _is_number(column.type) and not is_a.is_decimal(column.type)
    if not number or (condition == "near" and is_a.is_boolean(column.type)):
        raise InputError(
            f"{column} is of type {column.type}, which {condition}() cannot compare; cast it to a "
            "double or a 64-bit integer"
        )


def check_vector(column: Column) -> None:
    """Refuse a column that holds no vectors."""
    kind = column.type
    lists = is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind)
    if not lists or not (is_a.is_floating(kind.value_type) or is_a.is_integer(kind.value_type)):
        raise InputError(
            f"{column} is of type {kind}, which is no vector; make it a list of numbers, such as "
            "pa.list_(pa.float32(), 512)"
        )


def _incompatible(one: Column, other: Column, remedy: str) -> InputError:
    return InputError(
        f"{one} is of type {one.type}, but {other} is of type {other.type}, and the two cannot be "
        f"compared; {remedy}"
    )


def _is_number(kind: pa.DataType) -> bool:
    numeric = is_a.is_integer(kind) or is_a.is_floating(kind)
    return bool(numeric or is_a.is_decimal(kind) or is_a.is_boolean(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(is_a.is_timestamp(kind) or is_a.is_date(kind))


def _time_is_integer(column: Column) -> bool:
    if is_a.is_integer(column.type):
        return True
    if _is_time(column.type):
        return False
    raise InputError(
        f"{column} is of type {column.type} and cannot be a time; cast it to a timestamp, or to "
        "an integer"
    )


def _common_zone(columns: Sequence[Column]) -> str | None:
    first = columns[0]
    zone = _zone(first)
    for column in columns[1:]:
        other = _zone(column)
        if (zone is None) != (other is None):
            raise _incompatible(
                first, column, "give both a time zone, as in pa.timestamp('us', tz='UTC'), or none"
            )
        if other != zone:
            # Instants are instants; only their display differs.
            zone = "UTC"
    return zone


def _zone(column: Column) -> str | None:
    # Dates have no zone.
    return column.type.tz if is_a.is_timestamp(column.type) else None


def key_family(column: Column) -> str:
    """The family of types that a column's values are compared in; refuse those that have none."""
    kind = column.type
    for family, belongs in _FAMILIES.items():
        if belongs(kind):
            return family
    if is_a.is_floating(kind):
        remedy = (
            "floats are rarely exactly equal; cast it to a decimal or an integer, or use ss.near"
        )
    elif is_a.is_nested(kind):
        remedy = "make the fields that identify a row columns of their own"
    else:
        remedy = "cast it to an integer, a string, a timestamp or a decimal"
    raise InputError(f"{column} is of type {kind} and cannot be a key; {remedy}")


def _common_integer(columns: Sequence[Column]) -> pa.DataType:
    wide = any(column.type == pa.uint64() for column in columns)
    if not wide:
        return pa.int64()
    if all(is_a.is_unsigned_integer(column.type) for column in columns):
        return pa.uint64()
    # No integer type holds both; 20 digits do.
    return pa.decimal128(20, 0)


def _smallest(small: pa.DataType, large: pa.DataType) -> Callable[[Sequence[Column]], pa.DataType]:
    """The small type if all columns have it, else the large one."""
    return lambda columns: small if all(column.type == small for column in columns) else large


def _common_decimal(columns: Sequence[Column]) -> pa.DataType:
    scale = max(column.type.scale for column in columns)
    before_point = max(column.type.precision - column.type.scale for column in columns)
    digits = before_point + scale
    if digits > 76:
        raise InputError(
            "the key columns "
            + ", ".join(f"{column} of type {column.type}" for column in columns)
            + f" need {digits} digits in common, more than 76; cast them to a "
            "smaller decimal, or to strings"
        )
    return (pa.decimal128 if digits <= 38 else pa.decimal256)(digits, scale)


def _common_timestamp(columns: Sequence[Column]) -> pa.DataType:
    fine = any(column.type.unit == "ns" for column in columns)
    return pa.timestamp("ns" if fine else "us", tz=_common_zone(columns))


_FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "integer": is_a.is_integer,
    "string": lambda kind: (
        is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind)
    ),
    "binary": lambda kind: (
        is_a.is_binary(kind)
        or is_a.is_large_binary(kind)
        or is_a.is_binary_view(kind)
        or is_a.is_fixed_size_binary(kind)
    ),
    "timestamp": is_a.is_timestamp,
    "date": is_a.is_date,
    "decimal": is_a.is_decimal,
    "boolean": is_a.is_boolean,
}

_COMMON: dict[str, Callable[[Sequence[Column]], pa.DataType]] = {
    "integer": _common_integer,
    "string": _smallest(pa.string(), pa.large_string()),
    "binary": _smallest(pa.binary(), pa.large_binary()),
    "timestamp": _common_timestamp,
    "date": lambda _: pa.date32(),
    "decimal": _common_decimal,
    "boolean": lambda _: pa.bool_(),
}


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values themselves, where they are encoded by a dictionary."""
    return kind.value_type if is_a.is_dictionary(kind) else kind


def stream_names(values: pa.Array) -> list[Any]:
    """Values of the column that names streams, as they are compared.

    Times are taken as numbers: of those that Python knows, two may be equal that are not the same.
    """
    kind = values.type
    if pa.types.is_temporal(kind):
        values = values.view(_number_of(kind))
    names: list[Any] = values.to_pylist()
    return names


def shown_names(names: Sequence[Any], kind: pa.DataType) -> list[Any]:
    """Names of streams for the eye: times, whose names are numbers, in words."""
    kind = plain_type(kind)
    if not pa.types.is_temporal(kind):
        return [*names]
    numbers = pa.array(names, _number_of(kind))
    shown: list[Any] = numbers.view(kind).cast(pa.string()).to_pylist()
    return shown


def _number_of(kind: pa.DataType) -> pa.DataType:
    """The integers that are the values of a type of times."""
    return pa.int32() if kind.bit_width == 32 else pa.int64()
