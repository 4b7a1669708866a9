"""The optimum of a join of two streams through a relation (OSSJ), with importance.

Towne, Zhu, Zuzarte, Hou: *Window query processing for joining data streams with relations* (2007),
section 3.1.
"""

from streamshed_lab.offline.star.plans import Budget, Plan
from streamshed_lab.offline.star.reading import Star, Total, read_star
from streamshed_lab.offline.star.solving import Near, near_optimum, optimum

__all__ = ["Budget", "Near", "Plan", "Star", "Total", "near_optimum", "optimum", "read_star"]
