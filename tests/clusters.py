"""Readings of sensors in clusters, and their join on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import streamshed as ss
from streaming import Files
from streamshed.relevance import Relevance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLUSTERS, WINDOW = 3, 20
JOIN = ss.join(by="sensor").on("k").within(WINDOW, time="ts", late=100)
RELEVANCE = Relevance(classes=1, chance="plain", base=1.0)


def readings(
    seed: int, count: int = 240, keys: int = 40, paired: bool = False, moving: bool = False
) -> pa.Table:
    """Readings with equal times, of twelve sensors in clusters, which some may change."""
    random = np.random.default_rng(seed)
    sensor = random.integers(0, 12, count)
    cluster = sensor % CLUSTERS
    if moving:
        cluster = np.where(sensor < 4, random.integers(0, CLUSTERS, count), cluster)
    key = random.integers(0, keys, count)
    if paired:  # clusters 0 and 1 see the same values, cluster 2 sees others
        key += np.where(cluster == 2, 1_000, 0)
    time = np.sort(random.integers(0, 100, count))
    columns = {"sensor": sensor, "cluster": cluster, "k": key, "ts": time}
    return pa.table(columns | {"row": np.arange(count)})


def in_batches(table: pa.Table, batches: int) -> list[pa.Table]:
    """The readings in batches of equal size."""
    size = -(-table.num_rows // batches)
    return [table.slice(i * size, size) for i in range(batches)]


def clustered_frame(
    files: Files, spark: SparkSession, relevance: Relevance | None = None, join: ss.Join = JOIN
) -> DataFrame:
    """The join of what is in the files, with its notes beside them."""
    from streamshed.spark import clustered

    return clustered(
        join,
        files.frames(spark)["readings"],
        cluster="cluster",
        clusters=CLUSTERS,
        relevance=relevance,
        notes_to=None if relevance is None else str(files.folder / "_notes"),
    )
