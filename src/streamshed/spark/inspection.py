"""What a job holds, read from its checkpoint by Spark's state reader; the job may be running."""

from __future__ import annotations

import ast
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamshed.engine.accounts import stream_ledger
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.restore import CORE, stored_rows
from streamshed.errors import InputError
from streamshed.kernels.core import FATES, RESULTS
from streamshed.ledger import NOT_ESTIMATED, Ledger, StreamLedger, aligned
from streamshed.shards import added, parts_of
from streamshed.sizes import rounded
from streamshed.spark.deferred import STATE
from streamshed.spark.settings import start_coordinator
from streamshed.spark.store import stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_KEYS = 10
_REMEDY = "give the folder that the query was started with, of which at least one batch is done"
_KEPT = 1000
"""Keys that each shard tells of."""


@dataclass(frozen=True)
class Held:
    """The rows of a stream in a shard.

    Attributes:
        shard: its label.
        stream: the stream, or the value of the column that names it.
        rows: how many rows are stored.
        nbytes: their columns, in memory.
        oldest: the time of the oldest, as text; None if there is none, or it is not a column.
    """

    shard: int
    stream: str
    rows: int
    nbytes: int
    oldest: str | None


@dataclass(frozen=True)
class Inspection:
    """What a join of a checkpoint holds; `print` shows it.

    Attributes:
        operator: the number of Spark's stateful operator.
        about: what the join is, in the words of its state: keys, windows, policy, and the budget of
            its first shard.
        shards: the labels of all shards, also of those that have seen no row yet.
        held: the rows, by shard and stream.
        keys: the keys with the most rows, by hash, and how many rows each has.
        ledger: what became of all rows, without estimates.
        state_bytes: the bytes in the state store.
    """

    operator: int
    about: Mapping[str, str]
    shards: tuple[int, ...]
    held: tuple[Held, ...]
    keys: tuple[tuple[str, int], ...]
    ledger: Ledger
    state_bytes: int

    @property
    def rows(self) -> int:
        """The rows that are stored."""
        return sum(one.rows for one in self.held)

    def evicted_by(self, total: int) -> dict[int, int]:
        """The rows of each shard that a budget of so many rows for the whole join would evict.

        A shard has its part of the budget, whatever the others hold.
        """
        held = Counter[int]()
        for one in self.held:
            held[one.shard] += one.rows
        parts = parts_of(total, len(self.shards))
        return {
            shard: max(0, held[shard] - part)
            for shard, part in zip(self.shards, parts, strict=True)
        }

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        plain = {name: value for name, value in asdict(self).items() if name != "ledger"}
        return {**plain, "ledger": self.ledger.to_dict()}

    def __str__(self) -> str:
        each = f" in each of {len(self.shards)} shards" if len(self.shards) > 1 else ""
        lines = [
            f"{self.about['streams']}: key {self.about['key']}, "
            f"budget {_budget(self.about)}{each}, policy {self.about['policy']}",
            f"{self.rows:,} rows, {self.state_bytes:,} bytes in the state store",
        ]
        heads = ["shard", "stream", "rows", "bytes", "oldest row"]
        rows = [
            [str(one.shard), one.stream, f"{one.rows:,}", f"{one.nbytes:,}", one.oldest or ""]
            for one in self.held
        ]
        lines += aligned([heads, *rows])
        if self.keys:
            lines.append("heaviest keys, by hash")
            lines += [f"  {key}  {rows:,} rows" for key, rows in self.keys]
        # Whether they are is not known: estimates are in the progress of the query.
        told = [line for line in str(self.ledger).splitlines() if line != NOT_ESTIMATED]
        return "\n".join([*lines, *told])


def _budget(about: Mapping[str, str]) -> str:
    """The budget in words, from those of the state.

    Examples:
        >>> _budget({"streams": "a, b", "budget": "[None, None], total 500"})
        '500 rows of all streams together'
        >>> _budget({"streams": "a, b", "budget": "[20, None], total None"})
        '20 rows of a'
        >>> _budget({"streams": "a, b", "budget": "[None, None], total None, memory 2000000"})
        '2.0 MB'
    """
    rows, _, rest = about["budget"].partition(", total ")
    total, _, memory = rest.partition(", memory ")
    if memory:
        return rounded(int(memory))
    if total != "None":
        return f"{int(total):,} rows of all streams together"
    streams = zip(about["streams"].split(", "), ast.literal_eval(rows), strict=False)
    own = [f"{rows:,} rows of {stream}" for stream, rows in streams if rows is not None]
    return ", ".join(own) or "none"


def inspect(spark: SparkSession, checkpoint: str) -> list[Inspection]:
    """Look into the checkpoint of a query: what each of its joins held after the last batch.

    Args:
        spark: A session.
        checkpoint: The folder of the checkpoint.
    """
    from pyspark.errors import PySparkException

    start_coordinator(spark)
    try:
        found = spark.read.format("state-metadata").load(checkpoint).collect()
        operators = sorted(
            {row.operatorId for row in found if row.operatorName.startswith("transformWithState")}
        )
        shown = [_inspected(spark, checkpoint, operator) for operator in operators]
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"the checkpoint {checkpoint!r} cannot be read ({reason}); {_REMEDY}"
        ) from error
    joins = [one for one in shown if one is not None]
    if not joins:
        raise InputError(f"the checkpoint {checkpoint!r} holds no state of a join; {_REMEDY}")
    return joins


def _inspected(spark: SparkSession, checkpoint: str, operator: int) -> Inspection | None:
    reader = spark.read.format("statestore").option("operatorId", operator)
    frame = reader.option("stateVarName", STATE).load(checkpoint)
    shards = [json.loads(row.summary) for row in _summaries(frame).collect()]
    if not shards:
        return None
    shards.sort(key=lambda shard: shard["shard"])
    keys: Counter[str] = Counter()
    counts: dict[str, list[StreamLedger]] = {}
    for shard in shards:
        keys.update(shard["keys"])
        for stream, fates in shard["counts"].items():
            counts.setdefault(stream, []).append(stream_ledger(fates))
    held = tuple(Held(**one) for shard in shards for one in shard["held"])
    ledger = Ledger(
        {stream: added(parts) for stream, parts in counts.items()},
        results=sum(shard["results"] for shard in shards),
        payload_bytes=sum(one.nbytes for one in held),
    )
    nbytes = sum(shard["bytes"] for shard in shards)
    heaviest = tuple(keys.most_common(_MOST_KEYS))
    about = shards[0]["about"]
    labels = tuple(int(label) for label in about.pop("shards").split(", ") if label)
    return Inspection(
        operator, about, labels or (shards[0]["shard"],), held, heaviest, ledger, nbytes
    )


def _summaries(frame: DataFrame) -> DataFrame:
    """A line of JSON for each shard, made where its state is read."""
    from pyspark.sql import functions as f

    parts = frame.select(
        f.col("key.*"),
        f.col("user_map_key.*"),
        f.col("user_map_value.*"),
    )
    return parts.groupBy(parts.columns[0]).applyInArrow(_summary, "summary string")


def _summary(entries: pa.Table) -> pa.Table:
    """What the state of one shard says."""
    shard, *key, about, some = (column.to_pylist() for column in entries.columns)
    values = zip(about, some, strict=True)
    snapshot = stored(zip(zip(*key, strict=True), values, strict=True)).snapshot
    counts = snapshot.head.arrays[f"{CORE}counts"].reshape(-1, FATES).tolist()
    said = {
        "shard": shard[0],
        "about": {name: snapshot.head.about[name] for name in _ABOUT},
        "results": int(snapshot.head.arrays["numbers"][RESULTS])
        - snapshot.head.numbers["rejected"],
        "counts": {
            name: counts[number]
            for name, number in _streams(snapshot).items()
            if number < len(counts)
        },
        "bytes": sum(map(len, some)),
        "held": [asdict(one) for one in _held(snapshot, shard[0])],
        "keys": dict(_heaviest(snapshot)),
    }
    return pa.table({"summary": [json.dumps(said)]})


_ABOUT = ("streams", "key", "times", "windows", "budget", "policy", "shards")


def _streams(snapshot: Snapshot) -> dict[str, int]:
    """The streams by name, and the number of each."""
    if snapshot.head.names:
        return {str(name): number for name, number in snapshot.head.names.items()}
    return {name: i for i, name in enumerate(snapshot.head.about["streams"].split(", "))}


def _tables(snapshot: Snapshot) -> Iterator[tuple[int, pa.Table]]:
    """The rows that are stored, input by input."""
    found: dict[int, list[pa.Table]] = {}
    for (position, _), rows in stored_rows(snapshot):
        found.setdefault(position, []).append(rows)
    for position in sorted(found):
        yield position, pa.concat_tables(found[position])


def _held(snapshot: Snapshot, shard: int) -> Iterator[Held]:
    about = snapshot.head.about
    times = ast.literal_eval(about["times"].rpartition(" as ")[0])
    by = about["streams"] if snapshot.head.names else None
    for position, table in _tables(snapshot):
        parts = {[*_streams(snapshot)][position]: table} if by is None else _parted(table, by)
        for stream, rows in parts.items():
            oldest = None
            if rows.num_rows and times[position] in rows.column_names:
                oldest = str(pc.min(rows[times[position]]).as_py())
            yield Held(shard, stream, rows.num_rows, rows.nbytes, oldest)


def _parted(table: pa.Table, by: str) -> dict[str, pa.Table]:
    values = pc.unique(table[by])
    return {str(value): table.filter(pc.equal(table[by], value)) for value in values}


def _heaviest(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    """The keys with the most rows; of a key no more is told than a hash."""
    counted: Counter[str] = Counter()
    columns = snapshot.head.about["key"].split("; ")
    for position, table in _tables(snapshot):
        names = [name for name in columns[position].split(", ") if name in table.column_names]
        if not names:
            continue
        groups = table.group_by(names).aggregate([([], "count_all")])
        order = pc.sort_indices(groups, [("count_all", "descending")])[:_KEPT]
        for row in groups.take(order).to_pylist():
            text = repr([row[name] for name in names])
            digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
            counted[digest] += row["count_all"]
    yield from counted.most_common(_KEPT)
