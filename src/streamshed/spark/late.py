"""Rows that came too late, kept in files."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from streamshed.errors import SpecError, listed
from streamshed.ledger import MANY_LATE

SCHEMES = ("abfs", "abfss", "file", "gcs", "gs", "hdfs", "s3", "viewfs")
"""The file systems that Arrow knows."""
_HADOOPS_NAMES = {"s3a": "s3", "s3n": "s3"}
logger = logging.getLogger("streamshed.spark")


def checked_folder(late_to: str) -> str:
    """The folder for late rows as executors find it: a URI, or the whole path.

    Raises:
        SpecError: it is a URI of a file system that Arrow does not know.

    Examples:
        >>> checked_folder("s3a://bucket/late")
        's3://bucket/late'
    """
    if "://" not in late_to:
        return os.path.abspath(late_to)
    scheme, _, rest = late_to.partition("://")
    scheme = _HADOOPS_NAMES.get(scheme, scheme)
    if scheme not in SCHEMES:
        raise SpecError(
            f"late_to is {late_to!r}, but rows cannot be written to {urlsplit(late_to).scheme!r};"
            f" give a URI of {listed(SCHEMES)}, or a folder that all executors can write to"
        )
    return f"{scheme}://{rest}"


class LateFiles:
    """Writes the late rows of one shard and batch: a Parquet file for each stream.

    The names say which state of which shard wrote them, so that a batch done again after a failure
    writes the same files again, not more of them.

    Args:
        folder: a path or a URI.
        lineage: the name of the shard's state.
        version: of this state.
    """

    def __init__(self, folder: str, lineage: str, version: int) -> None:
        self.folder = folder
        self.name = f"{lineage}-{version:09d}.parquet"
        self.waiting: dict[str, list[pa.RecordBatch]] = {}

    def write(self, stream: str, rows: pa.RecordBatch) -> None:
        """Take late rows of a stream."""
        self.waiting.setdefault(stream, []).append(rows)

    def close(self) -> None:
        """Write the files, each at once or not at all."""
        if not self.waiting:
            return
        system, root = file_system(self.folder)
        for stream, batches in self.waiting.items():
            folder = f"{root.rstrip('/')}/{stream}"
            system.create_dir(folder, recursive=True)
            # An object is there when all of it is; a file is there from its first byte.
            by_name = isinstance(system, fs.LocalFileSystem)
            path = f"{folder}/{'.' if by_name else ''}{self.name}"
            pq.write_table(pa.Table.from_batches(batches), path, filesystem=system)
            if by_name:
                system.move(path, f"{folder}/{self.name}")


def file_system(folder: str) -> tuple[fs.FileSystem, str]:
    """The file system of a folder that was checked, and the folder's path there."""
    if "://" in folder:
        return fs.FileSystem.from_uri(folder)  # type: ignore[no-any-return]
    return fs.LocalFileSystem(), folder


def late_warning(
    before: Mapping[object, int], now: Mapping[object, int], kept: bool = False
) -> str | None:
    """What to say of late rows: once there are more than a few, then at ten times as many.

    Args:
        before: the late rows of each stream before a batch.
        now: those after it.
        kept: whether they are kept in files.

    Examples:
        >>> late_warning({"a": 3}, {"a": 9})
        >>> print(late_warning({"a": 9}, {"a": 1234}, kept=True))
        1,234 rows were left out as late (1,234 of stream 'a'); allow for it, as in
        .within(…, late='30 seconds')
    """
    total = sum(now.values())
    if total < MANY_LATE or len(str(total)) == len(str(sum(before.values()))):
        return None
    worst = max(now, key=lambda stream: now[stream])
    remedy = "" if kept else ", or keep them in files, as in .stream(…, late_to='folder')"
    return (
        f"{total:,} rows were left out as late ({now[worst]:,} of stream {worst!r}); allow for it,"
        f" as in .within(…, late='30 seconds'){remedy}"
    )
