"""Impressions, clicks and orders: in order, in files, and worth joining."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streamshed import StreamshedError
from streamshed.demo import funnel
from streamshed.demo.workload import FunnelWorkload

SMALL = FunnelWorkload(sessions=100, minutes=15, seed=3)


def test_the_same_seed_gives_the_same_streams_in_order_of_time() -> None:
    tables = SMALL.tables()
    assert tables == SMALL.tables()
    assert tables != FunnelWorkload(sessions=100, minutes=15, seed=4).tables()
    for table in tables.values():
        assert table["ts"].to_pylist() == sorted(table["ts"].to_pylist())


def test_wide_rows_are_the_same_rows_with_long_texts() -> None:
    wide = FunnelWorkload(sessions=100, minutes=15, wide=True, seed=3).tables()
    for name, table in SMALL.tables().items():
        assert wide[name].drop_columns(["page", "agent"]).equals(table)
        lengths = pc.add(pc.utf8_length(wide[name]["page"]), pc.utf8_length(wide[name]["agent"]))
        assert 150 < pc.min(lengths).as_py() <= pc.max(lengths).as_py() < 250


def test_clicks_and_orders_follow_impressions_of_their_session() -> None:
    tables = SMALL.tables()
    counts = [tables[name].num_rows for name in ("impressions", "clicks", "orders")]
    assert counts == sorted(counts, reverse=True)
    seen = set(tables["impressions"]["session"].to_pylist())
    assert set(tables["orders"]["session"].to_pylist()) < seen
    assert set(tables["clicks"]["session"].to_pylist()) < seen


def test_the_files_hold_the_streams_minute_by_minute(tmp_path: Path) -> None:
    written = list(SMALL.write(tmp_path))
    tables = SMALL.tables()
    assert len(written) == 15
    assert sum(written) == sum(table.num_rows for table in tables.values())
    for name, table in tables.items():
        files = sorted((tmp_path / name).iterdir())
        assert [file.name for file in files] == [f"{minute:04d}.parquet" for minute in range(15)]
        parts = [pq.read_table(file) for file in files]
        assert pa.concat_tables(parts).equals(table)
        for minute, part in enumerate(parts):
            assert pc.all(pc.equal(pc.minute(part["ts"]), minute)).as_py() is not False


def test_a_policy_that_learns_keeps_more_than_chance() -> None:
    tables = SMALL.tables()
    exact = funnel().count(tables).results
    kept = {
        policy: funnel().keep(total=1_000).shed(policy).count(tables).results
        for policy in ("random", "output")
    }
    assert exact > kept["output"] > 1.3 * kept["random"] > 0


def test_a_burst_is_in_the_middle_and_as_large_as_said() -> None:
    workload = FunnelWorkload(sessions=500, minutes=36, burst=5, seed=3)
    rows = [sum(table.num_rows for table in tables.values()) for tables in workload.by_minute()]
    assert list(workload.bursting) == list(range(12, 24))
    # A session lasts eight minutes: by then all of those that there are have begun alike.
    assert sum(rows[20:24]) / sum(rows[8:12]) == pytest.approx(5, rel=0.05)
    assert sum(rows[32:]) / sum(rows[8:12]) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"burst": 0}, "burst must be 1 or more, got 0"),
        ({"sessions": 0}, "sessions must be 1 or more, got 0"),
        ({"minutes": 0}, "minutes must be 1 or more, got 0"),
        ({"shoppers": 1.5}, "shoppers must be from 0 to 1, got 1.5"),
    ],
)
def test_what_cannot_be_generated_is_refused(settings: dict[str, int], said: str) -> None:
    with pytest.raises(StreamshedError, match=said):
        FunnelWorkload(**settings)
