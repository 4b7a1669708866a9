"""The rows that a stopped query holds, in files, and a query that goes on from them.

A savepoint is a folder: the rows that are held, in Parquet files for each stream, and
`savepoint.json`, which says where the sources stood, what time it was, and what had become of all
rows. The query that goes on has shards of its own: rows find theirs as all rows do, and are joined
again, but for the results that they have made. So results, clocks and the ledger go on, and what a
policy or a sample has learned begins anew. Changes of a relation that have streamed are in files
too, as each shard took them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import functions as f

from streamshed.engine.budget_parts import Counted
from streamshed.engine.checkpoint import from_ipc
from streamshed.engine.ingest import InputRows, in_order_of_time, merged
from streamshed.engine.operator import Operator
from streamshed.engine.restore import stored_rows
from streamshed.errors import InputError, SpecError, StateError
from streamshed.kernels.core import ARRIVED, FATES, NEVER, RESULTS, STORED, TOTAL_IMPORTANCE
from streamshed.plan.plan import Plan
from streamshed.plan.routing import axes_of, by_one_key
from streamshed.shards import routing_hash
from streamshed.spark.blobs import COUNTED
from streamshed.spark.changes import changes_of
from streamshed.spark.deferred import STATE
from streamshed.spark.folders import checked_folder, file_system
from streamshed.spark.settings import start_coordinator
from streamshed.spark.sharding import Sharding
from streamshed.spark.shipping import Shipped, ship_table
from streamshed.spark.store import Live, stored
from streamshed.spark.types import struct_of, type_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamshed.engine.match.relation_matcher import RelationMatcher

_ABOUT = "savepoint.json"
_JOIN = ("streams", "key", "times", "condition")
"""What has to be the same in the join that goes on."""


@dataclass(frozen=True)
class Held:
    """What is known of a stopped query besides the rows that it holds.

    Attributes:
        about: the join, in words.
        sources: where they stood after the last batch, as Spark writes it.
        labels: of the shards, in their order.
        changes: how many changes of the relation each shard had taken.
        rows: how many are held of each input.
        newest: the newest time of each input.
        counts: what has become of the rows of each stream.
        results: made so far.
        importance: of these.
    """

    about: dict[str, str]
    sources: list[str]
    labels: list[int]
    changes: int
    rows: dict[str, int]
    newest: list[int]
    counts: list[list[int]]
    results: int
    importance: float

    @property
    def shards(self) -> int:
        """How many shards there were."""
        return len(self.labels)


# -- to write one ---------------------------------------------------------------------------------


def write_savepoint(
    session: SparkSession, checkpoint: str, to: str, operator: int | None = None
) -> Held:
    """Write what a stopped query holds to a folder.

    Args:
        session: to read the state with.
        checkpoint: of the query.
        to: the folder, a path or a URI.
        operator: the number of the join among the stateful operators of the query, if it has
            several.
    """
    system, root = file_system(checked_folder(to, "the folder of the savepoint"))
    if system.get_file_info(f"{root}/{_ABOUT}").type != fs.FileType.NotFound:
        raise InputError(f"there is a savepoint in {to!r} already; give another folder")
    start_coordinator(session)
    state = (
        session.read.format("statestore")
        .option("operatorId", _operator(session, checkpoint, operator))
        .option("stateVarName", STATE)
        .load(checkpoint)
        .select("key.*", "user_map_key", "user_map_value")
        .toDF("shard", "key", "value")
    )
    labels = sorted(row.shard for row in state.select("shard").distinct().collect())
    rows: dict[str, int] = {}
    heads = []
    taken = 0
    for label in labels:
        entries = state.where(f.col("shard") == label).toLocalIterator()
        found = stored((tuple(row.key), tuple(row.value)) for row in entries)
        snapshot, sharding = found.snapshot, found.sharding
        if "spill." in snapshot.head.numbers:
            raise InputError(
                f"the join of the checkpoint {checkpoint!r} spills, and a savepoint has no place"
                " for rows that wait on disk; go on from the checkpoint itself"
            )
        heads.append(snapshot.head)
        for (position, number), held in stored_rows(snapshot):
            folder = f"{root}/rows/{position}"
            system.create_dir(folder, recursive=True)
            pq.write_table(held, f"{folder}/{label}-{number}.parquet", filesystem=system)
            rows[str(position)] = rows.get(str(position), 0) + len(held)
        if found.changes:
            changes = pa.Table.from_batches(found.changes)
            taken = len(changes)
            system.create_dir(f"{root}/changes", recursive=True)
            pq.write_table(changes, f"{root}/changes/{label}.parquet", filesystem=system)
    held = Held(
        heads[0].about,
        _offsets(session, checkpoint),
        [*Sharding(sharding["partitions"], sharding["shards"]).labels],
        taken,
        rows,
        np.max([head.numbers["newest"] for head in heads], axis=0).tolist(),
        np.sum([h.arrays["core.counts"].reshape(-1, FATES) for h in heads], axis=0).tolist(),
        sum(int(h.arrays["numbers"][RESULTS]) - h.numbers["rejected"] for h in heads),
        sum(
            float(h.arrays["core.totals"][TOTAL_IMPORTANCE]) - h.numbers["rejected_importance"]
            for h in heads
        ),
    )
    system.create_dir(root, recursive=True)
    with system.open_output_stream(f"{root}/{_ABOUT}") as file:
        file.write(json.dumps(asdict(held), indent=1).encode())
    return held


def _operator(session: SparkSession, checkpoint: str, asked: int | None) -> int:
    """The number of the join among the stateful operators of a query."""
    if asked is not None:
        return asked
    known = session.read.format("state-metadata").load(checkpoint)
    mine = known.where(f.lower("operatorName").startswith("transformwithstate"))
    found = sorted(row.operatorId for row in mine.select("operatorId").distinct().collect())
    if len(found) != 1:
        raise InputError(
            f"the checkpoint {checkpoint!r} has {len(found)} operators that may be joins"
            f" ({', '.join(map(str, found)) or 'none'}); give --operator, or the checkpoint of a"
            " query over what .stream() returns"
        )
    return int(found[0])


def _offsets(session: SparkSession, checkpoint: str) -> list[str]:
    """Where the sources stood after the last batch."""
    commits = session.read.format("binaryFile").load(f"{checkpoint}/commits").select("path")
    last = max(int(os.path.basename(row.path)) for row in commits.collect())
    written = session.read.text(f"{checkpoint}/offsets/{last}", wholetext=True).collect()
    # The first two lines say which version this is, and what the batch knew.
    return str(written[0].value).splitlines()[2:]


# -- to go on from one ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Savepoint:
    """What a query that begins with a savepoint knows of it besides the rows.

    Attributes:
        held: what is written there.
        changes: those of the relation that have streamed, in a file that every executor will have.
    """

    held: Held
    changes: Shipped | None


def read_savepoint(folder: str, plan: Plan, session: SparkSession) -> Savepoint:
    """Read what a savepoint knows besides the rows.

    Raises:
        StateError: there is none, or it is of another join.
        SpecError: the join cannot go on from one.
    """
    system, root = file_system(checked_folder(folder, "resume"))
    try:
        with system.open_input_stream(f"{root}/{_ABOUT}") as file:
            held = Held(**json.loads(file.read()))
    except OSError as error:
        raise StateError(
            f"resume is {folder!r}, but there is no savepoint ({error}); write one with streamshed"
            " savepoint CHECKPOINT TO"
        ) from error
    reasons = {
        "a column names the streams": plan.by is not None,
        "rows wait in a queue": plan.queue is not None,
        "work is bounded": plan.throttle is not None,
        "rows without a match are results": bool(plan.unmatched),
        "a row makes its first results only": plan.first is not None,
        "windows are of rows": any(stream.last is not None for stream in plan.streams),
    }
    for reason, holds in reasons.items():
        if holds:
            raise SpecError(
                f"resume: {reason}, and such joins cannot go on from a savepoint yet; go on from"
                " the checkpoint with the same shards, or start anew"
            )
    now = plan.about()
    for part in _JOIN:
        if now[part] != held.about[part]:
            raise StateError(
                f"resume: the savepoint is of another join: {part} was {held.about[part]!r} and"
                f" is {now[part]!r}; give the join that made it"
            )
    return Savepoint(held, _held_changes(session, folder, held, plan))


def held_rows(
    session: SparkSession, folder: str, held: Held, plan: Plan, position: int
) -> DataFrame:
    """The rows of an input that a savepoint holds, each once; columns that it lacks are null."""
    stream = plan.streams[position]
    kinds = {column.name: type_of(column.type) for column in stream.schema}
    if str(position) not in held.rows:
        return session.createDataFrame([], struct_of(stream.schema))
    system, root = file_system(checked_folder(folder, "resume"))
    files = system.get_file_info(fs.FileSelector(f"{root}/rows/{position}"))
    with system.open_input_file(min(file.path for file in files)) as first:
        schema = pq.read_schema(first)
    place = folder if "://" in folder else os.path.abspath(folder)
    rows = session.read.schema(struct_of(schema)).parquet(f"{place}/rows/{position}")
    numbered = rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))
    number_of = {name: f"c{number}" for number, name in enumerate(rows.columns) if name in kinds}
    if held.shards > 1 and _copies(plan):
        numbered = _each_once(numbered.select(*number_of.values()))
    return numbered.select(
        *(
            (f.col(number_of[name]) if name in number_of else f.lit(None)).cast(kind).alias(name)
            for name, kind in kinds.items()
        )
    )


def _copies(plan: Plan) -> bool:
    """Whether several shards may hold a row."""
    through = plan.through
    return bool(axes_of(plan)) or (through is not None and not by_one_key(plan, through))


def _each_once(rows: DataFrame) -> DataFrame:
    """Rows of which several shards may hold copies, without these.

    Rows that are equal went to the same shards: there are as many as one shard holds.
    """
    shard = f.regexp_extract(f.input_file_name(), r"(\d+)-\d+\.parquet$", 1)
    in_each = rows.withColumn("shard", shard).groupBy("shard", *rows.columns).agg(f.count("*"))
    count = f.max(in_each.columns[-1]).cast("int")
    counted = in_each.groupBy(*rows.columns).agg(count.alias("count"))
    return counted.withColumn("one", f.explode(f.array_repeat(f.lit(0), f.col("count")))).select(
        *rows.columns
    )


def _held_changes(session: SparkSession, folder: str, held: Held, plan: Plan) -> Shipped | None:
    """The changes of a relation that a savepoint holds.

    Shards may let a change that comes late hold from different times on; here it holds as in the
    shard of its key.
    """
    through = plan.through
    if held.changes == 0 or through is None or changes_of(plan) is None:
        return None
    system, root = file_system(checked_folder(folder, "resume"))
    schema = through.relation.change_schema(through.schema)
    taken = [
        pq.read_table(f"{root}/changes/{label}.parquet", filesystem=system) for label in held.labels
    ]
    key = taken[0].select([*dict.fromkeys(through.keys[0])]).combine_chunks().to_batches()[0]
    hashed = routing_hash(key, through.keys[0], plan.streams[0].key_types)
    owner = (hashed % np.uint64(len(taken))).astype(np.int64)
    own = [changes.filter(pa.array(owner == shard)) for shard, changes in enumerate(taken)]
    rows = pa.concat_tables(own).sort_by(through.relation.time)
    for column in schema:
        if column.name not in rows.column_names:
            rows = rows.append_column(column, pa.nulls(len(rows), column.type))
    whole = rows.select(schema.names).cast(schema).combine_chunks().to_batches()[0]
    return ship_table(whole, session)


@dataclass(frozen=True)
class Resumed:
    """How a shard begins with rows of a savepoint.

    Attributes:
        savepoint: what is known besides the rows.
        first: whether it is the first of all shards, which takes over the accounts.
        blobs: the rows of each input, packed, and under `COUNTED` what is told of those of all.
    """

    savepoint: Savepoint
    first: bool
    blobs: Mapping[int, list[bytes]]

    def __call__(self, state: Live) -> None:
        """Let a new join be as if the rows had come just now."""
        join, held, changes = state.join, self.savepoint.held, self.savepoint.changes
        if changes is not None:
            state.change([*changes.source("changes").batches()])
        parts = [
            in_order_of_time(
                InputRows.concatenated([join.read(position, from_ipc(blob)) for blob in blobs])
            )
            for position, blobs in sorted(self.blobs.items())
            if position != COUNTED
        ]
        if join.parts is not None:
            counted = [Counted.of_rows(from_ipc(blob)) for blob in self.blobs.get(COUNTED, [])]
            join.parts.begin_with(counted, max(held.newest))
            join.keep_to_part()
        if parts:
            for _ in join.process(merged(parts)):
                pass  # results that were made before
        join.advance([[time] for time in held.newest])
        newest = max(held.newest)
        if changes_of(join.plan) is not None and newest != NEVER:
            cast("RelationMatcher", join.matcher).pass_by(newest)
        self._account(join)

    def _account(self, join: Operator) -> None:
        """Count what is held once, and what was made and lost before with the first shard."""
        core, held = join.core, self.savepoint.held
        join.rejected, join.rejected_importance = 0, 0.0
        core.numbers[RESULTS] = held.results if self.first else 0
        core.totals[TOTAL_IMPORTANCE] = held.importance if self.first else 0.0
        if self.first:
            counts = core.counts.reshape(-1, FATES)
            for place, own in enumerate(held.counts):
                before = np.array(own)
                before[[ARRIVED, STORED]] -= before[STORED]
                counts[place] += before
        if join.loss is not None:
            for name in ("exact", "certain", "seen"):
                join.loss.sums.total[name] = join.made
