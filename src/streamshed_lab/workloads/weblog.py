"""Web server logs in the common log format, and one stream for each page.

A line is `host ident user [day/month/year:hour:minute:second zone] "request" status bytes`; what
follows (the combined format's referrer and agent) is not read. Parsing is done by Arrow on blocks
of lines, some hundred thousand lines a second.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamshed.errors import InputError, suggestion

Source = str | os.PathLike[str] | IO[bytes] | Iterable[str | bytes]

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("host", pa.string()),
        ("request", pa.string()),
        ("method", pa.string()),
        ("url", pa.string()),
        ("status", pa.int16()),
        ("bytes", pa.int64()),
    ]
)
BAD_SCHEMA = pa.schema([("line", pa.int64()), ("text", pa.string())])

BLOCK_LINES = 100_000
GZIP_MAGIC = b"\x1f\x8b"
MONTHS = pa.array(
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
)

# The shortest request that is followed by a status: a request may hold quotes itself.
_LINE = (
    r"^(?P<host>\S+) \S+ .*?\[(?P<day>\d{2})/(?P<month>[A-Z][a-z]{2})/(?P<year>\d{4})"
    r":(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2}) "
    r"(?P<sign>[+-])(?P<zone_hour>\d{2})(?P<zone_minute>\d{2})\] "
    r'"(?P<request>.*?)" (?P<status>\d{3}) (?P<bytes>\d{1,18}|-)(?:\s.*)?$'
)
# HTTP/0.9 has no protocol; a request that is no request at all is kept whole as its url.
_REQUEST = r"^(?P<method>[A-Z]+) +(?P<url>.*?)(?: +HTTP/\d\.\d)?\s*$"


@dataclass(frozen=True)
class WebLog:
    """What was read of a log.

    Attributes:
        table: one row per good line, in the order of the log: `ts` (timestamp in microseconds,
            UTC), `host`, `request` (as logged), its `method` (null where the request has none) and
            `url`, `status`, and `bytes` (null where the log says `-`).
        bad: the lines that are not in the format: `line` (counted from 1) and `text`.
        lines: how many lines there were; empty ones are not counted among the good or bad.
    """

    table: pa.Table
    bad: pa.Table
    lines: int

    def __str__(self) -> str:
        """Say what was read, and the first lines that could not be."""
        good = f"{self.lines:,} lines, {self.table.num_rows:,} read, {self.bad.num_rows:,} bad"
        first = self.bad.slice(0, 3).to_pylist()
        return "\n".join([good, *(f"  line {row['line']}: {row['text'][:100]}" for row in first)])


def read_weblog(source: Source, bad: Literal["keep", "raise"] = "keep") -> WebLog:
    """Read a whole log.

    Args:
        source: a path (gzip is recognised by content), an open binary file, or lines.
        bad: `"keep"` lists the lines that are not in the format in the result, `"raise"` refuses
            a log that has any.

    Raises:
        InputError: on a bad line, if asked to.

    Examples:
        >>> log = read_weblog(
        ...     [
        ...         'tip.net - - [28/Aug/1995:00:00:38 -0400] "GET /pub/ HTTP/1.0" 200 1049',
        ...         "not a log line",
        ...     ]
        ... )
        >>> log.table.select(["ts", "host", "url", "bytes"]).to_pylist()[0]["url"]
        '/pub/'
        >>> print(log)
        2 lines, 1 read, 1 bad
          line 2: not a log line
    """
    parts = list(read_weblog_blocks(source, bad))
    return WebLog(
        pa.concat_tables([part.table for part in parts] or [SCHEMA.empty_table()]),
        pa.concat_tables([part.bad for part in parts] or [BAD_SCHEMA.empty_table()]),
        sum(part.lines for part in parts),
    )


def read_weblog_blocks(
    source: Source, bad: Literal["keep", "raise"] = "keep", block_lines: int = BLOCK_LINES
) -> Iterator[WebLog]:
    """Read a log block by block, in bounded memory.

    Args:
        source: as for `read_weblog`.
        bad: as for `read_weblog`.
        block_lines: how many lines to parse at a time; the rows do not depend on it.

    Yields:
        The blocks. Numbers of bad lines count from the beginning of the log.
    """
    before = 0
    block: list[str] = []
    for line in _lines(source):
        block.append(line)
        if len(block) == block_lines:
            yield _parse(block, before, bad)
            before += len(block)
            block = []
    if block:
        yield _parse(block, before, bad)


def page_streams(
    log: pa.Table,
    pages: Mapping[str, str | Sequence[str]] | Sequence[str],
    key: str = "host",
    time: str = "ts",
    url: str = "url",
) -> dict[str, pa.Table]:
    """Make one stream for each page: who asked for it, and when.

    Args:
        log: a table of requests.
        pages: name of a stream → the page's url, or several that count as the same page. A list
            of urls names each stream after its url.
        key: column that says who asked.
        time: column that says when.
        url: column that says for what.

    Returns:
        For each stream `key` and `time`, in time order (requests of the same time as in the log).

    Raises:
        InputError: if nobody asked for a page.

    Examples:
        >>> log = pa.table({"ts": [3, 1, 2], "host": ["a", "b", "a"], "url": ["/", "/", "/x"]})
        >>> streams = page_streams(log, {"home": "/", "other": "/x"})
        >>> streams["home"].to_pylist()
        [{'key': 'b', 'time': 1}, {'key': 'a', 'time': 3}]
    """
    named = pages if isinstance(pages, Mapping) else {page: page for page in pages}
    streams = {}
    for name, chosen in named.items():
        urls = [chosen] if isinstance(chosen, str) else list(chosen)
        rows = log.filter(pc.is_in(log[url], pa.array(urls, log.schema.field(url).type)))
        if not rows.num_rows:
            known = log[url].drop_null().unique().to_pylist()
            raise InputError(
                f"page {name!r}: no row of the log has {' or '.join(map(repr, urls))} in column "
                f"{url!r}.{suggestion(urls[0], known)}"
            )
        order = np.argsort(rows[time].cast(pa.int64()).to_numpy(), kind="stable")
        streams[name] = pa.table({"key": rows[key], "time": rows[time]}).take(order)
    return streams


def first_visits(streams: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Keep the first row of every key in each stream: who came, not how often.

    Args:
        streams: tables in time order, with a column `key`.

    Examples:
        >>> streams = {"home": pa.table({"key": ["a", "b", "a"], "time": [1, 2, 3]})}
        >>> first_visits(streams)["home"]["time"].to_pylist()
        [1, 2]
    """
    firsts = {}
    for name, table in streams.items():
        keys = table["key"].combine_chunks().dictionary_encode().indices.to_numpy()
        _, rows = np.unique(keys, return_index=True)
        firsts[name] = table.take(np.sort(rows))
    return firsts


def _lines(source: Source) -> Iterator[str]:
    """Lines without their ends. What is not UTF-8 is Latin-1, line by line."""
    if isinstance(source, str | os.PathLike):
        with open(source, "rb") as file:
            if file.peek(2).startswith(GZIP_MAGIC):
                with gzip.open(file) as unpacked:
                    yield from map(_decoded, unpacked)
            else:
                yield from map(_decoded, file)
    else:
        yield from map(_decoded, source)


def _decoded(line: str | bytes) -> str:
    if isinstance(line, str):
        return line.rstrip("\r\n")
    try:
        return line.rstrip(b"\r\n").decode()
    except UnicodeDecodeError:
        return line.rstrip(b"\r\n").decode("latin-1")


def _parse(lines: list[str], before: int, bad: Literal["keep", "raise"]) -> WebLog:
    """Parse some lines, of which the first is number `before` + 1."""
    text = pa.array(lines, pa.string())
    fields = pc.extract_regex(text, _LINE)
    matched = np.flatnonzero(fields.is_valid().to_numpy(zero_copy_only=False))
    fields = fields.take(pa.array(matched))
    microseconds, possible = _microseconds(fields)
    fields = fields.filter(pa.array(possible))

    wrong = np.ones(len(lines), dtype=bool)
    wrong[matched[possible]] = False
    wrong &= pc.not_equal(pc.utf8_trim_whitespace(text), "").to_numpy(zero_copy_only=False)
    numbers = np.flatnonzero(wrong)
    bad_lines = pa.table(
        [pa.array(numbers + before + 1, pa.int64()), text.take(pa.array(numbers))],
        schema=BAD_SCHEMA,
    )
    if bad == "raise" and len(numbers):
        first = bad_lines.slice(0, 1).to_pylist()[0]
        raise InputError(
            f"line {first['line']} of the log is not in the common log format: "
            f'{first["text"][:200]!r}; bad="keep" lists such lines instead'
        )
    return WebLog(_table(fields, microseconds[possible]), bad_lines, len(lines))


def _table(fields: pa.StructArray, microseconds: npt.NDArray[np.int64]) -> pa.Table:
    request = fields.field("request")
    parts = pc.extract_regex(request, _REQUEST)
    size = fields.field("bytes")
    known_size = pc.if_else(pc.equal(size, "-"), pa.scalar(None, pa.string()), size)
    columns = {
        "ts": pa.array(microseconds).cast(SCHEMA.field("ts").type),
        "host": fields.field("host"),
        "request": request,
        "method": pc.struct_field(parts, "method"),
        "url": pc.coalesce(pc.struct_field(parts, "url"), request),
        "status": fields.field("status").cast(pa.int16()),
        "bytes": known_size.cast(pa.int64()),
    }
    return pa.table(columns, schema=SCHEMA)


def _microseconds(
    fields: pa.StructArray,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Times since 1970, and which of them are dates and times that exist.

    Not by strptime, whose month names follow the locale of the process.
    """

    def number(name: str) -> npt.NDArray[np.int64]:
        return np.asarray(fields.field(name).cast(pa.int64()))

    month = np.asarray(pc.fill_null(pc.index_in(fields.field("month"), MONTHS), -1), np.int64)
    months = ((number("year") - 1970) * 12 + month).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (number("day") - 1)
    hour, minute, second = number("hour"), number("minute"), number("second")
    zone = number("zone_hour") * 60 + number("zone_minute")
    east = np.asarray(pc.equal(fields.field("sign"), "+").to_numpy(zero_copy_only=False))
    minutes = hour * 60 + minute - np.where(east, zone, -zone)
    seconds = days.astype("datetime64[s]").astype(np.int64) + minutes * 60 + second
    possible = (month >= 0) & (days.astype("datetime64[M]") == months)
    # A leap second is the first of the next minute.
    possible &= (hour < 24) & (minute < 60) & (second <= 60) & (zone < 24 * 60)
    return seconds * 1_000_000, possible
