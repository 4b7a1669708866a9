"""SNJoin: joins of sensor networks.

Where the paper is silent, this was decided:

* **Disk support** (section 7.1): with the paper's Zipf parameters of 1 to 5 the complete join of 2
  streams makes tens of millions of results, and that of 20 more than can be counted. Here a key
  comes once to every stream, in any order, within half a window, so that there is one result for
  each key however many streams there are. Memory is half of what all windows together hold. Without
  disk support rows leave at random. Rates are results by the time of the streams: the processor is
  busy for a small part of it, with a disk as without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from streamshed.experiments.report import Claim, Progress, Report, run_figures
from streamshed.experiments.snjoin.spilling import FULL, QUICK, Scale, disk_support

TITLE = "SNJoin: joins of sensor networks"

FIGURES: Mapping[str, Callable[[Scale, Report], list[Claim]]] = {"disk": disk_support}


def run(
    out: Path,
    quick: bool = False,
    figures: Iterable[str | int] | None = None,
    progress: Progress | None = None,
) -> list[Claim]:
    """Run the experiments, write tables, charts and a verdict, and return the claims.

    Args:
        out: the folder to fill.
        quick: fewer seeds and settings, in less than a minute.
        figures: which of `FIGURES` to run; all of them if not given.
        progress: is told, line by line, what is being done.

    Raises:
        StreamshedError: if a figure is not among those that can be run.
    """
    report = Report(Path(out), TITLE, progress or (lambda line: None))
    return run_figures(report, FIGURES, QUICK if quick else FULL, figures)
