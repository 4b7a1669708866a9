"""What each operator supports, found by trying it (figure 10)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import streamshed as ss
from streamshed.engine.batch import Batch
from streamshed.engine.encoding import key_hash
from streamshed.kernels.hashing import secret_of
from streamshed_lab.baselines import BASELINES, Baseline, Query
from streamshed_lab.experiments.report import Report, markdown_table
from streamshed_lab.experiments.snjoin.running import SN, Scale
from streamshed_lab.experiments.verdicts import Claim, judge

NO, YES, MORE = "x", "✓", "✓✓"
PAPER = {
    "scalability": (NO, NO, YES, MORE),
    "dynamic configuration": (NO, NO, YES, MORE),
    "symmetric join": (NO, NO, YES, YES),
    "reduction in output delay": (NO, NO, YES, YES),
    "sensitivity to variable input rates": (YES, YES, NO, NO),
    "query plan reorganisation": (YES, YES, NO, NO),
    "memory overflow support": (NO, YES, MORE, MORE),
    "variable-arity join support": (NO, NO, NO, YES),
}
"""Of SHJ tree, XJoin tree, MJoin and SNJoin."""

STREAMS, ROWS = 6, 1_200


def figure_10(scale: Scale, report: Report) -> list[Claim]:
    """The paper's table, beside what the operators do."""
    del scale
    operators = [kind.name for kind in BASELINES] + [SN]
    found: dict[str, list[str]] = {feature: [] for feature in PAPER}
    for kind in BASELINES:
        for feature, mark in _marks(kind).items():
            found[feature].append(mark)
    for feature, mark in _marks_of_snjoin().items():
        found[feature].append(mark)
    table = markdown_table(
        ["feature", *operators],
        [
            [
                feature,
                *(
                    mark if mark == said else f"{mark} (paper: {said})"
                    for mark, said in zip(found[feature], said_of, strict=True)
                ),
            ]
            for feature, said_of in PAPER.items()
        ],
    )
    cells = {
        f"{feature}, {operator}": found[feature][place] == said[place]
        for feature, said in PAPER.items()
        for place, operator in enumerate(operators)
    }
    why = (
        "Tried on a small join: an operator is symmetric, insensitive to rates and in no need of "
        "another plan if it holds as much whatever the order of the streams; it reduces the delay "
        "if it stores no intermediate results; it scales if so, and more if all streams share a "
        "table; streams come and go at no cost if it need not be told. Memory overflow counts more "
        "where the rows of a key are flushed together. Variable arity is supported if not every "
        "stream is probed for it."
    )
    return [judge("10", "the table of features", table, cells, why)]


def _drawn(order: npt.NDArray[np.int64]) -> pa.Table:
    """Rows of some streams, of which the later ones have fewer, numbered in an order."""
    random = np.random.default_rng(1)
    weights = np.linspace(3.0, 1.0, STREAMS)
    stream = random.choice(STREAMS, ROWS, p=weights / weights.sum())
    key = random.integers(0, 60, ROWS)
    return pa.table({"stream": order[stream], "key": key, "time": np.arange(ROWS)})


def _batch(table: pa.Table) -> Batch:
    rows = table.combine_chunks().to_batches()[0]
    hashed, _ = key_hash(rows, ["key"], [pa.int64()], secret_of(0))
    return Batch(
        table["stream"].to_numpy().astype(np.int32),
        table["time"].to_numpy(),
        hashed,
        np.arange(table.num_rows),
        np.empty(0, np.bool_),
        np.empty(0, np.int64),
    )


def _run(kind: Callable[[Query], Baseline], query: Query, table: pa.Table) -> Baseline:
    operator = kind(query)
    for _ in operator.process(_batch(table)):
        pass
    for _ in operator.finish():
        pass
    return operator


def _marks(kind: type[Baseline]) -> dict[str, str]:
    forward, backward = np.arange(STREAMS), np.arange(STREAMS)[::-1].copy()
    query = Query(STREAMS, 200)
    there, back = (_run(kind, query, _drawn(order)) for order in (forward, backward))
    symmetric = there.held == back.held
    in_one_step = there.held == 200 + 1  # rows in the window, and nothing else
    partial = _run(kind, Query(STREAMS, 200, at_least=2), _drawn(forward))
    return {
        "scalability": YES if in_one_step else NO,
        "dynamic configuration": YES if in_one_step else NO,
        "symmetric join": YES if symmetric else NO,
        "reduction in output delay": YES if in_one_step else NO,
        "sensitivity to variable input rates": NO if symmetric else YES,
        "query plan reorganisation": NO if symmetric else YES,
        "memory overflow support": _overflow(kind) if kind.spills else NO,
        "variable-arity join support": NO if partial.probes >= (STREAMS - 1) * ROWS else YES,
    }


def _overflow(kind: type[Baseline]) -> str:
    """Whether all tables were flushed together, or each by itself."""
    operator = _run(kind, Query(STREAMS, 200, memory=100), _drawn(np.arange(STREAMS)))
    first = operator.flushes_of(0)
    together = all(operator.flushes_of(table) == first for table in range(operator.tables))
    return MORE if together else YES


def _marks_of_snjoin() -> dict[str, str]:
    """The same of the engine: what it holds is in its ledger."""
    orders = [np.arange(STREAMS), np.arange(STREAMS)[::-1].copy()]
    ledgers = []
    for order in orders:
        table = _drawn(order)
        names = [f"s{number}" for number in range(STREAMS)]
        tables = {
            name: table.filter(pa.array(table["stream"].to_numpy() == number))
            for number, name in enumerate(names)
        }
        join = ss.join(*names).on("key").within(200, time="time", clock="max")
        ledgers.append(join.count(tables))
    held = [sum(stream.stored for stream in ledger.streams.values()) for ledger in ledgers]
    symmetric = ledgers[0].results == ledgers[1].results and held[0] == held[1]
    in_one_step = held[0] == 200 + 1
    # Streams that nobody has announced come in mid-stream; only those that match have members.
    grown = ss.join(by="stream").on("key").within(200, time="time").replay(_drawn(orders[0]))
    members = [len(result["members"]) for result in grown.table.to_pylist()]
    untold = len(grown.ledger.streams) == STREAMS
    return {
        "scalability": MORE if in_one_step else NO,
        "dynamic configuration": MORE if untold else NO,
        "symmetric join": YES if symmetric else NO,
        "reduction in output delay": YES if in_one_step else NO,
        "sensitivity to variable input rates": NO if symmetric else YES,
        "query plan reorganisation": NO if symmetric else YES,
        "memory overflow support": MORE if hasattr(ss.Join, "spill") else NO,
        "variable-arity join support": YES if members and min(members) < STREAMS else NO,
    }
