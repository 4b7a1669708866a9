"""Rows in groups, in the order of their arrival: for policies that rank classes of rows, not rows.

A state with groups has `links` (one `LINK` per row), and `group_first`, `group_last` (by group).
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import NONE

LINK = np.dtype([("before", np.int32), ("after", np.int32), ("group", np.int16)])
"""Ten bytes side by side; `existence` has at most 12 · 2¹¹ groups."""


@kernel
def group_insert(groups, core, group, row):  # type: ignore[no-untyped-def]
    """Put a row into a group, behind those that came before it: mostly at the end."""
    before, after = groups.group_last[group], np.int32(NONE)
    while before != NONE and core.rows[before].arrival > core.rows[row].arrival:
        before, after = groups.links[before].before, before
    groups.links[row].group = group
    groups.links[row].before = before
    groups.links[row].after = after
    if before == NONE:
        groups.group_first[group] = row
    else:
        groups.links[before].after = row
    if after == NONE:
        groups.group_last[group] = row
    else:
        groups.links[after].before = row


@kernel
def group_remove(groups, row):  # type: ignore[no-untyped-def]
    """Take a row out of its group; True if the group is empty now."""
    group = groups.links[row].group
    before, after = groups.links[row].before, groups.links[row].after
    groups.links[row].group = NONE
    if before == NONE:
        groups.group_first[group] = after
    else:
        groups.links[before].after = after
    if after == NONE:
        groups.group_last[group] = before
    else:
        groups.links[after].before = before
    return groups.group_first[group] == NONE
