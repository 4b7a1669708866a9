"""Multi-way joins for sensor-network databases: figures 5, 6, 7 and 10.

Ali, Aref, Kamel (2005). The paper's figures are not to be had as numbers, so that its sentences are
what is tested. Where it is silent, this was decided:

* **Values**: how many there are, and whether sensors share popular ones, is not said. Shared for
  ever, with skews of 1 to 5, they would make more results in a window than can be counted. So
  either each sensor has its own (*readings*, *own popular values*: with 20 streams no value is then
  in all windows, and a complete join has no results), or values last for a while (*values move on*,
  for about 40 readings), or every event is reported once by nearly every sensor (*events*). See
  `streamshed.workloads.SensorWorkload` and `EventWorkload`.
* **The operators**: SNJoin is the engine's keyed operator, without a budget. MJoin and the trees
  are those of `streamshed.baselines`, compiled as well. Trees are left-deep, in the order of the
  streams. MJoin chooses the order of its probes every 1,024 tuples; the choice for every tuple that
  figure 4 counts is measured too.
* **Delay** is processor time per tuple; the least of some rounds.
* **Drop rate and output** (5b, 5c, 6): every operator is given the processor time that SNJoin takes
  for all tuples. What the others cannot take in that time is dropped at random beforehand.
* **The set changes** (figure 7): in the course of time as many sensors are added as removed, so
  that the static set can be compared with. MJoin and trees are rearranged every minute in which
  the set has changed; a sensor's table stays until its last row has expired.
* **Streams** have as many tuples as fill the window and are timed, not 10,000 each.
* **Real sensors** (figure 6): temperatures of a laboratory, rounded to a degree, a mean every ten
  minutes, joined within five. Left out where there is no such data.

Disk support, the last part of figure 5, and SNJoin* (figures 8 and 9) are not here yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from streamshed.experiments.report import Claim, Progress, Report, run_figures
from streamshed.experiments.snjoin.complete import figure_5
from streamshed.experiments.snjoin.features import figure_10
from streamshed.experiments.snjoin.running import FULL, QUICK, Scale
from streamshed.experiments.snjoin.variable import figure_6, figure_7

TITLE = "Multi-way joins for sensor-network databases (Ali, Aref, Kamel 2005)"

FIGURES: Mapping[str, Callable[[Scale, Report], list[Claim]]] = {
    "5": figure_5,
    "6": figure_6,
    "7": figure_7,
    "10": figure_10,
}


def run(
    out: Path,
    quick: bool = False,
    figures: Iterable[str | int] | None = None,
    progress: Progress | None = None,
) -> list[Claim]:
    """Run the experiments, write tables, charts and a verdict, and return the claims.

    Args:
        out: the folder to fill.
        quick: fewer settings, in less than a minute.
        figures: which of `FIGURES` to run; all of them if not given.
        progress: is told, line by line, what is being done.

    Raises:
        StreamshedError: if a figure is not among those that can be run.
    """
    report = Report(Path(out), TITLE, progress or (lambda line: None))
    return run_figures(report, FIGURES, QUICK if quick else FULL, figures)
