"""The ledgers of a query on Spark, one for each of its joins, from the query's own progress.

Each join puts its accounts into the progress under a name of its own: Spark refuses a plan in which
two observations have the same one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryListener

from streamshed.engine.accounts import estimates
from streamshed.engine.observe.tallies import tally_of
from streamshed.errors import InputError
from streamshed.estimates import Estimate, KeyTally, Share, Tally, part_made
from streamshed.ledger import Ledger, Spilled, StreamLedger
from streamshed.spark.late import late_warning, logger
from streamshed.spark.processor import FATES, SHED_BY, TOTALS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Number = TypeVar("Number", int, float)
OBSERVATION = "streamshed"
"""How the names of observations begin; then come the number of the join and its streams."""
_joins = itertools.count(1)

_TALLY = tuple(field.name for field in fields(Tally))
_KEYS = tuple(field.name for field in fields(KeyTally))
_SAMPLED = ("rate", *(f"{when} {name}" for when in ("all", "lately") for name in _TALLY), *_KEYS)
"""What the shards' samples say: the rate, and the tallies of results and of keys."""
_PACED = ("throttle", "capacity", "harvest")
"""What the shards' throttles say."""
_SPILLED = tuple(f"spilled {field.name}" for field in fields(Spilled))
"""What the shards have spilled; the delays of all results are added."""
_COMBINED: dict[str, Callable[[list[Any]], Any]] = {
    "rate": min,
    "weight": max,
    "keys_weight": max,
    "throttle": fmean,
    "harvest": fmean,
    "longest_delay": max,
}
"""How that of several shards is put together; all else is added."""
_TOLD = ("counts", "sampled", "importance", "paced", "spilled", "combined")
"""The columns of a shard's accounts."""


@dataclass(frozen=True)
class Budgets:
    """What a join may keep: rows, or bytes; None if that is not bounded."""

    rows: int | None = None
    nbytes: int | None = None


NO_BUDGETS = Budgets()


def observed(
    accounts: DataFrame, streams: Sequence[str], budgets: Budgets = NO_BUDGETS
) -> DataFrame:
    """Put the accounts of all shards into the progress of the query, and what may be kept.

    They are put together where they are read: more than a hundred aggregates, one for each number,
    would take a fifth of the processor time of a batch of few rows.
    """
    about = {"streams": [*streams], "rows": budgets.rows, "bytes": budgets.nbytes}
    return accounts.observe(
        f"{OBSERVATION} {next(_joins)}: {', '.join(streams)}",
        f.max(f.lit(json.dumps(about))).alias("about"),
        *(f.collect_list(column).alias(column) for column in _TOLD),
    )


def counted(results: DataFrame) -> DataFrame:
    """Put into the progress of the query how many results a batch of a join in clusters made."""
    name = f"{OBSERVATION} combined {next(_joins)}"
    return results.observe(name, f.count(f.lit(1)).alias("results"))


@dataclass(frozen=True)
class Combined:
    """What a join in clusters has made, and missed, of some batches.

    Attributes:
        batches: how many they are.
        results: that it made, of the members of all clusters.
        missed: an estimate of the further results that the join in one place would have made.

    Examples:
        >>> print(Combined(3, 800, Estimate(200.0, 100.0, 300.0)))
        800 results in 3 batches
        recall 80.0 % (72.7 to 88.9): an estimated 200 (100 to 300) results missed
    """

    batches: int
    results: int
    missed: Estimate

    @property
    def recall(self) -> Share:
        """The part of the results that was made."""
        return part_made(self.results, self.missed)

    def __str__(self) -> str:
        return (
            f"{self.results:,} results in {self.batches:,} batches\n"
            f"recall {self.recall}: an estimated {self.missed} results missed"
        )


def combined(query: StreamingQuery) -> Combined | None:
    """What a join in clusters made and missed in the batches that the query's progress still has.

    Spark keeps the progress of the last 100 batches since the start of the query, or of as many as
    `spark.sql.streaming.numRecentProgressUpdates` says. None where nothing is estimated: the join
    is not in clusters or has no budget, or no batch is done.

    Raises:
        InputError: what was given is no query.
    """
    made, told = 0, []
    for batch in _progress(query, "combined"):
        metrics = batch.get("observedMetrics") or {}
        numbers = [n for row in metrics.values() for n in _told(row).get("combined") or []]
        if numbers:
            told += numbers
            made += sum(_told(row).get("results") or 0 for row in metrics.values())
    if not told:
        return None
    return Combined(len(told), made, replace(tally_of(told), made=made).missed())


def ledger(query: StreamingQuery) -> Ledger | None:
    """Return the ledger of a query as of its last batch with data; None before the first.

    Raises:
        InputError: the query has several joins, whose ledgers `ledgers` returns.
    """
    found = ledgers(query)
    if len(found) > 1:
        raise InputError(
            f"ledger(): the query has {len(found)} joins, of {'; '.join(found)}; use"
            f" ledgers(query), as in ledgers(query)[{next(iter(found))!r}]"
        )
    return next(iter(found.values()), None)


def ledgers(query: StreamingQuery) -> dict[str, Ledger]:
    """Return the ledger of each join of a query as of its last batch with data, by its streams.

    The name of a join of the streams a and b is `"a, b"`; a second join of streams of the same
    names is `"a, b (2)"`, in the order in which `.stream()` was called. Before the first batch, the
    mapping is empty.

    Raises:
        InputError: the query has no join of Streamshed.
    """
    batches = _progress(
        query,
        "ledger",
        " Of inputs that do not stream .count(…) gives the ledger: it takes such DataFrames too,"
        " and reads them here",
    )
    for progress in reversed(batches):
        if found := _read(progress.get("observedMetrics") or {}):
            return found
    if any(progress.get("numInputRows") for progress in batches):
        raise InputError(
            f"ledger(): the query {query.name or query.id} has done batches, but their progress has"
            " no accounts of a join. Give a query over what .stream() returns"
        )
    return {}


def _progress(query: StreamingQuery, asked: str, instead: str = "") -> list[Mapping[str, Any]]:
    """The progress of the last batches of a query.

    Args:
        query: the query.
        asked: the function that asks for it.
        instead: what to do without a query.
    """
    if not hasattr(query, "recentProgress"):
        raise InputError(
            f"{asked}(): a {type(query).__name__} was given; give the query that"
            f" .writeStream….start() returns.{instead}"
        )
    return [
        progress if isinstance(progress, dict) else json.loads(progress.json)
        for progress in query.recentProgress
    ]


def _read(metrics: Mapping[str, Any]) -> dict[str, Ledger]:
    """The ledgers in the progress of a batch."""
    return {join: accounts for join, (accounts, _) in ledgers_and_budgets(metrics).items()}


def ledgers_and_budgets(metrics: Mapping[str, Any]) -> dict[str, tuple[Ledger, Budgets]]:
    """The ledger of each join and what it may keep, from a batch's observed metrics."""
    numbered = []
    for name, row in metrics.items():
        label, _, streams = name.partition(": ")
        origin, _, number = label.partition(" ")
        if origin == OBSERVATION and number.isdigit():
            told = _told(row)
            if not told.get("about"):
                continue  # of a batch without rows
            about = json.loads(told["about"])
            values = _values(about["streams"], told)
            if values["results"] is not None:
                budgets = Budgets(about["rows"], about["bytes"])
                numbered.append((int(number), streams, (_ledger(values), budgets)))
    found: dict[str, tuple[Ledger, Budgets]] = {}
    for _, streams, one in sorted(numbered, key=lambda join: join[0]):
        names = itertools.chain([streams], (f"{streams} ({i})" for i in itertools.count(2)))
        found[next(name for name in names if name not in found)] = one
    return found


def _told(row: Any) -> dict[str, Any]:
    """What was observed, by name; Spark Connect tells names and values apart."""
    found: dict[str, Any] = row.asDict() if hasattr(row, "asDict") else dict(row)
    if {*found} != {"values", "schema"}:
        return found
    names = [column["name"] for column in found["schema"]["fields"]]
    return dict(zip(names, found["values"], strict=True))


def _values(streams: Sequence[str], told: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of all shards together, by name; None where no shard has told one."""
    importance = [[number] for number in told["importance"]]
    return (
        _combined(_counted(streams), told["counts"])
        | _combined(_SAMPLED, told["sampled"])
        | _combined(("importance",), importance)
        | _combined(_PACED, told["paced"])
        | _combined(_SPILLED, told["spilled"])
    )


def _counted(streams: Sequence[str]) -> list[str]:
    """What the counts of a shard are."""
    fates = (f"{stream}.{fate}" for stream in streams for fate in FATES)
    return [*TOTALS, *fates, *(f"shed by {policy}" for policy in SHED_BY)]


def _combined(names: Sequence[str], shards: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The numbers of these names of all shards together; a shard may tell only the first ones."""
    found: dict[str, Any] = {}
    for place, name in enumerate(names):
        told = [numbers[place] for numbers in shards if place < len(numbers)]
        known = [number for number in told if number is not None]
        combine = _COMBINED.get(name.rpartition(" ")[2], sum)
        found[name] = combine(known) if known else None
    return found


def _ledger(values: Mapping[str, Any]) -> Ledger:
    counts: dict[str, dict[str, int]] = {}
    for name, value in values.items():
        stream, dot, fate = name.rpartition(".")
        if dot:
            counts.setdefault(stream, {})[fate] = int(value or 0)
    return Ledger(
        {stream: StreamLedger(**fates) for stream, fates in counts.items()},
        results=int(values["results"]),
        state_bytes=int(values["state_bytes"]),
        payload_bytes=int(values["payload_bytes"]),
        held_bytes=int(values["held_bytes"]),
        peak_bytes=int(values["peak_bytes"]),
        **estimates(_tally(values, "all"), _tally(values, "lately"), _key_tally(values)),
        sample_rate=float(values["rate"] or 0),
        sample_bytes=int(values["sample_bytes"]),
        shed_by={name: rows for name in SHED_BY if (rows := int(values[f"shed by {name}"] or 0))},
        importance=_known(values["importance"], float),
        relation_bytes=int(values["relation_bytes"]),
        comparisons=_known(values["comparisons"], int),
        throttle=_known(values["throttle"], float),
        capacity=_known(values["capacity"], float),
        harvest=_known(values["harvest"], float),
        spilled=_spilled(values),
    )


def _known(value: Any, kind: Callable[[Any], Number]) -> Number | None:
    return None if value is None else kind(value)


def _tally(values: Mapping[str, Any], when: str) -> Tally | None:
    """What the shards' tallies say together, if they say anything."""
    if values["rate"] is None:
        return None
    return Tally(**{name: float(values[f"{when} {name}"]) for name in _TALLY})


def _key_tally(values: Mapping[str, Any]) -> KeyTally | None:
    """How many keys have results, if the shards count them."""
    if values["keys"] is None:
        return None
    return KeyTally(**{name: float(values[name]) for name in _KEYS})


def _spilled(values: Mapping[str, Any]) -> Spilled | None:
    """What the shards have spilled together, if they spill."""
    if values.get("spilled rows") is None:
        return None
    found = {name.partition(" ")[2]: float(values[name]) for name in _SPILLED}
    delay = found.pop("delay") / max(1.0, found["results"])
    return Spilled(**{name: int(value) for name, value in found.items()}, delay=delay)


class LedgerListener(StreamingQueryListener):
    """Logs the ledger of every query with a join of Streamshed after each batch.

    Ledgers go to the logger `streamshed.spark` as information, with the name of the query, or its
    id if it has no name. The listener warns when more than a few rows have come too late, and again
    at ten times as many; a query that fails is logged as an error. Add it before queries start,
    with `spark.streams.addListener(LedgerListener())`.
    """

    def __init__(self) -> None:
        self._late: dict[tuple[Any, str], Mapping[object, int]] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to say yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Log the accounts of a batch."""
        progress = event.progress
        query = progress.name or progress.id
        found = _read(progress.observedMetrics)
        for streams, accounts in found.items():
            join = f", join of {streams}" if len(found) > 1 else ""
            logger.info("batch %s of %s%s\n%s", progress.batchId, query, join, accounts)
            late = {stream: one.late for stream, one in accounts.streams.items()}
            seen = self._late.get((progress.runId, streams), {})
            self._late[progress.runId, streams] = late
            if (said := late_warning(seen, late)) is not None:
                logger.warning("query %s%s: %s", query, join, said)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Say it if the query failed."""
        if event.exception is not None:
            logger.error("query %s failed: %s", event.id, event.exception)
