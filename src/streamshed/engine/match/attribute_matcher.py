"""The matcher of a graph of equalities, outside the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamshed.engine.allocation import directory
from streamshed.engine.encoding import needs_check
from streamshed.engine.match.attribute_index import index_layout, new_index
from streamshed.engine.match.attributes import Attributes
from streamshed.engine.match.matcher import FEWEST, Matcher
from streamshed.engine.match.probe_order import (
    find_orders_of,
    index_bits,
    most_attributes,
    new_probe_order,
    probe_order_layout,
)
from streamshed.kernels.core import FATES, KEYS_USED, STORED, Field, Memory, Shape
from streamshed.kernels.table import refill
from streamshed.plan.plan import Plan

if TYPE_CHECKING:
    from streamshed.engine.gate.throttle import Known
    from streamshed.engine.operator import Operator

TABLE = "table"


class AttributeMatcher(Matcher):
    """Finds rows by indexes on the attributes that streams share."""

    prefix = "attributes."

    def __init__(self, plan: Plan, shape: Shape, memory: Memory) -> None:
        super().__init__(plan, shape, memory)
        order = new_probe_order(plan, shape, memory, self.prefix)
        find_orders_of(order)
        entries = new_index(index_layout(plan), shape, memory, self.prefix)
        bits, width = index_bits(plan), most_attributes(plan)
        self.state = Attributes(order, entries, np.uint64(63), bits, width)

    @property
    def is_checked(self) -> bool:
        """Each attribute has a hash of its own, and is compared by itself."""
        return any(needs_check([kind]) for stream in self.plan.streams for kind in stream.key_types)

    def layout(self) -> dict[str, Field]:
        """The arrays of the order and of the indexes, the directory among them."""
        table = Field("once", np.uint32, times=len(self.state.entries.table))
        return probe_order_layout(self.plan) | index_layout(self.plan) | {TABLE: table}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name."""
        order, entries = self.state.order, self.state.entries
        of_order = {name: getattr(order, name) for name in probe_order_layout(self.plan)}
        of_index = {name: getattr(entries, name) for name in (*index_layout(self.plan), TABLE)}
        return of_order | of_index

    def replace(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Let the order and the indexes have other arrays."""
        order = {name: arrays[name] for name in probe_order_layout(self.plan)}
        index = {name: arrays[name] for name in (*index_layout(self.plan), TABLE)}
        self.state = self.state._replace(
            order=self.state.order._replace(**order),
            entries=self.state.entries._replace(**index),
            shift=np.uint64(65 - len(index[TABLE]).bit_length()),
        )

    def grow(self, shape: Shape, rows: int) -> None:
        """Let the arrays grow; a larger directory is filled anew."""
        super().grow(shape, rows)
        entries = 1 << self.state.bits
        used = int(self.state.entries.numbers[KEYS_USED]) + rows * entries
        size = directory(min(shape.rows * entries, used))
        if size > len(self.state.entries.table):
            table = self.memory.array(self.prefix + TABLE, size, np.dtype(np.uint32), True)
            self.replace(self.arrays() | {TABLE: table})
            refill(self.state.entries)

    def nbytes(self, used: Shape) -> int:
        """The bytes in use: the directory is not counted by rows."""
        return used.nbytes(index_layout(self.plan))

    def known(self, join: Operator) -> Known:
        """How many rows match, by what was measured between pairs of streams."""
        from streamshed.engine.gate.throttle import Known

        lanes = self.shape.lanes
        orders = self.state.order.levels["stream"].reshape(lanes, lanes - 1)
        sizes = np.ones((lanes, lanes))
        stored = join.core.counts.reshape(-1, FATES)[:, STORED]
        for first, order in enumerate(orders.tolist()):
            for step, other in enumerate(order):
                sizes[first, other] = self._matches([first, *order[:step]], other, stored)
        return Known(orders, np.maximum(sizes, FEWEST), np.ones((lanes, lanes)))

    def _matches(self, before: list[int], other: int, counts: npt.NDArray[np.int64]) -> float:
        """The rows of a stream that match one of each that comes before, by what was measured.

        Attributes are taken as independent of each other.
        """
        order = self.state.order
        stored = max(1.0, float(counts[other]))
        fanout = order.fanout.reshape(self.shape.lanes, -1)
        matches, open_ones = stored, int(order.attributes[other])
        for member in before:
            shared = open_ones & int(order.attributes[member])
            if shared:
                matches *= min(1.0, float(fanout[member, other]) / stored)
                open_ones &= ~shared
        return matches
