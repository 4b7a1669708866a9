"""The ledger of a query on Spark, from the query's own progress."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryListener

from streamshed.errors import InputError
from streamshed.estimates import Estimate, KeyTally, Tally
from streamshed.ledger import Keys, Ledger, StreamLedger
from streamshed.spark.processor import FATES, SHED_BY, TOTALS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Number = TypeVar("Number", int, float)
OBSERVATION = "streamshed"

_TALLY = tuple(field.name for field in fields(Tally))
_KEYS = tuple(field.name for field in fields(KeyTally))
_SAMPLED = ("rate", *(f"{when} {name}" for when in ("all", "lately") for name in _TALLY), *_KEYS)
"""What the shards' samples say: the rate, and the tallies of results and of keys."""
_PACED = ("throttle", "capacity")
"""What the shards' throttles say."""
_COMBINED = {"rate": f.min, "weight": f.max, "keys_weight": f.max, "throttle": f.avg}
"""How that of several shards is put together; all else is added."""

logger = logging.getLogger("streamshed.spark")


def observed(accounts: DataFrame, streams: Sequence[str]) -> DataFrame:
    """Put the accounts into the progress of the query."""
    fates = [f"{stream}.{fate}" for stream in streams for fate in FATES]
    names = [*TOTALS, *fates, *(f"shed by {policy}" for policy in SHED_BY)]

    def total(column: str, place: int, name: str) -> Column:
        combine = _COMBINED.get(name.rpartition(" ")[2], f.sum)
        return combine(f.get(f.col(column), f.lit(place))).alias(name)

    return accounts.observe(
        OBSERVATION,
        *(total("counts", place, name) for place, name in enumerate(names)),
        *(total("sampled", place, name) for place, name in enumerate(_SAMPLED)),
        *(total("paced", place, name) for place, name in enumerate(_PACED)),
        f.sum("importance").alias("importance"),
    )


def ledger(query: StreamingQuery) -> Ledger | None:
    """The accounts of a running or finished query as of its last batch with data.

    None while no batch is done.
    """
    if not hasattr(query, "recentProgress"):
        raise InputError(
            f"ledger(): a {type(query).__name__} was given; give the query that"
            " .writeStream….start() returns. Of inputs that do not stream .count(…) gives the"
            " ledger: it takes such DataFrames too, and reads them here"
        )
    for progress in reversed(query.recentProgress):
        found = _read(
            progress["observedMetrics"]
            if isinstance(progress, dict)
            else json.loads(progress.json)["observedMetrics"]
        )
        if found is not None:
            return found
    return None


def _read(metrics: Mapping[str, Any]) -> Ledger | None:
    row = metrics.get(OBSERVATION)
    if row is None:
        return None
    values: dict[str, Any] = row.asDict() if hasattr(row, "asDict") else dict(row)
    if values.get("results") is None:
        return None
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
        missed=_estimated(values, "all"),
        missed_lately=_estimated(values, "lately"),
        keys=_keys(values),
        sample_rate=float(values["rate"] or 0),
        sample_bytes=int(values["sample_bytes"]),
        shed_by={name: rows for name in SHED_BY if (rows := int(values[f"shed by {name}"] or 0))},
        importance=_known(values["importance"], float),
        relation_bytes=int(values["relation_bytes"]),
        comparisons=_known(values["comparisons"], int),
        throttle=_known(values["throttle"], float),
        capacity=_known(values["capacity"], float),
    )


def _known(value: Any, kind: Callable[[Any], Number]) -> Number | None:
    return None if value is None else kind(value)


def _estimated(values: Mapping[str, Any], when: str) -> Estimate | None:
    """What the shards' tallies say together, if they say anything."""
    if values["rate"] is None:
        return None
    return Tally(**{name: float(values[f"{when} {name}"]) for name in _TALLY}).missed()


def _keys(values: Mapping[str, Any]) -> Keys | None:
    """How many keys have results, if the shards count them."""
    if values["keys"] is None:
        return None
    keys = KeyTally(**{name: float(values[name]) for name in _KEYS})
    return Keys(keys.made(), keys.exact())


class LedgerListener(StreamingQueryListener):
    """Logs the ledger of every query that joins with Streamshed, batch by batch.

    Add it with `spark.streams.addListener(LedgerListener())`.
    """

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to say yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Log the accounts of a batch."""
        found = _read(event.progress.observedMetrics)
        if found is not None:
            logger.info("batch %s of %s\n%s", event.progress.batchId, event.progress.name, found)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Say it if the query failed."""
        if event.exception is not None:
            logger.error("query %s failed: %s", event.id, event.exception)
