"""The JSON schema of job files, for editors, and the check of a job against it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from streamshed.errors import listed, suggestion
from streamshed.jobs.options import Schema, definitions, options, stream_option
from streamshed.jobs.reading import Keys
from streamshed.running import Running

FILE = Path(__file__).with_name("job.schema.json")
"""The published schema: `streamshed schema` prints it."""

_TEXT: Schema = {"type": "string", "minLength": 1}
_VALUES: Schema = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
_COLUMNS: Schema = {
    "type": "object",
    "additionalProperties": _TEXT,
    "minProperties": 1,
}


def _table(about: str, required: list[str], properties: dict[str, Schema]) -> Schema:
    return {
        "type": "object",
        "description": about,
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


def _about(text: str, schema: Schema) -> Schema:
    return {"description": text, **schema}


def _source() -> Schema:
    return _table(
        "Where the rows of a stream come from.",
        ["format"],
        {
            "format": _about(
                "parquet, csv, json, orc, kafka, rate, delta, iceberg, or any format that Spark "
                "reads as a stream.",
                _TEXT,
            ),
            "path": _about("The folder of files, or of the table.", _TEXT),
            "table": _about("Or the name of a table in Spark's catalog.", _TEXT),
            "schema": _about(
                "The columns as in 'session long, ts timestamp'. Of Kafka, those of the JSON in "
                "the value; of local Parquet files it may be left out.",
                _TEXT,
            ),
            "columns": _about(
                "The columns that the stream shall have, each with the column of the source or "
                "the field of one ('user.id'); all by default. Of Kafka also 'kafka.timestamp', "
                "'kafka.key', 'kafka.topic', 'kafka.partition' and 'kafka.offset'.",
                _COLUMNS,
            ),
            "options": _about("Options of the format, as Spark names them.", _VALUES),
            "streaming": _about(
                "false for a table among the streams: it is read as a whole, and its rows match at "
                "any time.",
                {"type": "boolean"},
            ),
            "refresh": _about(
                "How often such a table is read anew, as in '1 hour'; once by default.", _TEXT
            ),
            "versions": _about(
                "A folder for what was read anew, so that a batch that is repeated after a restart "
                "has the same table.",
                _TEXT,
            ),
        },
    )


def _sink() -> Schema:
    return _table(
        "Where results go.",
        ["format"],
        {
            "format": _about(
                "parquet, json, csv, kafka, delta, iceberg, console, noop, or any format that "
                "Spark writes as a stream.",
                _TEXT,
            ),
            "path": _about("The folder of files, or of the table.", _TEXT),
            "table": _about("Or the name of a table in Spark's catalog.", _TEXT),
            "columns": _about(
                "The columns to write, each with the column of the results or the field of one "
                "('clicks.price'); all by default.",
                _COLUMNS,
            ),
            "key": _about(
                "For Kafka: the column, or field, that becomes the key of a message.", _TEXT
            ),
            "partition_by": _about(
                "The columns by which files are put into folders.",
                {"type": "array", "items": _TEXT},
            ),
            "options": _about("Options of the format, as Spark names them.", _VALUES),
        },
    )


@cache
def job_schema() -> Schema:
    """The JSON schema of a job file."""
    joined = {
        "streams": _about(
            "The streams, in the order in which the join names them; those of `sources` by "
            "default.",
            {"type": "array", "items": _TEXT},
        ),
        "by": _about("Or the column of the single source whose values name the streams.", _TEXT),
        **{name: option.schema for name, option in options().items()},
    }
    properties = {
        "name": _about("The name of the job, which Spark shows.", _TEXT),
        "sources": {
            "type": "object",
            "description": "The streams of the join by their names.",
            "minProperties": 1,
            "additionalProperties": _source(),
        },
        "join": _table("What to join, and how: the methods of a Join.", [], joined),
        "stream": stream_option().schema,
        "sink": _sink(),
        "checkpoint": _about(
            "The folder for the state of the job; it continues from there.", _TEXT
        ),
        "trigger": {
            **_table(
                "When Spark starts a batch: by default when the last one is done.",
                [],
                {
                    "processingTime": _about("How often, as in '10 seconds'.", _TEXT),
                    "availableNow": _about("Process what is there, then end.", {"type": "boolean"}),
                },
            ),
            "minProperties": 1,
            "maxProperties": 1,
        },
        "spark": _table(
            "The session of Spark that the job starts.",
            [],
            {
                "master": _about("Where Spark runs: 'local[4]', 'spark://…', 'yarn'.", _TEXT),
                "packages": _about(
                    "Maven coordinates of connectors, as in "
                    "'org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.0'.",
                    {"type": "array", "items": _TEXT},
                ),
                "conf": _about("Settings of Spark by their names.", _VALUES),
            },
        ),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Streamshed job",
        **_table(
            "A window join of streams that Spark runs.",
            ["sources", "join", "sink", "checkpoint"],
            properties,
        ),
        "$defs": definitions(),
    }


def schema_text() -> str:
    """The text of the published schema."""
    return json.dumps(job_schema(), indent=2, ensure_ascii=False) + "\n"


# -- checking -------------------------------------------------------------------------------------

_KINDS = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict, Mapping),
}
_SPOKEN = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "a table",
}
_NOT_HERE = {
    "where": "where() takes a function, and a job file holds no code; use near, cosine or "
    "inner_product, or start the join from Python",
}
"""What Python has and job files have not, and why."""


def check(values: Any, schema: Schema | None = None, keys: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """What is wrong in a job by its schema, and where."""
    schema = job_schema() if schema is None else schema
    if "$ref" in schema:
        schema = job_schema()["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        yield from _check_any(values, schema["anyOf"], keys)
        return
    if "enum" in schema:
        if values not in schema["enum"]:
            known = [str(one) for one in schema["enum"]]
            yield keys, f"is {values!r}; give one of {listed(known)}.{suggestion(values, known)}"
        return
    if not _is_of(values, schema):
        yield keys, _wrong_type(values, [schema])
        return
    if isinstance(values, str) and not values and schema.get("minLength"):
        yield keys, "is empty; give a string that is not"
    if isinstance(values, list):
        for place, one in enumerate(values):
            yield from check(one, schema.get("items", {}), (*keys, place))
    if isinstance(values, Mapping):
        yield from _check_table(values, schema, keys)


def _check_table(
    values: Mapping[str, Any], schema: Schema, keys: Keys
) -> Iterator[tuple[Keys, str]]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name, value in values.items():
        if name in properties:
            yield from check(value, properties[name], (*keys, name))
        elif isinstance(others, dict):
            yield from check(value, others, (*keys, name))
        elif not others:
            yield (*keys, name), _unknown(name, keys, properties)
    for name in schema.get("required", ()):
        if name not in values:
            yield keys, f"{name!r} is missing: {_first(properties[name])}"
    least, most = schema.get("minProperties", 0), schema.get("maxProperties", len(values))
    if len(values) < least:
        yield keys, f"the table is empty; give {_one_of(properties)}"
    if len(values) > most:
        yield keys, f"{listed(values)} are given together; give one of them"


def _unknown(name: str, keys: Keys, known: Mapping[str, Any]) -> str:
    """What is said of a key that there is not."""
    if name in _NOT_HERE:
        return _NOT_HERE[name]
    if keys == ("join",) and hasattr(Running, name):
        return f".{name}() runs a join, and a job runs its join on Spark; leave it out"
    close = suggestion(name, known)
    return f"unknown key {name!r}{close and '.'}{close or f'; known are {listed(known)}'}"


def _one_of(properties: Mapping[str, Any]) -> str:
    return f"one of {listed(properties)}" if properties else "at least one entry"


def _first(schema: Schema) -> str:
    text = str(schema.get("description", "give it")).rstrip(".")
    return f"{text[0].lower()}{text[1:]}"


def _check_any(values: Any, forms: list[Schema], keys: Keys) -> Iterator[tuple[Keys, str]]:
    """What is wrong by the form that is most likely meant: the one of the same type."""
    meant = [form for form in forms if _is_of(values, form)]
    if not meant:
        yield keys, _wrong_type(values, forms)
        return
    found = [list(check(values, form, keys)) for form in meant]
    yield from min(found, key=len)


def _is_of(values: Any, schema: Schema) -> bool:
    """Whether a value is of the type of a schema, or of one of its forms."""
    if "$ref" in schema:
        return _is_of(values, job_schema()["$defs"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return any(_is_of(values, form) for form in schema["anyOf"])
    if "enum" in schema:
        return isinstance(values, str)
    named = schema.get("type", list(_KINDS))
    names = [named] if isinstance(named, str) else named
    if isinstance(values, bool):
        return "boolean" in names
    return any(isinstance(values, _KINDS[name]) for name in names)


def _types(schema: Schema) -> list[str]:
    if "$ref" in schema:
        return _types(job_schema()["$defs"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return [name for form in schema["anyOf"] for name in _types(form)]
    if "enum" in schema:
        return ["string"]
    named = schema.get("type", [])
    return [named] if isinstance(named, str) else list(named)


def _wrong_type(values: Any, forms: list[Schema]) -> str:
    names = dict.fromkeys(name for form in forms for name in _types(form))
    *most, last = [_SPOKEN[name] for name in names]
    wanted = f"{', '.join(most)} or {last}" if most else last
    hint = ""
    if isinstance(values, str) and "string" not in names:
        hint = "; leave out the quotes" if values.strip("-").replace("_", "").isdigit() else ""
    if "object" in names and not isinstance(values, Mapping):
        hint += _example(forms)
    return f"is {values!r}; give {wanted}{hint}"


def _example(forms: list[Schema]) -> str:
    """How a table among some forms begins, if it is known which keys it has."""
    for form in forms:
        if "anyOf" in form:
            return _example(form["anyOf"])
        if properties := form.get("properties"):
            names = form.get("required") or [*properties][:1]
            return f", as in {{ {', '.join(f'{name} = …' for name in names)} }}"
    return ""
