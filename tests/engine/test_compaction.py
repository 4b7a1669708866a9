"""Flags of the rows that are stored, in checkpoints."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from streamshed.engine.compaction import FLAGS, flagged, stored_flags
from streamshed.engine.payload import Payload
from streamshed.kernels.core import NONE, ROW


def test_flags_stay_where_they_are_while_there_is_the_segment():
    random = np.random.default_rng(1)
    inputs = [Payload(pa.schema({"n": pa.int64()})) for _ in range(2)]
    ends = []
    for _ in range(60):
        for payload in inputs:
            for number in [*payload.segments]:
                if random.random() < 0.4:
                    payload.drop(number)
            payload.put(pa.record_batch({"n": np.arange(random.integers(0, 4 * FLAGS))}))
        before = [dict(payload.flags) for payload in inputs]
        rows, stored = np.zeros(0, ROW), []
        for stream, payload in enumerate(inputs):
            for number, segment in payload.segments.items():
                chosen = np.flatnonzero(random.random(segment.num_rows) < 0.5)
                stored.append((stream, number, chosen))
                some = np.zeros(len(chosen) + 1, ROW)
                some["stream"], some["payload"] = stream, (number << 32) + np.append(chosen, 0)
                some["arrival"][-1] = NONE
                rows = np.concatenate([rows, some])
        flags = stored_flags(rows, inputs, False)
        for stream, number, chosen in stored:
            payload = inputs[stream]
            size = payload.segments[number].num_rows
            assert flagged(flags, payload.flags[number], size).tolist() == chosen.tolist()
        spans = sorted(
            (begin, begin - (-payload.segments[number].num_rows // FLAGS))
            for payload in inputs
            for number, begin in payload.flags.items()
        )
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
        assert all(b.items() <= p.flags.items() for b, p in zip(before, inputs, strict=True))
        ends.append(spans[-1][1])
    assert max(ends) < 60  # places that are free are used again
