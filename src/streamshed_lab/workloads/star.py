"""Two streams and a relation through which they join, with importance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed_lab.workloads.arrivals import Ints
from streamshed_lab.workloads.checks import require
from streamshed_lab.workloads.zipf import ranks


@dataclass(frozen=True)
class StarExample:
    """The worked example of section 3.1.1 (Towne, Zhu, Zuzarte, Hou 2007).

    Without a budget there are 15 results of importance 43. With it the most important plan makes 11
    of importance 38, and the most that can be made are 12; the paper's plan for these has
    importance 34.

    Attributes:
        memory: M, half of it for each stream.
        lifetime: m, of a tuple.
    """

    memory: int = 4
    lifetime: int = 4

    def tables(self) -> dict[str, pa.Table]:
        """The streams `r` and `s`: `time`, the joining attribute `a` or `b`, and `importance`."""
        return {
            "r": _stream("a", [1, 0, 1, 0, 2, 5], [5, 1, 4, 8, 3, 2]),
            "s": _stream("b", [1, 3, 3, 8, 3, 5], [1, 5, 2, 6, 4, 3]),
        }

    def relation(self) -> pa.Table:
        """The relation: `a`, `b`, and the times `begin` and `end` between which a row is active."""
        return _relation(
            np.array([0, 1, 0, 4, 1, 5]),
            np.array([3, 5, 8, 5, 3, 8]),
            np.array([-1, -1, -1, -1, -1, 3]),
            [None, None, None, None, 5, None],
        )


@dataclass(frozen=True)
class StarWorkload:
    """The generated data of section 4.1: a tuple in each stream at every time, and a relation.

    The paper gives the distributions and sizes, but neither the number of values nor the scale of
    importance. With those taken here its optimum for M = 4 and m = 10 (2184 results of importance
    4107; by size 2221 of 3797) comes out about as large.

    Attributes:
        tuples: of each stream, N; the times are 0, 1, 2, …
        keys: how many values the joining attributes have, numbered from 0; or for each stream how
            many its own has.
        facts: rows of the relation that are active at a time, |F|: pairs of values, equally likely,
            none twice.
        skews: of the Zipf distribution of the values of `r` and `s`; 0 is uniform. Which value has
            which rank is drawn.
        levels: importance goes from 1 to this, in as many whole steps. All tuples of a value have
            the same: in each stream the values are ordered by how often they come, and the most
            frequent part of them has importance 1, the next one 2, and so on.
        churn: the part of the relation's rows that are deleted while the streams run, each at a
            time of its own, at which another row is inserted.
        seed: of all randomness.

    Examples:
        >>> work = StarWorkload(tuples=5, keys=3, facts=4, churn=0.5, seed=1)
        >>> work.tables()["r"].to_pydict()
        {'time': [0, 1, 2, 3, 4], 'a': [2, 1, 0, 1, 1], 'importance': [7, 1, 4, 1, 1]}
        >>> work.relation().to_pylist()[0]
        {'a': 0, 'b': 0, 'begin': -1, 'end': 0}
    """

    tuples: int = 5_000
    keys: int | tuple[int, int] = 100
    facts: int = 250
    skews: tuple[float, float] = (1.0, 0.0)
    levels: int = 10
    churn: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        require(self.tuples >= 1, "tuples", self.tuples, "1 or more")
        require(min(self.domains) >= 1, "keys", self.keys, "1 or more")
        require(
            len(self.skews) == 2 and min(self.skews) >= 0, "skews", self.skews, "two, 0 or more"
        )
        require(self.levels >= 1, "levels", self.levels, "1 or more")
        require(0 <= self.churn <= 1, "churn", self.churn, "from 0 to 1")
        most = self.domains[0] * self.domains[1] - self.replaced
        require(
            0 <= self.facts <= most, "facts", self.facts, f"from 0 to {most}, as no pair is twice"
        )

    @property
    def domains(self) -> tuple[int, int]:
        """How many values the attributes of `r` and of `s` have."""
        return (self.keys, self.keys) if isinstance(self.keys, int) else self.keys

    @property
    def replaced(self) -> int:
        """How many rows of the relation are deleted while the streams run."""
        return round(self.churn * self.facts)

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams.

        Returns:
            `r` and `s`: `time` (int64), the joining attribute `a` or `b` (int64), and `importance`
            (int64).
        """
        tables = {}
        for number, (name, attribute) in enumerate([("r", "a"), ("s", "b")]):
            generator = np.random.default_rng([self.seed, 5, number])
            keys = self.domains[number]
            ranking = generator.permutation(keys)
            drawn = ranks(generator.random(self.tuples), keys, self.skews[number])
            values = ranking[drawn]
            frequency = np.bincount(values, minlength=keys)
            rarest_last = np.lexsort((generator.random(keys), -frequency))
            level = np.empty(keys, np.int64)
            level[rarest_last] = 1 + np.arange(keys) * self.levels // keys
            tables[name] = _stream(attribute, values, level[values])
        return tables

    def relation(self) -> pa.Table:
        """Generate the relation.

        Returns:
            `a` and `b` (int64), and the interval from `begin` to `end` (int64) in which a row is
            active: from -1 if it was there before the streams, to null if it is never deleted.
        """
        generator = np.random.default_rng([self.seed, 6])
        replaced = self.replaced
        one, other = self.domains
        pairs = generator.choice(one * other, self.facts + replaced, replace=False)
        changes = np.sort(generator.integers(0, self.tuples, replaced))
        begin = np.concatenate([np.full(self.facts, -1), changes])
        end = [*changes.tolist(), *[None] * self.facts]
        return _relation(pairs // other, pairs % other, begin, end)


def _stream(attribute: str, values: npt.ArrayLike, importance: npt.ArrayLike) -> pa.Table:
    columns = {attribute: np.asarray(values), "importance": np.asarray(importance)}
    return pa.table({"time": np.arange(len(columns[attribute])), **columns})


def _relation(a: Ints, b: Ints, begin: Ints, end: list[int | None]) -> pa.Table:
    return pa.table({"a": a, "b": b, "begin": begin, "end": pa.array(end, pa.int64())})
