"""The matcher of a condition between two rows, outside the loop: which index serves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import numpy.typing as npt

from streamshed.conditions import Cosine, InnerProduct, Near, PairCondition, Where
from streamshed.engine.allocation import enough
from streamshed.engine.batch import Batch
from streamshed.engine.component import Arrays
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
from streamshed.engine.match.sorted_windows import SortedWindows, sorted_layout
from streamshed.engine.match.vectors import (
    PLACES,
    VectorWindows,
    give_places,
    note_likely,
    tidy,
    vector_layout,
)
from streamshed.errors import InputError, SpecError
from streamshed.kernels.compiling import loop
from streamshed.kernels.core import BOUNDLESS, FATES, NONE, STORED, Field, Memory, Shape, make
from streamshed.plan.plan import PARTS, Plan

if TYPE_CHECKING:
    from streamshed.engine.gate.throttle import Controller, Known
    from streamshed.engine.operator import Operator

Likely = Callable[[npt.NDArray[np.int64], int, int, tuple[int, int]], npt.NDArray[np.bool_]]
"""Which of some rows of the batch will look for partners, given their numbers and their lane, among
rows of another lane whose times are in a span."""

PIECE = 768
"""Rows whose vectors are multiplied with those stored at once."""


class ConditionMatcher(Matcher):
    """Compares rows two by two, by the index that serves the condition best.

    Numbers, and vectors, have windows of their own if no equal keys are asked for besides;
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
                kind = Records
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
        if kind is SortedWindows:
            for lane, stream in enumerate(self.plan.streams):
                part = BOUNDLESS if stream.window is None else -(-stream.window // PARTS)
                state.sides["part"][lane] = max(1, part)
        return state

    def _index_layout(self) -> dict[str, Field]:
        """The arrays of the index, with room for as many basic windows as are needed."""
        dtype = self.compared.dtype
        if self.kind is SortedWindows:
            return sorted_layout(self.room)
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

    def attach(self, shape: Shape, arrays: Arrays, saved: dict[str, Any]) -> None:
        """Take over arrays, with as much room as they have."""
        self.load(saved)
        self.room = saved["room"]
        self.state = self.state._replace(index=self._empty())
        self.newest[:] = saved["newest"]
        super().attach(shape, arrays, saved)

    def grow(self, shape: Shape, rows: int) -> None:
        """Let the arrays grow so that the loop never runs out of room."""
        self.shape = shape
        index = self.state.index
        if self.compared.vectors and index.width != self.width:  # the first vectors come
            self.state = self.state._replace(index=self._empty())
            index = self.state.index
        if self.kind is SortedWindows:
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
                self._take(part, self._likely(join, part))
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

    def _likely(self, join: Operator, batch: Batch) -> Likely:
        """Who will look for partners among which rows: all of them, or those of chosen parts."""
        controller = join.throttle
        if controller is None:
            return lambda asked, *_: np.ones(asked.size, np.bool_)
        modes = controller.foreseen(join.core, batch.stream)
        return lambda asked, lane, other, span: controller.wants(
            modes[asked], batch.time[asked], lane, other, span
        )

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
        return _alone(run, self.state.index.function) if self.kind is Records else run

    @property
    def quiet(self) -> Any:
        """The state without the user's function, for loops that compare nothing."""
        index = self.state.index
        plain = index._replace(function=None) if self.kind is Records else index
        return self.state._replace(index=plain)

    def explain_failure(self, batch: Batch, at: int, error: Exception) -> Exception:
        """What to raise where the user's function has failed."""
        if self.kind is not Records:
            return error
        stream = self.plan.streams[batch.stream[at]]
        said = ", ".join(f"{name}={batch.values[name][at]}" for name in stream.compared)
        return InputError(
            f"stream {stream.name!r}: {self.plan.pairwise} has failed when a row with {said} was "
            f"compared ({type(error).__name__}: {error}); let the function answer for all rows"
        )

    @property
    def comparisons(self) -> int | None:
        """The comparisons made so far."""
        return int(self.state.selectivity.comparisons[0])

    # -- vectors are multiplied -------------------------------------------------------------------

    def _take(self, batch: Batch, seek: Likely | None) -> None:
        """Give the rows of a piece their places, and find who may agree with whom.

        Args:
            batch: the rows.
            seek: says whether rows will look for partners among others; None if they will not.
        """
        tidy(self.state.index, self.newest)
        places = np.empty(batch.time.size, np.int64)
        index = self.state.index._replace(coming=places)
        give_places(index, batch.stream, batch.values.reshape(-1), self.newest)
        if seek is not None:
            matrices = places.size * self.room
            bits = np.zeros(matrices * vectors.WORDS, np.uint64)
            index = index._replace(bits=bits, ready=np.zeros(matrices, np.bool_))
            self._multiply(index, batch, seek)
        self.state = self.state._replace(index=index)

    def _multiply(self, index: VectorWindows, batch: Batch, seek: Likely) -> None:
        """Find who may agree with whom, by products of matrices."""
        values, matrices = batch.values, index.matrices
        whole = index.vectors.reshape(-1, PLACES, self.width)
        fresh = np.unique(index.coming // PLACES)
        slack = self.width * float(np.finfo(values.dtype).eps)
        for lane, stream in enumerate(self.plan.streams):
            asked = np.flatnonzero(batch.stream == lane)
            if not asked.size:
                continue
            mine, window = values[asked], stream.window
            first, last = int(batch.time[asked].min()), int(batch.time[asked].max())
            for at in np.flatnonzero((matrices["lane"] != NONE) & (matrices["lane"] != lane)):
                other = self.plan.streams[matrices["lane"][at]].window
                gone = other is not None and matrices["newest"][at] < first - other
                ahead = window is not None and matrices["oldest"][at] > last + window
                if (gone or ahead) and at not in fresh:
                    continue
                some = seek(asked, lane, int(matrices["lane"][at]), _span(index, batch, int(at)))
                if not some.any():
                    continue
                used = -(-int(matrices["used"][at]) // 64) * 64
                products = (mine if some.all() else mine[some]) @ whole[at, :used].T
                lengths = index.lengths[at * PLACES : at * PLACES + used].astype(values.dtype)
                note_likely(index, products, lengths, asked[some], at, slack)


def _span(index: VectorWindows, batch: Batch, at: int) -> tuple[int, int]:
    """The oldest and the newest time of the rows of a basic window, those to come included."""
    matrix = index.matrices[at]
    times = batch.time[index.coming // PLACES == at]
    if matrix["live"]:
        times = np.append(times, [matrix["oldest"], matrix["newest"]])
    return int(times.min()), int(times.max())


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
        reason = " ".join(str(error).split())
        raise SpecError(
            f"where(): the function {_name(function)} cannot be compiled for members with the "
            f"fields {', '.join(dtype.names or ())}: {reason}; use only what numba knows, see "
            "numba.pydata.org"
        ) from error
    if answer not in (numba.types.boolean, *numba.types.integer_domain):
        raise SpecError(
            f"where(): the function {_name(function)} says {answer} of two members; let it return "
            "True or False in every case"
        )
    return jitted


def _name(function: Any) -> str:
    return repr(getattr(function, "__name__", function))
