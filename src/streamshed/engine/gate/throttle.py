"""The throttle: how much of the full join is done, and which parts of the windows that is.

Sections III to V of the GrubJoin paper. Every so often, in the join's own time, the throttle is set
anew by how many of the rows that came were processed in time; then the parts of the windows are
chosen that make the most results for that much work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.component import Component
from streamshed.engine.gate.harvest_fractions import (
    Directions,
    Ranked,
    Taken,
    cost_and_output,
    everything,
    full_cost,
    greedy,
    ranked,
)
from streamshed.engine.gate.random_drop import best_rates
from streamshed.engine.gate.throttle_state import (
    BUSY_UNTIL,
    CAPACITY,
    DROPPED,
    ELAPSED,
    LOOP,
    MEASURED,
    NEXT_DUE,
    POPPED,
    PUSHED,
    REST,
    SHREDDED,
    SPENT,
    TAKEN,
    THROTTLE,
    TOLD,
    WHOLE,
    WINDOWS,
    WORK,
    ThrottleState,
    modes_to_come,
    spans_wanted,
    throttle_layout,
)
from streamshed.engine.gate.window_scores import new_histograms, scores_of
from streamshed.kernels.core import ARRIVALS, BOUNDLESS, NEVER, Core, Field, Memory, Shape, make
from streamshed.ledger import Ledger
from streamshed.plan.plan import Plan, ThrottlePlan

KEPT = 0.8
"""How much what was learned counts after each adaptation."""


BUSY = 0.9
"""A join by keys has fallen behind if it works for this part of the time allowed, and the part of
its rows that it takes is smaller: buffers drop the others."""
FITTING = 0.5
"""If a smaller part of the rows of a key fit a newcomer, basic windows are picked, wherever they
are."""
LEAST = 0.05
"""The part of the time allowed that is left for the loop, whatever the rest takes."""
RARELY = 1 / 32
"""Vectors are multiplied faster than compared one by one, by about so much at the best."""
PARTS_TRIED = tuple(0.8**k for k in range(20))
"""Of windows, where fewer keys are weighed against less of the windows."""
LOWEST = 1e-4
"""The throttle never falls below this: it takes its time to rise again."""


class Known(NamedTuple):
    """What is known of the streams, by stream of the newcomer."""

    orders: npt.NDArray[np.int64]  # by (stream, step): who is gone through
    sizes: npt.NDArray[np.float64]  # by (stream, other): the rows that a newcomer looks at
    shares: npt.NDArray[np.float64]  # by (stream, other): the part of them that match


class Controller(Component):
    """Says what of the windows is probed.

    Args:
        plan: the join.
        throttle: how much work it may do.
        shape: how many streams there are.
        memory: where the arrays are.
    """

    prefix = "throttle."

    def __init__(self, plan: Plan, throttle: ThrottlePlan, shape: Shape, memory: Memory) -> None:
        super().__init__(shape, memory)
        self.plan, self.throttle = plan, throttle
        windows = np.array([stream.window or 0 for stream in plan.streams], np.int64)
        part = np.array(throttle.lengths(windows.tolist()), np.int64)
        parts = np.maximum(1, -(-windows // part))
        self.most = int(parts.max())
        histograms = new_histograms(windows.astype(np.float64), float(part.min()))
        self.buckets = histograms.buckets
        state = make(
            ThrottleState,
            self.layout(),
            shape,
            memory,
            self.prefix,
            histograms=histograms,
            most=self.most,
            sample=throttle.sample,
            buffer=throttle.buffer,
            indexed=plan.pairwise is None,
            by_keys=plan.pairwise is None and not plan.graph and not throttle.dropping,
            dropping=throttle.dropping,
            queued=plan.queue is not None and plan.queue.by_work,
        )
        state.pace[[THROTTLE, WINDOWS]] = 1.0
        state.pace[BUSY_UNTIL] = -np.inf
        state.pace[CAPACITY] = np.inf if throttle.capacity is None else throttle.capacity
        state.steps[NEXT_DUE] = NEVER
        state.part[:], state.parts[:] = part, parts
        state.admitted[:] = 1.0
        state.reach[:], state.ends[:] = BOUNDLESS, BOUNDLESS
        self.clock = time.perf_counter if throttle.wall else time.process_time
        self.seconds = 0.0
        # By (lane of the newcomer, other): the part of newcomers that go through its window at all.
        self.began: int | None = None
        self.reached = np.ones((len(windows), len(windows)))
        self.state = state._replace(histograms=histograms._replace(counts=state.counts))

    def layout(self) -> dict[str, Field]:
        """The arrays of its state."""
        lanes = len(self.plan.streams)
        return throttle_layout(lanes, self.most, self.throttle.buffer, self.buckets)

    def replace(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Let it have other arrays; the histograms are over the same counts."""
        super().replace(arrays)
        histograms = self.state.histograms._replace(counts=self.state.counts)
        self.state = self.state._replace(histograms=histograms)

    def save(self) -> dict[str, Any]:
        """How many newcomers go through each window at all, and when the join began."""
        return {"reached": self.reached.tolist(), "began": self.began}

    def load(self, saved: dict[str, Any]) -> None:
        """Take up what was said."""
        self.reached[:] = saved["reached"]
        self.began = saved.get("began")

    def account(self, ledger: Ledger) -> Ledger:
        """A ledger with the work that was done, and how much of the join that is."""
        capacity = None if self.capacity is None else self.capacity / self.throttle.second
        paced = replace(ledger, throttle=self.fraction, capacity=capacity, harvest=self.harvest)
        return replace(paced, comparisons=self.work)

    @property
    def fraction(self) -> float:
        """The part of the full join that is done (z)."""
        return float(self.state.pace[THROTTLE])

    @property
    def harvest(self) -> float:
        """The part of a window that is gone through, in the mean over pairs of streams."""
        state, lanes = self.state, len(self.plan.streams)
        if state.dropping or state.pace[WINDOWS if state.by_keys else THROTTLE] >= 1.0:
            return 1.0
        parts = state.chosen.reshape(lanes, lanes, self.most).sum(axis=2) / state.parts
        return float(parts[~np.eye(lanes, dtype=bool)].mean() if lanes > 1 else parts[0, 0])

    @property
    def capacity(self) -> float | None:
        """The work that may be done in a unit of time; None while that is not known."""
        capacity = float(self.state.pace[CAPACITY])
        return capacity if capacity < np.inf else None

    @property
    def work(self) -> int:
        """The work done so far."""
        return int(self.state.steps[WORK])

    @property
    def dropped(self) -> int:
        """The rows that were shed as they came."""
        return int(self.state.told.reshape(-1, TOLD)[:, DROPPED].sum())

    def waiting(self, time: int) -> float:
        """The work that rows still wait for at a time: it counts as done, but is not."""
        behind = max(0.0, float(self.state.pace[BUSY_UNTIL]) - time)
        return behind * float(self.state.pace[CAPACITY]) if behind else 0.0

    @contextmanager
    def timed(self, pace: int | None = REST) -> Iterator[None]:
        """Count the seconds until the end, those of the loop, whose work is bounded, or all else.

        What is counted within another is counted once.

        Args:
            pace: LOOP or REST; None for what is not to count: compiling, above all.
        """
        before, counted = self.clock(), self.seconds
        try:
            yield
        finally:
            seconds = self.clock() - before - (self.seconds - counted)
            self.seconds += seconds
            if pace is not None:
                self.state.pace[pace] += seconds

    def is_due(self, time: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether the throttle is set anew before rows of some times."""
        due: npt.NDArray[np.bool_] = time >= self.state.steps[NEXT_DUE]
        return due

    def foreseen(self, core: Core, streams: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """How the next rows will go through windows, as long as the throttle stays."""
        modes = np.empty(streams.size, np.int64)
        arrivals = int(core.numbers[ARRIVALS])
        modes_to_come(self.state, core.settings.seed, arrivals, streams, modes)
        return modes

    def wants(
        self,
        modes: npt.NDArray[np.int64],
        time: npt.NDArray[np.int64],
        lane: int,
        other: int,
        spans: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    ) -> npt.NDArray[np.bool_]:
        """Which newcomers are likely to go through rows of another lane, by (span, newcomer).

        Those that learn look at rows drawn by lot in the first window (`draws`), and at all rows of
        another if they have found some before: where the throttle is low, it is not worth while to
        say beforehand. Nor is it where few find anybody in the windows before.

        Args:
            modes: how the newcomers go through windows.
            time: theirs.
            lane: theirs.
            other: that of the rows.
            spans: since when the rows are, and until when.
        """
        wanted = np.empty((spans[0].size, modes.size), np.bool_)
        if self.reached[lane, other] < RARELY:
            wanted[:] = modes == WHOLE
        else:
            shreds = self.fraction > RARELY and int(self.state.first[lane]) != other
            spans_wanted(self.state, modes, time, lane, other, shreds, *spans, wanted)
        return wanted

    def draws(self, modes: npt.NDArray[np.int64], lane: int, other: int) -> npt.NDArray[np.bool_]:
        """Which newcomers of a lane look at rows of another that are drawn by lot."""
        drawn: npt.NDArray[np.bool_] = (modes == SHREDDED) & (int(self.state.first[lane]) == other)
        return drawn

    def adapt(self, known: Known, time: int) -> None:
        """Set the throttle anew, before a row of a time is processed, or once it has waited."""
        if self.state.queued:
            time = max(time, int(self.state.pace[BUSY_UNTIL]))
        with self.timed(None):
            self._adapt(known, time)

    def _adapt(self, known: Known, time: int) -> None:
        state, every = self.state, self.throttle.every
        due = int(state.steps[NEXT_DUE])
        if due != NEVER:
            elapsed = every + (time - due) // every * every
            told = state.told.reshape(-1, TOLD)
            if self.throttle.share is not None:
                self._measure(self.throttle.share, elapsed)
            self._set_throttle(told, elapsed)
            self._choose(known, told[:, PUSHED] / elapsed, self._begun(time + every))
            told[:, [PUSHED, POPPED]] = 0
            state.pace[[SPENT, TAKEN]] = 0
            counts, partners = state.counts, state.partners
            counts *= KEPT
            partners *= KEPT
            state.steps[NEXT_DUE] = due + elapsed
        else:
            self.began = time
            state.steps[NEXT_DUE] = time + every

    def _begun(self, time: int) -> npt.NDArray[np.int64]:
        """By stream the basic windows that may have rows by a time: at first not all of them."""
        begun: npt.NDArray[np.int64] = self.state.parts
        if self.began is not None:
            begun = np.clip(-((self.began - time) // self.state.part), 1, begun)
        return begun

    def _measure(self, share: float, elapsed: int) -> None:
        """Say how much work is done in the time of the machine that the join may take.

        Work takes the loop's time; what the rest takes is taken off before.
        """
        pace = self.state.pace
        pace[MEASURED] += pace[SPENT]
        pace[ELAPSED] += elapsed
        if pace[MEASURED] > 0 and pace[LOOP] > 0:
            rest = pace[REST] / (pace[ELAPSED] * self.throttle.second)
            allowed = max(share - rest, LEAST * share)
            pace[CAPACITY] = allowed * self.throttle.second * pace[MEASURED] / pace[LOOP]
        pace[[LOOP, REST, MEASURED, ELAPSED]] *= KEPT

    def _set_throttle(self, told: npt.NDArray[np.int64], elapsed: int) -> None:
        """Section III-A: by the part of rows that were processed in time (β).

        The paper takes a join that keeps up for one with time to spare, and one that does not for
        one that works all the time. Here it is known how much of the time was worked, and the
        throttle goes by both: short bursts may fill a buffer while there is time to spare, and
        what works all the time cannot do more. The boost (γ) is the most that is tried at once.
        The paper's own rule, by β alone, can be chosen.
        """
        pace, came, begun = self.state.pace, int(told[:, PUSHED].sum()), int(told[:, POPPED].sum())
        performance = min(1.0, begun / came) if came else 1.0
        allowed, spent = pace[CAPACITY] * elapsed, pace[SPENT]
        if self.state.indexed and not self.state.queued:
            # Buffers that overflow in bursts are no reason to do less in between.
            behind = self.state.by_keys and spent >= BUSY * allowed and performance < BUSY
            performance = max(performance, 1.0 / self.throttle.boost) if behind else 1.0
        if self.state.by_keys and allowed < np.inf:
            # What rows wait for counts as done, but takes time that is still to come: a little may
            # wait all the time, what is more has to be worked off.
            waited = 0.0
            if not self.state.queued:
                waited = self.waiting(int(self.state.steps[NEXT_DUE]))
            allowed = max(allowed - max(0.0, waited - allowed / 4), allowed / 2)
        elif self.state.indexed:
            # To look a row up is work that no throttle spares; who is dropped spares it.
            allowed, spent = max(allowed - came, allowed / 2), spent - pace[TAKEN]
        factor = min(self.throttle.boost, performance * allowed / spent if spent else np.inf)
        if self.throttle.by_rows:
            kept_up = not came or begun >= came
            factor = self.throttle.boost if kept_up else begun / came
        self.state.pace[THROTTLE] = min(1.0, max(LOWEST, self.fraction * factor))

    def _choose(
        self, known: Known, rates: npt.NDArray[np.float64], begun: npt.NDArray[np.int64]
    ) -> None:
        """Section V: which basic windows are gone through, or which rows are dropped.

        Args:
            known: what is known of the streams.
            rates: of the streams.
            begun: by stream the basic windows that may have rows; the paper takes windows for full.
        """
        state, lanes, orders = self.state, len(self.plan.streams), known.orders
        state.first[:] = orders[:, 0]
        ranks = [
            [
                self._ranked(i, other, int(begun[other]), bool(known.shares[i, other] < FITTING))
                for other in orders[i]
            ]
            for i in range(lanes)
        ]
        directions = Directions(
            np.maximum(rates, 1e-12),
            np.take_along_axis(known.sizes, orders, axis=1),
            np.take_along_axis(known.shares, orders, axis=1),
            begun[orders],
            np.array([[_padded(rank.yields, self.most) for rank in row] for row in ranks]),
        )
        if self.throttle.dropping:
            budget = self.fraction * full_cost(directions)
            state.admitted[:] = best_rates(directions, orders, budget)
            return
        taken = self._by_keys(directions) if state.by_keys else greedy(directions, self.fraction)
        chosen = state.chosen.reshape(lanes, lanes, self.most)
        chosen[:] = False
        for i in range(lanes):
            reached = 1.0
            for step, other in enumerate(orders[i]):
                count = taken[i, step]
                chosen[i, other, ranks[i][step].order[:count]] = True
                self.reached[i, other] = reached
                partners = directions.sizes[i, step] * directions.selectivities[i, step]
                reached *= min(1.0, partners * directions.yields[i, step, count])
        self._set_ends(chosen)
        if self.throttle.conserve:
            self._conserve(chosen)

    def _by_keys(self, directions: Directions) -> Taken:
        """Say which keys are let in, and how much of the windows is gone through for them.

        A key is let in with all its rows, or not at all, which spares their look-ups: of the
        results of a part of the keys all are left, but of a part of the rows only those of which no
        member is missing. The fewer keys, the more of the windows; the two are weighed by the
        results that the work makes.
        """
        state, taken = self.state, everything(directions)
        if self.fraction >= 1.0:  # nothing to weigh: rounding must not leave anything out
            state.pace[WINDOWS], state.admitted[:] = 1.0, 1.0
            return taken
        look_ups = float(directions.rates.sum())
        budget = self.fraction * (look_ups + sum(cost_and_output(directions, taken)))
        most = -1.0
        for windows in PARTS_TRIED:
            some = greedy(directions, windows)
            cost, output = cost_and_output(directions, some)
            keys = min(1.0, budget / (look_ups + cost + output))
            if keys * output > most:
                most, taken = keys * output, some
                state.pace[WINDOWS], state.admitted[:] = windows, keys
        return taken

    def _ranked(self, direction: int, stream: int, parts: int, few: bool) -> Ranked:
        """Rank the basic windows of a stream; `few` of the rows there fit a newcomer.

        Where an index finds who fits, each row that is looked at makes results, wherever it is, and
        those are reached at the least cost that are the newest.
        """
        state = self.state
        part = float(state.part[stream])
        scores = scores_of(state.histograms, direction, stream, part, parts)
        return ranked(scores, by_age=state.indexed and not (state.by_keys and few))

    def _set_ends(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Note how old the rows of the oldest basic window are that is chosen; -1 if none is."""
        last = self.most - np.argmax(chosen[:, :, ::-1], axis=2)
        ends = np.where(last >= self.state.parts, BOUNDLESS, last * self.state.part - 1)
        self.state.ends[:] = np.where(chosen.any(axis=2), ends, -1).reshape(-1)

    def _conserve(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Section VII: rows that are older than all that is chosen are of no use."""
        used: npt.NDArray[np.bool_] = np.logical_or.reduce(chosen)
        state = self.state
        for lane in range(len(used)):
            beyond = int(np.flatnonzero(used[lane])[-1]) + 1 if used[lane].any() else 0
            whole = beyond >= state.parts[lane] or self.fraction >= 1.0
            whole |= self.plan.streams[lane].window is None  # rows of such windows leave by number
            state.reach[lane] = BOUNDLESS if whole else max(1, beyond) * state.part[lane]


def _padded(yields: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.float64]:
    return np.concatenate([yields, np.ones(most + 1 - len(yields))])
