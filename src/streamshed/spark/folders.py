"""Folders that users name: on this machine, or in a file system that Arrow knows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from streamshed.errors import SpecError, listed

SCHEMES = ("abfs", "abfss", "file", "gcs", "gs", "hdfs", "s3", "viewfs")
"""The file systems that Arrow knows."""
_HADOOPS_NAMES = {"s3a": "s3", "s3n": "s3"}


def checked_folder(folder: str, what: str) -> str:
    """A folder as every process finds it: a URI, or the whole path.

    Args:
        folder: as the user named it.
        what: which of the user's words that was, as it shall stand in a message.

    Raises:
        SpecError: it is a URI of a file system that Arrow does not know.

    Examples:
        >>> checked_folder("s3a://bucket/late", "late_to")
        's3://bucket/late'
    """
    if "://" not in folder:
        return os.path.abspath(folder)
    scheme, _, rest = folder.partition("://")
    scheme = _HADOOPS_NAMES.get(scheme, scheme)
    if scheme not in SCHEMES:
        raise SpecError(
            f"{what} is {folder!r}, but {urlsplit(folder).scheme!r} is no file system that Arrow"
            f" knows; give a URI of {listed(SCHEMES)}, or a folder that all executors share"
        )
    return f"{scheme}://{rest}"


def file_system(folder: str) -> tuple[fs.FileSystem, str]:
    """The file system of a folder that was checked, and the folder's path there."""
    if "://" in folder:
        return fs.FileSystem.from_uri(folder)  # type: ignore[no-any-return]
    return fs.LocalFileSystem(), folder


@contextmanager
def written_at_once(system: fs.FileSystem, path: str) -> Iterator[Any]:
    """A file to write, which is there when all of it is, or not at all."""
    folder, _, name = path.rpartition("/")
    system.create_dir(folder, recursive=True)
    # An object is there when all of it is; a file is there from its first byte.
    by_name = isinstance(system, fs.LocalFileSystem)
    begun = f"{folder}/.{name}" if by_name else path
    with system.open_output_stream(begun) as file:
        yield file
    if by_name:
        system.move(begun, path)
