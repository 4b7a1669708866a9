"""Sensor networks: what SNJoin's table of keys is measured by."""

from __future__ import annotations

from collections.abc import Iterator

from streamshed.bench import Measurement, Progress, spilling


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed.bench.run`."""
    yield from spilling.run(quick, progress)
