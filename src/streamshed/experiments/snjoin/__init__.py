"""Multi-way joins for sensor-network databases: figures 8 and 9.

Ali, Aref and Kamel (2005). Where the paper is silent, this was decided:

* **The space** (figures 8 and 9): a larger network has a larger field, of the same density. With a
  field of one size the number of clusters would hardly depend on the number of sensors, and the
  paper's network of 200 sensors would not lie below all others.
* **The cluster range**, "10 % of the total sensor space": a square of that length is a tenth of the
  field of 2,000 sensors. HEED then makes one cluster of 200 sensors, about five of 1,000 and nine
  of 2,000. Read as a length, or as the area of a circle, it makes 70 or 22 of them.
* **Probing sequences** are drawn by definition 4 to the letter: the chances of all other clusters
  sum up to 1, so that one of them is probed in the mean, whatever is learned. With *D* clusters
  that alone saves 1 − 2/*D* of the probes. Learning decides which one it is: it shows in the width.
* **Values** are as section 7 says: Zipf, with a skew of 1 to 5, over 1,000 ranks. Sensors that are
  close see the same values: one reaches over three quarters of the cluster range.
* **Output**: what an arrival adds is one update: its value, and all members that match. (As tuples
  of definition 2 they are more than can be counted.) The output rate is that of members.
* **Heads** do 930 visits a second, with room for 16 readings; requests go first, so that what is
  begun comes to an end. The number is read off the paper's column of drop rates, in points: of
  1,400 readings a second, 33.6 % are too many. A hop takes 0.1 s.
* **Probes and bytes** are per reading that was processed. The paper counts bytes per second; but
  with drop rates as the paper's, heads without feedback send no more per second than they can.
  Columns are measured with such heads, and with heads without limits, where all readings are
  processed.
* **Distributed MJoin**: a visit probes a table for each sensor of the cluster. By figure 6, MJoin
  with 2,000 tables takes 1.6 times the time of SNJoin with one: so one table more is taken to cost
  0.0003 of a visit.
* **Drop rates** are compared as differences, in points; everything else as relative reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from streamshed.experiments.report import Claim, Progress, Report, run_figures
from streamshed.experiments.snjoin.feedback import figure_8, figure_9
from streamshed.experiments.snjoin.field import FULL, QUICK, Scale

TITLE = "Multi-way joins for sensor-network databases (Ali, Aref, Kamel 2005)"

FIGURES: Mapping[str, Callable[[Scale, Report], list[Claim]]] = {
    "8": figure_8,
    "9": figure_9,
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
        quick: fewer seeds and settings, in about a minute.
        figures: which of `FIGURES` to run; all of them if not given.
        progress: is told, line by line, what is being done.

    Raises:
        StreamshedError: if a figure is not among those that can be run.
    """
    report = Report(Path(out), TITLE, progress or (lambda line: None))
    return run_figures(report, FIGURES, QUICK if quick else FULL, figures)
