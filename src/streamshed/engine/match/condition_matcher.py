"""The matcher of a condition between two rows, outside the loop: which index serves it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import numpy.typing as npt

from streamshed.conditions import Cosine, InnerProduct, Near, PairCondition, Where
from streamshed.engine.allocation import enough
from streamshed.engine.batch import NO_NUMBERS, Batch
from streamshed.engine.gate.throttle_state import SHARED
from streamshed.engine.match import sorted_windows, vectors
from streamshed.engine.match.comparison_columns import Compared
from streamshed.engine.match.conditions import Conditions
from streamshed.engine.match.matcher import Matcher
from streamshed.engine.match.pairs import (
    AGREED,
    COMPARED,
    TALLIES,
    Numbers,
    Records,
    Selectivity,
    Vectors,
    by_row,
    selectivity_layout,
    vectors_by_row,
)
from streamshed.engine.match.record_windows import RecordWindows, record_layout
from streamshed.engine.match.sorted_windows import SortedWindows, sorted_layout
from streamshed.engine.match.vectors import (
    BLOCK,
    PLACES,
    VectorWindows,
    draw_places,
    give_places,
    note_likely,
    runs_of,
    spans_to_come,
    tidy,
    vector_layout,
)
from streamshed.errors import InputError, SpecError
from streamshed.kernels.compiling import loop
from streamshed.kernels.core import (
    ARRIVALS,
    BOUNDLESS,
    FATES,
    NONE,
    STORED,
    Field,
    Memory,
    Shape,
    make,
)
from streamshed.plan.plan import PARTS, Plan

if TYPE_CHECKING:
    from streamshed.engine.gate.throttle import Controller, Known
    from streamshed.engine.operator import Operator

PIECE = 1536
"""Rows whose vectors are multiplied with those stored at once."""


LISTED = SortedWindows, RecordWindows
"""Indexes whose basic windows are lists, by lane."""


class ConditionMatcher(Matcher):
    """Compares rows two by two, by the index that serves the condition best.

    Numbers, vectors and records have windows of their own if no equal keys are asked for besides;
    otherwise the rows of a key are compared one by one. (So are vectors that wait in a queue: in
    which order they are taken is not known beforehand.)
    """

    prefix = "conditions."

    def __init__(self, plan: Plan, compared: Compared, shape: Shape, memory: Memory) -> None:
        super().__init__(plan, shape, memory)
        assert plan.pairwise is not None
        self.condition: PairCondition = plan.pairwise
        self.compared = compared
        self.room = 0
        self.keyed = bool(plan.streams[0].key)
        selectivity = make(Selectivity, selectivity_layout(shape.lanes), shape, memory, self.prefix)
        self.state = Conditions(self._empty(), selectivity)
        self._set_orders()

    @property
    def width(self) -> int:
        """The elements of a vector; 1 as long as none has come."""
        return max(1, self.compared.width)

    @property
    def multiplies(self) -> bool:
        """Whether rows are compared with many rows at once, before they are processed."""
        return self.kind is VectorWindows

    @property
    def by_function(self) -> bool:
        """Whether rows are compared by a function of the user's."""
        return self.kind in {Records, RecordWindows}

    @property
    def piece(self) -> int:
        """How many rows are to be processed at once."""
        return PIECE if self.multiplies else BOUNDLESS

    def _empty(self) -> Any:
        kind: type = {True: Numbers, False: SortedWindows}[self.keyed]
        given: dict[str, Any] = {}
        match self.condition:
            case Near(distance=distance):
                given["distance"] = distance
            case Where():
                kind = Records if self.keyed else RecordWindows
                given["function"] = compiled(self.condition, self.compared.dtype)
            case Cosine(at_least=least) | InnerProduct(at_least=least):
                alone = self.keyed or self.plan.queue is not None
                kind = Vectors if alone else VectorWindows
                angle = isinstance(self.condition, Cosine)
                given |= {"width": self.width, "least": least, "angle": angle}
                if not alone:
                    given["coming"] = np.empty(0, np.int64)
                    given["bits"] = np.empty(0, np.uint64)
                    given["ready"] = np.empty(0, np.bool_)
        self.kind = kind
        self.newest = np.full(len(self.plan.streams), NONE, np.int64)
        state: Any = make(kind, self._index_layout(), self.shape, self.memory, self.prefix, **given)
        if kind in LISTED:
            for lane, stream in enumerate(self.plan.streams):
                part = BOUNDLESS if stream.window is None else -(-stream.window // PARTS)
                state.sides["part"][lane] = max(1, part)
        return state

    def _index_layout(self) -> dict[str, Field]:
        """The arrays of the index, with room for as many basic windows as are needed."""
        dtype = self.compared.dtype
        if self.kind is SortedWindows:
            return sorted_layout(self.room)
        if self.kind is RecordWindows:
            return record_layout(dtype, self.room)
        if self.kind is VectorWindows:
            return vector_layout(dtype, self.width, self.room)
        return vectors_by_row(dtype, self.width) if self.kind is Vectors else by_row(dtype)

    def layout(self) -> dict[str, Field]:
        """The arrays of the index, and what is known of selectivities."""
        return self._index_layout() | selectivity_layout(self.shape.lanes)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name."""
        index = {name: getattr(self.state.index, name) for name in self._index_layout()}
        known = {
            name: getattr(self.state.selectivity, name)
            for name in selectivity_layout(self.shape.lanes)
        }
        return index | known

    def replace(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Let the index have other arrays."""
        index = {name: arrays[name] for name in self._index_layout()}
        known = {name: arrays[name] for name in selectivity_layout(self.shape.lanes)}
        self.state = Conditions(
            self.state.index._replace(**index), self.state.selectivity._replace(**known)
        )

    def save(self) -> dict[str, Any]:
        """How wide vectors are, and how many basic windows there is room for."""
        newest = self.newest.tolist()
        return {"width": self.compared.width, "room": self.room, "newest": newest}

    def load(self, saved: dict[str, Any]) -> None:
        """Take up how wide vectors are."""
        self.compared.width = saved["width"]

    def attach(self, shape: Shape, memory: Memory, saved: dict[str, Any]) -> None:
        """Take over arrays, with as much room as they have."""
        self.load(saved)
        self.room = saved["room"]
        self.state = self.state._replace(index=self._empty())
        self.newest[:] = saved["newest"]
        super().attach(shape, memory, saved)

    def grow(self, shape: Shape, rows: int) -> None:
        """Let the arrays grow so that the loop never runs out of room."""
        self.shape = shape
        index = self.state.index
        if self.compared.vectors and index.width != self.width:  # the first vectors come
            self.state = self.state._replace(index=self._empty())
            index = self.state.index
        if self.kind in LISTED:
            needed = int(index.free[1]) + sorted_windows.more_room(rows, shape.lanes)
            self.room = enough(self.room, needed)
        elif self.kind is VectorWindows:
            used = int((index.matrices["lane"] != NONE).sum())
            pieces = -(-min(rows, self.piece) // PLACES)
            self.room = enough(self.room, used + pieces + shape.lanes)
        super().grow(shape, rows)

    def nbytes(self, used: Shape) -> int:
        """Bytes in use."""
        layout = self._index_layout()
        index = self.state.index
        if self.kind is SortedWindows:
            layout = sorted_layout(int(index.free[1]))
        elif self.kind is RecordWindows:
            layout = record_layout(self.compared.dtype, int(index.free[1]))
        elif self.kind is VectorWindows:
            in_use = int((index.matrices["lane"] != NONE).sum())
            layout = vector_layout(self.compared.dtype, self.width, in_use)
        return used.nbytes(layout)

    # -- the loop takes so many rows at once ------------------------------------------------------

    def pieces(self, join: Operator, batch: Batch) -> Iterator[Batch]:
        """A batch, as much at a time as vectors are multiplied at once."""
        if not self.multiplies:
            yield batch
            return
        size, start = batch.time.size, 0
        while start < size:
            end = min(size, start + self.piece)
            if join.throttle is not None:
                end = self._until_due(join, join.throttle, batch, start, end)
            part = batch.part(start, end)
            if start > 0:
                self.grow(self.shape, part.time.size)
            with join.timed_loop():
                self._take(part, join)
            yield part
            start = end

    def restore_pieces(self, batch: Batch) -> Iterator[Batch]:
        """The rows of a checkpoint, which look for no partners."""
        if not self.multiplies:
            yield batch
            return
        for start in range(0, batch.time.size, self.piece):
            part = batch.part(start, min(batch.time.size, start + self.piece))
            self.grow(self.shape, part.time.size)
            self._take(part, None)
            yield part

    def on_processed(self, join: Operator) -> None:
        """A batch was processed: find the orders anew, unless the throttle does."""
        if join.throttle is None:
            self._set_orders()

    def _set_orders(self) -> None:
        """Go through the windows in which fewest rows agree first, as far as is known."""
        lanes = self.shape.lanes
        tallies = self.state.selectivity.tallies.reshape(lanes, lanes, TALLIES)
        share = (tallies[:, :, AGREED] + 1) / (tallies[:, :, COMPARED] + 2)
        orders = self.state.selectivity.orders.reshape(lanes, lanes - 1)
        for lane in range(lanes):
            by_share = np.argsort(share[lane], kind="stable")
            orders[lane] = by_share[by_share != lane]

    def _until_due(
        self, join: Operator, controller: Controller, batch: Batch, start: int, end: int
    ) -> int:
        """Where the throttle is set anew next; if that is now, it is done before all else.

        It has to be known of rows what they will go through before they are processed.
        """
        known = np.ones(end - start, np.bool_) if batch.null.size == 0 else ~batch.null[start:end]
        times = batch.time[start:end]
        if known[0] and controller.is_due(times[:1])[0]:
            controller.adapt(self.known(join), int(times[0]))
        due = np.flatnonzero(known & controller.is_due(times))
        return start + int(due[0]) if due.size else end

    def known(self, join: Operator) -> Known:
        """How many rows are compared, and how many of them agree."""
        from streamshed.engine.gate.throttle import KEPT, Known

        self._set_orders()
        assert join.throttle is not None
        lanes = self.shape.lanes
        selectivity = self.state.selectivity
        tallies = selectivity.tallies.reshape(lanes, lanes, TALLIES)
        share = (tallies[:, :, AGREED] + 0.05) / (tallies[:, :, COMPARED] + 100.0)
        tallies[:] = (tallies * KEPT).astype(np.int64)
        stored = join.core.counts.reshape(-1, FATES)[:, STORED] / join.throttle.state.admitted
        sizes = np.broadcast_to(np.maximum(stored, 1.0), (lanes, lanes))
        return Known(selectivity.orders.reshape(lanes, lanes - 1), sizes, share)

    # -- a function of the user's -----------------------------------------------------------------

    def specialise(self, run: Callable[..., int]) -> Callable[..., int]:
        """The loop, compiled for a function of the user's."""
        return _alone(run, self.state.index.function) if self.by_function else run

    @property
    def quiet(self) -> Any:
        """The state without the user's function, for loops that compare nothing."""
        index = self.state.index
        plain = index._replace(function=None) if self.by_function else index
        return self.state._replace(index=plain)

    def explain_failure(self, batch: Batch, at: int, error: Exception) -> Exception:
        """What to raise where the user's function has failed."""
        if not self.by_function:
            return error
        stream = self.plan.streams[batch.stream[at]]
        said = ", ".join(f"{name}={batch.values[name][at]}" for name in stream.compared)
        return InputError(
            f"stream {stream.name!r}: {self.plan.pairwise} raised an error for a row with {said} "
            f"({type(error).__name__}: {error}); let the function return True or False for all rows"
        )

    @property
    def comparisons(self) -> int | None:
        """The comparisons made so far."""
        return int(self.state.selectivity.comparisons[0])

    # -- vectors are multiplied -------------------------------------------------------------------

    def _take(self, batch: Batch, join: Operator | None) -> None:
        """Give the rows of a piece their places, and find who may agree with whom.

        Args:
            batch: the rows.
            join: in which the rows will look for partners; None if they will not.
        """
        tidy(self.state.index, self.newest)
        places = np.empty(batch.time.size, np.int64)
        index = self.state.index._replace(coming=places)
        give_places(index, batch.stream, batch.values.reshape(-1), self.newest)
        if join is not None:
            blocks = places.size * self.room * vectors.WORDS
            bits, ready = np.zeros(blocks, np.uint64), np.zeros(blocks, np.bool_)
            index = index._replace(bits=bits, ready=ready)
            self._multiply(index, batch, join)
        self.state = self.state._replace(index=index)

    def _multiply(self, index: VectorWindows, batch: Batch, join: Operator) -> None:
        """Find who may agree with whom, by products of matrices.

        Where the work is bounded, only with blocks of rows that are likely to be gone through.
        """
        throttle, lanes = join.throttle, np.repeat(index.matrices["lane"], vectors.WORDS)
        modes = NO_NUMBERS if throttle is None else throttle.foreseen(join.core, batch.stream)
        oldest, newest, since = np.empty((3, lanes.size), np.int64)
        spans_to_come(index, batch.time, oldest, newest, since)
        for lane in range(self.shape.lanes):
            coming = np.flatnonzero(batch.stream == lane)
            if not coming.size:
                continue
            first, last = int(batch.time[coming].min()), int(batch.time[coming].max())
            for other in range(self.shape.lanes):
                if other == lane:
                    continue
                earliest = max(first - self.plan.lag(lane, other), 1 - vectors.FAR)
                latest = min(last + self.plan.lag(other, lane), vectors.FAR - 1)
                near = (lanes == other) & (newest >= earliest) & (oldest <= latest)
                blocks, asked = np.flatnonzero(near), coming
                if throttle is None:
                    wanted = np.ones((blocks.size, asked.size), np.bool_)
                else:
                    drawing = throttle.draws(modes[coming], lane, other)
                    self._multiply_drawn(index, batch, join, coming[drawing], other)
                    asked = coming[~drawing]
                    spans = oldest[blocks], newest[blocks]
                    wanted = throttle.wants(modes[asked], batch.time[asked], lane, other, spans)
                wanted &= asked >= since[blocks, None]
                if wanted.any():
                    self._multiply_blocks(index, batch.values[asked], asked, blocks, wanted)

    def _multiply_blocks(
        self,
        index: VectorWindows,
        mine: npt.NDArray[Any],
        asked: npt.NDArray[np.int64],
        blocks: npt.NDArray[np.int64],
        wanted: npt.NDArray[np.bool_],
    ) -> None:
        """Multiply rows of the batch with blocks of places, where they are wanted.

        Args:
            index: the basic windows.
            mine: the vectors of the rows.
            asked: their numbers in the batch.
            blocks: the blocks.
            wanted: by (block, row).
        """
        runs = np.empty((blocks.size * (asked.size // vectors.NEAR + 1), 4), np.int64)
        whole = index.vectors.reshape(-1, self.width)
        ready = index.ready.reshape(index.coming.size, -1)
        for start, end, low, high in runs[: runs_of(blocks, wanted, runs)].tolist():
            places = np.arange(start * BLOCK, end * BLOCK)
            products = mine[low:high] @ whole[start * BLOCK : end * BLOCK].T
            self._note(index, products, asked[low:high], places)
            ready[asked[low:high], start:end] = True

    def _multiply_drawn(
        self,
        index: VectorWindows,
        batch: Batch,
        join: Operator,
        asked: npt.NDArray[np.int64],
        other: int,
    ) -> None:
        """Multiply rows of the batch with the rows of a lane that they draw by lot."""
        assert join.throttle is not None
        arrival = int(join.core.numbers[ARRIVALS])
        whole = index.vectors.reshape(-1, self.width)
        ready = index.ready.reshape(batch.time.size, -1)
        blocks = np.flatnonzero(np.repeat(index.matrices["lane"], vectors.WORDS) == other)
        places = np.empty(blocks.size * BLOCK, np.int64)
        shared = (arrival + asked) >> SHARED
        for lot in np.unique(shared):
            some = asked[shared == lot]
            drawn = draw_places(
                index, join.core, join.throttle.state, batch.stream,
                arrival, arrival + int(some[0]), other, places,
            )  # fmt: skip
            products = batch.values[some] @ whole[places[:drawn]].T
            self._note(index, products, some, places[:drawn])
            ready[some[:, None], blocks] = True

    def _note(
        self,
        index: VectorWindows,
        products: npt.NDArray[Any],
        asked: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
    ) -> None:
        """Note which rows of the batch may agree with those at some places."""
        slack = self.width * float(np.finfo(products.dtype).eps)
        lengths = index.lengths[places].astype(products.dtype)
        note_likely(index, products, lengths, asked, places, slack)


@cache
def _alone(run: Any, function: Any) -> Any:
    return loop(run.py_func)


@cache
def compiled(condition: Where, dtype: np.dtype[Any]) -> Any:
    """The function of a condition, compiled for records of a type, once for all that say it."""
    function: Any = condition.function
    record = numba.from_dtype(dtype)
    jitted = function if hasattr(function, "py_func") else numba.njit(function)
    try:
        jitted.compile((record, record))
        answer = numba.types.unliteral(jitted.overloads[record, record].signature.return_type)
    except Exception as error:  # numba raises what it happens to meet
        names = dtype.names or ("column",)
        raise SpecError(
            f"where(): the function {_name(function)} cannot be compiled for rows with the "
            f"fields {', '.join(names)}: {_reason(error)}; read fields as in one.{names[0]}, and "
            "use only what numba supports, see numba.pydata.org"
        ) from error
    if answer not in (numba.types.boolean, *numba.types.integer_domain):
        raise SpecError(
            f"where(): the function {_name(function)} returns {answer} for two rows; let it "
            "return True or False in every case"
        )
    return jitted


def _reason(error: Exception) -> str:
    """What numba says is wrong, without its colours, its candidates, and where it was then."""
    if isinstance(error, KeyError):
        return f"there is no field {error}"
    lines = (line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines())
    told = (line for line in lines if line and not line.startswith("Failed in"))
    return " ".join(takewhile(lambda line: not line.startswith(("There are ", "During: ")), told))


def _name(function: Any) -> str:
    return repr(getattr(function, "__name__", function))
