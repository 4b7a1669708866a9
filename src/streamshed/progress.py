"""A progress bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

SOON = 1.0
"""Seconds that work takes before a bar is shown."""

Advance = Callable[[int], None]
"""Says that so much more of the work is done."""


@contextmanager
def progress(what: str, total: int | None, unit: str) -> Iterator[Advance]:
    """Show how far some work is.

    Args:
        what: the work, in a word.
        total: how much there is to do; None if that is not known.
        unit: what it is counted in.
    """
    started = monotonic()
    shown: list[Any] = []
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        if not shown and sys.stderr.isatty() and monotonic() - started > SOON:
            shown.extend(_bar(what, total, unit))
        if shown:
            shown[0].update(shown[1], completed=done)

    try:
        yield advance
    finally:
        if shown:
            shown[0].stop()


def _bar(what: str, total: int | None, unit: str) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (what, BarColumn(), MofNCompleteColumn(), unit, TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar, bar.add_task(what, total=total)
