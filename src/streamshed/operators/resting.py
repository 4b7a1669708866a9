"""When the trials of policies rest: they cost, and mostly say what they said before."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

AWAKE = 32
"""Rounds for which the policies are tried before they rest."""
FIRST_REST, LONGEST_REST = 64, 256
"""Rounds of rest. Each is twice as long as the one before, until something changes."""
USUAL = 0.75
"""What the results of a round count against those of the next one."""
CHANGE, NOISE = 0.25, 4.0
"""By what part of the usual results, and by how many times their chance variation, a round must
differ to end a rest."""


@dataclass
class Rest:
    """Whether the trials rest, and for how long.

    Attributes:
        awake: rounds since they began, ended a rest, or another policy took over.
        left: rounds that are left of a rest; 0 while the policies are tried.
        length: rounds of the next rest.
        usual: the results that the join makes in a round, as they were before the rest.

    Examples:
        >>> rest = Rest()
        >>> for _ in range(AWAKE):
        ...     rest.round_ends(made=1000, switched=False)
        >>> rest.left, rest.length
        (64, 128)
        >>> rest.round_ends(made=100, switched=False)  # something has changed
        >>> rest.left, rest.length
        (0, 64)
    """

    awake: int = 0
    left: int = 0
    length: int = field(default_factory=lambda: FIRST_REST)
    usual: float = 0.0

    def round_ends(self, made: int, switched: bool) -> None:
        """A round has ended.

        Args:
            made: the results that the join has made in it.
            switched: whether another policy has taken over.
        """
        if self.left > 0:
            self.left -= 1
            if abs(made - self.usual) > max(CHANGE * self.usual, NOISE * math.sqrt(self.usual)):
                self.left, self.length = 0, FIRST_REST
            return
        before = USUAL * self.usual if self.awake else USUAL * made
        self.usual = before + (1 - USUAL) * made
        self.awake += 1
        if switched:
            self.awake, self.length = 0, FIRST_REST
        elif self.awake == AWAKE:
            self.awake, self.left = 0, self.length
            self.length = min(2 * self.length, LONGEST_REST)
