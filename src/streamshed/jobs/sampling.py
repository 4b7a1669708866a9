"""A sample of a job's streams, taken beside it: an archive to tune with."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamshed.arguments import fraction
from streamshed.durations import parse, to_units
from streamshed.errors import InputError, SpecError
from streamshed.jobs.job import Job
from streamshed.join import spec_of
from streamshed.plan.capabilities import kind_of
from streamshed.relations import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ABOUT = "sample.json"
_PARTS = 1 << 20
"""Into how many parts keys are divided by their hash."""


def sample(
    job: Job, folder: Path, spark: SparkSession, keys: float = 1.0, lasting: str | None = None
) -> dict[str, int]:
    """Read the sources of a job by queries of their own, and keep all rows of a part of the keys.

    The job may run meanwhile: its checkpoint and its sink are left alone.

    Args:
        job: The job.
        folder: A folder for the archive: a Parquet file for each stream, in the order of time, and
            for a table all of its rows.
        spark: The session.
        keys: The part of the keys.
        lasting: How long to read; by default all that the sources hold now.

    Returns:
        The rows of each stream.

    Raises:
        InputError: The folder has an archive.
    """
    part, seconds = check(job, folder, keys, lasting)
    folder.mkdir(parents=True, exist_ok=True)
    rows = {}
    with TemporaryDirectory(dir=folder, prefix=".") as inner:
        frames: dict[str, DataFrame] = {}
        for name, frame in job.frames(spark).items():
            if isinstance(frame, Table):
                pq.write_table(frame.data.toArrow(), folder / f"{name}.parquet")
            else:
                frames[name] = frame
        queries = {
            name: _kept(job, name, frame, part)
            .writeStream.format("parquet")
            .option("path", f"{inner}/{name}")
            .option("checkpointLocation", f"{inner}/{name}-checkpoint")
            .trigger(**({"availableNow": True} if seconds is None else {"processingTime": "1 s"}))
            .start()
            for name, frame in frames.items()
        }
        for query in queries.values():
            if seconds is not None:
                query.awaitTermination(seconds)  # type: ignore[arg-type]
                seconds = 0.0  # those after it have had as long
            else:
                query.awaitTermination()
            query.stop()
        for name in queries:
            rows[name] = _sorted(job, name, Path(inner, name), folder / f"{name}.parquet")
    (folder / _ABOUT).write_text(json.dumps({"part": part, "rows": rows}))
    return rows


def check(job: Job, folder: Path, keys: float, lasting: str | None) -> tuple[float, float | None]:
    """Check what a sample is asked for, before Spark starts; returns the part and the seconds.

    Raises:
        SpecError: The part or the time makes no sense.
        InputError: The folder has an archive.
    """
    part = fraction(keys, "sample: `keys`")
    seconds = None
    if lasting is not None:
        seconds = to_units(parse(lasting, "sample: the time"), True, "sample: the time") / 1e6
    if part <= 0:
        raise SpecError(f"sample: `keys` is {keys!r}; it must be greater than 0")
    kind = kind_of(spec_of(job.joined))
    if part < 1 and kind not in ("shared key", "streams by a column"):
        raise SpecError(
            f"sample: `keys` is {keys!r}, but the streams share no key by which to sample them; "
            "leave it out"
        )
    if (folder / _ABOUT).exists():
        raise InputError(f"sample: {str(folder)!r} has an archive already; name another folder")
    return part, seconds


def read_sample(job: Job, folder: Path) -> tuple[dict[str, str], float]:
    """The files of an archive that `sample` made, by source, and the part of the keys it has.

    Raises:
        InputError: There is none.
    """
    try:
        about: dict[str, Any] = json.loads((folder / _ABOUT).read_text())
    except (OSError, ValueError) as error:
        why = f"{_ABOUT}: {getattr(error, 'strerror', None) or error}"
        raise InputError(
            f"{str(folder)!r} is no archive of streamshed sample ({why}); name a file or folder "
            "for each stream, as in clicks=archive/clicks"
        ) from None
    return {name: str(folder / f"{name}.parquet") for name in job.sources}, float(about["part"])


def _kept(job: Job, stream: str, frame: DataFrame, part: float) -> DataFrame:
    """The rows of a part of the keys."""
    from pyspark.sql import functions as f

    if part == 1:
        return frame
    columns = [f.col(f"`{name}`") for name in spec_of(job.joined).key_of(stream)]
    return frame.where(f.pmod(f.xxhash64(*columns), f.lit(_PARTS)) < round(part * _PARTS))


def _sorted(job: Job, stream: str, files: Path, to: Path) -> int:
    """Put the rows of a stream into one file, in the order of time."""
    found = sorted(files.glob("*.parquet"))
    if not found:
        raise InputError(
            f"sample: the source {stream!r} had no rows; read for longer, or let it begin earlier, "
            "as with startingOffsets"
        )
    table = pa.concat_tables([pq.read_table(file) for file in found])
    time = spec_of(job.joined).time_of(stream)
    if time is not None:
        table = table.sort_by([(time, "ascending")])
    pq.write_table(table, to)
    return int(table.num_rows)
