"""The index of what rows are compared by: which one serves a join, and how it grows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from streamshed.conditions import Cosine, InnerProduct, Near, Pairwise, Where
from streamshed.errors import SpecError
from streamshed.kernels import basic_windows, vectors
from streamshed.kernels.basic_windows import SortedWindows, sorted_layout
from streamshed.kernels.core import BOUNDLESS, NONE, Field, Memory, Shape, grown, make
from streamshed.kernels.pairs import Numbers, Records, Vectors, by_row, vectors_by_row
from streamshed.kernels.vectors import (
    PLACES,
    VectorWindows,
    give_places,
    note_likely,
    tidy,
    vector_layout,
)
from streamshed.operators.buffers import Batch
from streamshed.operators.comparing import Compared
from streamshed.operators.plan import PARTS, Plan
from streamshed.operators.room import enough

Likely = Callable[[npt.NDArray[np.int64], int, int, tuple[int, int]], npt.NDArray[np.bool_]]
"""Which of some tuples of the batch will look for partners, given their numbers and their lane,
among rows of another lane whose times are in a span."""

INDEX = "index."
"""What the names of its arrays begin with."""
PIECE = 768
"""Tuples whose vectors are multiplied with those stored at once."""


class Index:
    """What rows are compared by, in the form that serves a condition best.

    Numbers, and vectors, have windows of their own if no equal keys are asked for besides;
    otherwise the rows of a key are compared one by one.
    """

    def __init__(self, plan: Plan, compared: Compared, shape: Shape, memory: Memory) -> None:
        assert plan.pairwise is not None
        self.plan = plan
        self.compared = compared
        self.memory = memory
        self.room = 0
        self.multiplied = 0
        self.keyed = bool(plan.streams[0].key)
        self.state: Any = self._empty(plan.pairwise, shape)

    @property
    def width(self) -> int:
        """The elements of a vector; 1 as long as none has come."""
        return max(1, self.compared.width)

    @property
    def multiplies(self) -> bool:
        """Whether tuples are compared with many rows at once, before they are processed."""
        return self.kind is VectorWindows

    @property
    def piece(self) -> int:
        """How many tuples are to be processed at once."""
        return PIECE if self.multiplies else BOUNDLESS

    def _empty(self, condition: Pairwise, shape: Shape) -> Any:
        kind: type = {True: Numbers, False: SortedWindows}[self.keyed]
        coming = np.empty(0, self.compared.dtype)
        given: dict[str, Any] = {"coming": coming}
        match condition:
            case Near(distance=distance):
                given["distance"] = distance
            case Where():
                kind = Records
                given["function"] = compiled(condition, self.compared.dtype)
            case Cosine(at_least=least) | InnerProduct(at_least=least):
                kind = Vectors if self.keyed else VectorWindows
                angle = isinstance(condition, Cosine)
                given |= {"width": self.width, "least": least, "angle": angle}
                if not self.keyed:
                    given["coming"] = np.empty(0, np.int64)
                    given["bits"] = np.empty(0, np.uint64)
                    given["ready"] = np.empty(0, np.bool_)
        self.kind = kind
        self.newest = np.full(len(self.plan.streams), NONE, np.int64)
        state: Any = make(kind, self.layout(), shape, self.memory, INDEX, **given)
        if kind is SortedWindows:
            for lane, stream in enumerate(self.plan.streams):
                part = BOUNDLESS if stream.window is None else -(-stream.window // PARTS)
                state.sides["part"][lane] = max(1, part)
        return state

    def layout(self) -> dict[str, Field]:
        """The arrays, with room for as many basic windows as are needed."""
        dtype = self.compared.dtype
        if self.kind is SortedWindows:
            return sorted_layout(self.room)
        if self.kind is VectorWindows:
            return vector_layout(dtype, self.width, self.room)
        return vectors_by_row(dtype, self.width) if self.kind is Vectors else by_row(dtype)

    def make_room(self, shape: Shape, tuples: int) -> None:
        """Let the arrays grow so that the loop never runs out of room."""
        if self.compared.vectors and self.state.width != self.width:  # the first vectors come
            assert self.plan.pairwise is not None
            self.state = self._empty(self.plan.pairwise, shape)
        if self.kind is SortedWindows:
            needed = int(self.state.free[1]) + basic_windows.more_room(tuples, shape.lanes)
            self.room = enough(self.room, needed)
        elif self.kind is VectorWindows:
            used = int((self.state.matrices["lane"] != NONE).sum())
            pieces = -(-min(tuples, self.piece) // PLACES)
            self.room = enough(self.room, used + pieces + shape.lanes)
        self.state = grown(self.state, self.layout(), shape, self.memory, INDEX)

    def take(self, batch: Batch, values: npt.NDArray[Any], seek: Likely | None) -> None:
        """Take the values of tuples to come.

        Args:
            batch: the tuples.
            values: what they are compared by.
            seek: says whether tuples will look for partners among rows; None if they will not.
        """
        if self.kind is not VectorWindows:
            self.state = self.state._replace(coming=np.ascontiguousarray(values).reshape(-1))
            return
        tidy(self.state, self.newest)
        places = np.empty(batch.time.size, np.int64)
        self.state = self.state._replace(coming=places)
        give_places(self.state, batch.stream, values.reshape(-1), self.newest)
        if seek is not None:
            matrices = places.size * self.room
            bits = np.zeros(matrices * vectors.WORDS, np.uint64)
            self.state = self.state._replace(bits=bits, ready=np.zeros(matrices, np.bool_))
            self._multiply(batch, values, seek)

    def _multiply(self, batch: Batch, values: npt.NDArray[Any], seek: Likely) -> None:
        """Find who may agree with whom, by products of matrices."""
        state, matrices = self.state, self.state.matrices
        whole = state.vectors.reshape(-1, PLACES, self.width)
        fresh = np.unique(state.coming // PLACES)
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
                some = seek(asked, lane, int(matrices["lane"][at]), self._span(batch, int(at)))
                if not some.any():
                    continue
                used = -(-int(matrices["used"][at]) // 64) * 64
                products = (mine if some.all() else mine[some]) @ whole[at, :used].T
                self.multiplied += products.size
                lengths = state.lengths[at * PLACES : at * PLACES + used].astype(values.dtype)
                note_likely(state, products, lengths, asked[some], at, slack)

    def _span(self, batch: Batch, at: int) -> tuple[int, int]:
        """The oldest and the newest time of the rows of a basic window, those to come included."""
        matrix = self.state.matrices[at]
        times = batch.time[self.state.coming // PLACES == at]
        if matrix["live"]:
            times = np.append(times, [matrix["oldest"], matrix["newest"]])
        return int(times.min()), int(times.max())

    def nbytes(self, used: Shape) -> int:
        """Bytes in use."""
        layout = self.layout()
        if self.kind is SortedWindows:
            layout = sorted_layout(int(self.state.free[1]))
        elif self.kind is VectorWindows:
            in_use = int((self.state.matrices["lane"] != NONE).sum())
            layout = vector_layout(self.compared.dtype, self.width, in_use)
        return used.nbytes(layout)


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
