"""Waiting for a query, and stopping it between two batches when the process is told to end."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger("streamshed.jobs")

_LOOK, _NEAR = 0.2, 0.02
"""Seconds between two looks at a query, and while the end of its batch is awaited."""


def wait(query: StreamingQuery) -> None:
    """Wait for the end of a query.

    SIGTERM and Ctrl-C stop it when the batch at hand is committed, and a second one at once. Spark
    has no way to hold back the next batch: where batches follow each other without a gap, the next
    has begun when the query is stopped, and is done anew when the job is started again.

    Raises:
        StreamingQueryException: the query failed.
    """
    with _signals() as asked:
        while not asked:
            if query.awaitTermination(_LOOK):  # type: ignore[arg-type]
                return
        logger.warning("stopping after this batch; once more to stop at once")
        done = _last_batch(query)
        while len(asked) < 2 and query.status["isTriggerActive"] and _last_batch(query) == done:
            time.sleep(_NEAR)
        query.stop()
        if (failure := query.exception()) is not None:
            raise failure


def _last_batch(query: StreamingQuery) -> int | None:
    """The number of the last batch that is committed, if there is one."""
    progress = query.lastProgress
    return None if progress is None else int(progress["batchId"])


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals that came, as they come; from another thread than the main one, none."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {
        number: signal.signal(number, lambda got, _: asked.append(got))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
