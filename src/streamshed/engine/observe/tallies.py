"""What all loss estimators have in common: their tallies, and what these say."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.batch import Batch
from streamshed.engine.component import Component
from streamshed.engine.observe.state import DEEPEST, FAR, GROUPS, SIGNS, STEPS
from streamshed.engine.restore import Rows
from streamshed.estimates import KeyTally, Tally
from streamshed.kernels.core import NEVER, NEWEST, RESULTS, Core, Memory, Shape
from streamshed.plan.plan import Plan

_MINUTE = 60_000_000
_SUMS = ("exact", "certain", "seen", "hidden", "unseen")
_HEAD = 3 + len(_SUMS)
"""What is known of a part of a run begins with so many numbers: whether rows had been shed by its
end, for how many results one may stand, those made, and `_SUMS`. Then come the sums of groups."""

Floats = npt.NDArray[np.float64]


class Sums(NamedTuple):
    """All that has been tallied, up to a moment."""

    total: npt.NDArray[Any]
    spread: npt.NDArray[np.float64]


class Estimator(Component):
    """An observer that estimates what the join would make if nothing were shed.

    Attributes:
        step: the length of a step of the last minute, or in rows.
        sums: has the arrays `total`, `spread`, `steps` and `step_spread`.
    """

    prefix = "loss."
    sums: Any

    def __init__(self, plan: Plan, shape: Shape, memory: Memory) -> None:
        super().__init__(shape, memory)
        self.plan = plan
        self.step = -(-lately(plan) // STEPS)

    @property
    @abstractmethod
    def rate(self) -> float:
        """The part of all keys, or rows, that is followed at present, whatever they promise."""

    @property
    @abstractmethod
    def heaviest(self) -> float:
        """For how many results one may stand at present that was not seen; 0 if all are."""

    @property
    @abstractmethod
    def rows_seen(self) -> int:
        """The rows that have come."""

    @property
    @abstractmethod
    def newest(self) -> int:
        """The newest time of these."""

    @property
    def doubt(self) -> float:
        """By what factor hidden results may be more than the sketch says."""
        return 1.0

    @abstractmethod
    def arranged(self, spread: Floats) -> Floats:
        """The sums of groups: of what is predicted, hidden and merged, then by lots."""

    @abstractmethod
    def warm(self, core: Core, nothing: Batch) -> None:
        """Have everything compiled that the estimator needs."""

    @abstractmethod
    def followed_streams(self) -> npt.NDArray[np.int32]:
        """The streams that have a row that is followed, some more than once."""

    @abstractmethod
    def forget_streams(self, streams: npt.NDArray[np.bool_]) -> None:
        """Begin anew with some streams, of which no row is followed."""

    @abstractmethod
    def restore(self, saved: dict[str, npt.NDArray[Any]], changed: set[str]) -> bool:
        """Take up the arrays of a checkpoint; False if the sample has to begin anew."""

    @abstractmethod
    def begin_anew(self, core: Core, rows: Rows, results: int, known: bool) -> None:
        """Begin with the rows that are stored: what they complete from here on will be known.

        Args:
            core: the state of the join.
            rows: that are stored.
            results: made so far.
            known: whether what was missed so far was tallied; otherwise it is taken as nothing.
        """

    def tally(self, made: int) -> Tally:
        """What is known of all results so far, of which so many were made."""
        return self._tally(self.sums.total, self.sums.spread.reshape(-1, GROUPS), made)

    def sums_so_far(self) -> Sums:
        """What was tallied of the results so far; it stays what it is."""
        return Sums(self.sums.total.copy(), self.sums.spread.copy())

    def known_since(self, before: Sums, shed: bool, made: float) -> Floats:
        """What is known of the results since a moment, of which so many were made; see `tally_of`.

        Args:
            before: what was tallied up to that moment.
            shed: whether rows have been shed, then or before.
            made: results.
        """
        total = self.sums.total.copy()
        for name in _SUMS:
            total[name] -= before.total[name]
        spread = (self.sums.spread - before.spread).reshape(-1, GROUPS)
        return self._known(total, spread, shed, made)

    def tally_lately(self, core: Core) -> Tally:
        """The same in the last minute, or window."""
        now = self.rows_seen
        if core.settings.timed:
            now = max(int(core.numbers[NEWEST]), self.newest)
        steps = self.sums.steps
        recent = steps["number"] > now // self.step - STEPS
        if now in (FAR, NEVER) or not recent.any():
            return Tally()
        made = int(core.numbers[RESULTS]) - int(steps["results"][recent].min())
        spread = self.sums.step_spread.reshape(STEPS, -1, GROUPS)[recent]
        spread = spread.sum(axis=0, dtype=np.float64)
        return self._tally(steps[recent], spread, made)

    def _tally(self, tallies: npt.NDArray[Any], spread: Floats, made: float) -> Tally:
        return tally_of([self._known(tallies, spread, True, made)])

    def _known(self, tallies: npt.NDArray[Any], spread: Floats, shed: bool, made: float) -> Floats:
        sums = {name: float(tallies[name].sum()) for name in _SUMS}
        sums["hidden"] *= self.doubt
        weight = max(float(tallies["weight"].max()), self.heaviest)
        return np.array([shed, weight, made, *sums.values(), *self.arranged(spread).ravel()])

    def key_tally(self) -> KeyTally | None:
        """What is known of the keys that have results; None where rows share none."""
        return None


def lately(plan: Plan) -> int:
    """What "lately" means: a minute, or else the longest window (in time, or in rows of all)."""
    if pa.types.is_timestamp(plan.time_type):
        return _MINUTE
    windows = [stream.window for stream in plan.streams if stream.window is not None]
    return max(1, max(windows) if windows else sum(stream.last or 0 for stream in plan.streams))


def tally_of(parts: Sequence[Sequence[float] | Floats]) -> Tally:
    """What is known of all results of some parts of a run together (`Estimator.known_since`)."""
    numbers = np.array(parts)
    shed, weight = numbers[:, :2].max(axis=0).tolist()
    made, *sums = numbers[:, 2:_HEAD].sum(axis=0).tolist()
    if not shed:
        return Tally(exact=made, certain=made, seen=made, made=made)
    groups = numbers[:, _HEAD:].sum(axis=0).reshape(-1, GROUPS)
    predicted, hidden, merged, lots = groups[0], groups[1], groups[2], groups[3:]
    return Tally(
        made=made,
        **dict(zip(_SUMS, sums, strict=True)),
        # Two results vary together if they share a row, or key: the sum over all that was drawn, of
        # the variances between groups of it, counts each such pair at least once.
        variance=sum(_variance(drawn) for drawn in lots),
        unseen_variance=_variance(predicted),
        hidden_variance=_variance(hidden),
        merged_variance=float((merged[:SIGNS] ** 2).mean()),
        # The sum of a random group may be larger than that of others by a single key or row.
        weight=max(weight, float((lots - lots.mean(axis=-1, keepdims=True)).max())),
    )


def _variance(groups: Floats) -> float:
    """The variance of a sum over random groups, from their differences."""
    off = groups - groups.mean()
    return float(off @ off) * GROUPS / (GROUPS - 1)


def mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """What `kernels.random.mix` makes of words."""
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def depths(lots: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The leading zeros of lots, as `state.depth_of` finds them."""
    word, depth = lots, np.zeros(len(lots), np.int64)
    for bits in (32, 16, 8, 4, 2, 1):
        empty = word >> np.uint64(64 - bits) == 0
        depth += bits * empty
        word = np.where(empty, word << np.uint64(bits), word)
    return np.minimum(depth, DEEPEST)
