"""A query as the page sees it, without Spark."""

from __future__ import annotations

from typing import Any

from streamshed.spark.processor import FATES, SHED_BY, TOTALS

START = 1_800_000_000
"""When the first batch begins, in seconds."""


def progress(batch: int, rows: int = 1_000, streams: tuple[str, ...] = ("clicks", "orders")) -> Any:
    """What Spark says of a batch of a join that sheds half of its rows."""
    done = (batch + 1) * rows // len(streams)
    fates = dict.fromkeys(FATES, 0) | {
        "arrived": done,
        "shed": done // 2,
        "stored": done - done // 2,
    }
    values: dict[str, Any] = dict.fromkeys([*TOTALS, *(f"shed by {by}" for by in SHED_BY)], 0)
    values |= {f"{stream}.{fate}": n for stream in streams for fate, n in fates.items()}
    values |= dict.fromkeys(("rate", "keys", "importance", "throttle", "capacity", "harvest"))
    values |= {"results": 10 * (batch + 1), "budget": 5_000, "state_bytes": 2_048}
    values |= {"shed by density": len(streams) * (done // 2)}
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
            f"streamshed 3: {', '.join(streams)}": values,
            "of another": {"secret": "contents of a row"},
        },
    }


class Query:
    """A query whose batches are added one by one."""

    name, id, runId = "funnel", "1", "run"  # noqa: N815 - Spark's names

    def __init__(self, batches: int = 0) -> None:
        self.isActive = True
        self.failure: Exception | None = None
        self.recentProgress = [progress(batch) for batch in range(batches)]

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
