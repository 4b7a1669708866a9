"""The recall of a run, and how far that of the time to come may be from it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streamshed.estimates import Share
from streamshed.ledger import Keys

_STRETCHES = 4
"""Stretches of the archive that an interval needs at least."""


def recall_of(
    made: npt.NDArray[np.float64], exact: npt.NDArray[np.float64], filling: int, window: int = 1
) -> Share:
    """The part that was made, and the interval in which that of as long a time to come will be.

    The interval is that of a jackknife over stretches of the archive. They are as long as the
    longest window, as parts that share windows have much in common.

    Args:
        made: results made in each part of the archive.
        exact: results of the join without a budget.
        filling: the first parts, in which windows fill; they are left out unless all results are in
            them.
        window: how many parts the longest window has.
    """
    blocks = min(made.size, exact.size)
    first = filling if exact[filling:].sum() > 0 else 0
    some, all_ = made[first:blocks], exact[first:blocks]
    value = float(some.sum() / all_.sum()) if all_.sum() else 1.0
    stretches = min(blocks - first, max(_STRETCHES, (blocks - first) // max(1, window)))
    if stretches < _STRETCHES:
        return Share(value, 0.0, 1.0)
    begins = np.arange(stretches) * (blocks - first) // stretches
    some, all_ = np.add.reduceat(some, begins), np.add.reduceat(all_, begins)
    kept = all_.sum() - all_
    if not (kept > 0).all():
        return Share(value, 0.0, 1.0)
    without = (some.sum() - some) / kept
    spread = math.sqrt((stretches - 1) / stretches * ((without - without.mean()) ** 2).sum())
    # The time to come varies as much again as the time that was measured.
    off = _student(stretches - 1) * math.sqrt(2.0) * spread
    return Share(value, max(0.0, value - off), min(1.0, value + off))


def halves_of(
    made: npt.NDArray[np.float64], exact: npt.NDArray[np.float64], filling: int, earlier: int
) -> tuple[float, float]:
    """The recall earlier in the archive, and in what `recall_of` measures.

    Args:
        made: results made in each part of the archive.
        exact: results of the join without a budget.
        filling: the first parts, which `recall_of` leaves out.
        earlier: the first of these that can be compared with what comes later. If none of them can,
            what is measured is halved, by results.
    """
    blocks = min(made.size, exact.size)
    first = filling if exact[filling:].sum() > 0 else 0
    if earlier < first and exact[earlier:first].sum() > 0:
        parts = slice(earlier, first), slice(first, blocks)
    else:
        results = np.cumsum(exact[first:blocks])
        middle = first + int(np.searchsorted(results, results[-1] / 2)) + 1
        parts = slice(first, middle), slice(middle, blocks)
    early, late = (made[part].sum() / max(1.0, exact[part].sum()) for part in parts)
    return float(early), float(late if exact[parts[1]].sum() else early)


def _student(degrees: int) -> float:
    """How far 95 % of Student's distribution reach, by an expansion from the normal distribution.

    Examples:
        >>> round(_student(3), 1), round(_student(31), 2)
        (3.2, 2.04)
    """
    z, n = 1.96, degrees
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def keys_of(keys: Keys | None) -> Share | None:
    """The part of the keys with a result that have one; None if they are not counted."""
    if keys is None or not keys.exact.value:
        return None
    made, exact = keys.made, keys.exact
    value = min(1.0, made.value / exact.value)
    low = min(value, made.low / max(exact.high, 1.0))
    return Share(value, low, max(value, min(1.0, made.high / max(exact.low, 1.0))))
