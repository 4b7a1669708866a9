"""Policies from outside the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.policies import Policy


class UndecidedState(NamedTuple):
    """Knows nothing."""


@dataclass(frozen=True)
class Undecided(Policy):
    """Has no hook that says which row to evict."""

    name: ClassVar[str] = "undecided"
    state: ClassVar[type] = UndecidedState


def test_a_policy_has_to_say_which_row_to_evict():
    rows = pa.table({"k": [1, 2, 3], "ts": [1, 2, 3]})
    join = ss.join("a", "b").on("k").within(10, time="ts").keep(rows=1).shed(Undecided())
    with pytest.raises(ss.SpecError, match=r"'undecided' .* @implements\(hooks.victim, Undecid"):
        join.count(a=rows, b=rows)
