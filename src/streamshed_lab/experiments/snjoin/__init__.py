"""Multi-way joins for sensor-network databases: figures 5 to 10.

Ali, Aref, Kamel (2005). The paper's figures are not to be had as numbers, so that its sentences are
what is tested. Where it is silent, this was decided:

* **Values**: how many there are, and whether sensors share popular ones, is not said. Shared for
  ever, with skews of 1 to 5, they would make more results in a window than can be counted. So
  either each sensor has its own (*readings*, *own popular ones*: with 20 streams no value is then
  in all windows, and a complete join has no results), or values last for a while (*moving on*,
  for about 40 readings), or every event is reported once by nearly every sensor (*events*). See
  `streamshed_lab.workloads.SensorWorkload` and `EventWorkload`.
* **The operators**: SNJoin is the engine's keyed operator, without a budget, or *bare*: figure 2
  and nothing besides, on the tables that MJoin and the trees of `streamshed_lab.baselines` have.
  All are compiled. Trees are left-deep, in the order of the streams, and store what they make in
  between. MJoin chooses the order of its probes every 1,024 rows; with the costs of figure 4, an
  order for every row and partial results that are formed, it is measured too.
* **One output for each arrival** (step 5 of figure 2), all rows that it meets, not their
  combinations: so the paper's own values, Zipf of 1 to 5, shared by all streams for ever, can be
  run (figures 5 and 6, SNJoin and MJoin; a tree stores the results of every two streams). Of our
  engine these are the outputs of `.factorised()`. In figure 6 the other values are run so too.
* **Delay** is processor time per row; the least of some rounds.
* **Drop rate and output** (5b, 5c, 6): every operator is given the processor time that SNJoin takes
  for all rows. What the others cannot take in that time is dropped at random beforehand.
* **The set changes** (figure 7): in the course of time as many sensors are added as removed, so
  that the static set can be compared with. MJoin and trees are rearranged every minute in which
  the set has changed, or for each sensor that comes or goes (`rearranged`); a sensor's table stays
  until its last row has expired.
* **Streams** have as many rows as fill the window and are timed, not 10,000 each.
* **Real sensors** (figure 6): temperatures of a laboratory, rounded to a degree, a mean every ten
  minutes, joined within five. Left out where there is no such data.
* **Disk support** (the last part of figure 5): with the paper's Zipf parameters of 1 to 5 the
  complete join of 2 streams makes tens of millions of results, and that of 20 more than can be
  counted. Here a key comes once to every stream, in any order, within half a window, so that there
  is one result for each key however many streams there are. Memory is half of what all windows
  together hold. Without disk support rows leave at random. Rates are results by the time of the
  streams: the processor is busy for a small part of it, with a disk as without.

And for SNJoin*, the networks of figures 8 and 9:

* **The space** (figures 8 and 9): a larger network has a larger field, of the same density. With a
  field of one size the number of clusters hardly depends on the number of sensors, and the paper's
  network of 200 sensors does not lie below all others: measured in figure 9 too.
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
  0.0003 of a visit; or nothing; or what it costs the joins of figure 6 here (`table`).
* **Drop rates** are compared as differences, in points; everything else as relative reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar

from streamshed_lab.experiments.report import Paper, Report
from streamshed_lab.experiments.snjoin import field, running, spilling
from streamshed_lab.experiments.snjoin.complete import figure_5
from streamshed_lab.experiments.snjoin.features import figure_10
from streamshed_lab.experiments.snjoin.feedback import figure_8, figure_9
from streamshed_lab.experiments.snjoin.variable import figure_6, figure_7
from streamshed_lab.experiments.verdicts import Claim

TITLE = "Multi-way joins for sensor-network databases (Ali, Aref, Kamel 2005)"


@dataclass(frozen=True)
class Scale:
    """How much is tried: of joins in one place, with and without a disk, and of networks."""

    here: running.Scale
    disk: spilling.Scale
    field: field.Scale


FULL = Scale(running.FULL, spilling.FULL, field.FULL)
QUICK = Scale(running.QUICK, spilling.QUICK, field.QUICK)

Part = TypeVar("Part")
Figure = Callable[[Scale, Report], list[Claim]]


def _with(part: str, figure: Callable[[Part, Report], list[Claim]]) -> Figure:
    """A figure that is given the part of the scale that it needs."""

    @wraps(figure)
    def made(scale: Scale, report: Report) -> list[Claim]:
        return figure(getattr(scale, part), report)

    return made


FIGURES: Mapping[str, Figure] = {
    "5": _with("here", figure_5),
    "disk": _with("disk", spilling.disk_support),
    "6": _with("here", figure_6),
    "7": _with("here", figure_7),
    "8": _with("field", figure_8),
    "9": _with("field", figure_9),
    "10": _with("here", figure_10),
}

PLAIN = {
    "SNJoin": "our engine",
    "heads": "limited",
    "table": "as by figure 6",
    "counted in": "members",
    "MJoin's order": "every 1,024 rows",
    "rates by": "the streams",
    "output": "results",
    "rearranged": "once in a minute",
}
"""How the paper was read at first."""
PAPER = Paper(TITLE, FIGURES, FULL, QUICK, PLAIN, __doc__, frozenset({"5", "disk", "6", "7"}))
run = PAPER.run
