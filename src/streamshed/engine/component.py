"""What the parts of a running join have in common: a state of arrays that grows and is saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamshed.kernels.core import Field, Memory, Shape


class Component:
    """A part of a running join.

    Attributes:
        prefix: what the names of its arrays begin with.
        state: the arrays as the loop takes them, whose type picks the kernels.
        shape: how much room the arrays have.
        memory: where they are.
    """

    prefix = ""
    state: Any

    def __init__(self, shape: Shape, memory: Memory) -> None:
        self.shape, self.memory = shape, memory

    def layout(self) -> dict[str, Field]:
        """The arrays: how many elements, of which kind, and whether a checkpoint keeps them."""
        return {}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name, each with one dimension."""
        return {name: getattr(self.state, name) for name in self.layout()}

    def kept_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays as a checkpoint keeps them: not what was never in use."""
        return self.arrays()

    def replace(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Let the state have other arrays."""
        self.state = self.state._replace(**arrays)

    def grow(self, shape: Shape, rows: int) -> None:
        """Let the arrays grow so that the loop never runs out of room.

        Args:
            shape: the room that they need.
            rows: that will come.
        """
        self.shape = shape
        now = self.arrays()
        grown = {
            name: field.grown(now[name], shape, self.memory, self.prefix + name)
            for name, field in self.layout().items()
        }
        if any(grown[name] is not now[name] for name in grown):
            self.replace(grown)

    def attach(self, shape: Shape, memory: Memory, saved: dict[str, Any]) -> None:
        """Take over the arrays that another process has left, and what `save` said there.

        Args:
            shape: the room that they have.
            memory: where they are, and grow from here on: whoever comes next looks there.
            saved: what `save` said.
        """
        self.load(saved)
        self.shape, self.memory = shape, memory
        layout = self.layout()
        self.replace(
            {name: memory.open(self.prefix + name, np.dtype(f.dtype)) for name, f in layout.items()}
        )

    def nbytes(self, used: Shape) -> int:
        """The bytes in use, given the room that is in use."""
        return used.nbytes(self.layout())

    def save(self) -> dict[str, Any]:
        """What a checkpoint keeps besides arrays, as JSON can say it."""
        return {}

    def load(self, saved: dict[str, Any]) -> None:
        """Take up what `save` said."""
