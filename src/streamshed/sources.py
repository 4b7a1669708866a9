"""The kinds of data that a join can be given, as Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamshed.database import Postgres
from streamshed.errors import InputError, SpecError, listed

_BATCH = 1 << 16


@dataclass(frozen=True)
class Source:
    """One input, opened: its schema is known, its rows are read on demand."""

    name: str
    schema: pa.Schema
    read: Callable[[list[str]], Iterator[pa.RecordBatch]]
    """Gives the rows, of which it reads the named columns only."""
    whole: bool
    """Whether all rows are in memory anyway, so that nothing is gained by letting go of some."""
    rows: int | None
    """The number of rows, where it is known beforehand."""
    grows: bool = False
    """Whether it has no end: where there are no more rows at present, an empty batch is read."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        return self.read(self.schema.names)

    def of(self, schema: pa.Schema) -> Source:
        """The same input with some of its columns only."""
        return replace(self, schema=schema)

    def kept(self) -> Source:
        """The same input, to be read several times: one that can be read once is held in memory."""
        if self.rows is not None:
            return self
        return _whole(self.name, pa.Table.from_batches(self.batches(), self.schema))


def open_source(name: str, data: Any, what: str = "stream") -> Source:
    """Open an input of any kind.

    Arrow cannot pick rows of its view types, so that columns of those come as plain ones.

    Args:
        name: The name of the input.
        data: The input.
        what: What the input is, as it shall stand in a message.

    Examples:
        >>> open_source("a", pa.table({"k": [1, 2]})).rows
        2
        >>> open_source("a", pa.table({"k": pa.array(["x"], pa.string_view())})).schema.field("k")
        pyarrow.Field<k: large_string>
    """
    source = replace(_opened(f"{what} {name!r}", data), name=name)
    schema = without_views(source.schema)
    if schema == source.schema:
        return source

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        plain = pa.schema([schema.field(name) for name in columns], schema.metadata)
        return (batch.cast(plain) for batch in source.read(columns))

    return replace(source, schema=schema, read=read)


def is_read_once(data: Any) -> bool:
    """Whether an input can be read a single time only, as readers and iterators can.

    Examples:
        >>> is_read_once(iter([])), is_read_once(pa.table({"k": [1]}))
        (True, False)
    """
    return isinstance(data, pa.RecordBatchReader | Iterator)


def is_reread(data: Any) -> bool:
    """Whether an input may have other rows when it is read again.

    Examples:
        >>> is_reread("users.parquet"), is_reread(pa.table({"k": [1]}))
        (True, False)
    """
    return isinstance(data, (str, Path, Postgres)) or callable(data) or _is_of_spark(data)


def reread(data: Any) -> Any:
    """An input to be read again, without what was remembered of it."""
    if not _is_of_spark(data):
        return data
    if hasattr(data, "_jdf"):
        # Spark remembers which files there were.
        data._jdf.queryExecution().analyzed().refresh()
    return data.select("*")


def _is_of_spark(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pyspark" and hasattr(data, "toArrow")


def check_order(order: object, method: str) -> None:
    """Refuse an order of rows that there is not."""
    if order not in ("time", "arrival"):
        said = repr(order) if isinstance(order, str) else f"a {type(order).__name__}"
        raise SpecError(
            f"{method}(): `order` is {said}; give 'time' or 'arrival'. If a stream is named so, "
            f"give the inputs in a mapping, as in {method}({{'order': …}})"
        )


def check_shared(data: Mapping[str, Any]) -> None:
    """Refuse one reader for two streams: each would get a part of its rows."""
    seen: dict[int, str] = {}
    for name, value in data.items():
        if is_read_once(value):
            other = seen.setdefault(id(value), name)
            if other != name:
                raise InputError(
                    f"streams {other!r} and {name!r} were given the same {type(value).__name__}, "
                    "which can be read only once; give each stream its own, or a table"
                )


def without_views(schema: pa.Schema) -> pa.Schema:
    """A schema with plain types for the view types, of which Arrow cannot pick rows."""
    return pa.schema([_without_views(column) for column in schema], schema.metadata)


def _without_views(column: pa.Field) -> pa.Field:
    kind = column.type
    if pa.types.is_string_view(kind):
        kind = pa.large_string()
    elif pa.types.is_binary_view(kind):
        kind = pa.large_binary()
    elif pa.types.is_dictionary(kind):
        values = _without_views(pa.field("", kind.value_type)).type
        kind = pa.dictionary(kind.index_type, values, kind.ordered)
    elif pa.types.is_struct(kind):
        kind = pa.struct([_without_views(part) for part in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_without_views(kind.key_field), _without_views(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_without_views(kind.value_field))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_without_views(kind.value_field))
    elif pa.types.is_fixed_size_list(kind):
        kind = pa.list_(_without_views(kind.value_field), kind.list_size)
    return column.with_type(kind)


def _opened(name: str, data: Any) -> Source:
    if isinstance(data, pa.Table):
        return _whole(name, data)
    if isinstance(data, pa.RecordBatch):
        return _whole(name, pa.Table.from_batches([data]))
    if isinstance(data, Postgres):
        return _whole(name, data.rows(name)) if data.version is None else _growing(name, data)
    if isinstance(data, (str, Path)):
        if "://" in str(data):
            raise InputError(
                f"{name}: {str(data)!r} is a URI, and a path must be one of this machine; read it"
                " with pyarrow.dataset or DuckDB, and give the reader or the relation"
            )
        return _parquet(name, Path(data))
    if isinstance(data, pa.RecordBatchReader):
        return _streamed(name, data.schema, data)
    if _is_of_spark(data):
        return _whole(name, _collected(name, data))
    kind = type(data).__module__.partition(".")[0]
    if kind in ("pandas", "polars") or hasattr(data, "__arrow_c_stream__"):
        return _framed(name, kind, data)
    if isinstance(data, Mapping):
        raise InputError(
            f"{name}: a {type(data).__name__} cannot be read; make a table of it, as in"
            " pyarrow.table({'k': [1, 2], 'ts': [10, 20]})"
        )
    if isinstance(data, Iterable):
        return _iterated(name, iter(data), type(data).__name__)
    raise InputError(
        f"{name}: a {type(data).__name__} cannot be read; give an Arrow table or reader,"
        " a pandas, Polars or Spark frame, a DuckDB relation, the path of a Parquet file, or an"
        " iterator of record batches"
    )


def _framed(name: str, kind: str, frame: Any) -> Source:
    """What another library has in memory, or computes when it is asked."""
    try:
        if kind == "pandas":
            return _whole(name, pa.Table.from_pandas(frame, preserve_index=False))
        if kind == "polars" and hasattr(frame, "collect"):
            frame = frame.collect()
        reader = pa.RecordBatchReader.from_stream(frame)
        # Frames are in memory anyway, and a connection of DuckDB has one open result at a time:
        # two of its relations cannot be read side by side.
        if kind == "polars" or "duckdb" in kind:
            return _whole(name, reader.read_all())
    except Exception as error:  # each library has errors of its own
        raise InputError(
            f"{name}: the {type(frame).__name__} of {kind} cannot be read as an Arrow table"
            f" ({' '.join(str(error).split())}); give a frame with one type and one name for each"
            " column"
        ) from error
    return _streamed(name, reader.schema, reader)


def spark_schema(frame: Any) -> pa.Schema:
    """The schema of a Spark DataFrame, which is not read."""
    return arrow_schema(frame.schema)


def arrow_schema(schema: Any) -> pa.Schema:
    """The Arrow schema of what Spark calls a schema."""
    from inspect import signature

    from pyspark.sql.pandas.types import to_arrow_schema

    # Spark 4.1 takes UTC unless told otherwise, and has no such parameter.
    told = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **told)  # type: ignore[arg-type]


def _collected(name: str, frame: Any) -> pa.Table:
    """The rows of a Spark DataFrame."""
    if frame.isStreaming:
        raise InputError(
            f"{name}: a DataFrame that streams has no end and cannot be read here; read it with"
            " spark.read, or give it to .stream() as one of the streams"
        )
    return frame.toArrow()


def _whole(name: str, table: pa.Table) -> Source:
    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        yield from table.select(columns).combine_chunks().to_batches()

    return Source(name, table.schema, read, whole=True, rows=table.num_rows)


def _parquet(name: str, path: Path) -> Source:
    import pyarrow.parquet as pq

    files = parquet_files(name, path)
    schemas, rows = [], 0
    for file in files:
        try:
            with pq.ParquetFile(file) as opened:  # an archive may have more files than can be open
                schemas.append(opened.schema_arrow)
                rows += opened.metadata.num_rows
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(
                f"{name}: {str(file)!r} cannot be read as a Parquet file ({error}); check the"
                " path, or read the data yourself and give an Arrow table"
            ) from error

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        wanted = pa.schema([schemas[0].field(column) for column in columns])
        for file, schema in zip(files, schemas, strict=True):
            _check_columns(name, wanted, files[0], schema, file)
        for file in files:
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(_BATCH, columns=columns):
                    # A name before a dot stands for all that begins with it, and the order is the
                    # file's.
                    found = [batch.column(column) for column in columns]
                    yield pa.RecordBatch.from_arrays(found, schema=wanted)

    return Source(name, schemas[0], read, False, rows)


def _check_columns(name: str, wanted: pa.Schema, first: Path, found: pa.Schema, file: Path) -> None:
    """Refuse a file that lacks columns of the first one, or has other types."""
    for column in wanted:
        if column.name not in found.names:
            raise InputError(
                f"{name}: {str(file)!r} has no column {column.name!r}, which {str(first)!r} has;"
                f" its columns are {listed(found.names)}. Give files with the same columns"
            )
        kind = found.field(column.name).type
        if kind != column.type:
            raise InputError(
                f"{name}: column {column.name!r} is of type {kind} in {str(file)!r}, but of type"
                f" {column.type} in {str(first)!r}; write both with the same type"
            )


def parquet_files(name: str, path: Path) -> list[Path]:
    """The files that a path names: itself, those of a folder, or those that match a pattern.

    Files come in the order of their names; those that begin with a dot or an underscore, and those
    in such folders, are left out, as Spark does.
    """
    if path.exists() and not path.is_dir():
        return [path]
    if path.is_dir():
        found = [
            file
            for file in sorted(path.rglob("*.parquet"))
            if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        ]
    elif any(sign in str(path) for sign in "*?["):
        found = [Path(file) for file in sorted(glob(str(path), recursive=True))]
    else:
        return [path]
    if not found:
        raise InputError(f"{name}: there are no Parquet files at {str(path)!r}; check the path")
    return found


def _growing(name: str, table: Postgres) -> Source:
    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        return table.news(name, columns)

    return Source(name, table.schema(name), read, whole=False, rows=None, grows=True)


def _streamed(name: str, schema: pa.Schema, batches: Iterable[Any]) -> Source:
    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        return _gathered(_checked(name, schema, batch).select(columns) for batch in batches)

    return Source(name, schema, read, whole=False, rows=None)


def _iterated(name: str, batches: Iterator[Any], kind: str) -> Source:
    first = next(batches, None)
    if first is None:
        raise InputError(
            f"{name}: the {kind} has no batches, so that its columns are not known;"
            " give a pyarrow.RecordBatchReader, or at least one empty record batch"
        )
    if not isinstance(first, (pa.RecordBatch, pa.Table)):
        raise InputError(
            f"{name}: the {kind} gives a {type(first).__name__}; it must give record batches. Of"
            " rows or columns make a table, as in pyarrow.table({'k': [1, 2], 'ts': [10, 20]})"
        )
    return _streamed(name, first.schema, chain([first], batches))


def _checked(name: str, schema: pa.Schema, batch: Any) -> pa.RecordBatch:
    if not isinstance(batch, (pa.RecordBatch, pa.Table)) or not batch.schema.equals(schema):
        found = getattr(batch, "schema", type(batch).__name__)
        raise InputError(
            f"{name}: a batch does not have the columns of the first one; it has"
            f" {' '.join(str(found).split())}, the first had {' '.join(str(schema).split())}"
        )
    return batch


def _gathered(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    """Small batches put together, so that each piece is worth the while."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pieces = batch.to_batches() if isinstance(batch, pa.Table) else [batch]
        waiting.extend(pieces)
        rows += batch.num_rows
        if rows >= _BATCH // 4:
            yield pa.concat_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.concat_batches(waiting)
