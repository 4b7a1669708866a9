"""Aggregates of results in windows of time: counts, sums, averages and quantiles, with intervals.

What was shed is missing from the results. Counts and sums are corrected by the part of all results
that was made, where the ledger knows it. Averages and quantiles of a sample need no correction, but
are known up to chance: their intervals come from the differences between sixteen pieces of the
window (batch means), as results of the same rows are no independent draws. Where rows were shed by
a policy that keeps no sample, nothing is known of how far these are off, and there are no
intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamshed.durations import parse, to_units
from streamshed.errors import SpecError, listed
from streamshed.estimates import Estimate

PIECES = 16
"""Into which a window is cut to see how much it varies."""
REACH = 2.131
"""How far 95 % of Student's t with 15 degrees of freedom reach."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Windows:
    """What is asked for.

    Attributes:
        of: the column, as `"stream.column"`.
        over: the length of a window.
        every: how far apart the ends of windows are.
        quantiles: parts of the results below which a value is asked for.
    """

    of: str
    over: int
    every: int
    quantiles: tuple[float, ...]

    @classmethod
    def of_results(
        cls, results: pa.Table, of: str, over: Any, every: Any, quantiles: Sequence[float]
    ) -> Windows:
        """Read what was said, for results of a join."""
        timestamps = pa.types.is_timestamp(results.schema.field("time").type)
        length = to_units(parse(over, "`over`"), timestamps, "`over`")
        step = length if every is None else to_units(parse(every, "`every`"), timestamps, "`every`")
        if length <= 0 or step <= 0:
            raise SpecError(
                f"aggregate(): `over` is {over!r} and `every` is {every!r}; give lengths above 0"
            )
        for part in quantiles:
            if not isinstance(part, int | float) or not 0 <= part <= 1:
                raise SpecError(f"aggregate(): the quantile {part!r} is no part; give 0 to 1")
        return cls(of, length, step, tuple(quantiles))


def aggregated(
    results: pa.Table, windows: Windows, recall: Estimate | None, sampled: bool
) -> pa.Table:
    """Aggregate a column of results.

    Args:
        results: of a join.
        windows: what is asked for.
        recall: the part of all results that was made, if it is known.
        sampled: whether the results are a sample of all, or all of them.
    """
    times, values = _columns(results, windows.of)
    ends = _ends(times, windows)
    whole = recall is not None and recall.low == 1
    rows = [
        _window(times, values, int(end), windows, recall, sampled or whole, whole) for end in ends
    ]
    kind = results.schema.field("time").type
    columns: dict[str, pa.Array] = {
        "begin": pa.array(ends - windows.over, pa.int64()).view(kind),
        "end": pa.array(ends, pa.int64()).view(kind),
        "results": pa.array([row.pop("results") for row in rows], pa.int64()),
    }
    names = ["count", "sum", "average", *(f"quantile_{part:g}" for part in windows.quantiles)]
    for name in [f"{n}{bound}" for n in names for bound in ("", "_low", "_high")]:
        columns[name] = pa.array([row[name] for row in rows], pa.float64())
    return pa.table(columns)


def _columns(results: pa.Table, of: str) -> tuple[npt.NDArray[np.int64], Floats]:
    """The times and values of results, in order of time; those without a value are left out."""
    stream, _, column = of.partition(".")
    known = [
        f"{field.name}.{part.name}"
        for field in results.schema
        if pa.types.is_struct(field.type)
        for part in field.type
    ]
    if of not in known:
        raise SpecError(
            f"aggregate(): there is no column {of!r} in the results; there are {listed(known)}"
        )
    values = pc.struct_field(results[stream], [column])
    kept = pc.is_valid(values)
    times = results["time"].filter(kept).combine_chunks().view(pa.int64()).to_numpy()
    try:
        numbers = values.filter(kept).cast(pa.float64()).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SpecError(
            f"aggregate(): {of!r} is of type {values.type} and cannot be summed; name a number"
        ) from error
    order = np.argsort(times, kind="stable")
    return times[order], numbers[order]


def _ends(times: npt.NDArray[np.int64], windows: Windows) -> npt.NDArray[np.int64]:
    """The ends of windows, multiples of the step, from the first result to the last."""
    if not len(times):
        return np.empty(0, np.int64)
    first, last = -(-int(times[0]) // windows.every), -(-int(times[-1]) // windows.every)
    return np.arange(first, last + 1, dtype=np.int64) * windows.every


def _window(
    times: npt.NDArray[np.int64],
    values: Floats,
    end: int,
    windows: Windows,
    recall: Estimate | None,
    sampled: bool,
    whole: bool,
) -> dict[str, Any]:
    """The aggregates of the results after the beginning of a window, up to its end."""
    begin = end - windows.over
    low, high = np.searchsorted(times, [begin, end], side="right")
    inside = values[low:high]
    row: dict[str, Any] = {"results": len(inside)}
    _put(row, "count", *_corrected(len(inside), recall))
    _put(row, "sum", *_corrected(float(inside.sum()), recall))
    if not len(inside):
        for name in ("average", *(f"quantile_{part:g}" for part in windows.quantiles)):
            _put(row, name, None, None, None)
        return row
    piece = (times[low:high] - begin - 1) * PIECES // windows.over
    average = float(inside.mean())
    reach = 0.0 if whole else _reach(inside - average, piece)
    bounds = (average - reach, average + reach) if sampled else (None, None)
    _put(row, "average", average, *bounds)
    order = np.sort(inside)
    for part in windows.quantiles:
        value = _quantile(order, part)
        bounds = (None, None)
        if sampled:
            # Woodruff 1952: the interval of the part below the value, read off as values.
            reach = 0.0 if whole else _reach((inside <= value) - (inside <= value).mean(), piece)
            bounds = _quantile(order, part - reach), _quantile(order, part + reach)
        _put(row, f"quantile_{part:g}", value, *bounds)
    return row


def _put(
    row: dict[str, Any], name: str, value: float | None, low: float | None, high: float | None
) -> None:
    row[name], row[f"{name}_low"], row[f"{name}_high"] = value, low, high


def _corrected(made: float, recall: Estimate | None) -> tuple[float, float | None, float | None]:
    """A count or a sum for all results, if it is known which part was made."""
    if recall is None or recall.low <= 0:
        return made, None, None
    found = sorted((made / recall.high, made / recall.low))
    return made / recall.value, found[0], found[1]


def _reach(off: Floats, piece: npt.NDArray[np.int64]) -> float:
    """How far a mean may be from the truth, given how far each is from the mean, by pieces."""
    sums = np.bincount(piece, off, minlength=PIECES)
    variance = float(sums @ sums) * PIECES / (PIECES - 1)
    return REACH * float(np.sqrt(variance)) / len(off)


def _quantile(order: Floats, part: float) -> float:
    """The smallest value up to which at least a part of all lies."""
    place = int(np.ceil(np.clip(part, 0, 1) * len(order))) - 1
    return float(order[max(0, place)])
