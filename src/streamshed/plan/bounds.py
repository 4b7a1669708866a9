"""How far apart the members of a result may be: order in time and intervals, with the windows.

What `.in_order`, `.between` and `.within` say are bounds on differences of times. All of them
together say for every two streams how much later than a row of one a row of the other may be: the
shortest way in a graph whose edges are the bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from streamshed.errors import SpecError, listed
from streamshed.kernels.core import BOUNDLESS
from streamshed.plan.plan import StreamPlan
from streamshed.plan.times import units
from streamshed.spec import Spec

Bounds = tuple[tuple[int, ...], ...]


def bounded(
    spec: Spec, streams: tuple[StreamPlan, ...], time_type: pa.DataType
) -> tuple[tuple[StreamPlan, ...], Bounds]:
    """The streams with windows no longer than the bounds allow, and the bounds; none if not said.

    The bound at (i, j) is how much later than a member of stream j one of stream i may be.

    Raises:
        SpecError: if no result can meet them all.
    """
    said = [*_order(spec), *_intervals(spec, time_type)]
    if spec.first is not None and spec.first.last_touch:
        said += [(other, spec.first.per, 0) for other in spec.streams if other != spec.first.per]
    if not said:
        return streams, ()
    if timeless := [stream.name for stream in streams if stream.time is None]:
        raise SpecError(
            f"{_methods(spec)} compares times, but no time column is named for {listed(timeless)}; "
            "name it, as in .last(100, time='ts')"
        )
    names = [stream.name for stream in streams]
    most = [
        [0 if i == j else BOUNDLESS if stream.window is None else stream.window
         for j, stream in enumerate(streams)]
        for i in range(len(streams))
    ]  # fmt: skip
    for later, earlier, least in said:
        i, j = names.index(later), names.index(earlier)
        most[i][j] = min(most[i][j], least)
    for k in range(len(names)):
        for row in most:
            if row[k] < BOUNDLESS:
                row[:] = [min(have, row[k] + more) for have, more in zip(row, most[k], strict=True)]
    for i, name in enumerate(names):
        if most[i][i] < 0:
            raise SpecError(
                f"{_methods(spec)}: no row of stream {name!r} can be in a result, because order, "
                "intervals and the windows of .within() contradict each other; widen an interval "
                "or a window, or reverse the order"
            )
    return tuple(_narrowed(streams, most)), tuple(map(tuple, most))


def _narrowed(streams: Sequence[StreamPlan], most: list[list[int]]) -> list[StreamPlan]:
    """The streams, each with a window after which no row to come can be a partner."""
    return [
        stream
        if stream.window is None
        else replace(stream, window=max(0, *(row[j] for i, row in enumerate(most) if i != j)))
        for j, stream in enumerate(streams)
    ]


def _order(spec: Spec) -> list[tuple[str, str, int]]:
    """That each of some streams is no later than those after it."""
    if spec.order is None:
        return []
    names, gap = spec.order.streams, -1 if spec.order.strictly else 0
    return [(one, other, gap) for i, one in enumerate(names) for other in names[i + 1 :]]


def _intervals(spec: Spec, time_type: pa.DataType) -> list[tuple[str, str, int]]:
    found = []
    for said in spec.intervals:
        least = units(said.least, time_type, ".between(): the smallest difference")
        most = units(said.most, time_type, ".between(): the largest difference")
        found += [(said.later, said.earlier, most), (said.earlier, said.later, -least)]
    return found


def _methods(spec: Spec) -> str:
    said = {
        ".in_order()": spec.order is not None,
        ".between()": bool(spec.intervals),
        ".first(last_touch=True)": spec.first is not None and spec.first.last_touch,
    }
    return " and ".join(method for method, is_said in said.items() if is_said)
