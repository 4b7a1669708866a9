"""The join that the experiments on shared keys run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import streamshed as ss


def key_join(streams: Iterable[str], window: float) -> ss.Join:
    """Join streams on `key` within a window, in the order of `time`, without a budget.

    Args:
        streams: their names.
        window: its length in seconds.

    Examples:
        >>> key_join(["a", "b"], 100.0)
        join('a', 'b').on('key').within('1 minute 40 seconds', time='time', clock='max')
    """
    return ss.join(*streams).on("key").within(timedelta(seconds=window), time="time", clock="max")
