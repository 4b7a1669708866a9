"""What is said of relevance feedback, and the matrices that it fills (SNJoin, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamshed.errors import StreamshedError, listed
from streamshed.kernels.relevance import (
    EVEN,
    PLAIN,
    SHARE,
    classes_of,
    learn_notes,
    visits_of,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

READINGS = {"share": SHARE, "plain": PLAIN, "even": EVEN}
WEIGHTS = ("presence", "share")


@dataclass(frozen=True)
class Relevance:
    """Whom to probe for a row, learned from who took part in results.

    Ali, Aref, Kamel (2005), section 4. Each party keeps a matrix: of each class of values, how
    relevant each other party is to its rows. It begins with a base value, and after each result
    goes up or down, for those who were probed, by their weight in the result less the mean weight.

    Attributes:
        classes: of values, by hash: n of definition 3.
        base: the relevance of one of whom nothing is known.
        floor: the least relevance, so that one who is forgotten can return. (The paper has none:
            there relevance falls below zero, and nobody returns.)
        chance: how relevance becomes the chance to be probed. `"share"`: definition 4 to the
            letter, relevance by the sum over all others, so that one other is probed in the mean.
            `"plain"`: relevance itself. `"even"`: relevance by the mean over all others, at most 1.
        weights: `"presence"`: the part of a row's results in which a party has a member. (All or
            none, as each result has a member of every stream that matches.) `"share"`: the part of
            all matches that it found.

    Examples:
        >>> Relevance(base=0.5).matrix(owners=2, parties=3).shape
        (2, 64, 3)
    """

    classes: int = 64
    base: float = 0.5
    floor: float = 0.02
    chance: Literal["share", "plain", "even"] = "share"
    weights: Literal["presence", "share"] = "presence"

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.classes < 1:
            raise StreamshedError(f"classes is {self.classes!r}; give a whole number of at least 1")
        if not 0 < self.floor <= self.base <= 1:
            raise StreamshedError(
                f"floor is {self.floor!r} and base {self.base!r}; give 0 < floor <= base <= 1"
            )
        for name, said, known in (
            ("chance", self.chance, tuple(READINGS)),
            ("weights", self.weights, WEIGHTS),
        ):
            if said not in known:
                raise StreamshedError(f"{name} is {said!r}; there are {listed(known)}")

    @property
    def reading(self) -> int:
        """The number under which kernels know `chance`."""
        return READINGS[self.chance]

    def matrix(self, owners: int, parties: int) -> Floats:
        """Matrices of those who know nothing yet, one for each owner."""
        return np.full((owners, self.classes, parties), self.base)

    def classes_of(self, hashed: Words) -> Ints:
        """The class of each value, by its hash."""
        found: Ints = classes_of(hashed, self.classes)
        return found

    def visits(
        self, matrices: Floats, own: Ints, hashed: Words, times: Ints, seed: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Draw whom many rows probe.

        Args:
            matrices: of each party.
            own: the party of each row.
            hashed: the hash of its value.
            times: its time.
            seed: of the draws, which depend on value, time and party besides.

        Returns:
            The numbers of the rows that are sent to others, each as often as it is, and to whom.
        """
        words = times.view(np.uint64)
        rows, parties = visits_of(matrices, own, hashed, words, self.reading, seed)
        return rows, parties

    def learn(self, matrices: Floats, probed: Ints, matched: Ints) -> None:
        """Take in, in place, what became of many rows: one note for each party and class.

        Args:
            matrices: of each party.
            probed: by (party that was probed, party that probed, class), how many rows.
            matched: how many of them found a match.
        """
        learn_notes(matrices, probed, matched, self.floor)
