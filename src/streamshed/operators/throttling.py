"""The controller: how much of the full join is done, and which parts of the windows that is.

Sections III to V of the GrubJoin paper. Every so often, in the join's own time, the throttle is set
anew by how many of the tuples that came were processed in time; then the parts of the windows are
chosen that make the most results for that much work.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamshed.kernels.core import (
    BOUNDLESS,
    FATES,
    NEVER,
    STORED,
    Core,
    Field,
    Memory,
    Shape,
    make,
)
from streamshed.kernels.pairs import AGREED, LOOKED, TALLIES, Meeting
from streamshed.operators.plan import Plan, ThrottlePlan
from streamshed.throttle.correlations import new_histograms, scores_of
from streamshed.throttle.dropping import best_rates
from streamshed.throttle.harvesting import Directions, Ranked, full_cost, greedy, ranked
from streamshed.throttle.portions import (
    BUSY_UNTIL,
    NEXT_DUE,
    POPPED,
    PUSHED,
    SPENT,
    THROTTLE,
    TOLD,
    Portions,
    portions_layout,
)

PORTIONS = "portions."
"""What the names of its arrays begin with."""
KEPT = 0.8
"""How much what was learned counts after each adaptation."""


class Controller:
    """Says what is gone through."""

    def __init__(self, plan: Plan, throttle: ThrottlePlan, shape: Shape, memory: Memory) -> None:
        self.plan, self.throttle = plan, throttle
        windows = np.array([stream.window or 0 for stream in plan.streams], np.int64)
        part = np.maximum(1, -(-windows // throttle.parts))
        if throttle.part is not None:
            part = np.full_like(windows, throttle.part)
        parts = np.maximum(1, -(-windows // part))
        self.most = int(parts.max())
        histograms = new_histograms(windows.astype(np.float64), float(part.min()))
        self.buckets = histograms.buckets
        state = make(
            Portions,
            self.layout(),
            shape,
            memory,
            PORTIONS,
            histograms=histograms,
            most=self.most,
            capacity=throttle.capacity,
            sample=throttle.sample,
            buffer=throttle.buffer,
        )
        state.pace[THROTTLE] = 1.0
        state.pace[BUSY_UNTIL] = -np.inf
        state.steps[NEXT_DUE] = NEVER
        state.part[:], state.parts[:] = part, parts
        state.admitted[:] = 1.0
        state.reach[:] = BOUNDLESS
        self.state = state._replace(histograms=histograms._replace(counts=state.counts))

    def layout(self) -> dict[str, Field]:
        """The arrays of its state."""
        lanes = len(self.plan.streams)
        return portions_layout(lanes, self.most, self.throttle.buffer, self.buckets)

    @property
    def fraction(self) -> float:
        """The part of the full join that is done (z)."""
        return float(self.state.pace[THROTTLE])

    def waiting(self, time: int) -> float:
        """The comparisons that tuples still wait for at a time: they count as made, but are not."""
        return float(max(0.0, self.state.pace[BUSY_UNTIL] - time) * self.throttle.capacity)

    def adapt(self, core: Core, meeting: Meeting, time: int) -> None:
        """Set the throttle anew, before a tuple of a time is processed."""
        state, every = self.state, self.throttle.every
        due = int(state.steps[NEXT_DUE])
        if due != NEVER:
            elapsed = every + (time - due) // every * every
            told = state.told.reshape(-1, TOLD)
            self._set_throttle(told, elapsed)
            self._choose(core, meeting, told[:, PUSHED] / elapsed)
            told[:, [PUSHED, POPPED]] = 0
            state.pace[SPENT] = 0
            counts, met = state.counts, meeting.met
            counts *= KEPT
            met[:] = (met * KEPT).astype(np.int64)
            state.steps[NEXT_DUE] = due + elapsed
        else:
            state.steps[NEXT_DUE] = time + every

    def _set_throttle(self, told: npt.NDArray[np.int64], elapsed: int) -> None:
        """Section III-A: by the part of tuples that were processed in time (β).

        The paper takes a join that keeps up for one with time to spare, and one that does not for
        one that works all the time. Here it is known how much of the time was worked, and the
        throttle goes by both: short bursts may fill a buffer while there is time to spare, and
        what works all the time cannot do more. The boost (γ) is the most that is tried at once.
        """
        came, begun = int(told[:, PUSHED].sum()), int(told[:, POPPED].sum())
        performance = min(1.0, begun / came) if came else 1.0
        spent = self.state.pace[SPENT] / (self.throttle.capacity * elapsed)
        factor = min(self.throttle.boost, performance / spent if spent else np.inf)
        self.state.pace[THROTTLE] = min(1.0, self.fraction * factor)

    def _choose(self, core: Core, meeting: Meeting, rates: npt.NDArray[np.float64]) -> None:
        """Section V: which basic windows are gone through, or which tuples are dropped."""
        state, lanes = self.state, len(self.plan.streams)
        orders = meeting.orders.reshape(lanes, lanes - 1)
        state.first[:] = orders[:, 0]
        stored = core.counts.reshape(-1, FATES)[:, STORED] / state.admitted
        met = meeting.met.reshape(lanes, lanes, TALLIES).astype(np.float64)
        share = (met[:, :, AGREED] + 0.05) / (met[:, :, LOOKED] + 100.0)
        ranks = [[self._ranked(i, other) for other in orders[i]] for i in range(lanes)]
        directions = Directions(
            np.maximum(rates, 1e-12),
            np.maximum(stored[orders], 1.0),
            np.take_along_axis(share, orders, axis=1),
            state.parts[orders],
            np.array([[_padded(rank.yields, self.most) for rank in row] for row in ranks]),
        )
        if self.throttle.dropping:
            budget = self.fraction * full_cost(directions)
            state.admitted[:] = best_rates(directions, orders, budget)
            return
        taken = greedy(directions, self.fraction)
        chosen = state.chosen.reshape(lanes, lanes, self.most)
        chosen[:] = False
        for i in range(lanes):
            for step, other in enumerate(orders[i]):
                chosen[i, other, ranks[i][step].order[: taken[i, step]]] = True
        if self.throttle.conserve:
            self._conserve(chosen)

    def _ranked(self, direction: int, stream: int) -> Ranked:
        state = self.state
        part, parts = float(state.part[stream]), int(state.parts[stream])
        return ranked(scores_of(state.histograms, direction, stream, part, parts))

    def _conserve(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Section VII: rows that are older than all that is chosen are of no use."""
        used: npt.NDArray[np.bool_] = np.logical_or.reduce(chosen)
        state = self.state
        for lane in range(len(used)):
            beyond = int(np.flatnonzero(used[lane])[-1]) + 1 if used[lane].any() else 0
            whole = beyond >= state.parts[lane] or self.fraction >= 1.0
            state.reach[lane] = BOUNDLESS if whole else max(1, beyond) * state.part[lane]


def _padded(yields: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.float64]:
    return np.concatenate([yields, np.ones(most + 1 - len(yields))])
