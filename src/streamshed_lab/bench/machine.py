"""What the machine can do at best, beside which a loop's speed is read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from streamshed.engine.batch import Batch
from streamshed.engine.operator import Operator
from streamshed_lab.bench import Measurement
from streamshed_lab.bench.timing import best_of, processor_time

_BYTES = 1 << 28
"""More than any cache holds."""
LINE = 64
"""Bytes that memory hands over at once."""


@cache
def bandwidth() -> float:
    """Bytes a second that one core reads and writes when it copies a large array."""
    source, target = np.ones(_BYTES // 8), np.empty(_BYTES // 8)
    seconds = best_of(3, {"copy": lambda: processor_time(lambda: np.copyto(target, source))})
    return 2 * _BYTES / seconds["copy"]


def bytes_touched(operator: Operator, batch: Batch) -> int:
    """Bytes that memory would hand over for one row if the caches kept nothing.

    Its columns in the batch, which stand side by side with those of other rows; and whole lines for
    what is anywhere: its place in the directory, its key, itself, and the two rows beside it in the
    rings of its key and of its stream. A row that is stored leaves again, and is touched twice.
    """
    columns = sum(column.nbytes for column in batch if column.size) // max(1, batch.time.size)
    key = -(-operator.core.settings.key_words * 4 // LINE) * LINE
    row = -(-operator.core.rows.itemsize // LINE) * LINE
    return columns + 2 * (LINE + key + 3 * row)


def share(name: str, operator: Operator, batch: Batch, speed: float) -> Iterator[Measurement]:
    """The part of the machine's memory bandwidth that a loop of a speed would take, at most."""
    touched = bytes_touched(operator, batch)
    yield Measurement(f"bytes touched, {name}", touched, "bytes/row")
    part = touched * speed / bandwidth()
    yield Measurement(f"of one core's memory bandwidth, {name}", part, "part")
