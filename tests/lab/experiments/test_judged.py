"""The families that estimates are judged by."""

from __future__ import annotations

import pytest

from streamshed_lab.experiments.judged import JUDGED


@pytest.mark.parametrize("family", [name for name, of in JUDGED.items() if not of.same])
def test_every_family_has_rows_that_its_join_takes(family: str) -> None:
    setting = JUDGED[family]
    tables = setting.tables(1)
    setting.join(tables).plan({name: rows.schema for name, rows in tables.items()})
    assert all(rows.num_rows for rows in tables.values())
