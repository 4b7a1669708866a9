"""The joins that SNJoin is measured against: trees of binary joins, and MJoin.

All take tuples in the order of time, as the batches of `streamshed.engine.sink`, and make the
results of `Operator`: complete, or of variable arity as section 3.1 of the SNJoin paper says. They
shed nothing, have no lateness, and exist to be compared with; see `Baseline`.
"""

from streamshed_lab.baselines.base import Baseline, Query
from streamshed_lab.baselines.mjoin import MJoin
from streamshed_lab.baselines.snjoin import SNJoin
from streamshed_lab.baselines.tree import SHJTree, XJoinTree

BASELINES: tuple[type[Baseline], ...] = (SHJTree, XJoinTree, MJoin)

__all__ = ["BASELINES", "Baseline", "MJoin", "Query", "SHJTree", "SNJoin", "XJoinTree"]
