"""Aggregates of results in windows of time: counts, sums, averages and quantiles, with intervals.

Results of rows that were shed are missing. Counts and sums are corrected by what is known to be
missed in each window, where that is estimated. Averages and quantiles of a sample need no
correction, but are known up to chance: their intervals come from the differences between sixteen
pieces of the window (batch means), as results of the same rows are no independent draws. If rows
were shed by a policy that keeps no sample, the error of averages and quantiles is unknown, and they
have no intervals; nor do sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamshed.errors import SpecError
from streamshed.estimates import Estimate

MOST_WINDOWS = 1 << 20
"""Windows that one replay returns."""
PIECES = 16
"""Into which a window is cut to see how much it varies."""
REACH = 2.131
"""How far 95 % of Student's t with 15 degrees of freedom reach."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Weights(NamedTuple):
    """For how many results each of a window stands: about so many, and within bounds."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, exact: Estimate, made: int) -> Weights:
        """What each of the results stands for that were made; all of them, where there are none.

        Examples:
            >>> Weights.of(Estimate(30.0, 25.0, 50.0), 10)
            Weights(value=3.0, low=2.5, high=5.0)
        """
        least = max(1, made)
        return cls(*(max(made, number) / least for number in (exact.value, exact.low, exact.high)))


WHOLE = Weights(1.0, 1.0, 1.0)
"""Where all results are there."""
UNKNOWN = Weights(1.0, np.nan, np.nan)
"""Where nobody knows how many are missing."""


@dataclass(frozen=True)
class Windows:
    """What to aggregate, in which windows.

    Attributes:
        stream: the column of the results that holds a member of a stream, a fact, or `members`,
            of which each counts for itself.
        column: the column to aggregate.
        over: the length of a window, in units of time.
        every: the distance between the ends of windows.
        quantiles: the quantiles to compute.
        time: the type of the results' times.
        wait: on Spark, how far a result may be behind the newest one; None for as far as the
            windows of the join and its lateness allow.
    """

    stream: str
    column: str
    over: int
    every: int
    quantiles: tuple[float, ...]
    time: pa.DataType
    wait: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the aggregates."""
        names = ["count", "sum", "average", *(f"quantile_{part:g}" for part in self.quantiles)]
        bounded = [f"{name}{bound}" for name in names for bound in ("", "_low", "_high")]
        return pa.schema(
            [("begin", self.time), ("end", self.time), ("results", pa.int64())]
            + [(name, pa.float64()) for name in bounded]
        )

    def table(self, ends: Ints, rows: list[dict[str, Any]]) -> pa.Table:
        """The aggregates of windows, given what each says (`summary`)."""
        whens = {
            name: pa.array(times, pa.int64()).view(self.time)
            for name, times in (("begin", ends - self.over), ("end", ends))
        }
        said = {
            field.name: pa.array([row[field.name] for row in rows], field.type)
            for field in list(self.schema)[2:]
        }
        return pa.table(whens | said, self.schema)


def aggregated(
    results: pa.Table,
    windows: Windows,
    sampled: bool,
    exact: Callable[[int, int], Estimate | Weights],
) -> pa.Table:
    """Aggregate a column of results.

    Args:
        results: of a join.
        windows: what to aggregate.
        sampled: whether the results are a sample of all, or all of them.
        exact: estimates the results of a window without shedding, given its beginning and its end,
            for which those made stand; or says what these stand for (`WHOLE`, `UNKNOWN`).
    """
    times, values = _columns(results, windows)
    ends = _ends(times, windows)
    made = np.sort(results["time"].combine_chunks().view(pa.int64()).to_numpy())
    rows = []
    for end in ends.tolist():
        bounds = end - windows.over, end
        low, high = np.searchsorted(times, bounds, side="right").tolist()
        first, last = np.searchsorted(made, bounds, side="right").tolist()
        part, own = slice(low, high), (exact(*bounds), last - first)
        rows.append(summary(times[part], values[part], end, windows, *own, sampled, alike=True))
    return windows.table(ends, rows)


def _columns(results: pa.Table, windows: Windows) -> tuple[Ints, Floats]:
    """The times and values of results, in order of time; those without a value are left out."""
    members = results[windows.stream].combine_chunks()
    times = results["time"].combine_chunks().view(pa.int64()).to_numpy()
    if pa.types.is_list(members.type):
        times = np.repeat(times, pc.list_value_length(members).to_numpy())
        members = members.flatten()
    values = pc.struct_field(members, [windows.column])
    kept = values.is_valid()
    times = times[kept.to_numpy(zero_copy_only=False)]
    order = np.argsort(times, kind="stable")
    numbers = values.filter(kept).cast(pa.float64(), safe=False).to_numpy()
    return times[order], numbers[order]


def _ends(times: Ints, windows: Windows) -> Ints:
    """The ends of windows, multiples of the step, from the first result to the last."""
    if not len(times):
        return np.empty(0, np.int64)
    first, last = -(-int(times[0]) // windows.every), -(-int(times[-1]) // windows.every)
    if last - first >= MOST_WINDOWS:
        raise SpecError(
            f".aggregate(): there are {last - first + 1:,} windows from the first result, of time"
            f" {times[0]}, to the last, of time {times[-1]}, more than {MOST_WINDOWS:,}; give a"
            " longer `every`"
        )
    return np.arange(first, last + 1, dtype=np.int64) * windows.every


def summary(
    times: Ints,
    values: Floats,
    end: int,
    windows: Windows,
    exact: Estimate | Weights,
    made: int,
    sampled: bool,
    alike: bool = False,
) -> dict[str, Any]:
    """The aggregates of the results in one window, by name.

    Args:
        times: of the results, after the beginning of the window and up to its end.
        values: of the results.
        end: of the window.
        windows: what to aggregate.
        exact: the results of the window without shedding, or what those made stand for.
        made: the results of the window, with those that have no value.
        sampled: whether the results are a sample of all.
        alike: whether results of equal values may be of one row or key, and vary together.
    """
    row: dict[str, Any] = {"results": len(values)}
    weights = exact if isinstance(exact, Weights) else Weights.of(exact, made)
    # Where none was made there is none that could stand for those that are missing.
    count = _corrected(1 if weights is not exact and not made else len(values), weights)
    _put(row, "count", *count)
    if not len(values):
        _put(row, "sum", *_corrected(0, weights))
        for name in ("average", *(f"quantile_{part:g}" for part in windows.quantiles)):
            _put(row, name, None, None, None)
        return row
    whole = weights.high == 1
    sampled = sampled or whole
    piece = (times - (end - windows.over) - 1) * PIECES // windows.over
    average = float(values.mean())
    same = np.unique(values, return_inverse=True)[1] if alike and sampled and not whole else None
    reach = 0.0 if whole else _reach(values - average, piece, same)
    bounds = (average - reach, average + reach) if sampled else (None, None)
    _put(row, "average", average, *bounds)
    _put(row, "sum", *_sum(count, average, *bounds))
    ranked = np.sort(values)
    for part in windows.quantiles:
        value = _quantile(ranked, part)
        bounds = (None, None)
        if sampled:
            # Woodruff 1952: the interval of the part below the value, read off as values.
            under = values <= value
            reach = 0.0 if whole else _reach(under - under.mean(), piece, same)
            bounds = (_quantile(ranked, part - reach), _quantile(ranked, part + reach))
        _put(row, f"quantile_{part:g}", value, *bounds)
    return row


def _put(
    row: dict[str, Any], name: str, value: float | None, low: float | None, high: float | None
) -> None:
    row[name], row[f"{name}_low"], row[f"{name}_high"] = value, low, high


def _corrected(number: int, weights: Weights) -> tuple[float, float | None, float | None]:
    """A count or a sum for all results, as far as it is known what these stand for."""
    value, low, high = (number * weight for weight in weights)
    return (value, None, None) if np.isnan(low) else (value, low, high)


def _sum(
    count: tuple[float, float | None, float | None],
    average: float,
    low: float | None,
    high: float | None,
) -> tuple[float, float | None, float | None]:
    """A sum: how many there are, times their average, which are wrong independently."""
    many, fewest, most = count
    value = many * average
    if fewest is None or most is None or low is None or high is None:
        return value, None, None
    by_count = (fewest - many) * average, (most - many) * average
    below = math.hypot(min(0.0, *by_count), many * (average - low))
    above = math.hypot(max(0.0, *by_count), many * (high - average))
    return value, value - below, value + above


def _reach(off: Floats, piece: Ints, same: Ints | None) -> float:
    """How far a mean may be from the truth, given how far each is from the mean.

    Args:
        off: by how much each is off.
        piece: the piece of the window that each is in.
        same: the number of its value, if those of one value vary together.
    """
    sums = np.bincount(piece, off, minlength=PIECES)
    variance = float(sums @ sums) * PIECES / (PIECES - 1)
    if same is not None:
        together = np.bincount(same, off)
        variance = max(variance, float(together @ together))
    return REACH * float(np.sqrt(variance)) / len(off)


def _quantile(ranked: Floats, part: float) -> float:
    """The smallest value up to which at least a part of all lies.

    Args:
        ranked: values, in order.
        part: asked for.
    """
    place = math.ceil(min(max(part, 0.0), 1.0) * len(ranked) - 1e-9) - 1
    return float(ranked[max(0, place)])
