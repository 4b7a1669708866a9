"""Readers of real traces, kept outside the project as Parquet files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamshed.errors import InputError, listed, suggestion

FOLDER_VARIABLE = "STREAMSHED_DATA"

WEBLOGS = {
    "epa": "weblogs/epa_http_1995-08-30_half.parquet",
    "honeynet": "weblogs/honeynet_httpd_2004.parquet",
    "nasa": "weblogs/nasa_http_1995-08-01.parquet",
    "sdsc": "weblogs/sdsc_http_1995-08-22.parquet",
    "sec": "weblogs/sec_edgar_2003-03-01.parquet",
}
"""Web access logs, each of about one day: at least `ts` and `host`, and all but `sec` `url`."""

HONEYPOT = "honeypot_marx/events.parquet"
NEWS = "news_sites/article_tokens.parquet"
MOTES = "intel_lab_10min/tensor_long.parquet"
EMAILS = "email_eu_core/messages.parquet"
CENSUS = "cps/cps_unified_1988_1994_1995_2004.parquet"


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder of the traces.

    Args:
        folder: where it is. Without it, the environment variable STREAMSHED_DATA, then
            `../shared/data` beside the project.

    Raises:
        InputError: if there is no such folder.
    """
    beside_project = Path(__file__).parents[3] / ".." / "shared" / "data"
    chosen = Path(folder or os.environ.get(FOLDER_VARIABLE) or beside_project)
    if not chosen.is_dir():
        raise InputError(
            f"no folder of traces at {str(chosen)!r}; pass folder=…, or set {FOLDER_VARIABLE} "
            "to the folder that holds 'weblogs' and 'honeypot_marx'"
        )
    return chosen


def weblog(name: str, folder: str | os.PathLike[str] | None = None) -> pa.Table:
    """Read a web log.

    Args:
        name: one of `WEBLOGS`.
        folder: see `data_folder`.

    Returns:
        The log in time order; `ts` is a timestamp (microseconds, UTC), the other columns are those
        of the file.
    """
    if name not in WEBLOGS:
        raise InputError(
            f"no web log named {name!r}; there are {listed(WEBLOGS)}.{suggestion(name, WEBLOGS)}"
        )
    return _read(data_folder(folder) / WEBLOGS[name])


def honeypot(hosts: list[str], folder: str | os.PathLike[str] | None = None) -> dict[str, pa.Table]:
    """Read what sources sent to some honeypots, one stream per honeypot.

    Args:
        hosts: the honeypots, by the names in the file.
        folder: see `data_folder`.

    Returns:
        For each honeypot, in time order: `key` (the source address as an integer) and `time`
        (timestamp in microseconds, UTC).
    """
    events = _read(data_folder(folder) / HONEYPOT)
    return _streams(events, "host", hosts, "honeypot", "src", "ts")


def news(
    sites: list[str], at_most: int = 300, folder: str | os.PathLike[str] | None = None
) -> dict[str, pa.Table]:
    """Read the words of the headlines of some news sites, one stream per site.

    Args:
        sites: the sites, by the names in the file.
        at_most: how often a word may come, over all sites and all times: words that are in every
            headline tell no stories apart.
        folder: see `data_folder`.

    Returns:
        For each site, in time order: `key` (the word) and `time` (when the article was first seen,
        a timestamp in microseconds, UTC).
    """
    words = _read(data_folder(folder) / NEWS, "first_seen")
    number = words["token"].combine_chunks().indices
    often = np.bincount(number.to_numpy())
    rare = words.filter(pa.array(often[number.to_numpy()] <= at_most))
    rare = rare.set_column(
        rare.schema.get_field_index("token"), "token", rare["token"].cast(pa.string())
    )
    return _streams(rare, "site", sites, "news site", "token", "first_seen")


def motes(
    reading: str = "temperature",
    digits: int = 1,
    folder: str | os.PathLike[str] | None = None,
) -> pa.Table:
    """Read what the sensors of a laboratory measured, a mean every ten minutes.

    Args:
        reading: `temperature`, `humidity`, `light` or `voltage`.
        digits: to how many it is rounded: readings that are then equal can be joined.
        folder: see `data_folder`.

    Returns:
        In time order: `sensor`, `key` (the reading in units of the last digit, int64) and `time`
        (timestamp in microseconds, UTC, beginning with 1970).
    """
    path = data_folder(folder) / MOTES
    known = ["temperature", "humidity", "light", "voltage"]
    if reading not in known:
        raise InputError(
            f"no reading named {reading!r}; there are {listed(known)}.{suggestion(reading, known)}"
        )
    if not path.is_file():
        raise InputError(f"no trace at {str(path)!r}; see {FOLDER_VARIABLE}")
    table = pq.read_table(path, columns=["step", "mote", reading]).drop_null()
    rounded = np.rint(table[reading].to_numpy().astype(np.float64) * 10**digits)
    seconds = table["step"].to_numpy() * 600
    return pa.table(
        {
            "sensor": table["mote"],
            "key": rounded.astype(np.int64),
            "time": pa.array(seconds, pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC")),
        }
    ).sort_by([("time", "ascending"), ("sensor", "ascending")])


def census(
    years: Sequence[int], rows: int, folder: str | os.PathLike[str] | None = None
) -> dict[str, pa.Table]:
    """Read surveys of the population, one stream per year.

    Args:
        years: of the surveys.
        rows: how many of each survey are read, the first ones.
        folder: see `data_folder`.

    Returns:
        For each year, as `y1994`: `age` and `education` (in years), and `time`, an integer: the
        surveys have no times, and come row by row, each in turn.
    """
    path = data_folder(folder) / CENSUS
    if not path.is_file():
        raise InputError(f"no trace at {str(path)!r}; see {FOLDER_VARIABLE}")
    table = pq.read_table(path, columns=["year", "age", "education_years"])
    known = sorted(table["year"].unique().to_pylist())
    streams = {}
    for number, year in enumerate(years):
        if year not in known:
            raise InputError(f"no survey of {year!r}; there are {', '.join(map(str, known))}")
        chosen = table.filter(pc.equal(table["year"], year)).slice(0, rows)
        streams[f"y{year}"] = pa.table(
            {
                "time": np.arange(chosen.num_rows) * len(years) + number,
                "age": chosen["age"],
                "education": chosen["education_years"],
            }
        )
    return streams


def emails(rows: int, folder: str | os.PathLike[str] | None = None) -> dict[str, pa.Table]:
    """Read who wrote to whom at an institute, as a stream of senders and one of recipients.

    Args:
        rows: how many messages, from the first on.
        folder: see `data_folder`.

    Returns:
        `sent` and `received`, in time order: `key` (the person) and `time`.
    """
    messages = _read(data_folder(folder) / EMAILS).slice(0, rows)
    return {
        name: pa.table({"key": messages[column], "time": messages["ts"]})
        for name, column in (("sent", "src"), ("received", "dst"))
    }


def _streams(
    events: pa.Table, column: str, names: list[str], what: str, key: str, time: str
) -> dict[str, pa.Table]:
    """Tell events apart by a column, into streams of `key` and `time`."""
    named = events[column].cast(pa.string())
    known = sorted(named.unique().to_pylist())
    streams = {}
    for name in names:
        if name not in known:
            raise InputError(
                f"no {what} named {name!r}; there are {listed(known)}.{suggestion(name, known)}"
            )
        rows = events.filter(pc.equal(named, name))
        streams[name] = pa.table({"key": rows[key], "time": rows[time]})
    return streams


def _read(path: Path, time: str = "ts") -> pa.Table:
    """Read a Parquet file whose time counts seconds."""
    if not path.is_file():
        raise InputError(f"no trace at {str(path)!r}; see {FOLDER_VARIABLE}")
    table = pq.read_table(path).replace_schema_metadata(None)
    seconds = table[time].cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC"))
    return table.set_column(table.schema.get_field_index(time), time, seconds)
