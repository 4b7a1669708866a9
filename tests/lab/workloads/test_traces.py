"""Finding and reading real traces."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streamshed import InputError, join
from streamshed_lab.workloads import traces

SAMPLES = Path(__file__).parents[2] / "data"
SITES = ["abc", "cnn", "nyt", "wapo"]


@pytest.fixture
def folder(tmp_path):
    """A tiny folder of traces."""
    (tmp_path / "weblogs").mkdir()
    (tmp_path / "honeypot_marx").mkdir()
    log = pa.table({"ts": [10, 20], "host": ["a", "b"], "url": ["/", "/x"]})
    pq.write_table(log, tmp_path / traces.WEBLOGS["nasa"])
    events = pa.table(
        {
            "ts": [1, 2, 3],
            "host": pa.array(["p", "q", "p"]).dictionary_encode(),
            "src": [7, 7, 8],
        }
    )
    pq.write_table(events, tmp_path / traces.HONEYPOT)
    return tmp_path


def test_logs_have_timestamps(folder):
    log = traces.weblog("nasa", folder)
    assert log.schema.field("ts").type == pa.timestamp("us", "UTC")
    assert log["ts"].cast("int64").to_pylist() == [10_000_000, 20_000_000]


def test_honeypots_are_streams_of_sources(folder):
    streams = traces.honeypot(["q", "p"], folder)
    assert list(streams) == ["q", "p"]
    assert streams["p"]["key"].to_pylist() == [7, 8]
    assert streams["p"]["time"].cast("int64").to_pylist() == [1_000_000, 3_000_000]


def test_sites_are_streams_of_words_that_are_not_too_common():
    raw = pq.read_table(SAMPLES / traces.NEWS)
    often = {
        pair["values"]: pair["counts"]
        for pair in raw["token"].cast(pa.string()).value_counts().to_pylist()
    }
    streams = traces.news(SITES, at_most=30, folder=SAMPLES)
    assert list(streams) == SITES
    for site, stream in streams.items():
        of_site = raw.filter(pc.equal(raw["site"].cast(pa.string()), site)).to_pylist()
        kept = [row for row in of_site if often[row["token"]] <= 30]
        assert stream["key"].to_pylist() == [row["token"] for row in kept]
        seconds = [at // 1_000_000 for at in stream["time"].cast("int64").to_pylist()]
        assert seconds == [row["first_seen"] for row in kept] == sorted(seconds)


def test_the_environment_names_the_folder(folder, monkeypatch):
    monkeypatch.setenv("STREAMSHED_DATA", str(folder))
    assert traces.weblog("nasa").num_rows == 2


def test_what_is_not_there_is_named(folder, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"no web log named 'nsa'; .* Did you mean 'nasa'"):
        traces.weblog("nsa", folder)
    with pytest.raises(InputError, match=r"no trace at .*epa_http"):
        traces.weblog("epa", folder)
    with pytest.raises(InputError, match="no honeypot named 'r'; there are 'p', 'q'"):
        traces.honeypot(["r"], folder)
    with pytest.raises(InputError, match=r"no trace at .*article_tokens"):
        traces.news(["abc"], folder=folder)
    with pytest.raises(InputError, match=r"no news site named 'abd'; .* Did you mean 'abc'"):
        traces.news(["abd"], folder=SAMPLES)
    monkeypatch.setenv("STREAMSHED_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"no folder of traces at .*nowhere.*STREAMSHED_DATA"):
        traces.data_folder()


def test_the_real_traces_are_as_described():
    try:
        traces.data_folder()
    except InputError as missing:
        pytest.skip(str(missing))
    assert traces.weblog("sdsc").num_rows == 27_916
    pots = traces.honeypot(["groucho-norcal", "zeppo-norcal"])
    assert {name: table.num_rows for name, table in pots.items()} == {
        "groucho-norcal": 24_566,
        "zeppo-norcal": 24_094,
    }
    # As their description counts them.
    sites = traces.news(SITES)
    joined = join(*sites).on("key").within("6 hours", time="time", clock="max")
    assert joined.count(sites).results == 15_464
