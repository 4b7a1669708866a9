"""Blocks of results."""

from __future__ import annotations

import numpy as np

from streamshed.engine.blocks import Block
from streamshed.engine.sink import MEMBER


def test_a_block_is_split_between_results() -> None:
    """Also where the number of members varies, as in joins whose streams a column names."""
    ends = np.array([2, 3, 6, 8, 9])
    whole = Block(np.arange(5), np.arange(9), ends, (), certain=ends > 5)
    parts = list(whole.split(2))
    assert [part.time.tolist() for part in parts] == [[0, 1], [2, 3], [4]]
    assert [part.members.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5, 6, 7], [8]]
    assert [part.ends.tolist() for part in parts] == [[2, 3], [3, 5], [1]]
    assert [[*map(bool, part.certain)] for part in parts] == [[False, False], [True, True], [True]]
    assert list(whole.split(5)) == [whole]
    checked = whole._replace(known=np.empty(9, MEMBER))
    assert list(checked.split(2)) == [checked]
