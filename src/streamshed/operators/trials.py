"""Policies tried in miniature: small joins over a part of the keys, one for each policy."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import driver
from streamshed.kernels.core import ARRIVALS, RESULTS
from streamshed.kernels.random import GOLDEN, mix
from streamshed.operators.buffers import Batch
from streamshed.operators.checkpoint import Head
from streamshed.operators.following import teach
from streamshed.operators.intake import Intake
from streamshed.operators.keyed import MARKS, KeyedJoin
from streamshed.operators.plan import Plan
from streamshed.operators.resting import Rest
from streamshed.operators.restoring import bare, in_order, rows_again
from streamshed.operators.sample import sample_bytes
from streamshed.policies.auto import candidates
from streamshed.policies.base import Policy
from streamshed.policies.density import Density

LEAST_ROWS = 48
"""Rows that the smallest budget has in miniature, if it has as many at all."""
ROUND, LONGEST_ROUND = 2, 1 << 16
"""Rounds last until so many times the rows of all budgets have arrived, within bounds."""
SHORTEST_ROUND = 1 << 10
WEIGHTS = 0.75 ** np.arange(16)
"""What the results of the last rounds count, the latest first."""
MARGIN = 0.03
"""The part of the present policy's results that another must have made more to take over..."""
DOUBT = 2.0
"""...and how many times what differences vary by."""
ASTRAY = 2.0
"""How many times more or fewer results than its due the present policy may make in miniature, if
trials are to be trusted: keys that make most of the results may be in the trial, or not."""

ROWS = "rows"


class Trials:
    """The policies that may shed, each at work on the same part of the keys, except at rest.

    Args:
        plan: the join, with the policy left open.
        intake: that of the join, which knows the names of streams and whether rows are in order.
    """

    def __init__(self, plan: Plan, intake: Intake) -> None:
        budgets = [rows for rows in (plan.total, *(s.rows for s in plan.streams)) if rows]
        self.rate = 1.0
        while min(budgets) * self.rate / 2 >= LEAST_ROWS:
            self.rate /= 2
        self.round = min(max(ROUND * sum(budgets), SHORTEST_ROUND), LONGEST_ROUND)
        self.salt = np.uint64((plan.seed + 1) * int(GOLDEN) % 2**64)
        self.plan = plan
        self.intake = intake
        self.rest = Rest()
        self.results = 0  # of the join itself, up to the end of the last round
        self._begin()

    def _begin(self) -> None:
        """Begin with empty windows."""
        self.joins = {
            policy: KeyedJoin(_in_miniature(self.plan, policy, self.rate), whole=False)
            for policy in candidates(self.plan)
        }
        for join in self.joins.values():
            join.intake = self.intake
        self.made = dict.fromkeys(self.joins, 0)
        self.lately = {policy: [0] * WEIGHTS.size for policy in self.joins}
        self.true = [0] * WEIGHTS.size  # the results of the join itself in the last rounds

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        return sum(
            join.state_bytes() + sample_bytes(join.sample, join.used())
            for join in self.joins.values()
        )

    def run(self, batch: Batch) -> None:
        """Let every policy have those of some tuples whose keys are in the trial."""
        if self.rest.left > 0:
            return
        places = np.arange(batch.time.size)
        if self.rate < 1:
            places = chosen(batch.hash, self.salt, np.uint64(self.rate * 2**64))
        part = Batch._make(column[places] if column.size else column for column in batch)
        for join in self.joins.values():
            for _ in join.process(part):
                pass

    def end_round(self, present: Policy, newest: npt.NDArray[np.int64], results: int) -> Policy:
        """End a round; returns the policy that is to shed from now on.

        Args:
            present: the one that sheds now.
            newest: the newest time seen of each stream.
            results: those that the join has made so far.
        """
        resting = self.rest.left > 0
        made, self.results = results - self.results, results
        self.true = [made, *self.true[:-1]]
        best = present if resting else self._best(present, newest)
        self.rest.round_ends(made, best != present)
        if self.rest.left > 0 and not resting:
            self._clear()
        return best

    def _clear(self) -> None:
        """Let go of all rows, which will not be followed during a rest; what was learned stays."""
        tried = self.joins
        self._begin()
        for policy, join in self.joins.items():
            teach(join.state, join.sample, tried[policy].state, tried[policy].sample)

    def _best(self, present: Policy, newest: npt.NDArray[np.int64]) -> Policy:
        """The policy that did best of late, if that is sure; else the present one."""
        for policy, join in self.joins.items():
            made = int(join.core.numbers[RESULTS])
            self.lately[policy] = [made - self.made[policy], *self.lately[policy][:-1]]
            self.made[policy] = made
            join.advance(newest)
        merit = {policy: float(WEIGHTS @ made) for policy, made in self.lately.items()}
        due = float(WEIGHTS @ self.true) * self.rate
        if not due / ASTRAY <= merit[present] <= due * ASTRAY:
            return present
        best = max(merit, key=lambda policy: merit[policy])
        more = np.subtract(self.lately[best], self.lately[present])
        doubt = DOUBT * float(np.linalg.norm(WEIGHTS * more))
        better = merit[best] - merit[present] > max(MARGIN * merit[present], doubt)
        return best if better else present

    def arrived(self) -> int:
        """How many tuples each policy has had since the last rest."""
        return int(next(iter(self.joins.values())).core.numbers[ARRIVALS])

    def warm(self) -> None:
        """Have everything compiled."""
        chosen(np.empty(0, np.uint64), self.salt, np.uint64(0))
        for join in self.joins.values():
            join.warm()

    # -- stop and go on --------------------------------------------------------------------------

    def saved(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """All that is needed to go on later: numbers, and arrays by name."""
        numbers: dict[str, Any] = {
            policy.name: [self.made[policy], self.lately[policy]] for policy in self.joins
        }
        numbers |= {"rest": astuple(self.rest), "results": self.results, "true": self.true}
        arrays: dict[str, npt.NDArray[Any]] = {}
        for policy, join in self.joins.items():
            rows = in_order(join.core)
            kept = join.head().arrays | {ROWS: bare(join.core, rows), MARKS: join.marks(rows)}
            arrays |= {f"trial.{policy.name}.{name}": array for name, array in kept.items()}
        return numbers, arrays

    def go_on(self, numbers: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Be as when that was saved."""
        self.rest = Rest(*numbers["rest"])
        self.results, self.true = numbers["results"], numbers["true"]
        for policy, join in self.joins.items():
            prefix = f"trial.{policy.name}."
            kept = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
            join.take_up(Head({}, {}, kept, []), rows_again(kept[ROWS]), set())
            self.made[policy], self.lately[policy] = numbers[policy.name]


def _in_miniature(plan: Plan, policy: Policy, rate: float) -> Plan:
    """The plan of a join over a part of the keys under a policy."""

    def part(rows: int | None) -> int | None:
        return None if rows is None else max(1, round(rows * rate))

    return replace(
        plan,
        policy=policy,
        streams=tuple(replace(s, rows=part(s.rows), last=part(s.last)) for s in plan.streams),
        total=part(plan.total),
        rate=1.0 if isinstance(policy, Density) else 0.0,
    )


@driver
def chosen(hashes, salt, limit):  # type: ignore[no-untyped-def]
    """The places of the keys whose lot is below the limit; they are in the sample, too."""
    found = np.empty(hashes.size, np.int64)
    count = 0
    for i in range(hashes.size):
        if mix(hashes[i] ^ salt) < limit:
            found[count] = i
            count += 1
    return found[:count].copy()
