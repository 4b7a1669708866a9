"""Blocks of results, and the room of an operator."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import streamshed as ss
from streamshed.engine.blocks import Block, Late
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import merged
from streamshed.engine.sink import MEMBER


def test_a_block_is_split_between_results() -> None:
    """Also where the number of members varies, as in joins whose streams a column names."""
    ends = np.array([2, 3, 6, 8, 9])
    whole = Block(np.arange(5), np.arange(9), ends, (), certain=ends > 5)
    parts = list(whole.split(2))
    assert [part.time.tolist() for part in parts] == [[0, 1], [2, 3], [4]]
    assert [part.members.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5, 6, 7], [8]]
    assert [part.ends.tolist() for part in parts] == [[2, 3], [3, 5], [1]]
    assert [[*map(bool, part.certain)] for part in parts] == [[False, False], [True, True], [True]]
    assert list(whole.split(5)) == [whole]
    checked = whole._replace(known=np.empty(9, MEMBER))
    assert list(checked.split(2)) == [checked]


def test_the_directory_of_keys_grows_with_the_keys_amid_a_batch() -> None:
    """It holds few at first; how the rows are cut into batches changes nothing."""
    rows, keys = 20_000, {"few": 500, "many": 20_000}
    sizes = {}
    for name, number in keys.items():
        drawn = np.random.default_rng(1).permutation(rows) % number
        table = pa.table({"k": drawn, "ts": np.arange(rows)})
        schemas = {"a": table.schema, "b": table.schema}
        join = ss.join(*schemas).on("k").within(15_000, time="ts").keep(rows=10_000).shed("oldest")
        inputs = {"a": table, "b": table.slice(100)}
        whole = build_operator(join.plan(schemas), whole=False)
        parts = [
            whole.read(place, part.combine_chunks().to_batches()[0])
            for place, part in enumerate(inputs.values())
        ]
        batch = merged(parts)
        assert not [late for late in whole.process(batch) if isinstance(late, Late)]
        cut = build_operator(join.plan(schemas), whole=False)
        for start in range(0, batch.time.size, 700):
            for _ in cut.process(batch.part(start, min(start + 700, batch.time.size))):
                pass
        assert cut.core.counts.tolist() == whole.core.counts.tolist()
        assert cut.made == whole.made > 0
        sizes[name] = whole.core.table.size
    assert sizes["few"] < sizes["many"]
    assert sizes["many"] > 1.25 * 10_000
