"""A query as the page sees it, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from streamshed.spark.processor import FATES, SHED_BY, TOTALS

START = 1_800_000_000
"""When the first batch begins, in seconds."""


def observed(
    streams: Sequence[str],
    counts: Mapping[str, int],
    rows: int | None = None,
    nbytes: int | None = None,
    paced: Sequence[float] = (),
) -> dict[str, Any]:
    """What is observed of a join in one shard, of whose counts some are not zero."""
    fates = [f"{stream}.{fate}" for stream in streams for fate in FATES]
    names = [*TOTALS, *fates, *(f"shed by {by}" for by in SHED_BY)]
    assert {*counts} <= {*names}
    return {
        "about": json.dumps({"streams": streams, "rows": rows, "bytes": nbytes}),
        "counts": [[counts.get(name, 0) for name in names]],
        "paced": [[*paced]] if paced else [],
        **{told: [] for told in ("sampled", "importance", "spilled", "combined")},
    }


def progress(
    batch: int,
    rows: int = 1_000,
    streams: tuple[str, ...] = ("clicks", "orders"),
    budget: int | None = 5_000,
    also: Mapping[str, int] | None = None,
    **told: Any,
) -> Any:
    """What Spark says of a batch of a join that sheds half of its rows.

    Args:
        batch: its number.
        rows: of all streams in it.
        streams: their names.
        budget: the rows that may be kept.
        also: counts that are not zero, besides those of shedding.
        told: what else is observed; see `observed`.
    """
    done = (batch + 1) * rows // len(streams)
    fates = {"arrived": done, "shed": done // 2, "stored": done - done // 2}
    counts = {f"{stream}.{fate}": n for stream in streams for fate, n in fates.items()}
    counts |= {"results": 10 * (batch + 1), "state_bytes": 2_048}
    counts |= {"shed by density": len(streams) * (done // 2), **(also or {})}
    second = START + 2 * batch
    return {
        "batchId": batch,
        "timestamp": f"2027-01-15T08:{second // 60 % 60:02d}:{second % 60:02d}.000Z",
        "numInputRows": rows,
        "inputRowsPerSecond": rows / 2,
        "processedRowsPerSecond": float("nan"),
        "durationMs": {"triggerExecution": 500},
        "sources": [
            {"description": "Kafka", "metrics": {"maxOffsetsBehindLatest": str(7 * batch)}}
        ],
        "observedMetrics": {
            f"streamshed 3: {', '.join(streams)}": observed(streams, counts, budget, **told),
            "of another": {"secret": "contents of a row"},
        },
    }


class Query:
    """A query whose batches are added one by one."""

    name, id, runId = "funnel", "1", "run"  # noqa: N815 - Spark's names

    def __init__(self, batches: int = 0, **told: Any) -> None:
        self.isActive = True
        self.failure: Exception | None = None
        self.recentProgress = [progress(batch, **told) for batch in range(batches)]

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def status(self) -> dict[str, Any]:
        return {"message": "Processing new data"}

    def exception(self) -> Exception | None:
        return self.failure

    def add(self) -> None:
        self.recentProgress.append(progress(len(self.recentProgress)))
