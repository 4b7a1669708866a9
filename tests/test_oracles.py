"""The oracles against each other, and against what was worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oracles.cases import PATTERNS, case_1, case_2
from oracles.exact import exact, judged
from oracles.rows import Row, Workload, arrival_order, by_column, named
from oracles.rules import draw, mix
from oracles.simulator import Fate, Simulation, simulate
from oracles.workloads import POLICIES, generated, interleavings, workloads

many = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def agree(workload: Workload, order: list[Row] | None = None) -> None:
    """Without a budget the simulator makes exactly the results that SQL finds."""
    outcome = simulate(workload, order=order)
    results, judgement = judged(workload, order)
    assert outcome.multiset() == results
    assert outcome.clocks == judgement.clocks
    assert sorted(outcome.expiries) == sorted(judgement.expiries)
    for stream, account in outcome.ledger.items():
        assert account.late == judgement.having("late")[stream]
        assert account.filtered == judgement.having("filtered")[stream]


class TestWithoutBudget:
    """Two statements of the same meaning."""

    @many
    @given(workloads(partial=False, budget=False))
    def test_complete(self, workload: Workload) -> None:
        """Complete joins."""
        agree(workload)

    @many
    @given(workloads(partial=True, budget=False))
    def test_partial(self, workload: Workload) -> None:
        """Variable arity."""
        agree(workload)

    @many
    @given(workloads(by=True, budget=False))
    def test_by(self, workload: Workload) -> None:
        """Streams told apart by a column."""
        agree(workload)

    @many
    @given(st.data(), workloads(budget=False))
    def test_any_order(self, data: st.DataObject, workload: Workload) -> None:
        """Streams that run ahead of each other: here idle streams come to life."""
        agree(workload, data.draw(interleavings(workload)))

    @pytest.mark.parametrize("by", [False, True])
    def test_larger(self, by: bool) -> None:
        """Some hundred rows, with skew, disorder and nulls."""
        workload = generated(
            7, rows=400, keys=60, skew=0.7, disorder=9, nulls=0.03, window=("time", 30),
            by=by, late=4, at_least=2 if by else None,
        )  # fmt: skip
        assert sum(exact(workload).values()) > 200
        agree(workload)


class TestWithBudget:
    """What holds whatever is shed."""

    @many
    @given(workloads(budget=True))
    def test_named(self, workload: Workload) -> None:
        """The ledger balances after every arrival, and no budget is exceeded."""
        kept_in_bounds(workload, simulate(workload, trace=True))

    @many
    @given(workloads(by=True, budget=True))
    def test_by(self, workload: Workload) -> None:
        """The same for streams named by a column."""
        kept_in_bounds(workload, simulate(workload, trace=True))

    @many
    @given(workloads(partial=False, budget=True))
    def test_nothing_is_invented(self, workload: Workload) -> None:
        """What a complete join makes within a budget is a part of the exact result."""
        assert simulate(workload).multiset() <= exact(workload.unbounded())

    @pytest.mark.parametrize("policy", POLICIES)
    @settings(max_examples=30, deadline=None)
    @given(workloads(budget=False))
    def test_ample(self, policy: str, workload: Workload) -> None:
        """A budget that is never reached changes nothing."""
        ample = replace(workload, keep_total=10_000, policy=policy)
        outcome = simulate(ample)
        assert outcome.results == simulate(workload).results
        assert not outcome.fates


def kept_in_bounds(workload: Workload, outcome: Simulation) -> None:
    """Check the trace of a run with a budget."""
    arrivals = arrival_order(workload)
    assert len(outcome.trace) == len(arrivals) == len(workload.rows)
    before = 0
    for number, ledger in enumerate(outcome.trace, start=1):
        assert all(account.balanced for account in ledger.values())
        assert sum(account.arrived for account in ledger.values()) == number
        shed = sum(account.shed for account in ledger.values())
        assert shed == sum(fate.arrival < number for fate in outcome.fates)
        assert shed - before in (0, 1)
        before = shed
        if workload.keep_total is not None:
            assert sum(account.stored for account in ledger.values()) <= workload.keep_total
        else:
            stored = [ledger[name].stored for name in workload.names]
            assert all(held <= most for held, most in zip(stored, workload.keep_rows, strict=True))
    for stream, account in outcome.ledger.items():
        assert account.stored == len(outcome.windows[stream])


class TestExistencePatterns:
    """Section 3.3 of the paper."""

    @pytest.mark.parametrize("case", [case_1(), case_2()], ids=["case 1", "case 2"])
    def test_victims(self, case) -> None:
        """The tuples that the text names are shed, and nothing before them."""
        assert simulate(case.workload).fates == case.fates

    def test_patterns(self) -> None:
        """The patterns are those of the text, the first stream being its first bit."""
        case = case_2()
        outcome = simulate(case.workload)
        found = {
            (held.stream, held.row): f"{pattern:03b}"[::-1]
            for held, pattern in outcome.rule.patterns.items()
        }
        assert {name: found[case.tuples[name]] for name in PATTERNS} == PATTERNS

    @pytest.mark.parametrize("policy", ["frequency", "output"])
    @pytest.mark.parametrize("seed", range(5))
    def test_value_based_policies(self, policy: str, seed: int) -> None:
        """They treat t1, t2, t3 alike in case 1, and t5, t6, t8 in case 2."""
        for build, choice in ((case_1, ("t1", "t2", "t3")), (case_2, ("t5", "t6", "t8"))):
            case = build(policy, seed)
            first = simulate(case.workload).fates[0]
            assert first.arrival == case.fates[0].arrival
            assert first.victim in [case.tuples[name] for name in choice]


class TestByHand:
    """Small cases worked out on paper, one for each sentence that is easily got wrong."""

    def test_draw(self) -> None:
        """The first outputs of splitmix64 from seed 0, as published."""
        golden = 0x9E3779B97F4A7C15
        assert mix(golden) == 0xE220A8397B1DCDAF
        assert mix(2 * golden % 2**64) == 0x6E789E6AA1B965F4
        assert draw(0, 0) == mix(golden)

    def test_arrival_order(self) -> None:
        """A row arrives at the largest time so far in its stream."""
        workload = named(
            [[(1, 5, 0), (1, 2, 0), (1, 9, 0)], [(1, None, 0), (1, 5, 0), (1, 7, 0)]],
            [("time", 1)] * 2,
        )
        order = [(row.stream, row.row) for row in arrival_order(workload)]
        assert order == [("b", 0), ("a", 0), ("a", 1), ("b", 1), ("b", 2), ("a", 2)]

    def test_row_windows_have_no_time(self) -> None:
        """The time of a row is its number; nothing is late."""
        workload = named([[(1, 50, 0), (1, 0, 0)], [(1, 9, 0)]], [("last", 1)] * 2)
        outcome = simulate(workload)
        made = [result[:3] for result in outcome.results]
        assert made == [((("a", 0), ("b", 0)), 0, 1), ((("a", 1), ("b", 0)), 1, 2)]

    def test_late_is_judged_by_the_clock_before(self) -> None:
        """A tuple exactly `late` behind the clock is taken, one further is not."""
        cells = [(1, 10, 0), (1, 7, 0), (1, 6, 0)]
        workload = named([cells, [(1, 10, 0)] * 2], [("time", 9)] * 2, late=3, clock="max")
        assert simulate(workload).ledger["a"].late == 1

    def test_no_clock_until_all_are_seen(self) -> None:
        """Nothing expires while a stream that is not idle has not been seen."""
        cells = [(1, 0, 0), (1, 50, 0), (1, 100, 0)]
        workload = named([cells, [(1, 200, 0)]], [("time", 1)] * 2)
        assert simulate(workload).clocks == [None, None, None, 100]
        assert simulate(replace(workload, idle=60)).clocks == [None, None, 100, 200]

    def test_window_is_closed(self) -> None:
        """A member exactly its window behind still joins; a zero window joins equal times."""
        streams = [[(1, 0, 0)], [(1, 5, 0)]]
        assert simulate(named(streams, [("time", 5), ("time", 0)])).results
        assert not simulate(named(streams, [("time", 4), ("time", 9)])).results

    def test_partial_needs_pairs_only(self) -> None:
        """Two partners may be further apart than their windows; each pair may not."""
        streams = [[(1, 0, 0)], [(1, 10, 0)], [(1, 5, 0)]]
        workload = named(streams, [("time", 5)] * 3, at_least=2, late=10, clock="max")
        times = [(result.members, result.time) for result in simulate(workload).results]
        assert times == [((("a", 0), ("c", 0)), 5), ((("b", 0), ("c", 0)), 10)]

    def test_outside_goes_first(self) -> None:
        """A tuple outside by the newest time is shed before the policy is asked."""
        worth_most = (1, 0, 9)
        workload = named(
            [[worth_most, (2, 20, 1), (3, 21, 0)], [(4, 1, 0)]],
            [("time", 5)] * 2,
            keep_rows=(2, 2),
            policy="column",
        )
        assert simulate(workload).fates == [Fate(3, ("a", 0))]

    def test_outside_is_beyond_the_window(self) -> None:
        """A tuple exactly its window behind the newest time is not outside."""
        workload = named(
            [[(1, 0, 9), (2, 3, 1), (3, 5, 2)], []],
            [("time", 5)] * 2,
            keep_rows=(2, 2),
            policy="column",
        )
        assert simulate(workload).fates == [Fate(2, ("a", 1))]

    def test_null_worth_is_below_all(self) -> None:
        """Below negative values too."""
        cells = [(1, 0, -3), (2, 1, None), (3, 2, -5)]
        workload = named([cells, []], [("time", 99)] * 2, keep_rows=(2, 2), policy="column")
        assert simulate(workload).fates == [Fate(2, ("a", 1))]

    def test_existence_across_streams(self) -> None:
        """Equal r/n under one budget: the stream's position goes before the pattern's number."""
        workload = named(
            [[(1, 1, 0)], [(2, 2, 0), (3, 3, 0)], [(1, 0, 0)]],
            [("time", 99)] * 3,
            keep_total=3,
            policy="existence",
        )
        assert simulate(workload).fates == [Fate(3, ("a", 0))]

    def test_idle_from_the_start(self) -> None:
        """First seen far behind, a stream is idle at once; its tuple leaves with the next taken."""
        workload = named(
            [[(1, 0, 0), (1, 100, 0), (1, 101, 0)], [(1, -100, 0), (None, 100, 0)]],
            [("time", 10)] * 2,
            idle=150,
        )
        a, b = workload.of("a"), workload.of("b")
        order = [a[0], a[1], b[0], b[1], a[2]]
        outcome = simulate(workload, order=order)
        assert outcome.clocks == [None, None, 100, 100, 101]
        assert outcome.expiries == [(2, ("a", 0)), (4, ("b", 0))]
        agree(workload, order)

    def test_clock_never_goes_back(self) -> None:
        """An idle stream that comes to life does not hold the clock back."""
        workload = named(
            [[(8, 0, 0), (8, 10, 0), (8, 28, 0), (1, 26, 0)], [(9, 0, 0), (1, 17, 0), (9, 30, 0)]],
            [("time", 10)] * 2,
            late=2,
            idle=15,
        )
        a, b = workload.of("a"), workload.of("b")
        order = [a[0], b[0], a[1], b[1], b[2], a[2], a[3]]
        outcome = simulate(workload, order=order)
        assert outcome.clocks == [None, 0, 0, 10, 30, 30, 30]
        assert outcome.ledger["a"].late == 1
        agree(workload, order)

    def test_time_by_column_is_the_number_in_the_table(self) -> None:
        """Row windows have no time column: a row's number in its input is its time."""
        table = [("x", 1, None, 0), ("x", 1, None, 0), ("y", 1, None, 0)]
        workload = by_column(table, ("last", 1), at_least=2)
        assert [result[:3] for result in simulate(workload).results] == [
            ((("x", 1), ("y", 0)), 2, 2)
        ]
        agree(workload)

    def test_column_ties(self) -> None:
        """An equal replaces the first that arrived; a null is below all; a lower is refused."""
        values = [1, 1, 1, 0, None]
        cells = [(key, key, worth) for key, worth in enumerate(values)]
        workload = named([cells, []], [("time", 99)] * 2, keep_rows=(2, 2), policy="column")
        assert simulate(workload).fates == [(2, ("a", 0)), (3, "refused"), (4, "refused")]

    def test_refused_counts_as_a_row(self) -> None:
        """The window is the last N rows that arrived, stored or not."""
        cells = [(1, None, 5), (2, None, 5), (3, None, 1), (4, None, 5)]
        workload = named([cells, []], [("last", 3)] * 2, keep_rows=(2, 2), policy="column")
        outcome = simulate(workload)
        assert outcome.fates == [(2, "refused")]
        assert outcome.expiries == [(3, ("a", 0))]
        assert outcome.ledger["a"].stored == 2

    def test_random_fills_the_gap_with_the_last(self) -> None:
        """The list after each step, from the draws themselves."""
        cells = [(key, key, 0) for key in range(8)]
        workload = named([cells, []], [("time", 99)] * 2, keep_rows=(3, 3), policy="random", seed=5)
        places = [0, 1, 2]
        expected = []
        for arrival in range(3, 8):
            place = draw(5, arrival) % 3
            expected.append(Fate(arrival, ("a", places[place])))
            places[place] = places[-1]
            places[-1] = arrival
        assert simulate(workload).fates == expected

    def test_frequency_counts_all_windows(self) -> None:
        """Key 1 stands in both windows, key 2 in one."""
        workload = named(
            [[(1, 0, 0), (2, 1, 0), (3, 3, 0)], [(1, 2, 0)]],
            [("time", 99)] * 2,
            keep_rows=(2, 2),
            policy="frequency",
        )
        assert simulate(workload).fates == [Fate(3, ("a", 1))]

    def test_output_forgets_keys_that_left(self) -> None:
        """Key 1 made a result and left; when it returns it stands no higher than key 2."""
        workload = by_column(
            [
                ("x", 1, 0, 0),
                ("y", 1, 0, 0),
                ("x", 2, 50, 0),
                ("x", 1, 51, 0),
                ("x", 3, 52, 0),
            ],
            ("time", 10),
            at_least=2,
            keep_total=2,
            policy="output",
        )
        outcomes = [simulate(replace(workload, seed=seed)) for seed in range(20)]
        assert all(len(outcome.results) == 1 for outcome in outcomes)
        assert all(outcome.rule.results == {} for outcome in outcomes)
        shed = {fate for outcome in outcomes for fate in outcome.fates}
        assert shed == {Fate(4, ("x", 1)), Fate(4, ("x", 2))}

    def test_oldest_is_by_time(self) -> None:
        """The oldest by time leaves, though it arrived last."""
        workload = named(
            [[(1, 5, 0), (2, 3, 0), (3, 6, 0)], []],
            [("time", 99)] * 2,
            keep_total=2,
            policy="oldest",
            late=9,
        )
        assert simulate(workload).fates == [Fate(2, ("a", 1))]
