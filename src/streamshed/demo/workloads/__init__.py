"""Generators of the streams that the demonstration joins.

Every workload is a small frozen dataclass whose `tables()` returns one Arrow table per stream, the
same for the same seed. `streamshed_lab.workloads` has more of them.
"""

from streamshed.demo.workloads.existence import ExistenceWorkload
from streamshed.demo.workloads.funnel import FunnelWorkload

__all__ = ["ExistenceWorkload", "FunnelWorkload"]
