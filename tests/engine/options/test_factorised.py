"""One output for all results of a row: it stands for what is made without it, no more, no less."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import streamshed as ss
from cells import NAMED, TOGETHER, expanded
from harness import inputs, slow_generation, spec
from oracles.rows import Workload
from oracles.workloads import workloads
from streamshed.engine import ingest
from streamshed.engine.factorised import MOST_RESULTS

BASE = ss.join("a", "b", "c").on("k").within(60, time="ts")
BY = ss.join(by="stream").on("k").within(60, time="ts")


def plain(results: list[dict[str, Any]]) -> Counter:
    """Results, but for what follows from all members of an output, not from those of a result.

    The order of a newcomer's partners depends on who was taken for one.
    """

    def told(name: str, value: Any) -> Any:
        return (name, value[0], sorted(map(str, value[1:]))) if name == "members" else (name, value)

    left_out = ("extends", "time")
    return Counter(
        str(sorted(told(name, value) for name, value in result.items() if name not in left_out))
        for result in results
    )


def latest(output: dict[str, Any]) -> int:
    """The largest time of the members."""
    members = [one for value in output.values() if isinstance(value, list) for one in value]
    return max(member["ts"] for member in members)


def check(join: ss.Join, data: Any, order: str = "time") -> ss.Replay:
    """Outputs stand for the results, and all accounts and estimates are those without them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # late rows are expected here
        each = join.replay(data, order=order)
        whole = join.factorised().replay(data, order=order)
        counted = join.factorised().count(data, order=order)
    results = each.table.to_pylist()
    if all(join._spec.time_of(stream) is not None for stream in join._spec.streams or ("",)):
        outputs = whole.table.to_pylist()
        assert [output["time"] for output in outputs] == [latest(output) for output in outputs]
    assert plain(expanded(whole.table)) == plain(results)
    # Without a budget one of the two is joined in bulk, on other tables.
    assert replace(whole.ledger, state_bytes=0) == replace(each.ledger, state_bytes=0)
    assert counted.results == whole.ledger.results == len(results)
    assert str(counted.recall) == str(each.ledger.recall)
    return whole


@slow_generation
@given(workloads(budget=False))
def test_outputs_stand_for_the_results(workload: Workload) -> None:
    check(spec(workload), inputs(workload), "arrival")


@slow_generation
@given(workloads(by=True, budget=False))
def test_outputs_of_streams_by_a_column_stand_for_the_results(workload: Workload) -> None:
    check(spec(workload), inputs(workload), "arrival")


SLOW = [
    pytest.param(policy, marks=pytest.mark.slow)
    for policy in ("existence", ss.policies.Sketch("sample"))
]


@pytest.mark.parametrize("policy", ["density", "output", *SLOW])
def test_policies_decide_alike(policy: str | ss.policies.Policy) -> None:
    """Those that learn from results hear of each, though only one output is made."""
    made = check(BASE.keep(total=30).shed(policy), NAMED)
    assert sum(stream.shed for stream in made.ledger.streams.values()) > 0


def test_a_row_makes_one_output() -> None:
    made = BASE.factorised().replay(NAMED).table
    newest = [
        max((m["ts"], name, m["row"]) for name in "abc" for m in r[name]) for r in made.to_pylist()
    ]
    assert len({*newest}) == made.num_rows < BASE.count(NAMED).results


@pytest.mark.parametrize("room", [1, 7])
def test_outputs_are_handed_out_as_there_is_room(room: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("streamshed.engine.operator.OUTPUT", room)
    check(BASE, NAMED)
    check(BY.partial(at_least=2), TOGETHER)


def test_rows_ahead_of_the_newcomer_do_not_all_go_together() -> None:
    """Of b's rows the one at 19 is too late for a's at 5: no output has both."""
    data = {
        "a": pa.table({"k": [1, 1], "ts": [5, 12], "row": [0, 1]}),
        "b": pa.table({"k": [1, 1], "ts": [11, 19], "row": [0, 1]}),
        "c": pa.table({"k": [1], "ts": [10], "row": [0]}),
    }
    join = ss.join("b", "a", "c").on("k").within(10, time="ts", late=20, clock="max")
    session = join.factorised().open({name: rows.schema for name, rows in data.items()})
    made = [session.push({name: data[name]}) for name in "bac"]
    outputs = pa.concat_tables(made)
    found = {tuple(result[name]["row"] for name in "abc") for result in expanded(outputs)}
    assert found == {(0, 0, 0), (1, 0, 0), (1, 1, 0)}
    assert session.ledger.results == outputs.num_rows == len(found)


def test_an_output_says_which_it_extends() -> None:
    """That of its youngest partner, which had all but the partners of its own stream."""
    outputs = BY.partial(at_least=2).factorised().replay(TOGETHER).table.to_pylist()
    made = {output["update"]: output for output in outputs}
    assert len(made) == len(outputs)
    extending = 0
    for output in outputs:
        _, *partners = output["members"]
        streams = {partner["stream"] for partner in partners}
        assert (output["extends"] is None) == (len(streams) < 2)
        if output["extends"] is not None:
            extending += 1
            first, *others = made[output["extends"]]["members"]
            assert first in partners
            others = [str(other) for other in others]
            assert all(str(p) in others for p in partners if p["stream"] != first["stream"])
    assert extending > 5


def test_members_of_other_keys_are_dropped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two hashes for forty names of keys: nearly all partners that are found are none."""
    real = ingest.key_hash

    def few(*arguments: Any) -> Any:
        hashed, null = real(*arguments)
        return hashed & np.uint64(1), null

    def with_names(rows: pa.Table) -> pa.Table:
        names = pa.array([f"k{key}" for key in rows["k"].to_pylist()])
        return rows.set_column(0, "k", names)

    named = {name: with_names(rows) for name, rows in NAMED.items()}
    together = with_names(TOGETHER)
    expected = {
        join: plain(join.replay(data).table.to_pylist())
        for join, data in (
            (BASE, named),
            (BASE.partial(at_least=2), named),
            (BY.partial(), together),
        )
    }
    monkeypatch.setattr(ingest, "key_hash", few)
    for join, results in expected.items():
        data = together if join._spec.by else named
        made = join.factorised().replay(data)
        assert plain(expanded(made.table)) == results
        assert made.ledger.results == results.total()
    spilled = BASE.keep(total=60).spill(to=tmp_path).factorised().replay(named)
    assert plain(expanded(spilled.table)) == expected[BASE]
    assert spilled.ledger.results == expected[BASE].total()


def test_what_comes_from_disk_is_counted_by_results(tmp_path: Path) -> None:
    join = BASE.keep(total=60).spill(to=tmp_path)
    one, each = join.factorised().replay(NAMED), join.replay(NAMED)
    assert plain(expanded(one.table)) == plain(each.table.to_pylist())
    assert one.ledger.spilled == each.ledger.spilled
    assert one.ledger.results == each.ledger.results == join.factorised().count(NAMED).results
    assert one.ledger.spilled.results > 0


def test_results_are_counted_as_far_as_an_integer_goes() -> None:
    streams = {f"s{i}": pa.table({"k": [1] * 4, "ts": [0] * 4}) for i in range(40)}
    made = ss.join(*streams).on("k").within(10, time="ts").factorised().replay(streams)
    assert made.table.num_rows == 4  # the rows of the last stream
    assert [len(made.table[name][3].as_py()) for name in ("s0", "s39")] == [4, 1]
    assert made.ledger.results == MOST_RESULTS


def test_selections_choose_the_columns_of_members() -> None:
    made = BASE.select("a.row", "c.w").factorised().replay(NAMED).table
    row = pa.struct([("row", pa.int64())])
    assert made.schema.names == ["a", "c", "time"]
    assert made.schema.field("a").type == pa.list_(row)
    assert made.num_rows == BASE.factorised().replay(NAMED).table.num_rows
