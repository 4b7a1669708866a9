"""The loss estimator of a running join: made, given room, saved and read again; what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamshed.engine.allocation import enough, first_shape
from streamshed.engine.batch import NO_NUMBERS, Batch
from streamshed.engine.observe.loss import enter_rows
from streamshed.engine.observe.sampled_rows import link_keys
from streamshed.engine.observe.state import (
    CUT,
    DEEPEST,
    ENTERED,
    ENTRIES_USED,
    EVEN_UNITS,
    FAR,
    FLOOR,
    FREE_ENTRY,
    FREE_KEY,
    FULL_AT,
    HIDDEN,
    KEYS_USED,
    LOTS,
    MERGED,
    MOST_STREAMS,
    NEWEST,
    PREDICTED,
    ROOM,
    ROW_UNITS,
    STEP_ENDS,
    STEPS,
    STREAMS,
    TURN_AT,
    UNSEEN,
    Loss,
    LossSettings,
    loss_layout,
)
from streamshed.engine.observe.tallies import (
    Estimator,
    depths,
    lately,
    mixed,
)
from streamshed.engine.restore import Rows
from streamshed.estimates import KeyTally
from streamshed.kernels.core import (
    ARRIVED,
    BOUNDLESS,
    FATES,
    FILTERED,
    LATE,
    NONE,
    Core,
    Field,
    Memory,
    Shape,
)
from streamshed.kernels.random import GOLDEN
from streamshed.plan.plan import Plan

CAPACITY = 11 << 8
"""Entries that a sample may have in any case, if it chooses its rate by itself."""
PART = 40
"""Beyond that it may have one for so many rows of the budget. With the sketch, which has a cell for
four rows that a stream may have, it takes about 5 % of the memory."""
LARGE = 1 << 20
"""The most that it may have; and what it has, if the rate was said, before it falls to that."""
WIDTH = 1 << 12
"""Cells in a row of the sketch, in any case; a power of 2."""
FEWEST, MOST = 8, 16
"""Between these is the number of entries of a key in a stream, before neighbours are merged."""

_TALLIES = ("total", "spread", "steps", "step_spread")
_KEYS = ("distinct",)
_BY_ENTRY = ("entries", "latest", "earliest", "owner", "keys")


def is_estimated(plan: Plan) -> bool:
    """Whether a join may shed, and it is wanted to estimate what that costs."""
    sheds = plan.bounded or plan.throttle is not None
    overdue = plan.spill is not None and plan.spill.deadline is not None
    return (sheds or overdue) and plan.rate != 0


class LossEstimator(Estimator):
    """The observer of a running join on a shared key.

    Args:
        plan: the join, with its budgets.
        shape: how many streams there are.
        memory: where the arrays are.
    """

    state: Loss

    def __init__(self, plan: Plan, shape: Shape, memory: Memory) -> None:
        super().__init__(plan, shape, memory)
        self.settings = _settings(plan)
        self.room = self.settings.capacity if plan.rate is None else 0
        nothing = {name: field.nothing() for name, field in self.layout().items()}
        self.state = Loss(self.settings, **nothing)
        self.grow(shape, 0)
        self._begin()

    def _begin(self) -> None:
        """Write into new arrays what is not 0."""
        numbers = self.state.numbers
        numbers[[FREE_ENTRY, FREE_KEY]] = NONE
        numbers[[NEWEST, TURN_AT, STEP_ENDS]] = FAR
        numbers[[FULL_AT, ROOM]] = self.settings.capacity
        self.state.steps["number"] = FAR

    def layout(self) -> dict[str, Field]:
        """The arrays."""
        return loss_layout(self.room, self.settings.bits, self.plan)

    def grow(self, shape: Shape, rows: int) -> None:
        """Grow with the streams; and with the rows, if the rate was said."""
        if self.plan.rate is not None:
            used = int(self.state.numbers[ENTRIES_USED]) if self.state.numbers.size else 0
            self.room = enough(self.room, used + rows * (shape.lanes + 1))
        chains = self.state.heads
        super().grow(shape, rows)
        if self.state.heads is not chains and self.state.numbers[KEYS_USED]:
            self._link()

    def _link(self) -> None:
        """Put the keys into the chains again."""
        self.state.heads[:] = 0
        link_keys(self.state)

    def warm(self, core: Core, nothing: Batch) -> None:
        """Have everything compiled that the estimator needs."""
        link_keys(self.state)
        enter_rows(self.state, core, nothing, NO_NUMBERS)

    def nbytes(self, used: Shape) -> int:
        """The bytes in use: entries that were never used take none."""
        return sum(array.nbytes for array in self.in_use().values())

    def in_use(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays, as far as they are or were in use."""
        numbers = self.state.numbers
        used = {"keys": int(numbers[KEYS_USED])}
        return {
            name: array[: used.get(name, int(numbers[ENTRIES_USED]))]
            if name in _BY_ENTRY
            else array
            for name, array in self.arrays().items()
        }

    def followed_streams(self) -> npt.NDArray[np.int32]:
        """The streams that have a row that is followed, some more than once."""
        streams = self.in_use()["entries"]["stream"]
        found: npt.NDArray[np.int32] = streams[streams != NONE]
        return found

    def forget_streams(self, streams: npt.NDArray[np.bool_]) -> None:
        """Begin anew with some streams, of which no row is followed."""
        entered = self.state.entered[: len(streams)]
        self.state.numbers[STREAMS] -= int((entered[streams] > 0).sum())
        entered[streams] = 0

    # -- checkpoints -----------------------------------------------------------------------------

    def kept_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays as a checkpoint keeps them."""
        return self.in_use()

    def save(self) -> dict[str, Any]:
        """How many entries there are."""
        return {"room": int(self.state.numbers[ENTRIES_USED])}

    def load(self, saved: dict[str, Any]) -> None:
        """Make room for as many."""
        self.room = max(self.room, saved.get("room", 0))

    def attach(self, shape: Shape, memory: Memory, saved: dict[str, Any]) -> None:
        """Take over the arrays that another process has left."""
        super().attach(shape, memory, saved)
        self.room = len(self.state.entries)

    def restore(self, saved: dict[str, npt.NDArray[Any]], changed: set[str]) -> bool:
        """Take up the arrays of a checkpoint; False if the sample has to begin anew.

        With another seed, rate or budget lots or room are others; what was tallied stays.
        """
        same = not changed & {"estimate", "seed", "budget", "queue", "throttle", "overflow"}
        chosen = self.layout()
        if not same:
            kept = _TALLIES if "seed" in changed else (*_TALLIES, *_KEYS)
            chosen = {name: form for name, form in chosen.items() if name in kept}
        arrays = self.arrays()
        for name, form in chosen.items():
            found = saved.get(self.prefix + name)
            if form.kept and found is not None:
                used = min(len(arrays[name]), len(found))
                arrays[name][:used] = found[:used]
        if same:
            self._link()
        elif self.prefix + "numbers" in saved and "seed" not in changed:
            self.state.numbers[CUT] = saved[self.prefix + "numbers"][CUT]
        return same and self.prefix + "numbers" in saved

    def begin_anew(self, core: Core, rows: Rows, results: int, known: bool) -> None:
        """Begin with the rows that are stored: see `Estimator`."""
        counts = core.counts.reshape(-1, FATES)
        entered = counts[:, ARRIVED] - counts[:, FILTERED] - counts[:, LATE]
        self.state.entered[: len(entered)] = entered
        self.state.numbers[ENTERED] = entered.sum()
        self.state.numbers[STREAMS] = (entered > 0).sum()
        if not known:
            for name in ("exact", "certain", "seen"):
                self.state.total[name] = results
        enter_rows(self.state, core, rows.batch, positions(core, rows))

    # -- what it says ----------------------------------------------------------------------------

    @property
    def rate(self) -> float:
        """The part of all keys that is followed at present, whatever they promise."""
        return float(2.0 ** -int(self.state.numbers[FLOOR]))

    @property
    def sums(self) -> Loss:
        """The tallies are among the arrays."""
        return self.state

    @property
    def heaviest(self) -> float:
        """For how many results one may stand at present that was not seen; 0 if all are."""
        return 1 / self.rate if int(self.state.floors.max()) > 0 else 0.0

    @property
    def rows_seen(self) -> int:
        """The rows that have come."""
        return int(self.state.numbers[ENTERED])

    @property
    def newest(self) -> int:
        """The newest time of these."""
        return int(self.state.numbers[NEWEST])

    @property
    def doubt(self) -> float:
        """By what factor hidden results may be more than the sketch says.

        A result is a product over streams, and so is what the sketch is wrong by. Rows of streams
        that a column names are believed for all of them together, and so half as much is.
        """
        if self.plan.by is None:
            return float(2.0 ** (len(self.plan.streams) - 4))
        return float(2.0 ** (min(int(self.state.numbers[STREAMS]), MOST_STREAMS) - 5))

    def arranged(self, spread: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The sums of groups: of what is predicted, hidden and merged, then by lots."""
        hidden = self.doubt * spread[HIDDEN]
        return np.stack([spread[PREDICTED], hidden, spread[MERGED], spread[LOTS]])

    def key_tally(self) -> KeyTally:
        """What is known of the keys that have results."""
        distinct = self.state.distinct[self.state.distinct["used"] != 0]
        cut = int(self.state.numbers[CUT])
        depth = depths(mixed(distinct["hash"] ^ self.settings.salt))
        level = np.maximum(distinct["level"].astype(np.int64), cut)
        stands = 2.0 ** level[(depth >= level) & (distinct["level"] < UNSEEN)]
        made = 2.0**cut * float((distinct["made"] != 0).sum())
        return KeyTally(
            keys=float(stands.sum()),
            keys_certain=float((stands == 1).sum()),
            keys_variance=float((stands * (stands - 1)).sum()),
            keys_made=made,
            keys_made_variance=made * (2.0**cut - 1),
            keys_weight=max(1 / self.rate, float(stands.max(initial=1.0))),
        )


def _settings(plan: Plan) -> LossSettings:
    capacity, bits = LARGE, sketch_bits(0, len(plan.streams))
    if plan.rate is None:
        budget = first_shape(plan).budget
        capacity, bits = sample_entries(budget), sketch_bits(budget, len(plan.streams))
    return LossSettings(
        salt=np.uint64((plan.seed + 1) * int(GOLDEN) % 2**64),
        capacity=capacity,
        bits=bits,
        most=BOUNDLESS if plan.rate == 1 else min(MOST, max(FEWEST, capacity // 32)),
        highest=DEEPEST if plan.rate is None else int(np.floor(-np.log2(plan.rate))),
        step=-(-lately(plan) // STEPS),
        per_row=float(EVEN_UNITS) ** -len(plan.streams),
        per_result=float(ROW_UNITS) ** (1 - len(plan.streams)),
    )


def sample_entries(budget: int) -> int:
    """The entries of a sample that chooses its rate by itself, for so many rows of the budget."""
    return min(max(CAPACITY, budget // PART), LARGE)


def sketch_bits(budget: int, streams: int) -> int:
    """The bits of the width of the sketch, for so many rows of the budget of all streams."""
    return min(max(WIDTH, budget // (4 * streams)), LARGE).bit_length() - 1


def positions(core: Core, rows: Rows) -> npt.NDArray[np.int64]:
    """The times of rows, or where their stream has a row window their numbers in it."""
    positions = rows.batch.time.copy()
    counts = core.counts.reshape(-1, FATES)
    for stream in np.unique(rows.batch.stream).tolist():
        lane = 0 if core.settings.by else stream
        last = int(core.lanes["last"][lane])
        if last == 0:
            continue
        start = stream * last if core.settings.by else int(core.lanes["recent"][lane])
        ring = core.recent["arrival"][start : start + last]
        fates = counts[stream]
        entered = int(fates[ARRIVED] - fates[FILTERED] - fates[LATE])
        numbers = entered - (entered - 1 - np.arange(last)) % last
        mine = rows.batch.stream == stream
        order = np.argsort(ring)
        places = order[np.searchsorted(ring, rows.arrivals[mine], sorter=order)]
        positions[mine] = numbers[places]
    return positions
