"""The decisions of a policy, called by the operators' loops.

Each takes the policy's own state first and the join's `Core` second. The bodies here are what a
policy does that has nothing to say. Hooks about rows are called only for rows of pools that have a
budget.
"""

from __future__ import annotations

from streamshed.kernels.compiling import hook


@hook
def admits(policy, core, pool, worth):  # type: ignore[no-untyped-def]
    """Whether a newcomer may take somebody's place in a full pool."""
    return True


@hook
def victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    """The row that leaves a full pool for the newcomer of the given arrival number."""
    return -1


@hook
def inserted(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    """A row was stored; the pattern says which lanes held its key when it arrived, its own too."""


@hook
def removed(policy, core, row):  # type: ignore[no-untyped-def]
    """A row was taken out of the key table; its fields can still be read."""


@hook
def produced(policy, core, key, stream, pattern, members, count):  # type: ignore[no-untyped-def]
    """A result was made by a newcomer of a stream with the given stored members."""


@hook
def mark(policy, core, row):  # type: ignore[no-untyped-def]
    """What a checkpoint must keep of a row so that `restored` can put it where it was."""
    return 0


@hook
def restored(policy, core, row, marked):  # type: ignore[no-untyped-def]
    """A row is stored again after a restart; rows come in the order of their arrival."""


@hook
def precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    """Whether an item stands before another in the heap that the state holds."""
    return item < other
