"""Relations through which streams are joined: facts, each valid from a begin to an end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc

from streamshed.arguments import column_name
from streamshed.columns import Column, find, no_rows
from streamshed.durations import parse, to_units
from streamshed.errors import InputError, SpecError
from streamshed.sources import Source, is_reread, open_source, reread

BEGIN, END, TIME, CHANGE = "begin", "end", "time", "change"
INSERT, DELETE = "insert", "delete"
WHAT = "relation"


@dataclass(frozen=True, eq=False, repr=False)
class Relation:
    """A relation, and how its validity is told; made by `relation`.

    Attributes:
        data: its rows, of any kind that replay takes as an input; None if it begins empty.
        name: the column of results that holds the row of the relation.
        begin: the column that says from when on a row is valid, or None.
        end: the column that says up to when, or None.
        changes: rows that are inserted and deleted in the course of time, or None.
        time: the column of the changes that says when.
        change: the column of the changes that says what: `"insert"` or `"delete"`.
        refresh: how often `data` is read anew, in microseconds; None if it is read once.
        versions: the folder in which the driver of Spark keeps what it has read, or None.
    """

    what: ClassVar[str] = WHAT
    """What it is, as it stands in messages."""

    data: Any
    name: str
    begin: str | None
    end: str | None
    changes: Any
    time: str
    change: str
    refresh: int | None = None
    versions: str | None = None

    def __repr__(self) -> str:
        return f"<{WHAT} {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # What was opened here is opened anew elsewhere.
        return type(self), tuple(getattr(self, part.name) for part in fields(self))

    @property
    def named(self) -> str:
        """What it is, and its name, as they stand in messages."""
        return f"{self.what} {self.name!r}"

    @cached_property
    def rows(self) -> Source | None:
        """The rows that are there from the start, opened."""
        if self.data is None:
            return None
        data = self.data() if callable(self.data) else self.data
        source = open_source(self.name, data, self.what)
        if source.grows:
            raise InputError(
                f"{self.named}: {self.data!r} is a table of changes, as it has a version;"
                " give it as relation(changes=…), or leave the version out"
            )
        return source.kept()

    @cached_property
    def news(self) -> Source | None:
        """The changes, opened."""
        if self.changes is None:
            return None
        return open_source(self.name, self.changes, "the changes of relation")

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a row of the relation."""
        if self.rows is not None:
            return self.rows.schema
        assert self.news is not None
        told = (self.time, self.change)
        return pa.schema([column for column in self.news.schema if column.name not in told])

    @property
    def grows(self) -> bool:
        """Whether its changes have no end."""
        return self.news is not None and self.news.grows

    def anew(self) -> Self:
        """The relation as it is now, if it can be read again."""
        return replace(self, data=reread(self.data))

    def column(self, name: str, role: str) -> Column:
        """One of the columns of the relation."""
        return find(self.schema, self.name, name, role, WHAT)

    def ends(self) -> tuple[str | None, str | None]:
        """The columns that bound the validity of a row, where there are any."""
        names = self.schema.names if self.rows is not None else ()
        begin = self.begin or (BEGIN if BEGIN in names else None)
        end = self.end or (END if END in names else None)
        return begin, end

    def time_columns(self) -> list[Column]:
        """All columns that hold times."""
        begin, end = self.ends()
        found = [
            self.column(name, role)
            for name, role in ((begin, "begin of validity"), (end, "end of validity"))
            if name is not None
        ]
        if self.news is not None:
            found.append(self._of_change(self.time, "time"))
        return found

    def _of_change(self, name: str, role: str) -> Column:
        assert self.news is not None
        return find(self.news.schema, self.name, name, role, "the changes of relation")

    def table(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows that are there from the start, with some of the columns."""
        if self.rows is None:
            return no_rows(schema)
        batches = list(self.rows.of(schema).batches())
        if len(batches) == 1:  # it may be mapped, and need not be copied
            return batches[0]
        return pa.concat_batches([no_rows(schema), *batches])

    def check_changes(self, needed: list[str]) -> None:
        """Refuse changes that do not have the columns that are needed of them."""
        if self.news is None:
            return
        for name in needed:
            self._of_change(name, "column of the relation")
        kind = self._of_change(self.change, "kind of change")
        if not (pa.types.is_string(kind.type) or pa.types.is_large_string(kind.type)):
            raise InputError(
                f"{kind} is of type {kind.type} and cannot say what changes; give strings, "
                f"{INSERT!r} and {DELETE!r}"
            )

    def read_changes(self, schema: pa.Schema) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The changes as rows with the given columns, and for each whether it is an insertion."""
        if self.news is None:
            return
        bounds = self._bounds()
        for batch in self.news.of(self.change_schema(schema)).batches():
            inserted = self._kinds(batch)
            columns = [
                self._bound(batch, name, schema) if name in bounds else batch.column(name)
                for name in schema.names
            ]
            rows = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
            named = [*schema.names, CHANGE_TIME]
            yield pa.RecordBatch.from_arrays([*rows, batch.column(self.time)], named), inserted

    def change_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of changes that are needed where these are of the relation."""
        assert self.news is not None
        bounds = self._bounds()
        given = [name for name in schema.names if name not in bounds]
        wanted = dict.fromkeys([*given, self.time, self.change])
        return pa.schema([self.news.schema.field(name) for name in wanted])

    def _bounds(self) -> list[str]:
        return [name for name in self.ends() if name is not None]

    def _bound(self, batch: pa.RecordBatch, name: str, schema: pa.Schema) -> pa.Array:
        """What stands in a bound of a row that was inserted: valid from then on, without an end."""
        if name == self.ends()[0]:
            return batch.column(self.time)
        return pa.nulls(batch.num_rows, schema.field(name).type)

    def _kinds(self, batch: pa.RecordBatch) -> pa.Array:
        kinds = batch.column(self.change).cast(pa.large_string())
        known = pc.fill_null(pc.is_in(kinds, pa.array([INSERT, DELETE], pa.large_string())), False)
        if not pc.all(known, min_count=0).as_py():
            wrong = kinds[pc.index(known, False).as_py()].as_py()
            raise InputError(
                f"the changes of relation {self.name!r}, column {self.change!r}: {wrong!r} is no "
                f"change; give {INSERT!r} or {DELETE!r}"
            )
        return pc.equal(kinds, INSERT)


@dataclass(frozen=True, eq=False, repr=False)
class Table(Relation):
    """A table as one input among streams, whose rows match at any time; made by `table`."""

    what: ClassVar[str] = "table"

    def ends(self) -> tuple[str | None, str | None]:
        """No row begins or ends, whatever its columns are called."""
        return None, None


CHANGE_TIME = "__time"
"""The column in which `Relation.read_changes` gives the time of a change."""


def relation(
    data: Any = None,
    *,
    name: str = "relation",
    begin: str | None = None,
    end: str | None = None,
    changes: Any = None,
    time: str = TIME,
    change: str = CHANGE,
    refresh: str | timedelta | None = None,
    versions: str | None = None,
) -> Relation:
    """Describe a relation, through which `Join.through` joins streams.

    Args:
        data: Its rows: an Arrow table, record batch or reader, a pandas, Polars or Spark frame, a
            DuckDB relation, the path of a Parquet file, or a table by `postgres`. None if all rows
            come by changes.
        name: The column of results that holds the row of the relation.
        begin: The column with the time from which a row is valid; by default the column `begin`, if
            there is one. Without it, or if it is null, a row is valid from the start.
        end: The column with the time from which a row is no longer valid; by default the column
            `end`, if there is one. Without it, or if it is null, a row stays valid.
        changes: Inserted and deleted rows, in the order of their times: the same kinds of data as
            `data`, a Spark DataFrame that streams, or a table by `postgres` that is read as it
            grows.
        time: The column of the changes with their time.
        change: The column of the changes with their kind: `"insert"` or `"delete"`.
        refresh: How often `data` is read again, as in `"1 minute"`, on Spark and in sessions;
            stored rows match the new facts too. Replay reads it once.
        versions: A folder for this query alone, a path or a URI (`s3://…`), where the Spark driver
            keeps what it has read: a batch that is repeated after a restart then sees the same
            facts as before.

    Example:
        >>> import pyarrow as pa
        >>> from streamshed import join, relation
        >>> pairs = relation(pa.table({"a": [1, 2], "b": [7, 8], "until": [None, 5]}), end="until")
        >>> join("r", "s").within(10, time="ts").through(pairs, r="a", s="b")
        join('r', 's').within(10, time='ts').through(<relation 'relation'>, r='a', s='b')
    """
    where = "relation()"
    if data is None and changes is None:
        raise SpecError(f"{where}: there are neither rows nor changes; give one of them or both")
    for said, what in ((name, "name"), (time, "time column"), (change, "column of changes")):
        column_name(said, f"{where}: the {what}")
    for bound, what in ((begin, "begin"), (end, "end")):
        if bound is not None:
            column_name(bound, f"{where}: `{what}`")
    if refresh is not None and changes is not None:
        raise SpecError(
            f"{where}: `refresh` and `changes` were both given; rows that are read anew have all"
            " facts of the moment, so leave out the changes, or `refresh`"
        )
    every = _read_anew(where, data, refresh, versions)
    return Relation(data, name, begin, end, changes, time, change, every, versions)


def table(
    data: Any, *, refresh: str | timedelta | None = None, versions: str | None = None
) -> Table:
    """Use a static table as one input of a join: its rows match at any time and never expire.

    Args:
        data: Its rows, of any kind that `relation` takes, or a function that returns them. On
            Spark, a DataFrame that does not stream is such a table if other inputs stream.
        refresh: How often the rows are read again, as in `"1 hour"`, on Spark and in sessions;
            stored rows match the new ones too. Replay reads them once.
        versions: A folder for the rows that the Spark driver has read; see `relation`.

    Example:
        >>> import pyarrow as pa, streamshed as ss
        >>> users = pa.table({"user": [1, 2], "name": ["Ada", "Ben"]})
        >>> clicks = pa.table({"user": [2, 3], "ts": [10, 20]})
        >>> joined = ss.join("clicks", "users").on("user").within(60, time="ts")
        >>> joined.replay(clicks=clicks, users=ss.table(users)).table.to_pylist()
        [{'clicks': {'user': 2, 'ts': 10}, 'users': {'user': 2, 'name': 'Ben'}, 'time': 10}]
    """
    if data is None:
        raise SpecError("table(): the table is None; give its rows")
    every = _read_anew("table()", data, refresh, versions)
    return Table(data, "table", None, None, None, TIME, CHANGE, every, versions)


def _read_anew(where: str, data: Any, refresh: Any, versions: Any) -> int | None:
    """How often rows are read anew, in microseconds; None if they are read once."""
    if refresh is None:
        if versions is not None:
            raise SpecError(
                f"{where}: `versions` is {versions!r}, but the rows are read once; give `refresh`"
                " too, as in refresh='1 minute'"
            )
        return None
    every = read_refresh(refresh, where)
    if not is_reread(data):
        raise SpecError(
            f"{where}: `refresh` is {refresh!r}, but a {type(data).__name__} stays as it is; "
            "give what can be read again: the path of a Parquet file, a Spark DataFrame, a "
            "table by postgres(…), or a function that returns the rows"
        )
    if versions is not None and not (isinstance(versions, str) and versions):
        raise SpecError(f"{where}: `versions` is {versions!r}; give the path or URI of a folder")
    return every


def read_refresh(said: Any, method: str = "table()") -> int:
    """How often rows are read anew, in microseconds.

    Examples:
        >>> read_refresh("1 minute")
        60000000
    """
    where = f"{method}: `refresh`"
    every = to_units(parse(said, where), True, where)
    if every <= 0:
        raise SpecError(f"{where} is {said!r}; it must be greater than 0")
    return every


def as_relation(said: Any) -> Relation:
    """What was given as a relation: one described before, or its rows alone."""
    if said is None:
        raise SpecError(
            ".through(): the relation is None; give its rows, or relation(…) with its rows or "
            "changes"
        )
    return said if isinstance(said, Relation) else relation(said)
