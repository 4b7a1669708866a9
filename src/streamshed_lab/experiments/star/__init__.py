"""Joins through a relation, with importance: the worked example, and the figures 4 to 6.

Towne, Zhu, Zuzarte, Hou: *Window query processing for joining data streams with relations* (2007).
The paper's figures are not to be had as numbers, so that its sentences are what is tested, and the
numbers of sections 3.1.1 and 4.2. Where it is silent, this was decided:

* **The data**: how many values the streams have, and how important rows are, is told by
  `streamshed_lab.workloads.StarWorkload`. Both were chosen so that the optimum for M = 4 is about
  as large as the paper's, which is all that is known of it. The online policies are run with half
  as many values too: how often rows match decides which of them is better.
* **Memory**: each stream has ⌊M/2⌋ places, as in section 3.1.1.
* **SJA-S**, the optimum of size, is one of many plans that make as many results. Both ends are
  measured, the least and the most important one; the paper's could be any of them.
* **EXACT** is the result without a budget.
* **RAND-S** is the policy `random`: it sheds among the rows that the relation lets pass.
* **Time** (figure 5) is that of the dynamic program, which has to list all memory states: processor
  time, the mean of three executions, as in the paper, in turn. A third way is measured that the
  paper does not have: offline it is known which rows will meet any, and others are not stored.
* **DGL** has constants that the paper does not give: of nine pairs of α and β those are taken with
  which it makes most on other seeds than those that count.
* **Domains** of the two attributes: equal, or with four times as many values of s (`values`).
* **Churn** (rule 8): the experiments of the paper have relations that do not change. What the rule
  is worth is seen where facts are replaced while the streams run, and there are about as few of
  them as values.
* **Matches** mn() "in the opposite window": of rows that are held there, as the engine counts them,
  or of all rows that came in the last m units of time (Rʷ). Both are tried
  (`streamshed_lab.experiments.star.written`).
* **Online** (figure 6) one row comes after another, r before s. OSSJ and SJA-S, with which the
  policies are compared, know the future but go by the same order; with a lifetime of 50 there are
  too many memory states to list, and a linear program finds the same optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamshed_lab.experiments.report import Paper, Report
from streamshed_lab.experiments.star.example import example
from streamshed_lab.experiments.star.offline import figure_4, figure_5
from streamshed_lab.experiments.star.online import PLAIN, churning, figure_6
from streamshed_lab.experiments.star.scale import FULL, QUICK, Scale
from streamshed_lab.experiments.verdicts import Claim

TITLE = "Joining data streams with relations (Towne, Zhu, Zuzarte, Hou 2007)"

FIGURES: Mapping[str, Callable[[Scale, Report], list[Claim]]] = {
    "example": example,
    "4": figure_4,
    "5": figure_5,
    "6": figure_6,
    "churn": churning,
}

PAPER = Paper(TITLE, FIGURES, FULL, QUICK, PLAIN, __doc__, frozenset({"5"}))
run = PAPER.run
