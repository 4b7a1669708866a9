"""Measurements of the running engine, each printed in one form.

A benchmark is a module with `run(quick, progress)`, which yields measurements as they are made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from streamshed.errors import StreamshedError, listed, suggestion
from streamshed_lab.modules import lab_module

Progress = Callable[[str], None]

BENCHMARKS = {
    "asked": "streamshed_lab.bench.asked",
    "graph": "streamshed_lab.bench.graph",
    "jobs": "streamshed_lab.bench.jobs",
    "keyed": "streamshed_lab.bench.keyed",
    "nested": "streamshed_lab.bench.nested",
    "policies": "streamshed_lab.bench.policies",
    "scale": "streamshed_lab.bench.scale",
    "snjoin": "streamshed_lab.bench.snjoin",
    "spark": "streamshed_lab.bench.spark",
    "star": "streamshed_lab.bench.star",
    "starting": "streamshed_lab.bench.starting",
}
"""The benchmarks by name, and the modules that run them."""


@dataclass(frozen=True)
class Measurement:
    """One number that was measured, and the bar that it is to reach, if there is one.

    Args:
        name: What was measured, and in which setting.
        value: The number.
        unit: Its unit.
        bar: The number to reach.
        at_most: Whether the value is to stay at or below the bar, instead of at or above it.
        cell: Where it was measured, if it is the worst of several places.

    Examples:
        >>> Measurement("import", 0.05, "s", bar=0.3, at_most=True).holds
        True
        >>> Measurement("loop", 9e6, "rows/s", bar=8e6).to_json()
        '{"name": "loop", "value": 9000000.0, "unit": "rows/s", "bar": 8000000.0, "holds": true}'
    """

    name: str
    value: float
    unit: str
    bar: float | None = None
    at_most: bool = False
    cell: str | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the bar is reached; None where there is none."""
        if self.bar is None:
            return None
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    @property
    def wanted(self) -> str:
        """The bar as one would say it."""
        return "" if self.bar is None else f"{'≤' if self.at_most else '≥'} {shown(self.bar)}"

    def to_json(self) -> str:
        """One line of JSON."""
        said: dict[str, object] = {"name": self.name, "value": self.value, "unit": self.unit}
        if self.bar is not None:
            said |= {"bar": self.bar, "holds": self.holds}
        if self.at_most:
            said["at_most"] = True
        if self.cell is not None:
            said["cell"] = self.cell
        return json.dumps(said, ensure_ascii=False)


def shown(value: float) -> str:
    """A number as people read it.

    Examples:
        >>> [shown(value) for value in (12_345_678.9, 87.4, 1.234, 0.01234)]
        ['12,345,679', '87.4', '1.23', '0.0123']
    """
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def run(name: str, quick: bool, progress: Progress = lambda line: None) -> Iterator[Measurement]:
    """Run a benchmark; its measurements come as they are made.

    Args:
        name: One of `BENCHMARKS`.
        quick: Measure less, within 50 seconds on 2 cores once the kernels are compiled.
        progress: Is told, line by line, what is being done.
    """
    if name not in BENCHMARKS:
        raise StreamshedError(
            f"there is no benchmark {name!r}; there are {listed(BENCHMARKS)}."
            f"{suggestion(name, BENCHMARKS)}"
        )
    found: Iterator[Measurement] = lab_module(BENCHMARKS[name]).run(quick, progress)
    return found
