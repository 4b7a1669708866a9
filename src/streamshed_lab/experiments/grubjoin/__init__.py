"""GrubJoin: which parts of windows are gone through when there is no time for all of them.

Gedik, Wu, Yu, Liu: *GrubJoin: an adaptive, multi-way, windowed stream join with time
correlation-aware CPU load shedding*. Where the paper is silent, this was decided:

* **Work** is counted in the join's own time, not in time on the paper's machine: in comparisons
  alone, or with what results and adaptations cost as well (`charged`; see
  `streamshed_lab.experiments.grubjoin.charging`). What can be done in a second is what the full
  three-way, nonaligned join costs at 100 rows a second, the rate at which the paper says that
  shedding begins. (In table II also the one at 75: said there to be the highest rate at which both
  operators perform around the same.)
* **RandomDrop** thins the streams out before the join, at the statically best rates, knowing rates
  and selectivities beforehand, and is given as many comparisons as GrubJoin made, or the same time.
* **The cost of conditions** (table II): a comparison costs so much, or its condition is evaluated
  so often, which costs what that takes here.
* **Lags and deviations** of the fourth and fifth stream (figures 13 and 15): 10 and 12 s, 50; in
  figure 13 also a deviation of 2, as of the first two (`other streams`).
* **Buffers** (section III-B) are a queue for each stream: how a row goes through windows is decided
  when it is taken. Without one, as the engine is by itself, it is decided when the row comes, and
  only who is dropped follows from the work (`decided`): both in figures 11, 13 and 16.
* **The throttle** is set anew by the work done (here), or by the rows processed in time alone, as
  section III-A has it (`by rows`): both in figures 11 and 16.
* **Runs** are a minute; the first 20 seconds do not count. Buffers hold 10 rows unless said.
* **DAC** (figure 17) is not to be had: see `streamshed_lab.experiments.grubjoin.disaster`. How
  strong its correlations are, and of how many rows is learned, is tried (`correlated`, `learning
  from`).
* **Optimal** (figure 7) is taken to a thousandth, or to a hundredth (`optimally`).
* **The video streams** are synthetic: vectors of 512 elements, of which some are planted twice, a
  noisy copy in each stream within a minute. Windows are an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamshed_lab.experiments.grubjoin.adapting import figure_2, figure_14, figure_15, figure_16
from streamshed_lab.experiments.grubjoin.disaster import figure_17
from streamshed_lab.experiments.grubjoin.harvesting import (
    FULL,
    QUICK,
    Scale,
    figure_4,
    figure_7,
    figures_8_to_10,
)
from streamshed_lab.experiments.grubjoin.output import (
    PLAIN,
    figure_11,
    figure_12,
    figure_13,
    table_2,
)
from streamshed_lab.experiments.grubjoin.scenes import video
from streamshed_lab.experiments.report import Paper, Report
from streamshed_lab.experiments.verdicts import Claim

TITLE = "GrubJoin: window harvesting and operator throttling (Gedik, Wu, Yu, Liu)"

FIGURES: Mapping[str, Callable[[Scale, Report], list[Claim]]] = {
    "2": figure_2,
    "4": figure_4,
    "7": figure_7,
    "8": figures_8_to_10,
    "11": figure_11,
    "12": figure_12,
    "13": figure_13,
    "14": figure_14,
    "15": figure_15,
    "16": figure_16,
    "17": figure_17,
    "II": table_2,
    "video": video,
}

PAPER = Paper(TITLE, FIGURES, FULL, QUICK, PLAIN, __doc__, frozenset({"8"}))
run = PAPER.run
