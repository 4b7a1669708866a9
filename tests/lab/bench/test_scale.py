"""What one shard carries, in small."""

from __future__ import annotations

from streamshed_lab.bench.scale import PARTS, STREAMS, _one_shard


def test_every_setting_of_one_shard_is_measured():
    told: list[str] = []
    found = {one.name: one for one in _one_shard(6_000, 1, (300, 3_000), told.append)}
    speeds = [one for one in found.values() if one.unit == "rows/s"]
    assert len(speeds) == len(told) == len(STREAMS) + 1 + 2 * len(PARTS)
    assert all(one.value > 0 for one in found.values())
    assert "one shard, 3 streams, 3,000 rows held" in found
    assert "one shard, 3 streams, 3,000 rows in the window, 300 kept by oldest" in found
