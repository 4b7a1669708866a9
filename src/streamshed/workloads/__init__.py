"""Generators of the papers' workloads and of others, and readers of real traces.

Every workload is a small frozen dataclass whose `tables()` gives one Arrow table per stream, the
same for the same seed.
"""

from streamshed.workloads.base import Workload
from streamshed.workloads.existence import ExistenceWorkload
from streamshed.workloads.field import FieldWorkload
from streamshed.workloads.funnel import FunnelWorkload
from streamshed.workloads.lagging import LaggingWorkload
from streamshed.workloads.mixed import MixedWorkload
from streamshed.workloads.normal import NormalWorkload
from streamshed.workloads.regions import RegionWorkload
from streamshed.workloads.sensors import EventWorkload, SensorWorkload
from streamshed.workloads.star import StarExample, StarWorkload
from streamshed.workloads.weblog import (
    WebLog,
    first_visits,
    page_streams,
    read_weblog,
    read_weblog_blocks,
)
from streamshed.workloads.zipf import ZipfWorkload

__all__ = [
    "EventWorkload",
    "ExistenceWorkload",
    "FieldWorkload",
    "FunnelWorkload",
    "LaggingWorkload",
    "MixedWorkload",
    "NormalWorkload",
    "RegionWorkload",
    "SensorWorkload",
    "StarExample",
    "StarWorkload",
    "WebLog",
    "Workload",
    "ZipfWorkload",
    "first_visits",
    "page_streams",
    "read_weblog",
    "read_weblog_blocks",
]
