"""Spark's notation of schemas, read without Spark: a job is checked before Spark starts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from streamshed.errors import SpecError, listed, suggestion

_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
    "numeric": pa.decimal128(10, 0),
}
_NESTED = ("array", "map", "struct")
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[A-Za-z0-9_]+|[<>(),:]|\S)")


def read_schema(text: str) -> pa.Schema:
    """The Arrow schema of a schema in Spark's notation.

    Example:
        >>> read_schema("session long, ts timestamp, parts array<struct<x: double>>").names
        ['session', 'ts', 'parts']
        >>> read_schema("session lnog")
        Traceback (most recent call last):
        streamshed.errors.SpecError: 'lnog' is not a Spark type. Did you mean 'long'?
    """
    reader = _Reader(text)
    fields = list(reader.fields(end=None))
    if not fields:
        raise SpecError("the schema has no columns; write it as 'session long, ts timestamp'")
    names = [column.name for column in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpecError(f"the schema has the column {listed(twice)} twice; name it once")
    return pa.schema(fields)


class _Reader:
    """The words of a schema, one after another."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = [found[1] for found in _TOKEN.finditer(text)]
        self.at = 0

    def next(self, what: str) -> str:
        if self.at == len(self.words):
            raise SpecError(
                f"the schema {self.text!r} ends where {what} should be; write it as "
                "'session long, ts timestamp'"
            )
        self.at += 1
        return self.words[self.at - 1]

    def is_next(self, word: str) -> bool:
        if self.at < len(self.words) and self.words[self.at].lower() == word:
            self.at += 1
            return True
        return False

    def expect(self, word: str) -> None:
        found = self.next(repr(word))
        if found != word:
            raise SpecError(f"the schema {self.text!r} has {found!r} where {word!r} should be")

    def fields(self, end: str | None) -> Iterator[pa.Field]:
        while self.at < len(self.words):
            name = self.next("the name of a column")
            if not re.fullmatch(r"`.*`|\w+", name):
                raise SpecError(
                    f"the schema {self.text!r} has {name!r} where the name of a column should be; "
                    "write it as 'session long, ts timestamp', and other names in backticks"
                )
            self.is_next(":")
            kind = self.type()
            nullable = True
            if self.is_next("not"):
                self.is_next("null")
                nullable = False
            yield pa.field(name.strip("`").replace("``", "`"), kind, nullable)
            if end is not None and self.is_next(end):
                return
            if self.at < len(self.words):
                self.expect(",")
        if end is not None:
            self.expect(end)

    def type(self) -> pa.DataType:
        name = self.next("a type").lower()
        if name == "array":
            self.expect("<")
            item = self.type()
            self.expect(">")
            return pa.list_(item)
        if name == "map":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return pa.map_(key, value)
        if name == "struct":
            self.expect("<")
            return pa.struct(list(self.fields(end=">")))
        if name not in _TYPES:
            raise SpecError(f"{name!r} is not a Spark type.{suggestion(name, [*_TYPES, *_NESTED])}")
        if not self.is_next("("):
            return _TYPES[name]
        numbers = [int(self.next("a number"))]
        while self.is_next(","):
            numbers.append(int(self.next("a number")))
        self.expect(")")
        if name in ("decimal", "numeric"):
            return pa.decimal128(*numbers)
        return _TYPES[name]
