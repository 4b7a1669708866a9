"""Which policy and budget reach a wanted recall: an archive replayed under many of them.

Every cell of policies and budgets is a run of the join over the archive, and its recall is that of
its results against those of the join without a budget. The loop is compiled and holds no lock of
Python's, so that runs go side by side in threads. What a join makes while its windows fill for the
first time is left out, as a budget is not felt yet; and so is the time in which policies learn.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.arguments import fraction, positive
from streamshed.charts import Grid, write_html
from streamshed.engine.build import build_operator
from streamshed.engine.operator import Operator
from streamshed.errors import InputError, SpecError, StreamshedError, listed
from streamshed.estimates import Share
from streamshed.join import Join, spec_of
from streamshed.kernels.core import NEWEST
from streamshed.ledger import Keys, Ledger
from streamshed.plan.capabilities import POLICIES, kind_of
from streamshed.plan.plan import Plan
from streamshed.plan.resolve import make_plan
from streamshed.policies import by_name
from streamshed.replay import NOWHERE, Order, count, open_inputs
from streamshed.running import with_table
from streamshed.spec import Budget, Spec

if TYPE_CHECKING:
    import altair as alt

_TRIED = ("density", "output", "existence", "sketch", "random", "oldest")
_MOST = 5
"""Policies that are tried unless others are named: the first so many of these that fit the join."""
_PARTS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7)
"""Budgets that are tried, as parts of the most rows that the join holds without one."""
_BLOCKS = 64
"""Parts of the archive whose recalls tell how far the recall varies."""
_SECONDS = 45.0
"""How long all runs together may take, if a sample of keys can make them shorter."""
_FEWEST = 20_000
"""Rows that a sample of keys has at least."""
_REFINED = 10
"""Further runs that close in on the wanted recall, at most."""
_NEAR = 0.002
"""How close to it is close enough."""
_DRIFT = 0.04
"""Halves of an archive whose recalls differ by more are said to drift."""
_CLOSE = 0.02
"""Intervals of recall that reach farther to one side are said to be wide."""
_BURST = 0.5
"""A part of the archive that makes more of the results is said to."""
_STRETCHES = 4
"""Stretches of the archive that an interval needs at least."""


@dataclass(frozen=True)
class Cell:
    """What one policy makes of one budget.

    Attributes:
        policy: its name.
        rows: the budget: rows of all streams together.
        nbytes: the memory of the join at that budget, with the columns of rows.
        recall: the part of the results that was made, with its 95 % interval by parts of the
            archive.
        keys: the part of the keys with a result that have one; None if they are not counted.
        seconds: the time of a core that the run took.
        halves: the recall in the earlier and in the later half of what was measured.
    """

    policy: str
    rows: int
    nbytes: int
    recall: Share
    keys: Share | None
    seconds: float
    halves: tuple[float, float] = (1.0, 1.0)

    @property
    def drifts(self) -> bool:
        """Whether recall differs more over the archive than its interval allows for."""
        allowed = max(_DRIFT, (self.recall.high - self.recall.low) / 2)
        return abs(self.halves[0] - self.halves[1]) > allowed


@dataclass(frozen=True)
class Tuning:
    """What tuning has found; `print` shows it as a table.

    Attributes:
        join: the join with the policy and the budget that are recommended.
        wanted: the recall that was wanted.
        best: the cell that is recommended; None if only the exact join reaches that recall.
        cells: all that was tried.
        rows: the most rows that the join holds without a budget.
        nbytes: the memory that it needs for them, with their columns.
        results: how many results it makes.
        sample: the part of the keys on which all this was tried.
        burst: the part of the results that one part of the archive makes, the one with most.
    """

    join: Join
    wanted: float
    best: Cell | None
    cells: Sequence[Cell]
    rows: int
    nbytes: int
    results: int
    sample: float = 1.0
    burst: float = 0.0

    def to_table(self) -> pa.Table:
        """One row for each cell."""

        def part(share: Share | None, name: str) -> float | None:
            return None if share is None else getattr(share, name)

        columns: dict[str, list[Any]] = {
            "policy": [cell.policy for cell in self.cells],
            "rows": [cell.rows for cell in self.cells],
            "bytes": [cell.nbytes for cell in self.cells],
        }
        for of in ("recall", "keys"):
            for name in ("value", "low", "high"):
                head = of if name == "value" else f"{of}_{name}"
                columns[head] = [part(getattr(cell, of), name) for cell in self.cells]
        return pa.table(columns)

    def _said(self) -> list[str]:
        """What the exact join needs, and how much of the archive was tried."""
        lines = [
            f"without a budget: {self.rows:,} rows at most, {_size(self.nbytes)}; "
            f"{self.results:,} results"
        ]
        if self.sample < 1:
            lines.append(f"from {self.sample:.1%} of the keys, scaled to all of them")
        if self.burst > _BURST:
            lines.append(
                f"{self.burst:.1%} of the results come from one of {_BLOCKS} parts of the archive: "
                "recall is that of this burst, and another burst may have another"
            )
        return lines

    def _grid(self) -> list[list[str]]:
        """The cells as words, with their heads."""
        rows = [
            [
                cell.policy,
                f"{cell.rows:,}",
                _size(cell.nbytes),
                f"{cell.recall}",
                "" if cell.keys is None else f"{cell.keys}",
            ]
            for cell in sorted(self.cells, key=lambda cell: (cell.policy, cell.rows))
        ]
        return [["policy", "rows", "memory", "recall", "keys"], *rows]

    def __str__(self) -> str:
        grid = self._grid()
        wide = [max(len(row[i]) for row in grid) for i in range(len(grid[0]))]
        lines = [
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, wide, strict=True))
            )
            for row in grid
        ]
        return "\n".join([*self._said(), *lines, self.recommendation()])

    def recommendation(self) -> str:
        """What is recommended, in a sentence."""
        if self.best is None:
            return (
                f"for a recall of {self.wanted:.1%} keep all {self.rows:,} rows: no policy reaches "
                "it with fewer that were tried"
            )
        best = self.best
        said = (
            f"for a recall of {self.wanted:.1%}: .keep(total={best.rows}).shed({best.policy!r}), "
            f"{_size(best.nbytes)}, recall {best.recall}"
        )
        if best.drifts:
            early, late = best.halves
            said += (
                f". The data drift: recall was {early:.1%} in the earlier half of what was measured"
                f" and {late:.1%} in the later, and may differ as much in time to come; allow for"
                " it, or tune on a longer archive"
            )
        elif best.recall.high - best.recall.low > 2 * _CLOSE:
            said += (
                f". Recall varies along the archive: in as much time to come it may be"
                f" {best.recall.low:.1%}; allow for it, or tune on a longer archive"
            )
        return said

    def plot(self) -> alt.HConcatChart:
        """Recall against memory for each policy, of results and of keys, as an Altair chart."""
        return _chart(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the chart and the table as an HTML page that needs no network to be seen."""
        head, *rows = self._grid()
        grid = Grid(head, rows, "What was tried")
        write_html(
            Path(path),
            "Recall against memory",
            *self._said(),
            self.recommendation(),
            self.plot(),
            grid,
        )


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
    archive = _Archive.read(spec, data, order, _part(sampled, f"{method}: `sampled`"))
    for name in ("exact", *names):
        archive.warm(None if name == "exact" else name)
    if sample is not None:
        archive = archive.sampled(_part(sample, f"{method}: `sample`"))
    else:
        archive = archive.fitting(names[0], len(names) * len(budgets or _PARTS))
    with _progress(1 + len(names) * len(budgets or _PARTS) + _REFINED) as advance:
        exact = archive.run(None, None)
        advance()
        if exact.made.sum() == 0:
            raise InputError(
                f"{method}: the join makes no results on this archive, so that there is no recall "
                "to tune; check its key and its windows, or give more data"
            )
        tried = budgets or [max(1, round(part * exact.peak / archive.part)) for part in _PARTS]
        sizes = [positive(rows, f"{method}: the budget") for rows in tried]
        cells = list(archive.cells(exact, names, sizes, advance))
        upto = None if budgets else math.ceil(exact.peak / archive.part)
        best = _closest(archive, exact, cells, wanted, upto, advance)
    found = Join(said)
    peak = math.ceil(exact.peak / archive.part)
    found = found.keep(total=peak) if best is None else found.keep(total=best.rows)
    return Tuning(
        found if best is None else found.shed(best.policy),
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


def _checked_policies(spec: Spec, policies: Sequence[str] | None) -> list[str]:
    able = [name for name, no in POLICIES.items() if kind_of(spec) not in no]
    if policies is None:
        return [name for name in _TRIED if name in able][:_MOST]
    for name in policies:
        by_name(name)
        if name not in able:
            raise SpecError(f"tune(): the policy {name!r} is not for this join; use {listed(able)}")
    return list(dict.fromkeys(policies))


@dataclass(frozen=True)
class _Run:
    """One run of the join over the archive."""

    ledger: Ledger
    made: npt.NDArray[np.float64]
    """Results made in each part of the archive."""
    newest: npt.NDArray[np.int64]
    """The newest time at the end of each part."""
    peak: int
    seconds: float


@dataclass(frozen=True)
class _Archive:
    """The inputs in memory, with the columns that counting needs."""

    spec: Spec
    plan: Plan
    tables: Mapping[str, pa.Table]
    width: float
    """Bytes of a row with all columns that the join keeps."""
    part: float = 1.0
    """The part of all rows that are here, where keys are sampled."""
    hashes: Mapping[str, npt.NDArray[np.uint64]] = field(default_factory=dict)

    @classmethod
    def read(cls, said: Spec, data: Mapping[str, Any], order: Order, part: float) -> _Archive:
        """Read the inputs, which are a part of all rows."""
        # Memory is tuned, not work: what bounds that stays out of the way.
        spec = replace(
            said, throttled=None, queue_rows=None, speed=None, spilled=None, aggregation=None
        )
        spec = replace(spec, budget=None, policy=None)
        _, sources = open_inputs(spec, data, order)
        firsts = [next(iter(source.batches()), None) for source in sources]
        sized = [rows for rows in firsts if rows is not None and rows.num_rows]
        if not sized:
            raise InputError("tune(): the inputs have no rows; give an archive that has some")
        width = sum(rows.nbytes for rows in sized) / sum(rows.num_rows for rows in sized)
        lean = spec_of(Join(spec).select("time"))
        plan = make_plan(lean, {source.name: source.schema for source in sources})
        tables = {
            stream.name: pa.Table.from_batches(
                list(source.of(stream.schema).batches()), stream.schema
            ).combine_chunks()
            for stream, source in zip(plan.streams, sources, strict=True)
        }
        return cls(spec, plan, tables, width, part)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(table.num_rows for table in self.tables.values())

    @property
    def chunk(self) -> int:
        """Rows of a stream that are read at once."""
        most: int = max(table.num_rows for table in self.tables.values())
        return max(64, most // _BLOCKS)

    def warm(self, policy: str | None) -> None:
        """Have a loop compiled, on a few rows."""
        few = replace(self, tables={name: t.slice(0, 64) for name, t in self.tables.items()})
        few.run(policy, None if policy is None else 8)

    def fitting(self, policy: str, runs: int) -> _Archive:
        """As many of the keys as let so many runs end in time, each as long as that of a policy."""
        if kind_of(self.spec) not in ("shared key", "streams by a column"):
            return self  # where rows share no key, no part of them joins as the whole does
        first = self.sampled(min(1.0, 5 * _FEWEST / self.rows))
        exact = first.run(None, None)
        one = first.run(policy, max(1, exact.peak // 5))
        taken = (exact.seconds + runs * one.seconds) * self.part / first.part
        part = min(1.0, _SECONDS * (os.cpu_count() or 1) / taken)
        return self if part == 1 else self.sampled(max(part, min(1.0, _FEWEST / self.rows)))

    def sampled(self, part: float) -> _Archive:
        """The rows of a part of the keys."""
        if part == 1:
            return self
        if kind_of(self.spec) not in ("shared key", "streams by a column"):
            raise SpecError(
                f"tune(): `sample` is {part!r}, but the streams share no key by which to sample "
                "them; leave it out"
            )
        hashes = self.hashes or self._hashes()
        kept = {
            name: table.filter(pa.array(_mixed(hashes[name]) < part * 2.0**64))
            for name, table in self.tables.items()
        }
        rows = sum(table.num_rows for table in kept.values())
        if not rows:
            raise SpecError(f"tune(): `sample` is {part!r}, which leaves no rows; give more")
        return replace(self, tables=kept, part=self.part * rows / self.rows, hashes={})

    def _hashes(self) -> dict[str, npt.NDArray[np.uint64]]:
        operator = build_operator(self.plan)
        found = {}
        for position, (name, table) in enumerate(self.tables.items()):
            parts = [
                operator.ingest.read(position, rows, NOWHERE).hash for rows in table.to_batches()
            ]
            found[name] = np.concatenate([np.empty(0, np.uint64), *parts])
        return found

    def run(self, policy: str | None, rows: int | None) -> _Run:
        """Run the join, under a budget or without."""
        spec = self.spec
        if policy is not None and rows is not None:
            spec = replace(spec, budget=Budget(None, rows), policy=by_name(policy))
        made, newest, stored, started = [0], [0], [0], time.thread_time()

        def watch(operator: Operator) -> None:
            made.append(operator.made)
            newest.append(int(operator.core.numbers[NEWEST]))
            stored.append(int(operator.core.pools["held"].sum()))

        ledger = count(spec, self.tables, "arrival", watch, self.chunk)
        peak = max(*stored, sum(stream.stored for stream in ledger.streams.values()))
        seconds = time.thread_time() - started
        made_by_part = np.diff(np.array(made, np.float64))
        return _Run(ledger, made_by_part, np.array(newest[1:], np.int64), peak, seconds)

    def parts_of_window(self, exact: _Run) -> int:
        """The parts of the archive that the longest window has, counted from its beginning."""
        windows = [stream.window for stream in self.plan.streams if stream.window is not None]
        full = exact.newest[:1] + max(windows, default=0)
        return int(np.searchsorted(exact.newest, full)[0])

    def filling(self, exact: _Run) -> int:
        """The parts at the beginning of the archive in which windows fill and policies learn.

        At least half of it, and the longest window, but at most three quarters.
        """
        parts = exact.made.size
        return int(np.clip(self.parts_of_window(exact), parts // 2, 3 * parts // 4))

    def nbytes(self, ledger: Ledger, rows: int) -> int:
        """The memory of a join of all keys that holds so many rows of those here."""
        return round((ledger.state_bytes + ledger.sample_bytes + rows * self.width) / self.part)

    def cells(
        self, exact: _Run, policies: Sequence[str], budgets: Sequence[int], done: Callable[[], None]
    ) -> Iterator[Cell]:
        """Run the join for each policy and budget, as many side by side as there are cores."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            waiting = [
                pool.submit(self.cell, exact, policy, rows)
                for rows in sorted(budgets, reverse=True)
                for policy in policies
            ]
            for finished in as_completed(waiting):
                done()
                yield finished.result()

    def cell(self, exact: _Run, policy: str, rows: int) -> Cell:
        """Run the join with a policy and a budget of rows of all keys."""
        here = max(1, round(rows * self.part))
        run = self.run(policy, here)
        return Cell(
            policy,
            rows,
            self.nbytes(run.ledger, min(here, exact.peak)),
            _recall(run.made, exact.made, self.filling(exact), self.parts_of_window(exact)),
            _keys(run.ledger.keys),
            run.seconds,
            _halves(run.made, exact.made, self.filling(exact)),
        )


def _mixed(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hashes made anew, so that the sample has nothing to do with how keys are told apart."""
    with np.errstate(over="ignore"):
        mixed = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray(mixed ^ (mixed >> np.uint64(32)), np.uint64) * np.uint64(
            0x94D049BB133111EB
        )


def _recall(
    made: npt.NDArray[np.float64], exact: npt.NDArray[np.float64], filling: int, window: int = 1
) -> Share:
    """The part that was made, and the interval in which that of as long a time to come will be.

    The interval is that of a jackknife over stretches of the archive. They are as long as the
    longest window, as parts that share windows have much in common.

    Args:
        made: results made in each part of the archive.
        exact: results of the join without a budget.
        filling: the first parts, in which windows fill; they are left out unless all results are in
            them.
        window: how many parts the longest window has.
    """
    blocks = min(made.size, exact.size)
    first = filling if exact[filling:].sum() > 0 else 0
    some, all_ = made[first:blocks], exact[first:blocks]
    value = float(some.sum() / all_.sum()) if all_.sum() else 1.0
    stretches = min(blocks - first, max(_STRETCHES, (blocks - first) // max(1, window)))
    if stretches < _STRETCHES:
        return Share(value, 0.0, 1.0)
    begins = np.arange(stretches) * (blocks - first) // stretches
    some, all_ = np.add.reduceat(some, begins), np.add.reduceat(all_, begins)
    kept = all_.sum() - all_
    if not (kept > 0).all():
        return Share(value, 0.0, 1.0)
    without = (some.sum() - some) / kept
    spread = math.sqrt((stretches - 1) / stretches * ((without - without.mean()) ** 2).sum())
    # The time to come varies as much again as the time that was measured.
    off = _student(stretches - 1) * math.sqrt(2.0) * spread
    return Share(value, max(0.0, value - off), min(1.0, value + off))


def _halves(
    made: npt.NDArray[np.float64], exact: npt.NDArray[np.float64], filling: int
) -> tuple[float, float]:
    """The recall in the earlier and the later half of what `_recall` measures, by results."""
    blocks = min(made.size, exact.size)
    first = filling if exact[filling:].sum() > 0 else 0
    some, all_ = made[first:blocks], exact[first:blocks]
    middle = int(np.searchsorted(np.cumsum(all_), all_.sum() / 2)) + 1
    parts = (slice(0, middle), slice(middle, None))
    early, late = (
        float(some[part].sum() / all_[part].sum()) if all_[part].sum() else 1.0 for part in parts
    )
    return early, late if all_[middle:].sum() else early


def _student(degrees: int) -> float:
    """How far 95 % of Student's distribution reach, by an expansion from the normal distribution.

    Examples:
        >>> round(_student(3), 1), round(_student(31), 2)
        (3.2, 2.04)
    """
    z, n = 1.96, degrees
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def _keys(keys: Keys | None) -> Share | None:
    if keys is None or not keys.exact.value:
        return None
    made, exact = keys.made, keys.exact
    value = min(1.0, made.value / exact.value)
    low = min(value, made.low / max(exact.high, 1.0))
    return Share(value, low, max(value, min(1.0, made.high / max(exact.low, 1.0))))


def _closest(
    archive: _Archive,
    exact: _Run,
    cells: list[Cell],
    wanted: float,
    upto: int | None,
    done: Callable[[], None],
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
    archive: _Archive,
    exact: _Run,
    cells: list[Cell],
    policy: str,
    bracket: tuple[_Point, _Point],
    wanted: float,
    done: Callable[[], None],
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
        found = archive.cell(exact, policy, rows)
        cells.append(found)
        done()
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


@contextmanager
def _progress(runs: int) -> Iterator[Callable[[], None]]:
    """A progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("tuning", total=runs)
        yield lambda: bar.advance(task)


def _size(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number} bytes"


def _chart(tuning: Tuning) -> alt.HConcatChart:
    try:
        import altair as alt
    except ImportError as error:
        raise StreamshedError(
            "charts need Altair; get it with pip install 'streamshed[charts]'"
        ) from error

    rows = [
        {
            "policy": cell.policy,
            "rows": cell.rows,
            "MB": cell.nbytes / 1e6,
            "part": share.value,
            "low": share.low,
            "high": share.high,
            "of": of,
        }
        for cell in tuning.cells
        for of, share in (("results", cell.recall), ("keys", cell.keys))
        if share is not None
    ]
    kinds = [of for of in ("results", "keys") if any(row["of"] == of for row in rows)]

    def chart(of: str) -> Any:
        base = alt.Chart({"values": [row for row in rows if row["of"] == of]}).encode(
            x=alt.X("MB:Q", scale=alt.Scale(type="log"), title="memory in MB"),
            color=alt.Color("policy:N"),
            tooltip=["policy:N", "rows:Q", "MB:Q", "part:Q", "low:Q", "high:Q"],
        )
        recall = alt.Y("part:Q", axis=alt.Axis(format="%"), title=f"part of the {of} made")
        layers = [
            base.mark_area(opacity=0.15).encode(y="low:Q", y2="high:Q"),
            base.mark_line().encode(y=recall),
            base.mark_point(filled=True).encode(y=recall),
            alt.Chart({"values": [{"wanted": tuning.wanted}]})
            .mark_rule(strokeDash=[4, 4])
            .encode(y="wanted:Q"),
        ]
        if tuning.best is not None and of == "results":
            best = {"MB": tuning.best.nbytes / 1e6, "part": tuning.best.recall.value}
            layers.append(
                alt.Chart({"values": [best]})
                .mark_point(shape="diamond", size=200, strokeWidth=2)
                .encode(x="MB:Q", y="part:Q")
            )
        return alt.layer(*layers).properties(width=420, height=320)

    said = f"Recall against memory for each policy; {tuning.recommendation()}"
    return alt.hconcat(*(chart(of) for of in kinds), description=said)
