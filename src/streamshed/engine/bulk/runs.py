"""Runs of rows in the order of time: what a join in bulk takes, and keeps of calls before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamshed.engine.batch import Batch
from streamshed.engine.ingest import InputRows

Group = Sequence[InputRows | Batch]
"""Runs of rows, each in the order of time, that are merged with each other."""


def has_rows(run: InputRows | Batch) -> bool:
    """Whether a run is worth keeping."""
    return run.time.size > 0


def rows_of(groups: Sequence[Group]) -> int:
    """How many rows there are."""
    return sum(run.time.size for group in groups for run in group)


def chosen(run: InputRows | Batch, rows: Any) -> InputRows | Batch:
    """Some rows of all columns."""
    columns = (column[rows] if column.size else column for column in run)
    return InputRows._make(columns) if isinstance(run, InputRows) else Batch._make(columns)


def since(groups: Sequence[Group], time: int) -> list[Group]:
    """The rows that are not older than a time."""
    kept = [
        [chosen(run, slice(int(np.searchsorted(run.time, time)), None)) for run in group]
        for group in groups
    ]
    return [group for runs in kept if (group := [*filter(has_rows, runs)])]
