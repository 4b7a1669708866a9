"""Load shedding by existence patterns: figures 5 to 11 and the space analysis of section 4.

Kwon, Lee, Kim: *Load shedding for multi-way stream joins based on arrival order patterns* (2010).
The paper's figures are not to be had as numbers, so that its sentences are what is tested. Where it
is silent, this was decided:

* **How far apart a key's appearances are** (`spread`). Never said, and it decides everything: swept
  over 5, 20, 50, 100 and 150 seconds, under the paper's window of 100 seconds. (The last was added
  for figure 7, which speaks of more results at higher rates; longer ones, of 200 and 300 seconds,
  were looked at on one seed: EP does not make more of them at higher rates there either.) The
  generator's other liberties are told by `streamshed_lab.workloads.ExistenceWorkload`.
* **How many orders of streams are in use** (`orders`). "A Zipf distribution" over orders, but over
  which? With all 325 orders of five streams and α = 0, whatever streams a key has been seen in, it
  completes with nearly the same probability, and patterns say little. With a repertoire of 10
  orders (drawn from the seed) they say much. The plain reading is all orders; the repertoire was
  found afterwards, by looking for a reading under which figure 5 comes true. Others that were
  looked at, on one seed or two, with a rough simulator: lengths of orders equally likely, sets of
  streams equally likely, and keys in one stream or in all (EP gains nothing from these, but for one
  corner of the last); repertoires of 3, 5, 20 and 50 orders (as with 10, in degrees).
* **What is ranked under skew** (`ranking`, figure 6). Ranking all orders together makes the number
  of keys that pass through all streams a lottery of the seed; ranking the orders of each length
  apart keeps it as it is. Both are tried, and the share of the exact results is what is compared.
* **What the arrival rate does to the spread** (`hold`, figure 7): either a key's appearances stay
  as many seconds apart, or as many rows.
* **Frequency** counts a key in all windows together, as the paper's example in section 3.3 does, or
  in each window by itself (`own window`), as the tables T_i of section 4 do. Both are tried.
* **Completed keys** (`completed`): by definition 1 only the row that completes a key has the full
  pattern, and leaves first (`last row`); the reason that section 3.1 gives, that it "will not
  produce any more output tuples", is as true of all other rows of the key (`all rows`).
* **Ties** of the value-based policies are broken at random, anew at each drop, as
  `docs/meaning.md` says: the paper has them "similar to random selection" where values are unique.
* **Cost** (figure 9) is the time of the whole join, per row, by policy in turn, the median of
  some rounds. The cost of deciding is that time less the time with Random, which decides nothing.
  That is of the policies as they are here. With the tables of section 4, a value-based policy's of
  all values of the domain, deciding is timed by itself (`tables`).
* **Normal values** (figure 10): five streams with variance 15 and 500 rows make 10¹¹ results, which
  are too many to make one by one. They are counted without being made, by a plain version of the
  policies (`streamshed_lab.experiments.existence.written`); and two readings are run on the engine:
  the variance as said, with memory and window, and so the rows per value, cut to a tenth; and 15 to
  35 as standard deviations, with half of the memory and window. Both with fewer rows.
  Whether the policies become *similar* is judged by how many times as many results one makes as the
  other, and by their distance in a chart of all variances.
* **Real data** (figure 11): ClarkNet is not to be had. Four linked pages of the San Diego
  Supercomputer Center (1995), of which those who visit all mostly visit one first, as in the paper;
  and four honeypots by source address. The paper does not state its window, and counts *hosts*: so
  each is run with first visits only (unique keys, the paper's setting) and with all visits. Windows
  are so long that 150 to 350 rows are too few to hold them; where that is impossible because
  results explode, the memory is smaller. Looked at and left out: the NASA log (93 results in all),
  the EPA log (four images of one page, fetched together; with all visits EP comes last there too),
  and shorter windows, which 350 rows hold whole.

`oldest` is not in the paper. It is run with the others because it is the obvious rival: where the
appearances of a key are closer together than the time that the memory spans, nothing beats it.

"A beats B" compares means over seeds; "significantly", by more than a fifth. "A is about B" means
within a fifth, or within a hundredth of the exact results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamshed_lab.experiments.existence.cost import figure_9, space
from streamshed_lab.experiments.existence.orders import figure_5, figure_6, figure_7, figure_8
from streamshed_lab.experiments.existence.scale import FULL, PLAIN, QUICK, Scale
from streamshed_lab.experiments.existence.values import figure_10, figure_11
from streamshed_lab.experiments.report import Paper, Report
from streamshed_lab.experiments.verdicts import Claim

TITLE = "Load shedding based on arrival order patterns (Kwon, Lee, Kim 2010)"

FIGURES: Mapping[str, Callable[[Scale, Report], list[Claim]]] = {
    "5": figure_5,
    "6": figure_6,
    "7": figure_7,
    "8": figure_8,
    "9": figure_9,
    "10": figure_10,
    "11": figure_11,
    "space": space,
}

PAPER = Paper(TITLE, FIGURES, FULL, QUICK, PLAIN, __doc__, frozenset({"9"}))
run = PAPER.run
