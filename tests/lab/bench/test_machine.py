"""What the machine can do at best: a bandwidth, and the bytes that a row touches."""

from __future__ import annotations

from streamshed.engine.build import build_operator
from streamshed_lab.bench import keyed, machine


def test_the_share_is_that_of_the_bytes_of_a_row(monkeypatch):
    monkeypatch.setattr(machine, "bandwidth", lambda: 1e9)
    setting = keyed.Setting(5, 500, timed=0, repeats=1)
    tables = setting.tables()
    plan = setting.join("existence").plan({name: rows.schema for name, rows in tables.items()})
    operator = build_operator(plan, whole=False)
    batch = operator.read(0, tables["s1"].combine_chunks().to_batches()[0])
    merged = keyed.merged([batch])
    touched, part = machine.share("loop", operator, merged, 1e6)
    # 28 bytes of columns; a line of the directory, one of the key, three of rows, all of them twice
    assert touched.value == 28 + 2 * 5 * machine.LINE
    assert part.value == touched.value * 1e6 / 1e9


def test_the_bandwidth_is_that_of_a_copy(monkeypatch):
    monkeypatch.setattr(machine, "_BYTES", 1 << 20)
    machine.bandwidth.cache_clear()
    assert machine.bandwidth() > 1e8
    machine.bandwidth.cache_clear()
