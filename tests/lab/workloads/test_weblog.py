"""The reader of web logs on good, odd and broken lines."""

import gzip
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from streamshed import InputError
from streamshed_lab.workloads import first_visits, page_streams, read_weblog, read_weblog_blocks

GOOD = 'h1.net - - [28/Aug/1995:00:00:38 -0400] "GET /pub/a.html HTTP/1.0" 200 1049'


def only_row(line):
    log = read_weblog([line])
    assert log.bad.num_rows == 0
    assert log.table.num_rows == 1
    return log.table.to_pylist()[0]


def test_a_good_line():
    assert only_row(GOOD) == {
        "ts": datetime(1995, 8, 28, 4, 0, 38, tzinfo=UTC),
        "host": "h1.net",
        "request": "GET /pub/a.html HTTP/1.0",
        "method": "GET",
        "url": "/pub/a.html",
        "status": 200,
        "bytes": 1049,
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # No size is known.
        ('h - - [01/Jan/2000:00:00:00 +0000] "GET / HTTP/1.0" 304 -', {"bytes": None}),
        # HTTP/0.9 has no protocol.
        ('h - - [01/Jan/2000:00:00:00 +0000] "GET /x" 200 5', {"url": "/x", "method": "GET"}),
        # Spaces and quotes in the url.
        (
            'h - - [01/Jan/2000:00:00:00 +0000] "GET /a "b" c HTTP/1.1" 404 5',
            {"url": '/a "b" c', "status": 404},
        ),
        # No request at all.
        ('h - - [01/Jan/2000:00:00:00 +0000] "" 400 0', {"url": "", "method": None}),
        (
            'h - - [01/Jan/2000:00:00:00 +0000] "\\x16\\x03 junk" 400 0',
            {"url": "\\x16\\x03 junk", "method": None},
        ),
        # A user with a space; the combined format.
        (
            'h id john doe [01/Jan/2000:00:00:00 +0000] "GET / HTTP/1.0" 200 5 "ref" "an agent"',
            {"host": "h", "url": "/", "bytes": 5},
        ),
        # Zones on both sides, a leap day, a leap second.
        (
            'h - - [29/Feb/2000:12:00:00 +0530] "GET / HTTP/1.0" 200 5',
            {"ts": datetime(2000, 2, 29, 6, 30, tzinfo=UTC)},
        ),
        (
            'h - - [31/Dec/1998:23:59:60 -0000] "GET / HTTP/1.0" 200 5',
            {"ts": datetime(1999, 1, 1, tzinfo=UTC)},
        ),
        (GOOD + "\r\n", {"bytes": 1049}),
    ],
)
def test_odd_lines_are_read(line, expected):
    row = only_row(line)
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    "line",
    [
        "not a log line",
        'h - - [28/Aug/1995:00:00:38 -0400] "GET / HTTP/1.0" 200',
        'h - - [28/Aug/1995:00:00:38 -0400] "GET / HTTP/1.0" abc 5',
        'h - - [28/Aug/1995 00:00:38] "GET / HTTP/1.0" 200 5',
        'h - - [28/Foo/1995:00:00:38 -0400] "GET / HTTP/1.0" 200 5',
        'h - - [31/Feb/1995:00:00:38 -0400] "GET / HTTP/1.0" 200 5',
        'h - - [00/Aug/1995:00:00:38 -0400] "GET / HTTP/1.0" 200 5',
        'h - - [28/Aug/1995:24:00:38 -0400] "GET / HTTP/1.0" 200 5',
        'h - - [28/Aug/1995:00:60:38 -0400] "GET / HTTP/1.0" 200 5',
        GOOD[:40],
    ],
)
def test_broken_lines_are_listed_with_their_numbers(line):
    log = read_weblog([GOOD, line, "", GOOD])
    assert log.table.num_rows == 2
    assert log.bad.to_pylist() == [{"line": 2, "text": line}]
    assert log.lines == 4
    assert "4 lines, 2 read, 1 bad" in str(log)


def test_broken_lines_are_refused_if_asked_to():
    with pytest.raises(InputError, match=r"line 2 of the log .* 'nonsense'; bad=\"keep\""):
        read_weblog([GOOD, "nonsense"], bad="raise")


def test_blocks_do_not_change_what_is_read(tmp_path):
    lines = [GOOD.replace("h1", f"h{i}") if i % 7 else f"broken {i}" for i in range(100)]
    path = tmp_path / "log.gz"
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines))
    whole = read_weblog(lines)
    for size in (1, 3, 100, 1_000):
        parts = list(read_weblog_blocks(path, block_lines=size))
        assert pa.concat_tables(part.table for part in parts).equals(whole.table)
        assert pa.concat_tables(part.bad for part in parts).equals(whole.bad)
    assert whole.bad["line"].to_pylist() == list(range(1, 101, 7))


def test_files_plain_and_packed_hold_the_same(tmp_path):
    content = f"{GOOD}\n{GOOD}\n".encode()
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "packed").write_bytes(gzip.compress(content))
    with open(tmp_path / "plain", "rb") as opened:
        tables = [
            read_weblog(tmp_path / "plain").table,
            read_weblog(str(tmp_path / "packed")).table,
            read_weblog(opened).table,
        ]
    assert all(table.num_rows == 2 and table.equals(tables[0]) for table in tables)


def test_old_logs_in_latin_1_are_read_beside_utf_8(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(
        GOOD.replace("/pub/a", "/é").encode("latin-1")
        + b"\n"
        + GOOD.replace("/pub/a", "/é").encode()
    )
    assert read_weblog(path).table["url"].to_pylist() == ["/é.html", "/é.html"]


def test_an_empty_log_has_the_columns_all_the_same():
    log = read_weblog([])
    assert log.table.num_rows == 0
    assert log.table.schema == read_weblog([GOOD]).table.schema
    assert str(log) == "0 lines, 0 read, 0 bad"


LOG = pa.table(
    {
        "ts": [5, 1, 3, 3, 2],
        "host": ["a", "b", "a", "c", "a"],
        "url": ["/", "/", "/x", "/y", None],
    }
)


def test_pages_become_streams_in_time_order():
    streams = page_streams(LOG, {"home": "/", "rest": ["/x", "/y"]})
    assert streams["home"].to_pylist() == [{"key": "b", "time": 1}, {"key": "a", "time": 5}]
    assert streams["rest"].to_pylist() == [{"key": "a", "time": 3}, {"key": "c", "time": 3}]
    assert list(page_streams(LOG, ["/x"])) == ["/x"]


def test_a_page_that_nobody_asked_for_is_an_error():
    with pytest.raises(InputError, match="page 'home': no row of the log has '/z' in column 'url'"):
        page_streams(LOG, {"home": "/z"})


def test_first_visits_keep_the_first_row_of_each_key():
    streams = {"s": pa.table({"key": ["b", "a", "b", "a"], "time": [1, 2, 3, 4]})}
    assert first_visits(streams)["s"].to_pylist() == [
        {"key": "b", "time": 1},
        {"key": "a", "time": 2},
    ]
