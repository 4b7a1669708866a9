"""The trials of policies and budgets, and the search for the smallest budget that is enough."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np

from streamshed.arguments import fraction, positive
from streamshed.errors import InputError, SpecError, listed
from streamshed.join import Join
from streamshed.plan.capabilities import POLICIES, kind_of
from streamshed.policies import by_name
from streamshed.progress import Advance, progress
from streamshed.replay import Order
from streamshed.running import with_table
from streamshed.spec import Spec
from streamshed.tuning.archive import Archive, Run
from streamshed.tuning.found import Cell, Tuning
from streamshed.tuning.recall import halves_of, keys_of, recall_of

_TRIED = ("density", "output", "existence", "sketch", "random", "oldest")
_MOST = 5
"""Policies that are tried unless others are named: the first so many of these that fit the join."""
_PARTS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7)
"""Budgets that are tried, as parts of the most rows that the join holds without one."""
_REFINED = 10
"""Further runs that close in on the wanted recall, at most."""
_NEAR = 0.002
"""How close to it is close enough."""
_REPEATED = 4
"""Runs of which each of these is the mean: policies draw lots, and by the luck of a single run the
search would stop too early."""


def tune(
    spec: Spec,
    data: Mapping[str, Any],
    recall: float = 0.95,
    policies: Sequence[str] | None = None,
    budgets: Sequence[int] | None = None,
    sample: float | None = None,
    order: Order = "time",
    sampled: float = 1.0,
) -> Tuning:
    """Try policies and budgets on an archive; see `Join.tune`."""
    method = "tune()"
    said, (spec, data) = spec, with_table(spec, data)
    wanted = fraction(recall, f"{method}: `recall`")
    if not 0 < wanted < 1:
        raise SpecError(f"{method}: `recall` is {recall!r}; give a number between 0 and 1")
    names = _checked_policies(spec, policies)
    given = None if budgets is None else _checked_budgets(budgets)
    archive = Archive.read(spec, data, order, _part(sampled, f"{method}: `sampled`"))
    for name in ("exact", *names):
        archive.warm(None if name == "exact" else name)
    if sample is not None:
        archive = archive.sampled(_part(sample, f"{method}: `sample`"))
    else:
        archive = archive.fitting(names[0], len(names) * len(given or _PARTS))
    archive = archive.doubled()
    with progress("tuning", 1 + len(names) * len(given or _PARTS) + _REFINED, "runs") as done:
        exact = archive.exact()
        done(1)
        if exact.ledger.results == 0 or exact.made.sum() == 0:
            raise InputError(
                f"{method}: the join makes no results on this archive, so that there is no recall "
                "to tune; check its key and its windows, or give more data"
            )
        peak = math.ceil(exact.peak / archive.part)
        sizes = given or [max(1, round(part * exact.peak / archive.part)) for part in _PARTS]
        cells = list(_cells(archive, exact, names, sizes, done))
        best = _closest(archive, exact, cells, wanted, None if given else peak, done)
    return _told(said, archive, exact, wanted, cells, best)


def _told(
    said: Spec, archive: Archive, exact: Run, wanted: float, cells: list[Cell], best: Cell | None
) -> Tuning:
    """What was found, as figures of all keys."""
    peak = math.ceil(exact.peak / archive.part)
    join = Join(said).keep(total=peak if best is None else best.rows)
    return Tuning(
        join if best is None else join.shed(best.policy),
        wanted,
        best,
        sorted(cells, key=lambda cell: (cell.policy, cell.rows)),
        rows=peak,
        nbytes=archive.nbytes(exact.ledger, exact.peak),
        results=round(exact.ledger.results / archive.part),
        sample=archive.part,
        burst=float(exact.made.max() / exact.made.sum()),
    )


def _part(said: float, what: str) -> float:
    part = fraction(said, what)
    if not part > 0:
        raise SpecError(f"{what} is {said!r}; it must be greater than 0")
    return part


def _checked_budgets(budgets: Sequence[int]) -> list[int]:
    given = _items(budgets, "tune(): `budgets`", "numbers of rows, as in budgets=[1000, 5000]")
    return [positive(rows, "tune(): the budget") for rows in given]


def _items(said: object, what: str, wanted: str) -> list[Any]:
    items = [*said] if isinstance(said, Iterable) and not isinstance(said, str) else []
    if not items:
        raise SpecError(f"{what} is {said!r}; give a list of {wanted}")
    return items


def _checked_policies(spec: Spec, policies: Sequence[str] | None) -> list[str]:
    able = [name for name, no in POLICIES.items() if kind_of(spec) not in no]
    if policies is None:
        return [name for name in _TRIED if name in able][:_MOST]
    names = _items(policies, "tune(): `policies`", "names, as in policies=['density']")
    for name in names:
        by_name(name)
        if name not in able:
            raise SpecError(
                f"tune(): the policy {name!r} does not fit this join; use one of {listed(able)}"
            )
    return list(dict.fromkeys(names))


def _cells(
    archive: Archive,
    exact: Run,
    policies: Sequence[str],
    budgets: Sequence[int],
    done: Advance,
) -> Iterator[Cell]:
    """Run the join for each policy and budget, as many side by side as there are cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = [
            pool.submit(_cell, archive, exact, policy, rows)
            for rows in sorted(budgets, reverse=True)
            for policy in policies
        ]
        for finished in as_completed(waiting):
            done(1)
            yield finished.result()


def _cell(archive: Archive, exact: Run, policy: str, rows: int, repeated: int = 1) -> Cell:
    """Run the join with a policy and a budget of rows of all keys, once or several times."""
    here = max(1, round(rows * archive.part))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(
            pool.map(lambda again: archive.run(policy, here, exact.before, again), range(repeated))
        )
    made = np.mean([run.made for run in runs], axis=0)
    filling, window = archive.filling(exact), archive.parts_of_window(exact)
    # In the second lap policies have learned already: what came earlier can be compared, too.
    earlier = window if archive.laps is not None else filling
    return Cell(
        policy,
        rows,
        archive.nbytes(runs[0].ledger, min(here, exact.peak)),
        recall_of(made, exact.made, filling, window),
        keys_of(runs[0].keys),
        sum(run.seconds for run in runs),
        halves_of(made, exact.made, filling, earlier),
    )


def _closest(
    archive: Archive,
    exact: Run,
    cells: list[Cell],
    wanted: float,
    upto: int | None,
    done: Advance,
) -> Cell | None:
    """The policy that needs the fewest rows for the wanted recall, at the budget that it needs.

    The budget between two that were tried is found by a few more runs, which join the cells.

    Args:
        archive: the archive.
        exact: the run without a budget.
        cells: what was tried.
        wanted: the recall.
        upto: the budget with which nothing is shed, if it may be approached.
        done: is called after each run.
    """
    brackets = {}
    for policy in dict.fromkeys(cell.policy for cell in cells):
        own = sorted((one for one in cells if one.policy == policy), key=lambda one: one.rows)
        tried = [(one.rows, one.recall.value) for one in own]
        if upto is not None and tried[-1][0] < upto:
            tried.append((upto, 1.0))
        place = next((place for place, (_, recall) in enumerate(tried) if recall >= wanted), None)
        if place is not None:
            brackets[policy] = (tried[place - 1] if place else (0, 0.0), tried[place])
    if not brackets:
        return None
    policy = min(brackets, key=lambda name: _between(*brackets[name], wanted))
    _refine(archive, exact, cells, policy, brackets[policy], wanted, done)
    enough = [one for one in cells if one.policy == policy and one.recall.value >= wanted]
    return min(enough, key=lambda one: one.rows, default=None)


_Point = tuple[int, float]
"""A budget, and the recall with it."""


def _refine(
    archive: Archive,
    exact: Run,
    cells: list[Cell],
    policy: str,
    bracket: tuple[_Point, _Point],
    wanted: float,
    done: Advance,
) -> None:
    """Close in on the wanted recall from both sides.

    By straight lines, of which the end that stays is pulled towards the other (the Illinois rule):
    recall rises steeply and then hardly, and a line alone would come nearer from one side only.
    """
    (low, below), (high, above) = bracket
    near, stayed = above - wanted, 0
    for _ in range(_REFINED):
        if high - low < 2 or near < _NEAR:
            return
        rows = min(max(_between((low, below), (high, above), wanted), low + 1), high - 1)
        found = _cell(archive, exact, policy, rows, _REPEATED)
        cells.append(found)
        done(1)
        if found.recall.value >= wanted:
            high, above = rows, found.recall.value
            near = above - wanted
            below = wanted - (wanted - below) / 2 if stayed > 0 else below
            stayed = 1
        else:
            low, below = rows, found.recall.value
            above = wanted + (above - wanted) / 2 if stayed < 0 else above
            stayed = -1


def _between(low: _Point, high: _Point, wanted: float) -> int:
    """The budget at which a line through two points reaches the wanted recall."""
    rise = high[1] - low[1]
    part = (wanted - low[1]) / rise if rise > 0 else 1.0
    return math.ceil(low[0] + part * (high[0] - low[0]))
