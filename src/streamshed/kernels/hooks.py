"""What the loop tells a policy, and what it asks.

`on_<event>` tells; a noun or a verb asks. Each hook takes the policy's own state first and the
join's `Core` second. The bodies here are the defaults. Hooks about rows are called only for rows of
pools that have a budget. Joins through a relation also call `counts_matches`, `has_matches`,
`on_newcomer` and `on_match`, and for policies with `ranks_by_promise` also `on_value`,
`expected_rate` and `set_promise`.
"""

from __future__ import annotations

from streamshed.kernels.compiling import hook


@hook
def on_arrival(policy, core, batch, i):  # type: ignore[no-untyped-def]
    """A row has come, is neither filtered nor late, and will be probed, then admitted or refused.

    Rows whose time was over have left. In a restart under another policy rows are announced too.
    """


@hook
def queue_priority(policy, core, batch, i):  # type: ignore[no-untyped-def]
    """What a row promises that comes to a queue: of those that wait the lowest are shed first.

    It is announced when it is taken from there, if it is.
    """
    return 0.0


@hook
def admits(policy, core, pool, key, stream, time, worth):  # type: ignore[no-untyped-def]
    """Whether a newcomer of a stream may replace a row of a full pool.

    Its key is in the key table already, with the rows that are stored; there may be none.
    """
    return True


@hook
def victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    """The row that leaves a full pool for the newcomer of the given arrival number.

    It must be a row of the pool: nothing checks it, and another number crashes the process.
    """
    return -1


@hook
def on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    """A row was stored; the pattern says which lanes held its key when it arrived, its own too."""


@hook
def on_remove(policy, core, row):  # type: ignore[no-untyped-def]
    """A row was taken out of the key table; its fields can still be read."""


@hook
def on_result(policy, core, key, stream, time, pattern, members, count):  # type: ignore[no-untyped-def]
    """A result was made by a newcomer of a stream and a time with the given stored members."""


@hook
def hears_results(policy):  # type: ignore[no-untyped-def]
    """Whether it learns from results one by one; known when the loop is compiled."""
    return False


@hook
def mark(policy, core, row):  # type: ignore[no-untyped-def]
    """What a checkpoint must keep of a row so that `on_restore` can put it where it was."""
    return 0


@hook
def on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    """A row is stored again after a restart; rows come in the order of their arrival."""


@hook
def precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    """Whether an item stands before another in the heap that the state holds."""
    return item < other


@hook
def rerank(policy, core, row):  # type: ignore[no-untyped-def]
    """What a row stands by, found anew."""
    return 0.0


@hook
def counts_matches(policy):  # type: ignore[no-untyped-def]
    """Whether the policy wants to know who matches whom through a relation.

    0: not at all; 1: how many stored rows a newcomer matches; 2: also whenever that changes for a
    stored row.
    """
    return 0


@hook
def has_matches(policy, core, row):  # type: ignore[no-untyped-def]
    """Whether a row that leaves matched anybody, as far as the policy knows."""
    return True


@hook
def on_newcomer(policy, core, importance, matches):  # type: ignore[no-untyped-def]
    """A newcomer is about to be admitted or refused: what it is worth knowing of it.

    Args:
        policy: the state of the policy.
        core: the state of the join.
        importance: of the newcomer.
        matches: the stored rows of other streams that it matches through the relation, counted
            once for each row of the relation by way of which it does; 0 if nobody asked.
    """


@hook
def on_match(policy, core, row, change):  # type: ignore[no-untyped-def]
    """A stored row (NONE: the newcomer) has one match more or less, as the change says."""


@hook
def ranks_by_promise(policy):  # type: ignore[no-untyped-def]
    """Whether the policy ranks rows by those who are expected to meet them through a relation."""
    return False


@hook
def on_value(policy, core, hashed, importance):  # type: ignore[no-untyped-def]
    """A newcomer has come whose value in the relation has this hash."""


@hook
def expected_rate(policy, core, hashed):  # type: ignore[no-untyped-def]
    """How many rows come in a window with the value of this hash, and how important they are."""
    return 0.0, 0.0


@hook
def set_promise(policy, core, row, density):  # type: ignore[no-untyped-def]
    """What a row promises now (NONE: the newcomer); returns whether that was known already."""
    return True
