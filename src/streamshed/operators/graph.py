"""The join of streams by a graph of equalities between pairs of them, driven batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamshed.kernels.core import BOUNDLESS, KEYS_USED, Field, grown
from streamshed.kernels.table import refill
from streamshed.operators.buffers import Batch
from streamshed.operators.checkpoint import Head
from streamshed.operators.graph_loop import run_graph, weave_again
from streamshed.operators.intake import NOTHING, WORTHLESS, needs_check
from streamshed.operators.keyed import KeyedJoin
from streamshed.operators.keyed_loop import advance, shed_down
from streamshed.operators.net import (
    Net,
    find_orders_of,
    index_bits,
    most_attributes,
    net_layout,
    new_net,
)
from streamshed.operators.restoring import EMPTY, NO_TIMES, Rows
from streamshed.operators.room import directory
from streamshed.operators.weaving import Graph, Index, index_layout, new_index

NET, INDEX = "net.", "index."
"""What the names of the arrays begin with."""


class GraphJoin(KeyedJoin):
    """A running join by a graph of equalities."""

    def _is_checked(self) -> bool:
        # Each attribute has a hash of its own, and is compared by itself.
        return any(needs_check([kind]) for stream in self.plan.streams for kind in stream.key_types)

    def _begin(self) -> None:
        super()._begin()
        # All rows are indexed, bounded or not: hooks are called for bounded pools alone.
        budgets = self.core.pools["budget"]
        budgets[budgets == BOUNDLESS] = BOUNDLESS - 1
        self.bits, self.width = index_bits(self.plan), most_attributes(self.plan)
        self.net: Net = new_net(self.plan, self.shape, self.memory, NET)
        find_orders_of(self.net)
        self.index: Index = new_index(index_layout(self.plan), self.shape, self.memory, INDEX)

    @property
    def teller(self) -> Graph:
        """The policy, and the indexes that are kept as it hears of rows."""
        shift = np.uint64(65 - len(self.index.table).bit_length())
        return Graph(self.state, self.net, self.index, shift, self.bits, self.width)

    def _make_room(self, tuples: int, followed: int) -> None:
        super()._make_room(tuples, followed)
        layout = index_layout(self.plan)
        self.index = grown(self.index, layout, self.shape, self.memory, INDEX)
        entries = 1 << self.bits
        used = int(self.index.numbers[KEYS_USED]) + tuples * entries
        size = directory(min(self.shape.rows * entries, used))
        if size > len(self.index.table):
            table = self.memory.array(INDEX + "table", size, np.dtype(np.uint64), True)
            self.index = self.index._replace(table=table)
            refill(self.index)

    def _loop(self, batch: Batch) -> int:
        status: int = run_graph(self.core, self.teller, self.sample, batch, self.work, self.out)
        return status

    def warm(self) -> None:
        """Have everything compiled that this join will need, by running it on nothing."""
        hashes = np.empty((0, self.width), np.uint64)
        nothing = Batch(*EMPTY, NOTHING, WORTHLESS, hashes=hashes)
        self._make_room(1, 1)
        list(self._run(nothing))
        weave_again(self.core, self.teller, nothing, NO_TIMES, NO_TIMES, False)
        shed_down(self.core, self.teller)
        advance(self.core, self.teller, NO_TIMES)
        self.seal()

    def state_bytes(self) -> int:
        """Bytes in use beyond the users' rows."""
        used = self.used()
        return super().state_bytes() + used.nbytes(index_layout(self.plan))

    def left_by(self, head: Head) -> bool:
        """Never: the indexes are made anew from the rows, wherever the join goes on."""
        return False

    # -- stop and go on --------------------------------------------------------------------------

    def _states(self) -> list[tuple[str, Any, dict[str, Field]]]:
        return [*super()._states(), (NET, self.net, net_layout(self.plan))]

    def _store_again(self, head: Head, rows: Rows, anew: bool) -> None:
        weave_again(self.core, self.teller, rows.batch, rows.arrivals, rows.marks, anew)
