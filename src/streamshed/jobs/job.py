"""`Job`: sources, a join, a sink and settings, checked before Spark starts, and run by it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamshed import durations
from streamshed.engine.results import result_schema
from streamshed.errors import SpecError, StreamshedError, listed, suggestion
from streamshed.jobs import frames
from streamshed.jobs.options import build, described
from streamshed.jobs.reading import JobError, Keys, Origin, read_file, replaced
from streamshed.jobs.schema import check
from streamshed.jobs.settings import check_secrets, check_spark
from streamshed.join import Join, spec_of
from streamshed.plan.capabilities import check_runtime
from streamshed.plan.routing import check_shards, check_spilling
from streamshed.relations import Table, table
from streamshed.terminal import prepare_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streamshed.explanation import Explanation
    from streamshed.ledger import Ledger

_USUAL = {
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
"""Settings of the session that a job starts, unless it says others; Spark's own 200 partitions
would cost 200 tasks in every batch."""
_SHARDS = 16
"""The most shards that a join has unless it says how many."""


@dataclass(frozen=True)
class Job:
    """A join with its sources, its sink and its settings; the same names as in a job file.

    Args:
        sources: For each stream where its rows come from: `format`, and `path`, `schema`, `columns`
            and `options` as needed; of a table among them also `streaming=False` and `refresh`.
        join: The join, or a mapping of its options as in a job file.
        sink: Where results go: `format`, and `path`, `columns` and `options` as needed.
        checkpoint: The folder for the state of the job.
        name: The name that Spark shows.
        stream: Arguments of `Join.stream`: `shards`, `late_to`, `rates`.
        trigger: When a batch starts: `processingTime` or `availableNow`.
        spark: The session: `master`, `packages` and `conf`.

    Raises:
        JobError: the job cannot run; it says all that is wrong.

    Example:
        >>> import streamshed as ss
        >>> job = ss.Job(
        ...     sources={"a": {"format": "rate"}, "b": {"format": "rate"}},
        ...     join=ss.join("a", "b").on("value").within("1 minute", time="timestamp"),
        ...     sink={"format": "console"},
        ...     checkpoint="/tmp/checkpoint",
        ... )
        >>> job.joined
        join('a', 'b').on('value').within('1 minute', time='timestamp')
    """

    sources: Mapping[str, Mapping[str, Any]]
    join: Join | Mapping[str, Any]
    sink: Mapping[str, Any]
    checkpoint: str
    name: str | None = None
    stream: Mapping[str, Any] = field(default_factory=dict)
    trigger: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin | None = field(default=None, repr=False, compare=False)
    joined: Join = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values, origin = self.mapping(), self.origin
        if origin is None:
            values, origin = replaced(values, Origin())
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "origin", origin)
        problems = list(check(values)) or list(_check(values))
        if not problems:
            joined, wrong = _built(values)
            problems = [(("join", option) if option else ("join",), text) for option, text in wrong]
            if joined is not None and not problems:
                object.__setattr__(self, "joined", joined)
                problems = list(self._check_plan())
        if problems:
            raise JobError([origin.problem(keys, text) for keys, text in problems])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Job:
        """Read a job file.

        Paths in it are relative to its folder. `${NAME}` in a string stands for a variable of the
        environment.
        """
        file = Path(path)
        values, origin = read_file(file)
        problems = [*check(values), *check_secrets(values, origin)]
        if problems:
            raise JobError([origin.problem(keys, text) for keys, text in problems])
        folder = file.absolute().parent
        return cls(**with_paths(values, lambda _, path: str(folder / path)), origin=origin)

    def mapping(self) -> dict[str, Any]:
        """The job as plain values, as a job file has them."""
        given = {part.name: getattr(self, part.name) for part in fields(self) if part.init}
        del given["origin"]
        if isinstance(self.join, Join):
            given["join"] = described(self.join)
        empty = ("name", "stream", "trigger", "spark")
        return {name: value for name, value in given.items() if value or name not in empty}

    # -- checking ---------------------------------------------------------------------------------

    @cached_property
    def schemas(self) -> dict[str, pa.Schema | Table | None]:
        """The columns of each source, as far as they are known without Spark; tables are empty."""
        found: dict[str, pa.Schema | Table | None] = {}
        for name, source in self.sources.items():
            schema = frames.columns_of(source)
            if schema is None or frames.is_streaming(source):
                found[name] = schema
            else:
                found[name] = table(schema.empty_table())
        return found

    def _check_plan(self) -> Iterator[tuple[Keys, str]]:
        if all(schema is not None for schema in self.schemas.values()):
            try:
                check_runtime(spec_of(self.joined), "stream")
                plan = self.joined.plan(self.schemas)
                check_shards(plan, self.stream.get("shards"))
                check_spilling(plan, self.stream.get("resume"))
            except StreamshedError as error:
                yield _about(str(error), self.mapping()["join"]), str(error)
                return
            made = result_schema(plan) if plan.aggregates is None else plan.aggregates.schema
            for key, text in frames.check_written(self.sink, made):
                yield ("sink", *_keys(key)), text

    def hide(self, text: str) -> str:
        """A text without what variables of the environment held."""
        assert self.origin is not None
        return self.origin.hide(text)

    def explain(self, spark: SparkSession | None = None) -> Explanation:
        """Describe how the job will run; Spark is asked only for columns it alone knows.

        Args:
            spark: The session, for sources of which only Spark knows the columns; it is started if
                there is none.
        """
        shards = self.stream.get("shards") or min(_SHARDS, int(self._conf()[_PARTITIONS]))
        schemas: dict[str, Any] = dict(self.schemas)
        if any(schema is None for schema in schemas.values()):
            schemas = self.frames(spark or self.session())
        return self.joined.explain(schemas, shards=shards)

    # -- running ----------------------------------------------------------------------------------

    def _conf(self) -> dict[str, str]:
        given = {name: _setting(value) for name, value in self.spark.get("conf", {}).items()}
        return {**_USUAL, **given}

    def session(self, **settings: str) -> SparkSession:
        """The session of Spark that the job describes.

        Args:
            settings: Settings beyond those of the job, by their names.
        """
        prepare_spark()
        from pyspark.sql import SparkSession

        from streamshed.spark.daemon import DAEMON

        builder = SparkSession.builder.appName(self.name or "streamshed")
        if "master" in self.spark:
            builder = builder.master(self.spark["master"])
        if self.spark.get("packages"):
            builder = builder.config("spark.jars.packages", ",".join(self.spark["packages"]))
        own: dict[str, str] = {}
        if self.spark.get("master", "").startswith("local"):
            # Its workers are of this environment, and need not import the same one by one.
            own["spark.python.daemon.module"] = DAEMON
        for name, value in {**own, **self._conf(), **settings}.items():
            builder = builder.config(name, value)
        # Java takes seconds to start, in which this process would wait.
        with ThreadPoolExecutor(1) as aside:
            aside.submit(self._warm)
            return builder.getOrCreate()

    def _warm(self) -> None:
        """Import and compile what a batch needs, as far as it is known without Spark."""
        with suppress(StreamshedError):  # what is wrong is said when the query starts
            from streamshed.spark.streaming import compiled

            if all(schema is not None for schema in self.schemas.values()):
                plan = self.joined.plan(self.schemas)
                if plan.through is None:  # which may be large
                    compiled(plan)

    def frames(self, spark: SparkSession) -> dict[str, DataFrame | Table]:
        """The streaming DataFrame of each source, or the table that it is."""
        return {name: frames.open_source(spark, source) for name, source in self.sources.items()}

    def start(self, spark: SparkSession | None = None) -> StreamingQuery:
        """Start the job on Spark, and return its query.

        Args:
            spark: The session; by default the one that the job describes.
        """
        session = self.session() if spark is None else spark
        results = self.joined.stream(self.frames(session), **self.stream)
        writer = frames.open_sink(results, self.sink).option("checkpointLocation", self.checkpoint)
        if self.name is not None:
            writer = writer.queryName(self.name)
        if self.trigger:
            writer = writer.trigger(**_trigger(self.trigger))
        return writer.toTable(self.sink["table"]) if "table" in self.sink else writer.start()

    def run(self, spark: SparkSession | None = None) -> Ledger | None:
        """Run the job to its end, and return the ledger.

        SIGTERM and Ctrl-C end it when the batch at hand is done. A session that the job has started
        is stopped.

        Args:
            spark: The session; by default the one that the job describes.
        """
        from streamshed.jobs.stopping import wait
        from streamshed.spark import ledger

        session = self.session() if spark is None else spark
        try:
            query = self.start(session)
            wait(query)
            return ledger(query)
        finally:
            if spark is None:
                session.stop()


_PARTITIONS = "spark.sql.shuffle.partitions"


def _trigger(said: Mapping[str, Any]) -> dict[str, Any]:
    """A trigger with its interval as Spark takes it."""
    if "processingTime" not in said:
        return dict(said)
    interval = durations.parse(said["processingTime"], "the interval")
    return {"processingTime": f"{durations.to_units(interval, True) // 1000} milliseconds"}


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(values: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
    """What is wrong beyond the schema, before there is a join."""
    sources, joined = values["sources"], values["join"]
    for stream, source in sources.items():
        for key, text in frames.check_source(source):
            yield ("sources", stream, *_keys(key)), text
    for key, text in frames.check_sink(values["sink"]):
        yield ("sink", *_keys(key)), text
    yield from check_spark(values.get("spark", {}))
    try:
        _trigger(values.get("trigger", {}))
    except SpecError as error:
        yield ("trigger", "processingTime"), str(error)
    if "by" in joined:
        if "streams" in joined:
            yield ("join", "streams"), "`by` and `streams` are both given; give one of them"
        if len(sources) != 1:
            yield (
                ("join", "by"),
                f"the column {joined['by']!r} names the streams of one source, but there are "
                f"{len(sources)}, {listed(sources)}; give one source",
            )
    for place, stream in enumerate(joined.get("streams", ())):
        if stream not in sources:
            yield (
                ("join", "streams", place),
                f"there is no source {stream!r}; the sources are {listed(sources)}."
                f"{suggestion(stream, sources)}",
            )
    if "streams" in joined:
        for stream in sources:
            if stream not in joined["streams"]:
                yield ("sources", stream), "the join does not use this source; remove it"


def _keys(key: str) -> tuple[str, ...]:
    """The keys of a trouble with an option, whose name may have dots."""
    head, dot, rest = key.partition(".")
    return (head, rest) if dot else (head,) if head else ()


def _built(values: Mapping[str, Any]) -> tuple[Join | None, list[tuple[str, str]]]:
    return build(list(values["sources"]), values["join"])


_ABOUT = {
    r"^join\(\)": (),
    r"^relation |the relation": ("through",),
    r"as its key|a key that all|cannot be compared": ("on",),
    r"as its time|the window of|time columns": ("within",),
    r"column of the results": ("select",),
    r"^the policy|its rank|ranking": ("shed",),
    r"importance": ("weigh",),
}
"""What messages of the plan say, and the option of the join that each is about."""


def _about(message: str, said: Mapping[str, Any]) -> Keys:
    """The option of the join that a message of the plan is about, as far as can be told."""
    if message.startswith("shards is"):
        return ("stream", "shards")
    for text, option in _ABOUT.items():
        if re.search(text, message) and (not option or option[0] in said):
            return ("join", *option)
    method = re.search(r"\.(\w+)\(", message)
    return ("join", method[1]) if method else ("join",)


_PATHS = (
    ("sources", "*", "path"),
    ("sources", "*", "versions"),
    ("sink", "path"),
    ("checkpoint",),
    ("stream", "late_to"),
    ("stream", "resume"),
    ("join", "spill", "to"),
    ("join", "through", "relation"),
    ("join", "through", "relation", "data"),
    ("join", "through", "relation", "changes"),
    ("join", "through", "relation", "versions"),
)


def with_paths(
    values: dict[str, Any], change: Callable[[Keys, str], str], way: Keys = ()
) -> dict[str, Any]:
    """The values with each path that is relative to the job file replaced."""

    def made(name: str, value: Any) -> Any:
        here = (*way, name)
        if isinstance(value, dict):
            return with_paths(value, change, here)
        is_path = any(
            len(path) == len(here) and all(a in ("*", b) for a, b in zip(path, here, strict=True))
            for path in _PATHS
        )
        relative = is_path and isinstance(value, str) and "://" not in value
        return change(here, value) if relative and not Path(value).is_absolute() else value

    return {name: made(name, value) for name, value in values.items()}
