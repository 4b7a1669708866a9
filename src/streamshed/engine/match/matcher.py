"""What a matcher does outside the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import Batch
from streamshed.engine.component import Component
from streamshed.engine.encoding import needs_check
from streamshed.engine.match.keys import KeyState, keys_layout
from streamshed.kernels.core import Field, Memory, Shape, make
from streamshed.plan.plan import Plan

if TYPE_CHECKING:
    from streamshed.engine.gate.throttle import Known
    from streamshed.engine.operator import Operator

FEWEST = 1e-3
"""Rows that a newcomer is taken to meet of a stream, however few were met."""


class Matcher(Component):
    """The matcher of streams that share a key; others extend it."""

    prefix = "keys."

    def __init__(self, plan: Plan, shape: Shape, memory: Memory) -> None:
        super().__init__(shape, memory)
        self.plan = plan
        self.state: Any = make(KeyState, keys_layout(), shape, memory, self.prefix)

    def layout(self) -> dict[str, Field]:
        """The arrays."""
        return keys_layout()

    @property
    def is_checked(self) -> bool:
        """Whether equal hashes may belong to different keys, so that results are checked."""
        return any(needs_check(stream.key_types) for stream in self.plan.streams)

    def pieces(self, join: Operator, batch: Batch) -> Iterator[Batch]:
        """A batch, prepared, as much at a time as the loop may take at once."""
        yield batch

    def touches(
        self, join: Operator, rows: Batch, places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_] | None:
        """Which of the rows at some places may match anything at all; None if each of them may."""
        return None

    @property
    def facts(self) -> int:
        """The facts of a relation that take up memory of their own."""
        return 0

    @property
    def lots(self) -> npt.NDArray[np.uint64]:
        """The lots of facts, by their numbers, where facts are drawn."""
        return np.empty(0, np.uint64)

    def on_processed(self, join: Operator) -> None:
        """A batch was processed."""

    def warm(self, join: Operator) -> None:
        """Have compiled what batches need besides the loop."""

    def restore_pieces(self, batch: Batch) -> Iterator[Batch]:
        """The rows of a checkpoint, prepared to be stored again."""
        yield batch

    def before_restore(self, join: Operator, times: npt.NDArray[np.int64]) -> None:
        """Rows of these times will be stored again."""

    def relay(self) -> Iterator[Any]:
        """What this matcher reads besides rows from here on, for that of another join."""
        return iter(())

    def follow(self, relayed: Iterator[Any]) -> None:
        """Take what the matcher of another join has read, and read nothing."""

    def known(self, join: Operator) -> Known:
        """What is known of how many rows match, from which the throttle chooses what to probe."""
        from streamshed.engine.gate.throttle import Known

        assert join.throttle is not None
        lanes = self.shape.lanes
        orders = np.array([[k for k in range(lanes) if k != i] for i in range(lanes)])
        if self.plan.by is not None:  # streams named by a column share one lane
            orders = np.zeros((1, 1), np.int64)
        partners = join.throttle.state.partners.reshape(lanes, 2 * lanes + 1)
        looked, met = partners[:, :lanes], partners[:, lanes : 2 * lanes]
        sizes = np.maximum(looked / np.maximum(partners[:, 2 * lanes :], 1.0), FEWEST)
        shares = np.where(looked > 0, met / np.maximum(looked, 1.0), 1.0)
        return Known(orders, sizes, shares)

    def specialise(self, run: Callable[..., int]) -> Callable[..., int]:
        """The loop, compiled for what is in no cache on disk."""
        return run

    @property
    def quiet(self) -> Any:
        """The state as loops take it that compare nothing."""
        return self.state

    def explain_failure(self, batch: Batch, at: int, error: Exception) -> Exception:
        """What to raise where the loop has failed at a row."""
        return error

    @property
    def comparisons(self) -> int | None:
        """The comparisons made so far, where they are counted."""
        return None

    def can_attach(self, saved: dict[str, Any]) -> bool:
        """Whether arrays can be taken over from the process that said so much of them."""
        return True
