"""An archive and the same archive again, later, as if it were the time to come.

In the first lap windows fill and policies learn; what they do in the second is what they will do.
Keys that come for a while and then never again will not come again in a time to come: in the second
lap they are new keys, so that no policy profits from what it knows of them. Keys that come all the
time stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.arguments import PerStream
from streamshed.conditions import SharedKey
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import InputRows
from streamshed.plan.capabilities import kind_of
from streamshed.plan.plan import Plan, StreamPlan
from streamshed.relations import Table
from streamshed.replay import NOWHERE
from streamshed.spec import Spec

_KEY = "streamshed key"
"""The column that stands for the key of a row."""
_RENAMED = np.uint64(0x9E3779B97F4A7C15)
"""What tells the hash of a key from that of the new key it is in the second lap."""
_LASTING = 0.5
"""Keys that come through so much of the archive come all the time."""

_MOSTLY = 0.5
"""Where such keys have more of the rows, rows come once: policies would know what is to come."""

_Rows = Mapping[str, InputRows]


class Laps(NamedTuple):
    """The rows of two laps, and the join of them."""

    spec: Spec
    tables: Mapping[str, pa.Table]
    length: int
    """How much later a row of the second lap is than that of the first."""


def has_key(spec: Spec) -> bool:
    """Whether all rows of a result share a key, so that some of the keys join as all do."""
    return kind_of(spec) in ("shared key", "streams by a column")


def two_laps(spec: Spec, plan: Plan, tables: Mapping[str, pa.Table]) -> Laps | None:
    """Make two laps of an archive; None if it cannot come twice.

    It can if windows are shorter than it, so that no row meets itself, if nothing else of the join
    has times of its own, and if most rows have keys that come for a while only.
    """
    if not _can_come_twice(spec, plan, tables):
        return None
    rows = encoded(plan, tables)
    times = np.concatenate([own.time[_known(own)] for own in rows.values()])
    if not times.size:
        return None
    length = int(times.max() - times.min()) + 1
    if longest_window(plan) >= length:
        return None
    lasting = None
    if has_key(spec):
        spec = replace(spec, condition=SharedKey(PerStream(everywhere=(_KEY,))))
        lasting = _lasting(rows, round(_LASTING * length))
        if _part_of(rows, lasting) > _MOSTLY:
            return None
    return Laps(
        spec,
        {
            stream.name: _doubled(
                plan, stream, tables[stream.name], rows[stream.name], length, lasting
            )
            for stream in plan.streams
        },
        length,
    )


def longest_window(plan: Plan) -> int:
    """The longest time window, in units of time; 0 if there is none."""
    named = () if plan.windows is None else plan.windows.lengths
    return max([0, *named, *(one.window for one in plan.streams if one.window is not None)])


def encoded(plan: Plan, tables: Mapping[str, pa.Table]) -> dict[str, InputRows]:
    """The times and the hashes of the keys of all rows."""
    ingest = build_operator(plan).ingest
    return {
        name: InputRows.concatenated(
            [ingest.read(position, rows, NOWHERE) for rows in _batches(table)]
        )
        for position, (name, table) in enumerate(tables.items())
    }


def _batches(table: pa.Table) -> Sequence[pa.RecordBatch]:
    empty = pa.RecordBatch.from_pylist([], table.schema)
    return table.to_batches() or [empty]


def _can_come_twice(spec: Spec, plan: Plan, tables: Mapping[str, pa.Table]) -> bool:
    facts_have_times = plan.through is not None and not isinstance(plan.through.relation, Table)
    kind = plan.time_type
    if facts_have_times or not (pa.types.is_int64(kind) or pa.types.is_timestamp(kind)):
        return False
    return all(
        stream.time is not None
        # Times move on from lap to lap, and what they are compared with need not be a time.
        and (has_key(spec) or stream.time not in (*stream.key, *stream.compared))
        and (stream.last is None or stream.last < tables[stream.name].num_rows)
        for stream in plan.streams
    )


def _known(rows: InputRows) -> npt.NDArray[np.bool_]:
    """The rows that have a time and a key."""
    return ~rows.null if rows.null.size else np.ones(rows.time.size, np.bool_)


def _lasting(rows: _Rows, least: int) -> npt.NDArray[np.uint64]:
    """The hashes of keys whose first and last rows are at least so far apart, in order."""
    known = [(own.hash[_known(own)], own.time[_known(own)]) for own in rows.values()]
    hashes, times = (np.concatenate(part) for part in zip(*known, strict=True))
    order = np.lexsort((times, hashes))
    hashes, times = hashes[order], times[order]
    begins = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
    ends = np.r_[begins[1:], hashes.size] - 1
    return np.asarray(hashes[begins[times[ends] - times[begins] >= least]], np.uint64)


def _part_of(rows: _Rows, hashes: npt.NDArray[np.uint64]) -> float:
    """The part of all rows that have one of some keys."""
    having = sum(int(np.isin(own.hash, hashes).sum()) for own in rows.values())
    return having / sum(own.hash.size for own in rows.values())


def _doubled(
    plan: Plan,
    stream: StreamPlan,
    table: pa.Table,
    rows: InputRows,
    length: int,
    lasting: npt.NDArray[np.uint64] | None,
) -> pa.Table:
    """The rows of a stream, and the same rows again."""
    assert stream.time is not None
    place = table.schema.get_field_index(stream.time)
    mask = rows.null if rows.null.size else None
    laps = []
    for lap in (0, 1):
        times = pa.array(rows.time + lap * length, mask=mask).cast(plan.time_type)
        made = table.set_column(place, stream.time, times)
        if lasting is not None:
            keys = rows.hash if not lap else _renamed(rows.hash, lasting)
            made = made.append_column(_KEY, pa.array(keys.view(np.int64)))
        laps.append(made)
    return pa.concat_tables(laps).combine_chunks()


def _renamed(
    hashes: npt.NDArray[np.uint64], lasting: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """The hashes of keys in the second lap, of which some are those of the first."""
    if not lasting.size:
        return hashes ^ _RENAMED
    places = np.minimum(np.searchsorted(lasting, hashes), lasting.size - 1)
    return np.where(lasting[places] == hashes, hashes, hashes ^ _RENAMED)
