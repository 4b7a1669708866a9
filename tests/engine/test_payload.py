"""Users' rows, taken from several segments at once."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from streamshed.engine.payload import PLACE_BITS, Payload

ROWS, SEGMENTS = 200, 5
COLUMNS = {
    "long": pa.int64(),
    "time": pa.timestamp("us"),
    "single": pa.float32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "flag": pa.bool_(),
    "text": pa.string(),
    "price": pa.decimal128(9, 2),
    "sparse": pa.int32(),
}


def segment(seed: int) -> pa.RecordBatch:
    """Rows of all kinds of columns, which do not begin where their memory does."""
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 100, ROWS + seed)
    columns = {
        "price": pa.array([Decimal(int(number)) for number in numbers], COLUMNS["price"]),
        "text": pa.array(map(str, numbers)),
        "flag": pa.array(numbers > 50),
        "sparse": pa.array(numbers.astype(np.int32), mask=numbers % 3 == seed % 3),
    }
    plain = {
        name: pa.array(numbers).cast(kind) for name, kind in COLUMNS.items() if name not in columns
    }
    rows = pa.record_batch({name: (columns | plain)[name] for name in COLUMNS})
    return rows.slice(seed)


@pytest.fixture
def kept() -> tuple[Payload, np.ndarray, pa.Table]:
    """A payload of several segments, the places of its rows, and the rows."""
    payload = Payload(pa.schema(COLUMNS))
    segments = [segment(seed) for seed in range(SEGMENTS)]
    places = np.concatenate([payload.add(rows) for rows in segments])
    return payload, places, pa.Table.from_batches(segments).combine_chunks()


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("absent", [0.0, 0.3])
def test_rows_come_from_all_segments_in_the_order_asked(kept, ordered: bool, absent: float) -> None:
    payload, places, rows = kept
    random = np.random.default_rng(1)
    asked = random.permutation(len(places))[:600]
    if ordered:
        asked = np.sort(asked)
    gone = random.random(len(asked)) < absent
    taken = payload.take(np.where(gone, -1, places[asked]))
    expected = rows.take(pa.array(asked, mask=gone)).combine_chunks()
    assert pa.Table.from_batches([taken]).equals(expected)


def test_no_memory_is_read_beyond_a_segment(kept) -> None:
    payload, places, _ = kept
    beyond = np.array([places[0], (2 << PLACE_BITS) + ROWS])
    with pytest.raises(IndexError, match="outside its segment"):
        payload.take(beyond, ["long"])
    with pytest.raises(IndexError, match="outside its segment"):
        payload.take(np.array([places[0], SEGMENTS << PLACE_BITS]), ["long"])
