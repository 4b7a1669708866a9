"""Two streams joined through a relation, with the future known: which tuple is of use to which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from streamshed.errors import InputError, SpecError, StreamshedError, listed, suggestion
from streamshed_lab.offline.trace import MOST_PAIRS, Floats, Ints

Order = Literal["together", "in turn"]
Filter = Literal["nothing", "relation", "future"]

FOREVER = np.iinfo(np.int64).max


class Total(NamedTuple):
    """Some results: how many, and the sum of their importance."""

    results: int
    importance: float


@dataclass(frozen=True)
class Star:
    """What there is to decide: the tuples in the order of their arrival, and what each is good for.

    Tuple *i* is the *i*-th arrival, by (time, stream). Attributes that are arrays have an entry for
    each tuple, or, those of uses, for each pair of a stored tuple and a later one that make
    results: the stored one must be kept until then.

    Attributes:
        names: of the two streams.
        stream: 0 or 1.
        time: of arrival.
        lifetime: a tuple of time *t* meets those up to time *t* + lifetime − 1.
        useless_from: the time from which on no row of the relation lets it stand in a result with
            what is still to come (rule 8); its own time if none did when it arrived.
        row: of each use, the stored tuple; uses are sorted by (row, arrival).
        arrival: of each use, the arrival until which the stored tuple must be kept.
        results: of each use, how many there are, one for each row of the relation that says so.
        worth: of each use, their importance together; that of each is the smaller of its members'.
        at_once: the results that need no memory.
    """

    names: tuple[str, str]
    stream: Ints
    time: Ints
    lifetime: int
    useless_from: Ints
    row: Ints
    arrival: Ints
    results: Ints
    worth: Floats
    at_once: Total

    def exact(self) -> Total:
        """The results without a budget."""
        return self.made(np.full(self.time.size, self.time.size + 1))

    def made(self, until: Ints) -> Total:
        """The results of a way of shedding.

        Args:
            until: for each tuple the arrival until which it is kept.
        """
        kept = until[self.row] >= self.arrival
        return Total(
            self.at_once.results + int(self.results[kept].sum()),
            self.at_once.importance + float(self.worth[kept].sum()),
        )

    def ends(self, filtered: Filter) -> Ints:
        """For each tuple the first arrival at which it is of no use; its own if it never is of any.

        Args:
            filtered: `"nothing"`: it has expired. `"relation"`: or no row of the relation that
                was active when it arrived still is, which is pre-filtering as the paper has it, for
                static relations and by rule 8. `"future"`: or nothing that it meets will come.
        """
        own = np.arange(self.time.size)
        if filtered == "future":
            np.maximum.at(own, self.row, self.arrival)
            return own
        expires = self.time + self.lifetime
        if filtered == "relation":
            expires = np.minimum(expires, self.useless_from)
        return np.maximum(np.searchsorted(self.time, expires), own)


def read_star(
    streams: Mapping[str, pa.Table],
    relation: pa.Table,
    *,
    through: Mapping[str, str],
    lifetime: int,
    time: str = "time",
    importance: str = "importance",
    order: Order = "together",
) -> Star:
    """Find which tuples of two streams make results through a relation.

    A pair is a result if a row of the relation has the values of both, and was active, begin ≤ time
    < end, at the times of both (condition 6 of the paper), and the times are less than the lifetime
    apart. It is a result for each row of the relation that says so. Null matches nothing.

    Args:
        streams: the two streams, in time order.
        relation: its rows, with the columns `begin` and `end` (whole numbers, in the unit of the
            streams' times) if they are not active at all times. A null in them means: always.
        through: for each stream the column, of the stream and of the relation, on which they join.
        lifetime: of a tuple.
        time: the streams' column of times, whole numbers.
        importance: the streams' column of importance.
        order: what happens when. `"together"`, the paper's model: the tuples of a time arrive at
            once, at most one in a stream; both windows shed; then each newcomer meets what is left
            of the other window, and the other newcomer, which takes no memory. `"in turn"`, that of
            the operators: one tuple after another, by (time, stream), meets what is stored, and is
            then stored or not.

    Raises:
        SpecError: if there are not two streams, or the lifetime is not positive.
        InputError: if a column is missing or has what cannot be used.

    Examples:
        >>> r = pa.table({"time": [0, 1], "a": ["x", "y"], "importance": [5.0, 1.0]})
        >>> s = pa.table({"time": [0, 1], "b": [8, 7], "importance": [3.0, 2.0]})
        >>> pairs = pa.table({"a": ["x", "y"], "b": [7, 7]})
        >>> star = read_star({"r": r, "s": s}, pairs, through={"r": "a", "s": "b"}, lifetime=9)
        >>> star.exact()
        Total(results=2, importance=3.0)
        >>> star.at_once
        Total(results=1, importance=1.0)
    """
    _check(streams, through, lifetime, order)
    one, other = streams
    tuples = [_read_stream(name, streams[name], time, importance, order) for name in streams]
    in_turn = np.argsort(np.concatenate([part.time for part in tuples]), kind="stable")
    times = np.concatenate([part.time for part in tuples])[in_turn]
    weights = np.concatenate([part.importance for part in tuples])[in_turn]
    first = tuples[0].time.size
    arrivals = np.split(np.argsort(in_turn), [first])

    begin = _bounds(relation, "begin", np.iinfo(np.int64).min)
    end = _bounds(relation, "end", FOREVER)
    matches = []
    for (name, table), arrival in zip(streams.items(), arrivals, strict=True):
        column = through[name]
        values = _column(f"the stream {name!r}", table, column)
        place, fact = _equal(name, column, values, _column("the relation", relation, column))
        active = (begin[fact] <= times[arrival[place]]) & (times[arrival[place]] < end[fact])
        matches.append(_Matches(arrival[place[active]], fact[active]))
    useless_from = times.copy()
    for match in matches:
        np.maximum.at(useless_from, match.arrival, end[match.fact])

    early, late, results = _pairs(matches[0], matches[1], times, lifetime)
    worth = results * np.minimum(weights[early], weights[late])
    until = late
    at_once = np.zeros(late.size, np.bool_)
    if order == "together":
        at_once = times[early] == times[late]
        until = np.searchsorted(times, times[late], side="right")
    return Star(
        names=(one, other),
        stream=(in_turn >= first).astype(np.int64),
        time=times,
        lifetime=lifetime,
        useless_from=useless_from,
        row=early[~at_once],
        arrival=until[~at_once],
        results=results[~at_once],
        worth=worth[~at_once],
        at_once=Total(int(results[at_once].sum()), float(worth[at_once].sum())),
    )


class _Tuples(NamedTuple):
    time: Ints
    importance: Floats


class _Matches(NamedTuple):
    """Pairs of a tuple and a row of the relation that was active when it arrived."""

    arrival: Ints
    fact: Ints


def _check(
    streams: Mapping[str, pa.Table], through: Mapping[str, str], lifetime: int, order: str
) -> None:
    if len(streams) != 2 or set(streams) != set(through):
        raise SpecError(
            "the optimum is known for two streams, each joined on a column; got the streams"
            f" {listed(streams)}, and columns for {listed(through)}"
        )
    if lifetime < 1:
        raise SpecError(f"lifetime must be 1 or more, got {lifetime!r}")
    if order not in ("together", "in turn"):
        raise SpecError(f"order must be 'together' or 'in turn', got {order!r}")


def _read_stream(name: str, table: pa.Table, time: str, importance: str, order: str) -> _Tuples:
    said = f"the stream {name!r}"
    times = _whole_numbers(said, time, _column(said, table, time))
    least = 1 if order == "together" else 0
    early = np.flatnonzero(np.diff(times) < least)
    if early.size:
        before, after = times[early[0]], times[early[0] + 1]
        way_out = (
            "sort it, and give it one tuple for each time at most, or say order='in turn'"
            if least
            else "sort it by time"
        )
        raise InputError(f"{said}: the time {after} comes after {before}; {way_out}")
    weights = _column(said, table, importance)
    try:
        numbers = weights.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise InputError(f"{said}: the column {importance!r} is not of numbers: {error}") from error
    wrong = np.flatnonzero(~(numbers >= 0))
    if wrong.size:
        raise InputError(
            f"{said}: the column {importance!r} must be 0 or more, got"
            f" {weights[int(wrong[0])].as_py()!r} in row {wrong[0]}"
        )
    return _Tuples(times, numbers)


def _column(said: str, table: pa.Table, column: str) -> pa.Array:
    if column not in table.column_names:
        raise InputError(
            f"{said} has no column {column!r}; it has {listed(table.column_names)}."
            f"{suggestion(column, table.column_names)}"
        )
    return table[column].combine_chunks()


def _whole_numbers(said: str, column: str, values: pa.Array) -> Ints:
    if not pa.types.is_integer(values.type) or values.null_count:
        raise InputError(
            f"{said}: the column {column!r} must be of whole numbers without nulls, got"
            f" {values.type} with {values.null_count} nulls"
        )
    numbers: Ints = values.cast(pa.int64()).to_numpy()
    return numbers


def _bounds(relation: pa.Table, column: str, always: int) -> Ints:
    """One side of the relation's intervals."""
    if column not in relation.column_names:
        return np.full(relation.num_rows, always, np.int64)
    values = relation[column].combine_chunks()
    if pa.types.is_null(values.type):
        values = values.cast(pa.int64())
    return _whole_numbers("the relation", column, values.fill_null(always))


def _equal(name: str, column: str, values: pa.Array, lookup: pa.Array) -> tuple[Ints, Ints]:
    """Places of equal values in two columns; null equals nothing."""
    try:
        both = pa.concat_tables(
            [pa.table({"key": values}), pa.table({"key": lookup})], promote_options="permissive"
        )
    except pa.ArrowException as error:
        raise InputError(
            f"the stream {name!r} has {values.type} in the column {column!r}, the relation"
            f" {lookup.type}; cast one to the type of the other"
        ) from error
    codes = both["key"].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
    mine, theirs = codes[: len(values)], codes[len(values) :]
    by_code = np.argsort(theirs, kind="stable")
    begins = np.searchsorted(theirs[by_code], mine)
    ends = np.where(mine < 0, begins, np.searchsorted(theirs[by_code], mine, side="right"))
    place, standing = _ranges(begins, ends)
    return place, by_code[standing]


def _pairs(one: _Matches, other: _Matches, times: Ints, lifetime: int) -> tuple[Ints, Ints, Ints]:
    """The pairs that make results, the earlier arrival first, and how many; sorted, each once."""
    size = times.size + 1
    standing = np.sort(other.fact * size + other.arrival)
    oldest = np.searchsorted(times, times[one.arrival] - lifetime, side="right")
    newest = np.searchsorted(times, times[one.arrival] + lifetime)
    begins = np.searchsorted(standing, one.fact * size + oldest)
    ends = np.searchsorted(standing, one.fact * size + newest)
    if (count := int((ends - begins).sum())) > MOST_PAIRS:
        raise StreamshedError(
            f"{count:,} pairs of tuples meet through the relation, more than the {MOST_PAIRS:,}"
            " that can be planned for at once; give fewer tuples, or a shorter lifetime"
        )
    place, found = _ranges(begins, ends)
    mine, theirs = one.arrival[place], standing[found] % size
    pairs = np.minimum(mine, theirs) * size + np.maximum(mine, theirs)
    pair, results = np.unique(pairs, return_counts=True)
    return pair // size, pair % size, results


def _ranges(begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """All numbers of some ranges, each beside the place of its range."""
    lengths = ends - begins
    place = np.repeat(np.arange(begins.size), lengths)
    within = np.arange(place.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return place, begins[place] + within
