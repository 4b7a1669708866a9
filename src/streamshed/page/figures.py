"""What the page shows of a query: figures of its batches, and nothing of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from streamshed.estimates import Estimate
from streamshed.ledger import Ledger
from streamshed.spark.progress import Budgets, ledgers_and_budgets

Figures = dict[str, Any]
"""Names and numbers, ready for JSON."""

GONE = ("arrived", "expired", "shed", "filtered", "late")
"""The fates of rows that are counted up; `stored` and `queued` rows come and go."""
HERE = ("stored", "queued")


def figures(progress: Mapping[str, Any], before: Figures | None = None) -> Figures:
    """Read the figures of a batch.

    Args:
        progress: what Spark says of it.
        before: the figures of the batch before it, from which rates follow.
    """
    started = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
    found: Figures = {
        "batch": progress["batchId"],
        "started": started,
        "ended": started + seconds,
        "seconds": seconds,
        "past": max(started + seconds - before["ended"], 1e-3) if before else None,
        "rows": progress["numInputRows"],
        "input_rate": _number(progress.get("inputRowsPerSecond")),
        "joined_rate": _number(progress.get("processedRowsPerSecond")),
        "behind": dict(_behind(progress.get("sources") or ())),
        "joins": {
            name: _join(ledger, budgets)
            for name, (ledger, budgets) in ledgers_and_budgets(
                progress.get("observedMetrics") or {}
            ).items()
        },
    }
    for name, join in found["joins"].items():
        earlier = (before or {}).get("joins", {}).get(name)
        past = found["past"] or seconds or 1.0
        for what in ("results", *GONE):
            rose = join[what] - (earlier[what] if earlier else 0)
            # A query that started anew from its checkpoint counts on; this page has just begun.
            join[f"{what}_rate"] = rose / past if earlier or not found["batch"] else None
    return found


def _join(ledger: Ledger, budgets: Budgets) -> Figures:
    streams = {
        str(name): {fate: getattr(stream, fate) for fate in (*GONE, *HERE)}
        for name, stream in ledger.streams.items()
    }
    totals = {fate: sum(stream[fate] for stream in streams.values()) for fate in (*GONE, *HERE)}
    return {
        "results": ledger.results,
        "budget": budgets.rows,
        "held_bytes": ledger.held_bytes,
        "budget_bytes": budgets.nbytes,
        "streams": streams,
        **totals,
        "unmatched": sum(stream.unmatched for stream in ledger.streams.values()),
        "uncertain": sum(stream.uncertain for stream in ledger.streams.values()),
        "bytes": ledger.state_bytes + ledger.payload_bytes + ledger.relation_bytes,
        "sample_bytes": ledger.sample_bytes,
        "recall": _interval(ledger.recall),
        "missed": _interval(ledger.missed),
        "missed_lately": _interval(ledger.missed_lately),
        "throttle": ledger.throttle,
        "capacity": ledger.capacity,
        "harvest": ledger.harvest,
        "shed_by": dict(ledger.shed_by),
    }


def _interval(estimate: Estimate | None) -> list[float] | None:
    return None if estimate is None else [estimate.value, estimate.low, estimate.high]


def _number(value: Any) -> float | None:
    """A rate; Spark says NaN or infinity where there is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) < float("inf") else None


def _behind(sources: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """How far sources say that the query is behind them: Kafka in offsets, Delta in files."""
    for number, source in enumerate(sources, 1):
        for name, value in (source.get("metrics") or {}).items():
            if ("Behind" in name or "Outstanding" in name) and (
                amount := _number(value)
            ) is not None:
                yield f"{name} of source {number}", amount


# -- Prometheus -----------------------------------------------------------------------------------

_METRICS = {
    "query_active": ("gauge", "1 while the query runs, else 0"),
    "batch_id": ("gauge", "The last batch that was done"),
    "batch_seconds": ("gauge", "How long it took"),
    "batch_rows": ("gauge", "Rows that it had"),
    "batch_end_timestamp_seconds": ("gauge", "When it was done"),
    "input_rows_per_second": ("gauge", "Rows that came in, in a second"),
    "joined_rows_per_second": ("gauge", "Rows that were joined, in a second of work"),
    "source_behind": ("gauge", "How far the query is behind its sources, as these say"),
    "rows_total": ("counter", "Rows by what became of them"),
    "rows": ("gauge", "Rows that are stored, or wait"),
    "budget_rows": ("gauge", "Rows that may be kept"),
    "held_bytes": ("gauge", "Bytes that count against the budget"),
    "budget_bytes": ("gauge", "Bytes that may be kept"),
    "results_total": ("counter", "Results made"),
    "unmatched_total": ("counter", "Rows handed out without a match"),
    "uncertain_total": ("counter", "Those of them that may have had one"),
    "state_bytes": ("gauge", "Bytes of state, users' rows included"),
    "sample_bytes": ("gauge", "Bytes of the sample that estimates follow from"),
    "recall": ("gauge", "The part of the results that was made, estimated, and its interval"),
    "missed_results": ("gauge", "Results that shedding has cost, estimated, and its interval"),
    "throttle": ("gauge", "The part of the work that is done"),
    "capacity_comparisons_per_second": ("gauge", "Comparisons that may be made in a second"),
    "harvest": ("gauge", "The part of the windows that rows go through"),
}


def prometheus(queries: Mapping[str, tuple[bool, Figures | None]]) -> str:
    """Write the newest figures of queries in Prometheus's text format.

    Args:
        queries: whether each runs, and the figures of its last batch.
    """
    samples = [
        one for name, (active, last) in queries.items() for one in _samples(name, active, last)
    ]
    order = {name: place for place, name in enumerate(_METRICS)}
    lines = []
    for name, group in groupby(
        sorted(samples, key=lambda one: order[one[0]]), key=lambda one: one[0]
    ):
        kind, about = _METRICS[name]
        lines += [f"# HELP streamshed_{name} {about}.", f"# TYPE streamshed_{name} {kind}"]
        for _, labels, value in group:
            said = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"streamshed_{name}{{{said}}} {value}")
    return "\n".join([*lines, ""])


def _samples(
    query: str, active: bool, last: Figures | None
) -> Iterator[tuple[str, dict[str, str], float]]:
    labels = {"query": query}
    yield "query_active", labels, int(active)
    if last is None:
        return
    batch = {
        "batch_id": last["batch"],
        "batch_seconds": last["seconds"],
        "batch_rows": last["rows"],
        "batch_end_timestamp_seconds": last["ended"],
        "input_rows_per_second": last["input_rate"],
        "joined_rows_per_second": last["joined_rate"],
    }
    yield from ((name, labels, value) for name, value in batch.items() if value is not None)
    for source, value in last["behind"].items():
        yield "source_behind", labels | {"source": source}, value
    for name, join in last["joins"].items():
        labels = {"query": query, "join": name}
        for stream, fates in join["streams"].items():
            for fate, rows in fates.items():
                metric = "rows_total" if fate in GONE else "rows"
                yield metric, labels | {"stream": stream, "fate": fate}, rows
        one = {
            "budget_rows": join["budget"],
            "held_bytes": join["held_bytes"] if join["budget_bytes"] else None,
            "budget_bytes": join["budget_bytes"],
            "unmatched_total": join["unmatched"] or None,
            "uncertain_total": join["uncertain"] or None,
            "results_total": join["results"],
            "state_bytes": join["bytes"],
            "sample_bytes": join["sample_bytes"],
            "throttle": join["throttle"],
            "capacity_comparisons_per_second": join["capacity"],
            "harvest": join["harvest"],
        }
        yield from ((metric, labels, value) for metric, value in one.items() if value is not None)
        for metric, key in (("recall", "recall"), ("missed_results", "missed")):
            for bound, value in zip(("estimate", "low", "high"), join[key] or (), strict=False):
                yield metric, labels | {"bound": bound}, value


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
