"""The sources and the sink of a job: their columns, known before Spark starts, and their frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamshed.errors import SpecError, listed, suggestion
from streamshed.jobs.ddl import read_schema
from streamshed.relations import Table, read_refresh, table
from streamshed.sources import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

KAFKA, RATE = "kafka", ("rate", "rate-micro-batch")
FILES = ("parquet", "orc", "csv", "json", "text", "avro", "xml")
TABLES = ("delta", "iceberg", "hudi")
SOURCES = (*FILES, *TABLES, KAFKA, *RATE, "socket")
SINKS = (*FILES, *TABLES, KAFKA, "console", "noop", "memory")
_ELSEWHERE = ("foreach", "foreachBatch")

_TIMES = pa.timestamp("us", tz="UTC")
_RATE_COLUMNS = pa.schema([("timestamp", _TIMES), ("value", pa.int64())])
_KAFKA_COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMES),
        ("timestampType", pa.int32()),
    ]
)
_SUBSCRIBE = ("subscribe", "subscribePattern", "assign")
_SERVERS = "kafka.bootstrap.servers"
_FILE_OPTIONS = (
    *("maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "maxFileAge", "pathGlobFilter"),
    *("recursiveFileLookup", "fileNameOnly", "cleanSource", "sourceArchiveDir", "mergeSchema"),
)
_OPTIONS = {
    KAFKA: (
        *(_SERVERS, *_SUBSCRIBE, "startingOffsets", "endingOffsets", "startingTimestamp"),
        *("failOnDataLoss", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
        *("minPartitions", "includeHeaders", "groupIdPrefix", "topic"),
    ),
    "rate": ("rowsPerSecond", "rampUpTime", "numPartitions"),
    "rate-micro-batch": (
        "rowsPerBatch",
        "numPartitions",
        "startTimestamp",
        "advanceMillisPerBatch",
    ),
    **dict.fromkeys(FILES, _FILE_OPTIONS),
}
"""Options that Spark would not miss if they were misspelt."""

Trouble = Iterator[tuple[str, str]]
"""What is wrong: the key it is about, and the text."""


def check_source(source: Mapping[str, Any]) -> Trouble:
    """What is wrong in the table of a source."""
    kind = source["format"]
    yield from _check_format(kind, SOURCES, "read")
    yield from _check_options(kind, source)
    options = source.get("options", {})
    if kind == KAFKA:
        if _SERVERS not in options:
            yield "options", f"{_SERVERS!r} is missing: the addresses of brokers, 'host:9092'"
        given = [name for name in _SUBSCRIBE if name in options]
        if len(given) != 1:
            said = f"{listed(given)} are given" if given else "no topic is named"
            yield "options", f"{said}; give one of {listed(_SUBSCRIBE)}, as in subscribe = 'clicks'"
    if kind in (KAFKA, *RATE) and "path" in source:
        yield "path", f"the format {kind!r} has no path; leave it out"
    if kind in RATE and "schema" in source:
        yield "schema", f"the format {kind!r} has the columns timestamp and value; leave it out"
    yield from _check_place(kind, source)
    yield from _check_table(kind, source)
    try:
        known = columns_of(source)
    except SpecError as error:
        text = str(error).removeprefix("columns: ")
        yield ("schema" if text == str(error) else "columns"), text
        return
    if known is None and kind in FILES and is_streaming(source):
        why = f": Spark does not look into {kind} files before they stream; write it"
        if kind == "parquet" and "path" in source:
            why = ", and there are no files at the path to read it from; check that, or write it"
        yield "", f"'schema' is missing{why} as 'session long, ts timestamp'"


def is_streaming(source: Mapping[str, Any]) -> bool:
    """Whether the rows of a source stream; if not, it is a table."""
    return bool(source.get("streaming", True))


def _check_table(kind: str, source: Mapping[str, Any]) -> Trouble:
    if is_streaming(source):
        for option in ("refresh", "versions"):
            if option in source:
                yield option, "a stream is never read anew; add `streaming = false` for a table"
        return
    if kind in (KAFKA, *RATE, "socket"):
        yield "streaming", f"the format {kind!r} has no end, and cannot be a table; leave it out"
    if "versions" in source and "refresh" not in source:
        yield "versions", "the table is read once; add `refresh = '1 hour'`"
    if "refresh" in source:
        try:
            read_refresh(source["refresh"])
        except SpecError as error:
            yield "refresh", str(error)


def check_sink(sink: Mapping[str, Any]) -> Trouble:
    """What is wrong in the table of the sink."""
    kind = sink["format"]
    yield from _check_format(kind, SINKS, "write")
    yield from _check_options(kind, sink)
    options = sink.get("options", {})
    if kind == KAFKA:
        for name, what in ((_SERVERS, "the addresses of brokers"), ("topic", "where results go")):
            if name not in options:
                yield "options", f"{name!r} is missing: {what}"
        if "partition_by" in sink:
            yield "partition_by", "Kafka has no folders; give `key`, the key of a message"
    elif "key" in sink:
        yield "key", f"the format {kind!r} has no keys, only Kafka has; leave it out"
    yield from _check_place(kind, sink)


def check_written(sink: Mapping[str, Any], results: pa.Schema) -> Trouble:
    """What is wrong in the columns that the sink chooses of the results."""
    chosen = sink.get("columns", {name: name for name in results.names})
    paths = {f"columns.{name}": path for name, path in chosen.items()}
    if "key" in sink:
        paths["key"] = sink["key"]
    for key, path in paths.items():
        try:
            _field(results, path)
        except SpecError as error:
            yield key, str(error).removeprefix("columns: ")
    for name in sink.get("partition_by", ()):
        if name not in chosen:
            yield (
                "partition_by",
                f"there is no column {name!r} among those that are written, {listed(chosen)}."
                f"{suggestion(name, chosen)}",
            )


def _check_format(kind: str, known: tuple[str, ...], verb: str) -> Trouble:
    if kind in _ELSEWHERE:
        yield "format", f"{kind!r} takes a function, and a job file holds no code"
    # A format of a package may have any name; one that is nearly a known one is misspelt.
    elif kind not in known and "." not in kind and (close := suggestion(kind.lower(), known)):
        yield "format", f"Spark does not {verb} the format {kind!r}.{close}"


def _check_options(kind: str, table: Mapping[str, Any]) -> Trouble:
    known = _OPTIONS.get(kind, ())
    lower = {name.lower(): name for name in known}
    for name in table.get("options", {}):
        # Spark takes any option, and any case, and leaves alone what it does not know.
        if name.lower() not in lower and not name.startswith("kafka."):
            close = suggestion(name.lower(), lower)
            if close:
                right = lower[close.split("'")[1]]
                yield (
                    f"options.{name}",
                    f"the format {kind!r} has no such option. Did you mean {right!r}?",
                )
        if name == "path":
            yield f"options.{name}", "give `path` beside `format`, not among the options"


def _check_place(kind: str, table: Mapping[str, Any]) -> Trouble:
    if "path" in table and "table" in table:
        yield "table", "both `path` and `table` are given; give one of them"
    if kind in (*FILES, *TABLES) and not {"path", "table"} & set(table):
        yield "", f"'path' is missing: where the {kind} files are"


# -- columns --------------------------------------------------------------------------------------


def columns_of(source: Mapping[str, Any]) -> pa.Schema | None:
    """The Arrow schema of a source, as far as it is known without Spark."""
    schema = _whole_schema(source)
    if schema is None or "columns" not in source:
        return None if schema is None else schema.remove_metadata()
    return pa.schema(
        [_field(schema, path).with_name(name) for name, path in source["columns"].items()]
    )


def _whole_schema(source: Mapping[str, Any]) -> pa.Schema | None:
    kind = source["format"]
    if kind in RATE:
        return _RATE_COLUMNS
    if kind == KAFKA:
        if "schema" not in source:
            return _KAFKA_COLUMNS
        schema = read_schema(source["schema"])
        if "columns" in source:
            schema = schema.append(pa.field(KAFKA, pa.struct(list(_KAFKA_COLUMNS))))
        return schema
    if "schema" in source:
        return read_schema(source["schema"])
    if kind == "parquet" and "path" in source:
        return _schema_of_files(source["path"])
    return None


def _schema_of_files(path: str) -> pa.Schema | None:
    """The schema of local Parquet files, if there are any yet."""
    import pyarrow.parquet as pq

    place = Path(path.removeprefix("file://"))
    found = [place] if place.is_file() else sorted(place.rglob("*.parquet"))
    if not found:
        return None
    from streamshed.spark.types import struct_of

    # As Spark reads it: in its own types.
    return arrow_schema(struct_of(pq.read_schema(found[0])))


def _field(schema: pa.Schema | pa.StructType, path: str) -> pa.Field:
    """The column, or the field of one, that a path names."""
    names = [schema.field(place).name for place in range(len(schema))]
    if path in names:
        return schema.field(names.index(path))
    head, dot, rest = path.partition(".")
    if dot and head in names:
        kind = schema.field(names.index(head)).type
        if pa.types.is_struct(kind):
            return _field(kind, rest)
        if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
            found = _field(kind.value_type, rest)  # of each element, as Spark reads it
            return found.with_type(pa.list_(found.type))
    close = suggestion(path, names) or suggestion(head, names)
    raise SpecError(f"columns: there is no column {path!r}; there are {listed(names)}.{close}")


# -- frames ---------------------------------------------------------------------------------------


def open_source(spark: SparkSession, source: Mapping[str, Any]) -> DataFrame | Table:
    """The streaming DataFrame of a source; or the table that it is."""
    if is_streaming(source):
        return _frame(spark.readStream, source)
    frame = _frame(spark.read, source)
    return table(frame, refresh=source.get("refresh"), versions=source.get("versions"))


def _frame(read: DataStreamReader | DataFrameReader, source: Mapping[str, Any]) -> DataFrame:
    from pyspark.sql import functions as f

    reader = read.format(source["format"])
    for name, value in source.get("options", {}).items():
        reader = reader.option(name, value)
    if source["format"] == KAFKA:
        frame = reader.load()
        if "schema" in source:
            decoded = f.from_json(f.col("value").cast("string"), source["schema"])
            kafka = f.struct(
                *(f.col(name) for name in _KAFKA_COLUMNS.names if name in frame.columns)
            )
            frame = frame.select(decoded.alias("decoded"), kafka.alias("about"))
            kept = (
                ["decoded.*", f.col("about").alias(KAFKA)] if "columns" in source else ["decoded.*"]
            )
            frame = frame.select(*kept)
        return chosen(frame, source)
    if "schema" in source:
        reader = reader.schema(source["schema"])
    elif source["format"] == "parquet" and (known := _schema_of_files(source["path"])) is not None:
        from streamshed.spark.types import struct_of

        reader = reader.schema(struct_of(known))
    if "table" in source:
        return chosen(reader.table(source["table"]), source)
    return chosen(reader.load(source.get("path")), source)


def chosen(frame: DataFrame, table: Mapping[str, Any]) -> DataFrame:
    """The columns that the table of a source or of the sink chooses, under their names there."""
    if "columns" not in table:
        return frame
    return frame.select(
        *(_column(frame, path).alias(name) for name, path in table["columns"].items())
    )


def _column(frame: DataFrame, path: str) -> Column:
    from pyspark.sql import functions as f

    if path in frame.columns:
        return f.col(_quoted(path))
    head, _, rest = path.partition(".")
    if head not in frame.columns:
        raise SpecError(
            f"columns: there is no column {path!r}; there are {listed(frame.columns)}."
            f"{suggestion(path, frame.columns)}"
        )
    return f.col(".".join(_quoted(part) for part in (head, *rest.split("."))))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def open_sink(results: DataFrame, sink: Mapping[str, Any]) -> DataStreamWriter:
    """What writes the results, without checkpoint and trigger."""
    if sink["format"] == KAFKA:
        keys = [_column(results, sink["key"]).cast("string").alias("key")] if "key" in sink else []
        frame = results.select(*keys, _message(results, sink))
    else:
        frame = chosen(results, sink)
    writer = frame.writeStream.format(sink["format"]).outputMode("append")
    for name, value in sink.get("options", {}).items():
        writer = writer.option(name, value)
    if "path" in sink:
        writer = writer.option("path", sink["path"])
    if "partition_by" in sink:
        writer = writer.partitionBy(*sink["partition_by"])
    return writer


def _message(results: DataFrame, sink: Mapping[str, Any]) -> Column:
    """The columns to write as JSON."""
    from pyspark.sql import functions as f

    names = sink.get("columns") or {name: name for name in results.columns}
    return f.to_json(
        f.struct(*(_column(results, path).alias(name) for name, path in names.items()))
    ).alias("value")
