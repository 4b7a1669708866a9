"""Which policy and budget reach a wanted recall: an archive is replayed under many of them.

Every cell of policies and budgets is a run of the join over the archive, and its recall is that of
its results against those of the join without a budget. The loop is compiled and holds no lock of
Python's, so that runs go side by side in threads.
"""

from __future__ import annotations

from streamshed.tuning.found import Cell, Tuning
from streamshed.tuning.search import tune

__all__ = ["Cell", "Tuning", "tune"]
