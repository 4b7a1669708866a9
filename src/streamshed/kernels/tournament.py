"""The lowest of numbered places, several groups in one array: tournament trees of eight.

Each place holds a word, or ABSENT. Eight places side by side are a line of the cache; the lowest
word of each line stands in a place one level up, and so on to a level of one line. So a word that
changes is compared with seven others, and mostly the lowest of them stays: that is all. Nothing is
moved, and the processor need not guess the outcome of a comparison.

A state with a tree has `words`, `ties`, `levels` and `lowest` (by group: the place of the lowest
word, as far as known). Where `ties` has room it decides between words that are equal; otherwise,
and if ties are equal too, the hook `breaks_tie` does. Trees grow with the arrays that hold them:
whoever sets a place calls `fit_tree` first.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import cold_kernel, hook, kernel
from streamshed.kernels.core import NONE, Field
from streamshed.kernels.intrinsics import ones, trailing_zeros

ABSENT, NO_TIE = np.uint64(2**64 - 1), np.uint32(2**32 - 1)
_DEPTH, _SIZE, _LEAVES = 12, 13, 14
"""In `levels`, behind where each begins: how many there are, for an array of which size, and how
many words the first has."""
_FIELDS = 15


def tree_layout(ties: bool) -> dict[str, Field]:
    """The arrays of a state with a tree for each pool.

    Args:
        ties: whether words may be equal so often that each has a second one.
    """
    return {
        "words": Field("tree", np.uint64, None),
        "ties": Field("tree", np.uint32, None, times=int(ties)),
        "levels": Field("once", np.int64, times=_FIELDS),
        "lowest": Field("pool", np.int64),
    }


@hook
def breaks_tie(tree, core, group, place, other):  # type: ignore[no-untyped-def]
    """Whether a place comes before another of its group, where both have the same word."""
    return place < other


@kernel
def fit_tree(tree, places):  # type: ignore[no-untyped-def]
    """Arrange the levels anew if the arrays have grown, to so many places of all groups."""
    if tree.levels[_SIZE] != tree.words.size:
        _arrange(tree, places)


@cold_kernel
def _arrange(tree, places):  # type: ignore[no-untyped-def]
    groups, levels = tree.lowest.size, tree.levels
    before, held = levels[_LEAVES], places // groups
    lines = (held + 7) >> 3
    begin, depth = 0, 0
    while True:
        levels[depth] = begin
        depth += 1
        begin += 8 * groups * lines
        if lines <= 1:
            break
        lines = (lines + 7) >> 3
    levels[_DEPTH] = depth
    levels[_SIZE] = tree.words.size
    levels[_LEAVES] = levels[1] if depth > 1 else begin
    for at in range(before, begin):
        _write(tree, at, ABSENT, NO_TIE)
    tree.lowest[:] = NONE
    lines = (held + 7) >> 3
    for level in range(depth - 1):
        for line in range(lines):
            for group in range(groups):
                word, tie = _least(tree, levels[level] + ((line * groups + group) << 3))
                _write(tree, _at(tree, level + 1, group, line), word, tie)
        lines = (lines + 7) >> 3


@kernel
def _at(tree, level, group, place):  # type: ignore[no-untyped-def]
    """Where a place of a level stands in the arrays."""
    line = (place >> 3) * tree.lowest.size + group
    return tree.levels[level] + (line << 3) + (place & 7)


@kernel
def _write(tree, at, word, tie):  # type: ignore[no-untyped-def]
    tree.words[at] = word
    if tree.ties.size > 0:
        tree.ties[at] = tie


@kernel
def _tie(tree, at):  # type: ignore[no-untyped-def]
    return tree.ties[at] if tree.ties.size > 0 else NO_TIE


@kernel
def _places_of(tree, begin, word, tie):  # type: ignore[no-untyped-def]
    """A bit for each place of a line that has a word and its tie."""
    found = np.uint64(0)
    for i in range(8):
        has_it = tree.words[begin + i] == word and _tie(tree, begin + i) == tie
        found |= np.uint64(has_it) << np.uint64(i)
    return found


@kernel
def _least(tree, begin):  # type: ignore[no-untyped-def]
    """The lowest word of a line, and its tie."""
    words = tree.words
    one, other = min(words[begin], words[begin + 1]), min(words[begin + 2], words[begin + 3])
    third, last = min(words[begin + 4], words[begin + 5]), min(words[begin + 6], words[begin + 7])
    one, other = min(one, other), min(third, last)
    word = min(one, other)
    return word, _least_tie(tree, begin, word) if tree.ties.size > 0 else NO_TIE


@cold_kernel
def _least_tie(tree, begin, word):  # type: ignore[no-untyped-def]
    """The lowest tie of those in a line who have a word."""
    tie = NO_TIE
    for at in range(begin, begin + 8):
        if tree.words[at] == word:
            tie = min(tie, tree.ties[at])
    return tie


@kernel
def word_at(tree, group, place):  # type: ignore[no-untyped-def]
    """The word of a place, or ABSENT."""
    return tree.words[_at(tree, 0, group, place)]


@kernel
def tie_at(tree, group, place):  # type: ignore[no-untyped-def]
    """The tie of a place, NO_TIE if it has none."""
    return _tie(tree, _at(tree, 0, group, place))


@kernel
def set_word(tree, group, place, word, tie):  # type: ignore[no-untyped-def]
    """Let a place have another word, or none."""
    _keep_lowest(tree, group, place, word, tie)
    at = _at(tree, 0, group, place)
    before = tree.words[at]
    _write(tree, at, word, tie)
    for level in range(1, tree.levels[_DEPTH]):
        begin = at & ~7
        place >>= 3
        at = _at(tree, level, group, place)
        above = tree.words[at]
        if min(before, word) > above:  # it was not the lowest of its line, and is not now
            break
        word, tie = _least(tree, begin)
        if word == above and _tie(tree, at) == tie:
            break
        before = above
        _write(tree, at, word, tie)


@kernel
def _keep_lowest(tree, group, place, word, tie):  # type: ignore[no-untyped-def]
    """Find out, without looking further, where the lowest word is now; or forget it."""
    lowest = tree.lowest[group]
    if lowest == NONE:
        return
    at = _at(tree, 0, group, lowest)
    least = tree.words[at]
    if lowest == place:
        if word >= least:
            tree.lowest[group] = NONE
    elif word < least:
        tree.lowest[group] = place
    elif word == least and word != ABSENT and tie <= _tie(tree, at):
        tree.lowest[group] = NONE


@kernel
def move_word(tree, group, place, other):  # type: ignore[no-untyped-def]
    """Let another place have the word of a place, which has none then, even if it is the same."""
    at = _at(tree, 0, group, place)
    word, tie = tree.words[at], _tie(tree, at)
    was_lowest = tree.lowest[group] == place
    set_word(tree, group, place, ABSENT, NO_TIE)
    if other != place:
        set_word(tree, group, other, word, tie)
        if was_lowest:
            tree.lowest[group] = other


@kernel
def lowest_place(tree, core, group):  # type: ignore[no-untyped-def]
    """The place with the lowest word of a group that has some."""
    place = tree.lowest[group]
    if place == NONE:
        place = _find_lowest(tree, core, group)
        tree.lowest[group] = place
    return place


@kernel
def _find_lowest(tree, core, group):  # type: ignore[no-untyped-def]
    """Go down from the last level, to the lowest of each line; if several are, to the first."""
    line, equal, depth = np.int64(0), np.int64(0), tree.levels[_DEPTH]
    word, tie = _least(tree, _at(tree, depth - 1, group, line))
    for up in range(depth):
        found = _places_of(tree, _at(tree, depth - 1 - up, group, line << 3), word, tie)
        equal += ones(found)
        line = (line << 3) + np.int64(trailing_zeros(found))
    if equal > depth:
        return _first_of_equals(tree, core, group, line)
    return line


@cold_kernel
def _first_of_equals(tree, core, group, found):  # type: ignore[no-untyped-def]
    """Of the places that have the same word and tie as the one found, the one that comes first."""
    word, tie = word_at(tree, group, found), tie_at(tree, group, found)
    for place in range(tree.levels[_LEAVES] // tree.lowest.size):
        equal = word_at(tree, group, place) == word and tie_at(tree, group, place) == tie
        if equal and place != found and breaks_tie(tree, core, group, place, found):
            found = place
    return found
