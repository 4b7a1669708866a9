"""Generators of the papers' workloads and of others, and readers of real traces.

Every workload is a small frozen dataclass whose `tables()` gives one Arrow table per stream, the
same for the same seed.
"""

from streamshed.demo.workload import FunnelWorkload
from streamshed_lab.workloads.adversarial import (
    Auctions,
    Bursts,
    ClumpedKeys,
    DailyCycle,
    DailySessions,
    FlashCrowd,
    FlashKeys,
    HeavySessions,
    OneHeavyKey,
    RepeatingSessions,
    StoppingStream,
    SwappedKeys,
)
from streamshed_lab.workloads.base import Workload
from streamshed_lab.workloads.existence import ExistenceWorkload
from streamshed_lab.workloads.field import FieldWorkload
from streamshed_lab.workloads.lagging import LaggingWorkload
from streamshed_lab.workloads.mixed import MixedWorkload
from streamshed_lab.workloads.normal import NormalWorkload
from streamshed_lab.workloads.regions import RegionWorkload
from streamshed_lab.workloads.sensors import EventWorkload, SensorWorkload
from streamshed_lab.workloads.star import StarExample, StarWorkload
from streamshed_lab.workloads.weblog import (
    WebLog,
    first_visits,
    page_streams,
    read_weblog,
    read_weblog_blocks,
)
from streamshed_lab.workloads.zipf import ZipfWorkload

__all__ = [
    "Auctions",
    "Bursts",
    "ClumpedKeys",
    "DailyCycle",
    "DailySessions",
    "EventWorkload",
    "ExistenceWorkload",
    "FieldWorkload",
    "FlashCrowd",
    "FlashKeys",
    "FunnelWorkload",
    "HeavySessions",
    "LaggingWorkload",
    "MixedWorkload",
    "NormalWorkload",
    "OneHeavyKey",
    "RegionWorkload",
    "RepeatingSessions",
    "SensorWorkload",
    "StarExample",
    "StarWorkload",
    "StoppingStream",
    "SwappedKeys",
    "WebLog",
    "Workload",
    "ZipfWorkload",
    "first_visits",
    "page_streams",
    "read_weblog",
    "read_weblog_blocks",
]
