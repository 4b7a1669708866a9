"""How much room the arrays of a join need, and how they grow."""

from __future__ import annotations

from streamshed.kernels.core import BOUNDLESS, Core, Memory, Shape, core_layout, grown
from streamshed.kernels.table import refill


def enough(have: int, needed: int, most: int = BOUNDLESS) -> int:
    """Room that grows fourfold, so that growing is rare, and never beyond the most."""
    needed = min(needed, most)
    return have if needed <= have else min(most, 4 * needed)


def directory(keys: int) -> int:
    """The size of a directory for so many keys: a power of two, at most two thirds full.

    It grows with the keys, not with the room: a sparse directory costs a cache miss for each tuple.
    """
    return 1 << int(keys * 1.5 + 1).bit_length()


def roomier(core: Core, shape: Shape, memory: Memory, prefix: str) -> Core:
    """The core with room for the shape; a larger directory is filled anew."""
    layout = core_layout()
    table = layout.pop("table")
    larger = grown(core, layout, shape, memory, prefix)
    if shape.table > len(core.table):
        empty = table.grown(table.nothing(), shape, memory, prefix + "table")
        larger = larger._replace(table=empty)
        refill(larger)
    return larger
