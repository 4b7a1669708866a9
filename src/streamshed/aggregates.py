"""Aggregates of results in windows of time: counts, sums, averages and quantiles, with intervals.

Results of rows that were shed are missing. Counts and sums are corrected by the recall, where it is
estimated. Averages and quantiles of a sample need no correction, but are known up to chance:
their intervals come from the differences between sixteen pieces of the window (batch means), as
results of the same rows are no independent draws. If rows were shed by a policy that keeps no
sample, the error of averages and quantiles is unknown, and they have no intervals; nor do sums.
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

from streamshed.estimates import Estimate

PIECES = 16
"""Into which a window is cut to see how much it varies."""
REACH = 2.131
"""How far 95 % of Student's t with 15 degrees of freedom reach."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Weights(NamedTuple):
    """For how many results each stands: about so many, and within bounds, not numbers if unknown.

    Of each result, or the same of all.
    """

    value: Floats | float
    low: Floats | float
    high: Floats | float

    @classmethod
    def by(cls, recall: Estimate | None) -> Weights:
        """What results stand for when a part of all was made.

        Examples:
            >>> Weights.by(Estimate(0.5, 0.4, 0.8))
            Weights(value=2.0, low=1.25, high=2.5)
        """
        if recall is None or recall.low <= 0:
            return cls(1.0, np.nan, np.nan)
        return cls(1 / recall.value, 1 / recall.high, 1 / recall.low)

    @classmethod
    def of(cls, exact: Estimate, made: int) -> Weights:
        """What each of the results stands for that were made; all of them, where there are none.

        Examples:
            >>> Weights.of(Estimate(30.0, 25.0, 50.0), 10)
            Weights(value=3.0, low=2.5, high=5.0)
        """
        least = max(1, made)
        return cls(*(max(made, number) / least for number in (exact.value, exact.low, exact.high)))

    def at(self, part: slice | Ints) -> Weights:
        """Those of a part of the results."""
        return Weights(*(w[part] if isinstance(w, np.ndarray) else w for w in self))

    @property
    def none_missing(self) -> bool:
        """Whether all results are known to be there."""
        return bool(np.all(np.equal(self.high, 1)))


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
    weights: Weights,
    sampled: bool,
    exact: Callable[[int, int], Estimate] | None = None,
) -> pa.Table:
    """Aggregate a column of results.

    Args:
        results: of a join.
        windows: what to aggregate.
        weights: what the results stand for.
        sampled: whether the results are a sample of all, or all of them.
        exact: estimates the results of a window without shedding, given its beginning and its end:
            then the results of the window stand for these.
    """
    times, values, of = _columns(results, windows)
    weights = weights.at(of)
    ends = _ends(times, windows)
    made = np.sort(results["time"].combine_chunks().view(pa.int64()).to_numpy())
    rows = []
    for end in ends.tolist():
        bounds = [end - windows.over, end]
        low, high = np.searchsorted(times, bounds, side="right").tolist()
        part = slice(low, high)
        own, first, last = weights.at(part), 0, 0
        if exact is not None:
            first, last = np.searchsorted(made, bounds, side="right").tolist()
            own = Weights.of(exact(*bounds), last - first)
        row = summary(times[part], values[part], end, windows, own, sampled, alike=True)
        if exact is not None and first == last:  # none was made that could stand for others
            whole = exact(*bounds)
            _put(row, "count", whole.value, whole.low, whole.high)
        rows.append(row)
    return windows.table(ends, rows)


def _columns(results: pa.Table, windows: Windows) -> tuple[Ints, Floats, Ints]:
    """The times and values of results, in order of time, and the result that each belongs to.

    Those without a value are left out.
    """
    members = results[windows.stream].combine_chunks()
    times = results["time"].combine_chunks().view(pa.int64()).to_numpy()
    of = np.arange(len(times))
    if pa.types.is_list(members.type):
        of = np.repeat(of, pc.list_value_length(members).to_numpy())
        members = members.flatten()
    values = pc.struct_field(members, [windows.column])
    kept = values.is_valid()
    of = of[kept.to_numpy(zero_copy_only=False)]
    order = np.argsort(times[of], kind="stable")
    numbers = values.filter(kept).cast(pa.float64()).to_numpy()
    return times[of][order], numbers[order], of[order]


def _ends(times: Ints, windows: Windows) -> Ints:
    """The ends of windows, multiples of the step, from the first result to the last."""
    if not len(times):
        return np.empty(0, np.int64)
    first, last = -(-int(times[0]) // windows.every), -(-int(times[-1]) // windows.every)
    return np.arange(first, last + 1, dtype=np.int64) * windows.every


def summary(
    times: Ints,
    values: Floats,
    end: int,
    windows: Windows,
    weights: Weights,
    sampled: bool,
    alike: bool = False,
) -> dict[str, Any]:
    """The aggregates of the results in one window, by name.

    Args:
        times: of the results, after the beginning of the window and up to its end.
        values: of the results.
        end: of the window.
        windows: what to aggregate.
        weights: what the results stand for.
        sampled: whether the results are a sample of all.
        alike: whether results of equal values may be of one row or key, and vary together.
    """
    row: dict[str, Any] = {"results": len(values)}
    count = _corrected(np.ones(len(values)), weights)
    _put(row, "count", *count)
    if not len(values):
        _put(row, "sum", *_corrected(values, weights))
        for name in ("average", *(f"quantile_{part:g}" for part in windows.quantiles)):
            _put(row, name, None, None, None)
        return row
    whole = weights.none_missing
    sampled = sampled or whole
    piece = (times - (end - windows.over) - 1) * PIECES // windows.over
    # A result counts for as many as it stands for, relative to the others.
    share = np.broadcast_to(weights.value, values.shape) / np.mean(weights.value)
    average = float((share * values).mean())
    same = np.unique(values, return_inverse=True)[1] if alike and sampled and not whole else None
    reach = 0.0 if whole else _reach(share * (values - average), piece, same)
    bounds = (average - reach, average + reach) if sampled else (None, None)
    _put(row, "average", average, *bounds)
    _put(row, "sum", *_sum(count, average, *bounds))
    order = np.argsort(values, kind="stable")
    ranked, below = values[order], np.cumsum(share[order]) / len(values)
    for part in windows.quantiles:
        value = _quantile(ranked, below, part)
        bounds = (None, None)
        if sampled:
            # Woodruff 1952: the interval of the part below the value, read off as values.
            under = values <= value
            reach = 0.0 if whole else _reach(share * (under - (share * under).mean()), piece, same)
            bounds = (
                _quantile(ranked, below, part - reach),
                _quantile(ranked, below, part + reach),
            )
        _put(row, f"quantile_{part:g}", value, *bounds)
    return row


def _put(
    row: dict[str, Any], name: str, value: float | None, low: float | None, high: float | None
) -> None:
    row[name], row[f"{name}_low"], row[f"{name}_high"] = value, low, high


def _corrected(values: Floats, weights: Weights) -> tuple[float, float | None, float | None]:
    """A count or a sum for all results, as far as it is known what these stand for."""
    value, *bounds = (float((values * weight).sum()) for weight in weights)
    if np.isnan(bounds).any():
        return value, None, None
    return value, min(bounds), max(bounds)


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


def _quantile(ranked: Floats, below: Floats, part: float) -> float:
    """The smallest value up to which at least a part of all lies.

    Args:
        ranked: values, in order.
        below: the part of all up to each.
        part: asked for.
    """
    place = np.searchsorted(below, np.clip(part, 0, 1) - 1e-12)
    return float(ranked[min(place, len(ranked) - 1)])
