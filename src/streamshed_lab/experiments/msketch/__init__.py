"""Load shedding for window joins on multiple data streams: figures 2 to 8.

Law and Zaniolo (2007). The paper's figures are not to be had as numbers, so that its sentences are
what is tested. Where it is silent, this was decided:

* **The data**: how the regions of different relations lie to each other is told by
  `streamshed_lab.workloads.RegionWorkload`: joined ones share their centres. Of regions drawn
  independently next to none meet.
* **Ties and refusals** are as `docs/meaning.md` says: of equal rows the one that arrived first
  leaves, and a newcomer that promises less than all is refused.
* **The volume** of regions is 100, as the paper's table says, or more (`volume`).
* **Memory** is of each window, or of all windows together, and goes where it is of use (`memory`).
* **BJoin** is `pairwise`, in the order (R1 ⋈ R2) ⋈ R3, and in figure 2 in the other one too. It
  knows of its partner's values from the same tumbling windows as the sketches. R3 stands by its
  partners in R2; in figure 2 also by those in the results of R1 ⋈ R2
  (`streamshed_lab.experiments.msketch.written`).
* **Expectations below one result**: what a row has made is compared with what is expected of it, at
  least one result (figure 7). Estimates of sketches can be negative.
* **Time** (figure 3) is that of the loop, processor time, per row, the least of some rounds.
* **Recovery** (figure 5): how many intervals of 250 s after a change of region the output takes to
  come up to half of its median in the region (regions of at least 8 intervals).
* **The queue** (figure 6): five rows come while the join takes one. By section 5.1 a row comes
  every second, so that the join takes one in 5 seconds, and its window of 500 s is full with a
  fifth of the rows; or more come than there, as the "input rate is 5 times faster" of section
  5.1.1 can be read, and windows and memory are those of figure 2 (`processed`). Three readings of
  the queue are tried. *Shared, by results added* (the default here): of those that wait, rows
  stand by how many more results there are if they are taken, and sketches are of all rows that
  come (`docs/meaning.md`). *Shared, as written*: one queue, in which rows stand by their
  productivity, from sketches of those taken (algorithm 1). *Per stream, as written*: the same with
  a queue of ten for each stream, of which the join takes in turn.
* **Windowed aggregates** (figure 7): of R1.A2, over the results of the last 500 s, every 50 s.
  Where the sample has no result in a window there is nothing to compare, and the window is left
  out; how many are is measured too. Windows inside a region and near a change of region are looked
  at apart, and together (`windows`).
* **Census** (figure 8): the surveys of October 2003 to 2004 are not to be had. Those of 1994, 1995
  and 2004 are, with age and years of education; they have no times, and are replayed row by row, a
  row a second, each in turn. The figure is left out where there is no such data.

* **The others** (figures 4 and 8) are BJoin, Aging and Rand, of which section 5.1.1 says that they
  are compared; or MSketch times the lifetime left (MSketch*Age) besides (`others`).
* **Not so significant** an improvement, with memory that all windows share, is a small one, or none
  that is clear (`improvement`). **Poor** is what makes less than MSketch by more than a fifth, or
  by any amount (`poor`).

"A beats B" compares means over seeds, and says in how many seeds it does. "About" means within a
fifth; "much", "poorly" and "by far", by more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamshed_lab.experiments.msketch.census import figure_8
from streamshed_lab.experiments.msketch.drift import figure_5
from streamshed_lab.experiments.msketch.running import FULL, PLAIN, QUICK, Scale
from streamshed_lab.experiments.msketch.sampling import figure_7
from streamshed_lab.experiments.msketch.subset import figure_2, figure_3, figure_4, figure_6
from streamshed_lab.experiments.report import Paper, Report
from streamshed_lab.experiments.verdicts import Claim

TITLE = "Load shedding for window joins on multiple data streams (Law, Zaniolo 2007)"

FIGURES: Mapping[str, Callable[[Scale, Report], list[Claim]]] = {
    "2": figure_2,
    "3": figure_3,
    "4": figure_4,
    "5": figure_5,
    "6": figure_6,
    "7": figure_7,
    "8": figure_8,
}

PAPER = Paper(TITLE, FIGURES, FULL, QUICK, PLAIN, __doc__, frozenset({"3"}))
run = PAPER.run
