"""The state that every keyed join has: rows, keys, lanes, budgets and counts, as flat arrays.

A *lane* is one column of the key table, and one list of rows in order of age: a lane for each named
stream, or a single one where streams are named by a column. If their windows differ, there is
still one column, but a list for each length, its *sweep*, the longest first. A *pool* is what a
budget bounds: each stream's window, or all of them together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

NONE = -1
NEVER = np.iinfo(np.int64).min
"""No time yet: of a stream that was never seen, of a clock that does not run."""
BOUNDLESS = 2**62
"""A window, lateness or budget without bounds."""
MOST_AT_ONCE = 1 << 16
"""Rows handed to the loop at once: room is made for so many before it starts."""

ROW = np.dtype(
    [
        ("time", np.int64),
        ("arrival", np.int64),
        ("payload", np.int64),  # where the user's row is kept
        ("key", np.int32),
        ("stream", np.int32),
        ("newer", np.int32),  # the occurrences of one key in one lane: a ring, in order of age
        ("older", np.int32),
        ("before", np.int32),  # the rows of one lane: a list, in order of age
        ("after", np.int32),
    ],
    align=True,
)

# A key is a few 32-bit words side by side, so that they share a line or two of the cache: its hash
# (two words; while it is unused, the first is the next unused key), the bit vector of the lanes
# that hold it, and for each lane its newest row. Where there are more than 32 lanes, the last word
# holds the bits of the others.
KEY_HASH, KEY_LANES, KEY_HEADS = 0, 2, 3
LANES_IN_WORD = 32


def key_words(lanes: int) -> int:
    """The words of a key."""
    return KEY_HEADS + lanes + (lanes > LANES_IN_WORD)


LANE = np.dtype(
    [
        ("first", np.int32),  # the rows of the lane that came in order, oldest first
        ("end", np.int32),
        ("ahead", np.int32),  # of these the next whose memory is asked for before it leaves
        ("window", np.int64),  # the length of the time window, BOUNDLESS if there is none
        ("last", np.int64),  # the rows of the row window, 0 if there is none
        ("recent", np.int64),  # where the lane's ring of recent rows begins
        ("newest", np.int64),  # the largest time seen
    ],
    align=True,
)

RECENT = np.dtype([("arrival", np.int64), ("row", np.int32)], align=True)
"""One of the last rows of a stream with a row window; it has left if the row is another's now."""

POOL = np.dtype(
    [
        ("budget", np.int64),  # rows
        ("held", np.int64),
        ("limit", np.int64),  # bytes, where the budget is in bytes
        ("bytes", np.int64),
    ],
    align=True,
)

# The scalars of the state, in `Core.numbers`.
CLOCK, NEWEST, FIRST_SEEN, ARRIVALS, RESULTS, FREE_ROW, ROWS_USED, FREE_KEY, KEYS_USED, PINNED = (
    range(10)
)
OVERDUE = 10
"""Whether rows may be stored that the clock has left behind."""
RUN_ROWS, RUN_STREAM, RUN_TIME = 11, 12, 13
"""The run of rows that are ahead of all others: how many there are, the stream of the first, and
the smallest time."""
NEWCOMER_BYTES, PEAK_BYTES = 14, 15
"""Where the budget is in bytes: those of the row at hand, and the most that were held."""
LEFT = 16
"""Rows without a match that have left, and are to be handed out: those in `Core.left`."""
ALL_STAY_UNTIL = 17
"""While the clock is not beyond this time no stored row expires."""
MOST_KEYS = 18
"""The most keys that may be used before the directory is made larger."""
NUMBERS = 19

TOTAL_IMPORTANCE = 0
TOTALS = 1
"""The sums of the state, in `Core.totals`: the importance of all results."""

# What can become of a row, in `Core.counts`.
ARRIVED, STORED, EXPIRED, SHED, FILTERED, LATE, PEAK, UNMATCHED, UNCERTAIN = range(9)
FATES = 9
"""Of the last three the first is the most that were stored at once; the others are the rows that
were handed out without a match, and those of them of which that is not certain."""

LEFT_ROW = np.dtype(
    [("payload", np.int64), ("time", np.int64), ("stream", np.int32), ("certain", np.int32)],
    align=True,
)
"""A row without a match that has left."""

ALL, PER_KEY = -2, -1
"""Of what the first result only is made (`Settings.first`): of nothing, all are made; of each key;
or with each row of the stream of a number."""


class Settings(NamedTuple):
    """What the join was told, as scalars."""

    by: bool  # streams are named by a column
    pooled: bool  # one budget for all streams
    complete: bool
    at_least: int
    late: int
    idle: int
    ahead: int
    clock_max: bool
    timed: bool  # there is a time window: rows can be late and can expire
    lazy: bool  # rows may expire a little late, but not later than with the batch
    seed: np.uint64
    lanes: int
    sweeps: int
    shortest: int  # of the time windows, where streams are named by a column
    pools: int
    key_words: int
    width: int  # places of a result of named streams
    first: int  # of what the first result only is made
    last_touch: bool  # and whether it is that with the newest members
    unmatched: np.uint64  # a bit for each lane whose rows are handed out without a match


class Core(NamedTuple):
    """The arrays. Rows and keys are numbered; numbers are reused."""

    settings: Settings
    rows: npt.NDArray[Any]
    keys: npt.NDArray[np.int32]  # by (key, word), see KEY_HASH
    table: npt.NDArray[np.uint32]  # open addressing, see `kernels/table.py`
    items: npt.NDArray[np.int32]  # rows that came out of order: a heap for each lane
    place: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int64]
    lanes: npt.NDArray[Any]  # and where there are more sweeps than lanes, by sweep
    sweep: npt.NDArray[np.int32]  # by stream, where there are more sweeps than lanes
    pools: npt.NDArray[Any]
    recent: npt.NDArray[Any]  # a ring for each stream with a row window
    counts: npt.NDArray[np.int64]  # by (stream, fate)
    numbers: npt.NDArray[np.int64]
    totals: npt.NDArray[np.float64]
    importance: npt.NDArray[np.float64]  # by row; empty where rows are not weighted
    size: npt.NDArray[np.int64]  # by row its bytes; empty where the budget is in rows
    key_size: npt.NDArray[np.int64]  # by key the bytes of its rows; empty likewise
    key_rows: npt.NDArray[np.int32]  # by key the number of its rows; empty where nobody asks
    bounds: npt.NDArray[
        np.int64
    ]  # by (lane, lane); empty where there are none, see `within_bounds`
    met: npt.NDArray[np.uint8]  # by row: whether it has a match; empty where nobody asks
    left: npt.NDArray[Any]  # rows without a match that are to be handed out
    shed_time: npt.NDArray[np.int64]  # by (place of a key's hash, lane): the newest that was shed
    until: npt.NDArray[np.int64]  # by key: when it may make a result again; empty where always


@dataclass(frozen=True)
class Shape:
    """How much room the arrays have."""

    rows: int
    keys: int
    table: int
    streams: int
    lanes: int
    sweeps: int
    pools: int
    held: int
    """Rows of the fullest pool."""
    recent: int
    """Rows that all row windows together can hold."""
    disorder: int
    """Rows of the sweep with the most out-of-order rows."""
    out_of_order: bool
    budget: int = 0
    """Rows that all budgets together allow."""
    weighted: bool = False
    """Whether rows have an importance."""
    sized: bool = False
    """Whether the budget is in bytes."""
    counted: bool = False
    """Whether it is asked how many rows a key has."""
    bounded: bool = False
    """Whether there are bounds on how far apart members are."""
    met: bool = False
    """Whether it is known of rows if they have a match."""
    unmatched: bool = False
    """Whether rows without a match are handed out."""
    shed_places: int = 0
    """Places of hashes by which it is known what was shed."""
    first_keys: bool = False
    """Whether keys make their first result only."""

    def room(self, per: str) -> int:
        """How many elements an array has that holds one per row, key, …, as said."""
        match per:
            case "row" | "key" | "stream" | "lane" | "sweep" | "pool":
                return int(getattr(self, per + "s"))
            case "entry":
                return self.keys * self.lanes
            case "key word":
                return self.keys * key_words(self.lanes)
            case "table" | "recent":
                return int(getattr(self, per))
            case "held":
                return self.held * self.pools
            case "tree":
                return self._tree()
            case "disorder":
                return self.disorder * self.sweeps
            case "disordered row":
                return self.rows if self.out_of_order else 0
            case "weighted row":
                return self.rows if self.weighted else 0
            case "sized row" | "sized key":
                return (self.rows if per == "sized row" else self.keys) if self.sized else 0
            case "counted key":
                return self.keys if self.counted else 0
            case "bound":
                return self.lanes * self.lanes if self.bounded else 0
            case "met row":
                return self.rows if self.met else 0
            case "left row":
                return self.rows + MOST_AT_ONCE if self.unmatched else 0
            case "shed place":
                return self.shed_places * self.lanes
            case "first key":
                return self.keys if self.first_keys else 0
            case "once":
                return 1
        raise AssertionError(per)

    def _tree(self) -> int:
        """The words of tournament trees: lines of eight for each pool, level above level."""
        lines = total = -(-self.held // 8)
        while lines > 1:
            lines = -(-lines // 8)
            total += lines
        return 8 * self.pools * total

    def nbytes(self, layout: dict[str, Field]) -> int:
        """The bytes of arrays as laid out."""
        return sum(
            self.room(field.per) * field.times * np.dtype(field.dtype).itemsize
            for field in layout.values()
        )


class Field(NamedTuple):
    """One array of a state: how many elements, of which kind, and how they start."""

    per: str
    dtype: npt.DTypeLike
    fill: int | None = 0
    """The value of every element at the start; None if each is written before it is read."""
    times: int = 1
    kept: bool = False
    """Whether a checkpoint keeps the array as it is; others are made anew from the rows."""

    def grown(
        self, array: npt.NDArray[Any], shape: Shape, memory: Memory, name: str
    ) -> npt.NDArray[Any]:
        """The array with the room that the shape asks for; what it held stays."""
        size = shape.room(self.per) * self.times
        if size <= len(array):
            return array
        larger = memory.array(name, size, np.dtype(self.dtype), self.fill == 0)
        # As bytes: numpy copies records field by field.
        larger.view(np.uint8)[: array.nbytes] = array.view(np.uint8)
        if self.fill:
            new = larger[len(array) :]
            for part in larger.dtype.names or [...]:
                new[part] = self.fill
        return larger

    def nothing(self) -> npt.NDArray[Any]:
        """The array without any room."""
        return np.empty(0, self.dtype)


class Memory:
    """Where the arrays of a state are: in the memory of this process."""

    def array(self, name: str, size: int, dtype: np.dtype[Any], zero: bool) -> npt.NDArray[Any]:
        """A new array; room that is never used stays untouched and costs no memory."""
        return np.zeros(size, dtype) if zero else np.empty(size, dtype)

    def open(self, name: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An array that another process has left here; an empty one if there is none."""
        return np.empty(0, dtype)


State = TypeVar("State", bound=NamedTuple)


def grown(
    state: State, layout: dict[str, Field], shape: Shape, memory: Memory, prefix: str
) -> State:
    """The state with room for the shape."""
    arrays = {
        name: field.grown(getattr(state, name), shape, memory, prefix + name)
        for name, field in layout.items()
    }
    more: State = state._replace(**arrays)
    return more


def make(
    state: type[State],
    layout: dict[str, Field],
    shape: Shape,
    memory: Memory,
    prefix: str,
    **given: Any,
) -> State:
    """A state of the given class with its arrays as laid out, and the given fields besides."""
    build: Callable[..., State] = state
    nothing = {name: field.nothing() for name, field in layout.items()}
    return grown(build(**given, **nothing), layout, shape, memory, prefix)


def core_layout() -> dict[str, Field]:
    """The arrays of a `Core`."""
    return {
        "rows": Field("row", ROW, None),
        "keys": Field("key word", np.int32, None),
        "table": Field("table", np.uint32),
        "items": Field("disorder", np.int32, None),
        "place": Field("disordered row", np.int32, None),
        "sizes": Field("sweep", np.int64),
        "lanes": Field("sweep", LANE, NONE),
        "sweep": Field("stream", np.int32),
        "pools": Field("pool", POOL),
        "recent": Field("recent", RECENT, NONE, kept=True),
        "counts": Field("stream", np.int64, times=FATES, kept=True),
        "numbers": Field("once", np.int64, times=NUMBERS),
        "totals": Field("once", np.float64, times=TOTALS, kept=True),
        "importance": Field("weighted row", np.float64, None),
        "size": Field("sized row", np.int64, None),
        "key_size": Field("sized key", np.int64),
        "key_rows": Field("counted key", np.int32),
        "bounds": Field("bound", np.int64),
        "met": Field("met row", np.uint8, kept=True),
        "left": Field("left row", LEFT_ROW, None),
        "shed_time": Field("shed place", np.int64, NEVER, kept=True),
        "until": Field("first key", np.int64, NEVER, kept=True),
    }
