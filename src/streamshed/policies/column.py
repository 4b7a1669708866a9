"""Evict the rows with the lowest value of a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements
from streamshed.kernels.core import Field, Shape
from streamshed.kernels.heap import enter_pool, heap_layout, heap_top, leave_pool
from streamshed.policies.base import Policy


class ColumnState(NamedTuple):
    """A heap of rows for each pool, and what each row is worth."""

    items: npt.NDArray[Any]
    place: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    worth: npt.NDArray[Any]  # by row


@dataclass(frozen=True)
class ByColumn(Policy):
    """Evict the row with the lowest value of a column, or refuse the new row if it has the lowest.

    Args:
        column: one column name for all streams, or a mapping from stream to column name.

    Examples:
        >>> ByColumn("price").column_for("orders")
        'price'
        >>> ByColumn({"orders": "price", "clicks": "score"}).column_for("clicks")
        'score'
    """

    column: str | Mapping[str, str] | tuple[tuple[str, str], ...]

    name: ClassVar[str] = "column"
    state: ClassVar[type] = ColumnState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "fixed"

    def __post_init__(self) -> None:
        if isinstance(self.column, Mapping):  # so that equal policies are equal and hashable
            object.__setattr__(self, "column", tuple(sorted(self.column.items())))

    def column_for(self, stream: str) -> str:
        """The column that says what a row of the stream is worth."""
        return self.column if isinstance(self.column, str) else dict(self.column)[stream]

    def layout(self, shape: Shape) -> dict[str, Field]:
        """A heap of rows for each pool."""
        return heap_layout() | {"worth": Field("row", np.int64, None)}


@implements(hooks.precedes, ColumnState)
def _precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    if policy.worth[item] != policy.worth[other]:
        return policy.worth[item] < policy.worth[other]
    return core.rows[item].arrival < core.rows[other].arrival


@implements(hooks.admits, ColumnState)
def _admits(policy, core, pool, key, stream, time, worth):  # type: ignore[no-untyped-def]
    return worth >= policy.worth[heap_top(policy, pool)]


@implements(hooks.victim, ColumnState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    return heap_top(policy, pool)


@implements(hooks.on_insert, ColumnState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    policy.worth[row] = worth
    enter_pool(policy, core, row)


implements(hooks.on_remove, ColumnState)(leave_pool)


@implements(hooks.mark, ColumnState)
def _mark(policy, core, row):  # type: ignore[no-untyped-def]
    return policy.worth[row]


@implements(hooks.on_restore, ColumnState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    policy.worth[row] = marked
    enter_pool(policy, core, row)
