"""A policy that listens to the sample is told of every row in it, and finds its own notes again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from numba.core.caching import NullCache

from engine import driven, spec
from oracles.exact import judged
from oracles.rows import Workload
from oracles.workloads import generated
from streamshed.engine import loop
from streamshed.engine.build import restore_operator
from streamshed.engine.observe import tracking
from streamshed.engine.operator import Operator
from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements
from streamshed.kernels.core import Field, Shape
from streamshed.kernels.lanes import oldest_of_pool
from streamshed.kernels.machine import ones
from streamshed.policies import Policy

ENTERED, RESULTS, EXPIRED, DROPPED, AGAIN, WRONG, LANES = range(7)


class ListenerState(NamedTuple):
    told: Any
    arrival: Any  # by row of the sample
    tuples: Any  # by key of the sample


@dataclass(frozen=True)
class Listener(Policy):
    """Sheds the oldest, and writes down what it hears."""

    name: ClassVar[str] = "listener"
    state: ClassVar[type] = ListenerState
    follows: ClassVar[float] = 1 / 4

    def layout(self, shape: Shape) -> dict[str, Field]:
        return {
            "told": Field("once", np.float64, times=7, kept=True),
            "arrival": Field("sample row", np.int64, -1, kept=True),
            "tuples": Field("sample key", np.int64, kept=True),
        }


@implements(hooks.victim, ListenerState)
def _victim(policy, core, pool, arrival):
    return oldest_of_pool(core, pool)


@implements(hooks.on_sample, ListenerState)
def _followed(policy, sample, row, pattern, results, chance):
    policy.told[ENTERED] += 1
    policy.told[RESULTS] += results / chance
    policy.told[LANES] += ones(pattern)
    policy.arrival[row] = sample.rows[row].arrival
    policy.tuples[sample.rows[row].key] += 1


@implements(hooks.on_sample_end, ListenerState)
def _unfollowed(policy, sample, row, expired):
    policy.told[EXPIRED if expired else DROPPED] += 1
    key = sample.rows[row].key
    policy.tuples[key] -= 1
    if policy.arrival[row] != sample.rows[row].arrival or policy.tuples[key] < 0:
        policy.told[WRONG] += 1


@implements(hooks.on_sample_restore, ListenerState)
def _refollowed(policy, sample, row):
    policy.told[AGAIN] += 1
    policy.arrival[row] = sample.rows[row].arrival
    policy.tuples[sample.rows[row].key] += 1


@pytest.fixture(autouse=True)
def _uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others could not read a cache that names a policy of this file."""
    drivers = ("run", "restore_rows", "evict_to_budget", "read_marks")
    for driver in [tracking.follow_again, *(getattr(loop, name) for name in drivers)]:
        monkeypatch.setattr(driver, "_cache", NullCache())
    monkeypatch.setattr("streamshed.engine.observe.sample.PATIENCE", 50)
    monkeypatch.setattr("streamshed.engine.observe.sample.ORDINARY", 10)


@pytest.mark.parametrize("window", [("time", 60), ("last", 30)])
def test_a_policy_hears_of_every_row_of_the_sample(window: Any) -> None:
    workload = generated(5, streams=3, rows=300, keys=60, window=window, keep_rows=(20, 20, 20))
    whole, piecewise = _driven(workload, []), _driven(workload, [100, 101, 450, 800])
    told = whole.state.told
    assert told.tolist() == piecewise.state.told.tolist()
    held = int(whole.sample.core.pools["held"][0])
    assert told[ENTERED] == told[EXPIRED] + told[DROPPED] + held
    assert told[WRONG] == told[AGAIN] == 0
    assert min(told[EXPIRED], told[DROPPED], held) > 0
    assert whole.sample_rate == 1 / 4
    every = _driven(replace(workload, rate=1.0), [500])
    assert every.state.told[RESULTS] == sum(judged(workload.unbounded())[0].values())
    assert every.state.told[DROPPED] == 0


def test_under_another_seed_it_hears_of_the_rows_again() -> None:
    workload = generated(5, streams=3, rows=300, keys=60, keep_rows=(20, 20, 20))
    join = _driven(workload, [])
    anew = restore_operator(replace(join.plan, seed=9), join.snapshot())
    stored = int(join.core.pools["held"].sum())
    assert anew.state.told[AGAIN] == anew.sample.core.pools["held"][0] == stored > 0
    before, after = join.missed(), anew.missed()
    assert before is not None
    assert after is not None
    assert after.missed == before.missed > 0
    assert after.variance == before.variance > 0


def _driven(workload: Workload, cuts: list[int]) -> Operator:
    *_, (_, _, _, operator) = driven(
        workload, cuts, restore=True, join=spec(workload).shed(Listener())
    )
    return operator
