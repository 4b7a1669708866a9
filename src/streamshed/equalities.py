"""Conditions between pairs of streams: a graph of equalities."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from streamshed.arguments import Names
from streamshed.errors import SpecError, listed, suggestion

_METHOD = ".on()"
MOST_STREAMS = 8
MOST_ATTRIBUTES = 64

Place = tuple[str, str]
"""A stream, and a column of it."""


@dataclass(frozen=True, slots=True)
class Equalities:
    """Columns of streams that are equal in every result, pair by pair.

    Columns that are equal to each other, directly or by way of others, are one *attribute*.

    Example:
        >>> said = ("a.x = b.x", "b.y = c.z", "c.z = d.y")
        >>> chain = Equalities.of(said, Names(("a", "b", "c", "d"), None))
        >>> chain.attributes()
        [[('a', 'x'), ('b', 'x')], [('b', 'y'), ('c', 'z'), ('d', 'y')]]
        >>> chain.columns_for("b"), chain.attributes_of("b")
        (('x', 'y'), (0, 1))
    """

    pairs: tuple[tuple[Place, Place], ...]
    streams: tuple[str, ...]

    @classmethod
    def of(cls, said: Sequence[str], names: Names) -> Equalities:
        """Read the arguments of `.on`: equalities such as `"a.x = b.y"`.

        Args:
            said: The equalities.
            names: The streams of the join.
        """
        if names.by is not None:
            raise SpecError(
                f"{_METHOD}: {said[0]!r} is a condition between streams with names, but these are "
                f"named by the column {names.by!r}; name the key column, as in .on('k')"
            )
        if len(names.streams) > MOST_STREAMS:
            raise SpecError(
                f"{_METHOD}: conditions between pairs of streams join up to {MOST_STREAMS} of "
                f"them, and there are {len(names.streams)}; name one key shared by all, as in "
                ".on('k')"
            )
        graph = cls(tuple(_pair(text, names) for text in said), names.streams)
        graph._check()
        return graph

    def attributes(self) -> list[list[Place]]:
        """The columns that are equal to each other, in the order in which they were named."""
        found: list[list[Place]] = []
        for pair in self.pairs:
            touched = [places for places in found if pair[0] in places or pair[1] in places]
            merged = [place for places in touched for place in places]
            merged += [place for place in pair if place not in merged]
            if touched:
                found[found.index(touched[0])] = merged
                found = [places for places in found if places not in touched[1:]]
            else:
                found.append(merged)
        order = {name: position for position, name in enumerate(self.streams)}
        return [sorted(places, key=lambda place: order[place[0]]) for places in found]

    def columns_for(self, stream: str) -> tuple[str, ...]:
        """The columns of a stream that take part, attribute by attribute."""
        return tuple(column for _, column in self._of(stream))

    def attributes_of(self, stream: str) -> tuple[int, ...]:
        """The number of the attribute that each of these columns belongs to."""
        return tuple(number for number, _ in self._of(stream))

    def _of(self, stream: str) -> list[tuple[int, str]]:
        return [
            (number, column)
            for number, places in enumerate(self.attributes())
            for name, column in places
            if name == stream
        ]

    def shares_one_key(self) -> bool:
        """Whether every attribute has one column of each stream: together they are one key."""
        return all(
            [stream for stream, _ in places] == list(self.streams) for places in self.attributes()
        )

    def said(self) -> tuple[str, ...]:
        """The equalities as a caller would give them."""
        return tuple(f"{a}.{x} = {b}.{y}" for (a, x), (b, y) in self.pairs)

    def _check(self) -> None:
        attributes = self.attributes()
        if len(attributes) > MOST_ATTRIBUTES:
            raise SpecError(
                f"{_METHOD}: {len(attributes)} attributes are compared, more than "
                f"{MOST_ATTRIBUTES}; make one column of those that belong together"
            )
        reached = {self.streams[0]}
        links = [{stream for stream, _ in places} for places in attributes]
        while more := [link for link in links if link & reached and not link <= reached]:
            reached = reached.union(*more)
        apart = [stream for stream in self.streams if stream not in reached]
        if apart:
            raise SpecError(
                f"{_METHOD}: no equality connects {listed(apart)} with {listed(sorted(reached))}; "
                f"every combination would be a result. Add one, as in '{self.streams[0]}.x = "
                f"{apart[0]}.y'"
            )


_COMPARISON = re.compile(r"<=|>=|<>|!=|<|>|≤|≥|≠")


def are_equalities(said: Sequence[object], names: Names) -> TypeGuard[Sequence[str]]:
    """Whether the arguments of `.on` are equalities, and not the names of key columns."""
    for text in said:
        _check_no_comparison(text, names)
    if not any(isinstance(text, str) and "=" in text for text in said):
        return False
    for text in said:
        if not isinstance(text, str) or "=" not in text:
            raise SpecError(
                f"{_METHOD}: {text!r} is not an equality, but other arguments are; give key "
                "columns only, as in .on('k'), or equalities only, as in .on('a.x = b.x', "
                "'b.y = c.z')"
            )
    return True


def _check_no_comparison(text: object, names: Names) -> None:
    """Refuse a comparison other than an equality, and point to `where`."""
    if not isinstance(text, str) or not (sign := _COMPARISON.search(text)):
        return
    sides = [text[: sign.start()].strip(), text[sign.end() :].strip()]
    # A column may have such a name; a comparison names two of the streams.
    if all(side.partition(".")[0] in names.streams and "." in side for side in sides):
        found = [re.match(r"\w+", side.partition(".")[2]) for side in sides]
        columns = list(dict.fromkeys(word[0] for word in found if word))
        raise SpecError(
            f"{_METHOD}: {text!r} compares by {sign[0]!r}, but a string must be an equality; give "
            f"a condition of two rows, as in .on(ss.where(function, {', '.join(map(repr, columns))}"
            ")), or ss.near for a distance"
        )


def _pair(text: str, names: Names) -> tuple[Place, Place]:
    if "==" in text:
        raise SpecError(
            f"{_METHOD}: {text!r} has two equals signs; use a single one, as in "
            f"{text.replace('==', '=')!r}"
        )
    sides = text.split("=")
    if len(sides) != 2:
        raise SpecError(
            f"{_METHOD}: {text!r} is not an equality of two columns; write each pair by itself, "
            "as in .on('a.x = b.x', 'b.x = c.x')"
        )
    one, other = (_place(side.strip(), text, names) for side in sides)
    if one[0] == other[0]:
        raise SpecError(
            f"{_METHOD}: {text!r} compares two columns of stream {one[0]!r}; filter its rows "
            "before they are joined"
        )
    return one, other


def _place(path: str, text: str, names: Names) -> Place:
    """The stream and the column of a path, which is cut where it first names a stream."""
    cuts = [place for place, letter in enumerate(path) if letter == "."]
    for cut in cuts:
        if path[:cut] in names.streams and path[cut + 1 :]:
            return path[:cut], path[cut + 1 :]
    stream = path.partition(".")[0]
    raise SpecError(
        f"{_METHOD}: {path!r} in {text!r} is no column of a stream; the streams are "
        f"{listed(names.streams)}, and a column is named after its stream, as in "
        f"'{names.streams[0]}.x'.{suggestion(stream, names.streams)}"
    )
