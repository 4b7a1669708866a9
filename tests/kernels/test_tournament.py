"""The lowest of numbered places, beside plain Python that looks at all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from streamshed.kernels.compiling import implements, loop
from streamshed.kernels.core import Memory, Shape, grown, make
from streamshed.kernels.tournament import (
    ABSENT,
    NO_TIE,
    breaks_tie,
    fit_tree,
    lowest_place,
    move_word,
    set_word,
    tree_layout,
    word_at,
)

POOLS = 3


class Places(NamedTuple):
    """Trees of some pools."""

    words: npt.NDArray[Any]
    ties: npt.NDArray[Any]
    levels: npt.NDArray[Any]
    lowest: npt.NDArray[Any]


@implements(breaks_tie, Places)
def _by_lot(tree, lots, group, place, other):
    return lots[group, place] < lots[group, other]


@loop
def fit(tree, places):
    fit_tree(tree, places)


@loop
def put(tree, group, place, word, tie):
    set_word(tree, group, place, word, tie)


@loop
def move(tree, group, place, other):
    move_word(tree, group, place, other)


@loop
def lowest(tree, lots, group):
    return lowest_place(tree, lots, group)


@loop
def look(tree, group, place):
    return word_at(tree, group, place)


def _shape(held: int) -> Shape:
    return Shape(0, 0, 0, POOLS, POOLS, POOLS, POOLS, held, 0, 0, False)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("kinds", [2, 1000])
def test_trees_find_the_lowest_as_they_grow(ties: bool, kinds: int) -> None:
    random = np.random.default_rng(kinds)
    layout = tree_layout(ties)
    tree = make(Places, layout, _shape(0), Memory(), "")
    lots = np.zeros((POOLS, 600), np.int64)
    known: list[dict[int, tuple[int, int, int, int]]] = [{} for _ in range(POOLS)]
    for held in (1, 7, 8, 9, 64, 65, 200, 513, 600):
        tree = grown(tree, layout, _shape(held), Memory(), "")
        fit(tree, held * POOLS)
        for _ in range(400):
            group, place = int(random.integers(POOLS)), int(random.integers(held))
            mine = known[group]
            action = random.integers(4)
            if action == 0 and place in mine:
                other = int(random.integers(held))
                if other == place or other not in mine:
                    move(tree, group, place, other)
                    word, tie, lot, _ = mine.pop(place)
                    if other != place:
                        mine[other] = (word, tie, lot, other)
                        lots[group, other] = lot
            elif action == 1:
                put(tree, group, place, ABSENT, NO_TIE)
                mine.pop(place, None)
            else:
                word = int(random.integers(kinds))
                tie = int(random.integers(kinds)) if ties else int(NO_TIE)
                put(tree, group, place, np.uint64(word), np.uint32(tie))
                lots[group, place] = lot = int(random.integers(2**40))
                mine[place] = (word, tie, lot, place)
            assert (look(tree, group, place) != ABSENT) == (place in mine)
            if mine:
                assert lowest(tree, lots, group) == min(mine.values())[3]
