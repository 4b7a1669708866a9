"""Verdicts as data: what a paper says, how it was read, what was measured, and whether it holds.

A paper leaves much open. A *reading* decides what it leaves open (how far apart a key's rows are;
which rows a statistic counts); a *cell* is a place where the paper itself looks (a size of the
memory, a number of streams). A claim holds under a reading if it holds in all of its cells. A
number of the paper is compared within a tolerance on both sides: more than that is not what the
paper says either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, NamedTuple

TOLERANCE = 0.25
"""The part by which a number may be off, up or down, unless a claim says another."""


QUARTER = "A number agrees if it is off by at most a quarter, on either side."
CLEARLY = 1.2
"""By how many times more there must be of what a paper calls significantly, much or by far more:
what differs by less than a fifth counts as alike."""


class Number(NamedTuple):
    """What was measured of a number, and within what it is to be; None is no limit."""

    value: float
    low: float | None = None
    high: float | None = None

    def __bool__(self) -> bool:
        """Whether it is within its limits."""
        above = self.low is None or self.value >= self.low
        return above and (self.high is None or self.value <= self.high)


def near(value: float, said: float, part: float = TOLERANCE) -> Number:
    """A number that is to be what a paper says, within a part of it.

    Examples:
        >>> near(0.7, 0.65)
        Number(value=0.7, low=0.4875, high=0.8125)
        >>> bool(near(5.61, 0.65))
        False
    """
    width = abs(said) * part
    return Number(value, round(said - width, 12), round(said + width, 12))


class Reading(NamedTuple):
    """How a paper is read, as pairs of a question and its answer; and a cell of the paper."""

    said: tuple[tuple[str, str], ...] = ()
    cell: str = ""

    def at(self, cell: str) -> Reading:
        """The same reading, in a cell."""
        return Reading(self.said, cell)

    def also(self, **said: object) -> Reading:
        """The same reading, with answers to more questions."""
        return Reading((*self.said, *reading(**said).said), self.cell)

    def __str__(self) -> str:
        answers = [f"{name} {answer}" for name, answer in self.said]
        return ", ".join([*answers, self.cell] if self.cell else answers)


def reading(**said: object) -> Reading:
    """A reading of what a paper leaves open.

    Examples:
        >>> str(reading(spread="5 s", orders="all").at("500 rows"))
        'spread 5 s, orders all, 500 rows'
    """
    return Reading(tuple((name, str(answer)) for name, answer in said.items()))


@dataclass(frozen=True)
class Cell:
    """A place where a claim was tried."""

    name: str
    holds: bool
    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a claim under one reading."""

    reading: dict[str, str]
    cells: tuple[Cell, ...]

    @property
    def holds(self) -> bool:
        """Whether it holds in all cells."""
        return all(cell.holds for cell in self.cells)


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and what became of it here.

    Attributes:
        figure: where the paper makes it, or of what it is said.
        says: the statement, in the paper's words where these are short.
        measured: what was measured here, as Markdown.
        outcomes: what became of it, reading by reading.
        why: the explanation, where one is needed.
        tolerance: what counts as agreeing, in words.
        ours: whether it is not the paper's, but about what we add to it.
    """

    figure: str
    says: str
    measured: str
    outcomes: tuple[Outcome, ...]
    why: str = ""
    tolerance: str = ""
    ours: bool = False

    @property
    def holds(self) -> bool:
        """Whether it holds under every reading tried."""
        return all(outcome.holds for outcome in self.outcomes)

    def holds_under(self, said: Mapping[str, str]) -> bool:
        """Whether it was tried under a reading, and holds in all that agrees with it."""
        met = [
            outcome
            for outcome in self.outcomes
            if all(said.get(name, answer) == answer for name, answer in outcome.reading.items())
        ]
        return bool(met) and all(outcome.holds for outcome in met)

    @property
    def outcome(self) -> str:
        """How much of it holds, in words."""
        held = sum(outcome.holds for outcome in self.outcomes)
        if held == len(self.outcomes):
            return "holds"
        if len(self.outcomes) > 1:
            return f"holds under {held or 'none'} of {len(self.outcomes)} readings"
        cells = self.outcomes[0].cells
        there = sum(cell.holds for cell in cells)
        return f"fails (holds in {there} of {len(cells)} cells)" if there else "fails"

    @property
    def readings(self) -> str:
        """Which answers it needs to hold, or which were tried if it holds under none, in words.

        Examples:
            >>> tried = {reading(spread=s, orders=o): o == "2" for s in "59" for o in "12"}
            >>> judge("5", "A beats B", "", tried).readings
            'with orders 2'
            >>> judge("5", "A beats B", "", dict.fromkeys(tried, False)).readings
            'tried: spread 5 or 9; orders 1 or 2'
        """
        held = [outcome for outcome in self.outcomes if outcome.holds]
        if len(held) == len(self.outcomes):
            return ""
        answers = _answers(self.outcomes)
        if not held:
            return "tried: " + (_in_words(answers) or "one reading only")
        needed = {
            name: among for name, among in _answers(held).items() if len(among) < len(answers[name])
        }
        return f"with {_in_words(needed)}" if needed else ""

    def to_json(self) -> dict[str, Any]:
        """The claim as data, with what follows from it."""
        found = asdict(self) | {"holds": self.holds, "outcome": self.outcome}
        for told, outcome in zip(found["outcomes"], self.outcomes, strict=True):
            told["holds"] = outcome.holds
            told["cells"] = [
                {name: value for name, value in cell.items() if value is not None}
                for cell in told["cells"]
            ]
        return found

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Claim:
        """The claim that `to_json` wrote."""
        outcomes = tuple(
            Outcome(dict(one["reading"]), tuple(Cell(**cell) for cell in one["cells"]))
            for one in told["outcomes"]
        )
        plain = ("figure", "says", "measured", "why", "tolerance", "ours")
        return cls(outcomes=outcomes, **{name: told[name] for name in plain})


def judge(
    figure: str,
    says: str,
    measured: str,
    tried: Mapping[Any, bool | Number],
    why: str = "",
    tolerance: str = "",
    ours: bool = False,
) -> Claim:
    """Make a claim of what was found in each cell of each reading.

    Args:
        figure: where the paper makes it.
        says: what.
        measured: in words and tables.
        tried: for each reading and cell (a plain name is a cell of the only reading) whether the
            claim holds there, or the number by which that is judged.
        why: it is so.
        tolerance: what counts as agreeing.
        ours: whether the claim is not the paper's.

    Examples:
        >>> near, far = reading(spread="near"), reading(spread="far")
        >>> claim = judge("5", "A beats B", "A 3, B 2", {near: True, far: False})
        >>> claim.holds, claim.holds_under({"spread": "near"}), claim.outcome
        (False, True, 'holds under 1 of 2 readings')
    """
    found: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for key, result in tried.items():
        where = key if isinstance(key, Reading) else Reading(cell=key)
        limits = result._asdict() if isinstance(result, Number) else {}
        found.setdefault(where.said, []).append(Cell(where.cell, bool(result), **limits))
    outcomes = tuple(Outcome(dict(said), tuple(cells)) for said, cells in found.items())
    return Claim(figure, says, measured, outcomes, why, tolerance, ours)


@dataclass(frozen=True)
class Tally:
    """How many claims of a paper hold.

    Attributes:
        claims: of the paper, that were tried.
        always: those that hold under every reading.
        plain: those that hold under what is the default here.
        best: those that hold under the best single reading.
        reading: that reading.
        sometimes: those that hold under some reading.
        cells: held and tried, over all claims and readings.
    """

    claims: int
    always: int
    plain: int
    best: int
    reading: dict[str, str] = field(default_factory=dict)
    sometimes: int = 0
    cells: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        how = ", ".join(f"{name} {answer}" for name, answer in self.reading.items())
        single = f"{self.best} under the best single reading ({how}), " if how else ""
        return (
            f"{self.claims} claims: {self.plain} hold as we read the paper at first, {single}"
            f"{self.sometimes} under some reading; {self.cells[0]} of {self.cells[1]} cells"
        )


def tally(claims: Sequence[Claim], plain: Mapping[str, str] | None = None) -> Tally:
    """Count the claims of a paper that hold; those of our own do not count.

    Args:
        claims: of one paper.
        plain: the answers that were given at first to what the paper leaves open.

    Examples:
        >>> one = judge("5", "A", "", {reading(spread=s): s == "5" for s in ("5", "9")})
        >>> two = judge("6", "B", "", {reading(spread=s): s == "9" for s in ("5", "9")})
        >>> print(tally([one, two, judge("7", "C", "", {"all": True})]))
        3 claims: 1 hold as we read the paper at first, 2 under the best single reading
        (spread 5), 3 under some reading; 3 of 5 cells
    """
    counted = [claim for claim in claims if not claim.ours]
    cells = [cell for c in counted for outcome in c.outcomes for cell in outcome.cells]
    asked = [sorted({name for o in claim.outcomes for name in o.reading}) for claim in counted]
    chosen: dict[str, str] = {}
    held = 0
    for group in _groups(asked):
        best, most = _best_of([(counted[number], asked[number]) for number in group])
        chosen |= best
        held += most
    best = {name: chosen[name] for name in _answers(o for c in counted for o in c.outcomes)}
    return Tally(
        len(counted),
        sum(claim.holds for claim in counted),
        sum(claim.holds_under(plain or {}) for claim in counted),
        held,
        best,
        sum(any(outcome.holds for outcome in claim.outcomes) for claim in counted),
        (sum(cell.holds for cell in cells), len(cells)),
    )


def _best_of(claims: Sequence[tuple[Claim, Sequence[str]]]) -> tuple[dict[str, str], int]:
    """The reading under which most claims hold, each with what is asked for it, and how many."""
    known: dict[tuple[int, tuple[str, ...]], bool] = {}
    best, held = {}, -1
    for said in _readings([claim for claim, _ in claims]):
        under = 0
        for number, (claim, names) in enumerate(claims):
            at = number, tuple(said[name] for name in names)
            if at not in known:
                known[at] = claim.holds_under(said)
            under += known[at]
        if under > held:
            best, held = said, under
    return best, held


def _groups(asked: Sequence[Sequence[str]]) -> list[list[int]]:
    """Claims, by number, of which no two in different groups have a question in common.

    Examples:
        >>> _groups([["spread"], ["orders"], ["orders", "rate"], []])
        [[0], [1, 2], [3]]
    """
    groups: list[tuple[set[str], list[int]]] = []
    for number, names in enumerate(asked):
        common = [group for group in groups if group[0].intersection(names)]
        groups = [group for group in groups if group not in common]
        together = sorted(n for _, numbers in common for n in numbers)
        groups.append(({*names}.union(*(names for names, _ in common)), [*together, number]))
    return sorted(numbers for _, numbers in groups)


def _answers(outcomes: Iterable[Outcome]) -> dict[str, list[str]]:
    """The answers of some readings, by question, each once."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        for name, answer in outcome.reading.items():
            if answer not in found.setdefault(name, []):
                found[name].append(answer)
    return found


def _in_words(answers: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{name} {' or '.join(among)}" for name, among in answers.items())


def _readings(claims: Iterable[Claim]) -> Iterator[dict[str, str]]:
    """All combinations of answers to what the paper leaves open."""
    answers = _answers(outcome for claim in claims for outcome in claim.outcomes)
    for chosen in product(*answers.values()):
        yield dict(zip(answers, chosen, strict=True))
