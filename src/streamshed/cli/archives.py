"""How commands are told of archives and checkpoints: names and paths, or those of a job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamshed.errors import InputError, SpecError

if TYPE_CHECKING:
    from streamshed.jobs import Job


def named_values(said: Iterable[str], what: str, example: str) -> dict[str, str]:
    """Read NAME=VALUE, each name once."""
    found: dict[str, str] = {}
    for text in said:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise SpecError(f"{text!r} is not {what}; write it as {example}")
        if name in found:
            raise SpecError(f"{what} named {name!r} was given twice; give every one its own name")
        found[name] = value
    return found


def check_checkpoint(path: str) -> None:
    """Refuse a folder of this machine that is no checkpoint, before Spark takes its time to start.

    Raises:
        InputError: no query has stored a batch there.
    """
    elsewhere = "://" in path or "HADOOP_CONF_DIR" in os.environ  # a path may then be of a cluster
    if not elsewhere and not Path(path.removeprefix("file:"), "state").is_dir():
        raise InputError(
            f"there is no checkpoint of a join in {path!r}; give the folder that the query was"
            " started with, of which at least one batch is done"
        )


def check_folders(**files: Path | None) -> None:
    """Refuse files, by their options, that cannot be written at the end of a long run."""
    for option, file in files.items():
        if file is not None and not file.absolute().parent.is_dir():
            raise SpecError(
                f"--{option}: there is no folder {str(file.parent)!r}; make it, or name another"
            )


def archive_of(job: Job, said: list[str]) -> tuple[Any, float]:
    """The inputs of a job's join from an archive, and the part of the keys that it has.

    Args:
        job: the job.
        said: NAME=PATH for each stream, or a folder of `streamshed sample`; the files that the job
            reads if nothing is said.
    """
    from streamshed.jobs.frames import is_streaming
    from streamshed.jobs.sampling import read_sample
    from streamshed.relations import table

    named: dict[str, str] = {}
    sampled = 1.0
    if len(said) == 1 and "=" not in said[0]:
        named, sampled = read_sample(job, Path(said[0]))
    else:
        named = named_values(said, "a stream", "clicks=archive/clicks")
    tables = [name for name, source in job.sources.items() if not is_streaming(source)]
    # What is named stands for all streams; tables are where the job reads them, unless named.
    own = tables if named else list(job.sources)
    archive = {name: _files(name, job.sources[name]) for name in own if name not in named} | named
    found = {name: table(path) if name in tables else path for name, path in archive.items()}
    return (found if "by" not in job.mapping()["join"] else next(iter(found.values()))), sampled


def _files(stream: str, source: Mapping[str, Any]) -> str:
    """The files that a source of a job reads."""
    if source["format"] != "parquet" or "path" not in source or "columns" in source:
        raise SpecError(
            f"the source {stream!r} is not a folder of Parquet files as they are; name an archive "
            f"of the streams, as in {stream}=archive/{stream}, or take one with streamshed sample "
            "job.toml archive"
        )
    return str(source["path"])
