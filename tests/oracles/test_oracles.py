"""The oracles against each other, and against what was worked out by hand."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oracles.cases import PATTERNS, case_1, case_2
from oracles.density import Excitement, Note, single
from oracles.exact import exact, judged
from oracles.lives import AGES, MIDDLE, MOVE, RETURN, START, WIDTH, Lives, bucket
from oracles.rows import Row, Workload, arrival_order, by_column, named
from oracles.rules import draw, hash_of, mix
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
            ahead=99,
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


class TestDensity:
    """The rule by which nothing is named, worked out with a pencil where that can be done."""

    def test_buckets(self) -> None:
        """They cover a window without a gap, and each cell is in the last that has begun."""
        assert START[0] == 0.0
        assert all(START[a] + WIDTH[a] == START[b] for a, b in pairwise(range(AGES)))
        assert START[-1] + WIDTH[-1] == 1.0
        found = [bucket(cell, 4095.0) for cell in range(4096)]
        assert found == [max(a for a in range(AGES) if START[a] * 4096 <= c) for c in range(4096)]
        assert bucket(5000, 4095.0) == AGES - 1

    def test_outlook_of_nothing(self) -> None:
        """Half a move is hoped for by the middle of a doubling, and no return.

        In the last bucket, 1/32 wide, the rate is 1/2 by 3/4, so that a move has 1/48 and the
        chance of one is 1/49. It makes a result, and takes a row for 1/32 · (1 - 1/98).
        """
        outlook = Lives(2, 2).outlook(Counter(), lambda size: 0.0)
        alone, both = frozenset({0}), frozenset({0, 1})
        assert outlook[alone, AGES - 1] == pytest.approx(64 / 97)
        assert {outlook[both, age] for age in range(AGES)} == {0.0}
        assert outlook[alone, 0] > outlook[alone, 40] > outlook[alone, 100] > 64 / 97
        assert outlook[alone, 7] == outlook[frozenset({1}), 7]

    def test_outlook_of_one_key(self) -> None:
        """A key enters at 0 and comes again in the last bucket: it was there all the time.

        The last doubling is 1/2 wide, and the key is there for 1/32 · 15.5; no moves but 1/3 hoped
        for. So moves have the rate (1/3) / (15.5/32 + 1/2), and returns 1 by the same.
        """
        lives = Lives(2, 2)
        alone = frozenset({0})
        lives.enter(alone, 0)
        lives.come_back(alone, AGES - 1)
        there = lives.there(Counter())
        assert there[alone] == [0.5, *[1.0] * (AGES - 2), 0.5]
        course = lives.course(there)
        time = 15.5 / 32
        moves, returns = (1 / 3) / (time + 0.5), 1 / (time + 0.5)
        last = AGES - 1
        assert course[1, last, MOVE] == pytest.approx(moves * 4 / (moves / 64 + 4))
        assert course[1, last, RETURN] == pytest.approx(returns * 5 / (returns / 64 + 4))
        assert course[1, last - 1, RETURN] == pytest.approx(returns * 4 / (returns / 32 + 4))
        expected = course[1, last, RETURN] / 64 + 15 * course[1, last - 1, RETURN] / 32
        factor = 5 / (expected + 4)
        assert lives.factor(there, course, alone, 8, RETURN) == pytest.approx(factor)
        move = course[1, last, MOVE] * lives.factor(there, course, alone, 8, 1) / 32
        back = course[1, last, RETURN] * factor / 32
        chances = [rate / (1 + move + back) for rate in (move, back)]
        made = chances[0] + chances[1] * 0.7 / 32
        took = (1 - sum(chances) / 2) / 32 + chances[1] * 2 / 32
        outlook = lives.outlook(Counter(), lambda size: 0.7)
        assert outlook[alone, last] == pytest.approx(made / took)
        # Were it there still, it would not be known that it comes no more.
        assert lives.there(Counter({(alone, 0): 1}))[alone][0] == 0.0

    def test_excitement(self) -> None:
        """One gap of half a window, at the end of which the key comes to the second stream."""
        found = Excitement(2)
        found.regress()
        assert found.weights == [[0.25] * 4] * 2
        note = Note(0, 100, 0, {0}, [4.0, 0.0], [1.0, 0.0], [0.0] * 2, [0.0] * 2, returns=True)
        found.learn(note, 100.0, 0.5, 1)
        ripe = 3 / (3 * (1 - math.exp(-1 / 3)) + 0.5)
        weight = 2 / (0.04 + 4 + ripe)
        steps = [(step + 0.5) / 20_000 for step in range(10_000)]
        fast = [4 * math.exp(-t / 0.3) for t in steps]
        slow = [ripe * math.exp(-t / 3) for t in steps]
        product = sum(f * s for f, s in zip(fast, slow, strict=True)) / 20_000
        assert found.sums[0][2] == found.sums[2][0] == pytest.approx(weight * product)
        square = sum(f * f for f in fast) / 20_000
        assert found.sums[0][0] == pytest.approx(weight * square)
        assert found.sums[1] == [0.0] * 4
        assert found.targets[0] == [0.0] * 4
        assert found.targets[1] == pytest.approx(
            [weight * 4 * math.exp(-0.5 / 0.3), 0, weight * ripe * math.exp(-0.5 / 3), 0]
        )
        found.regress()
        for weights, targets in zip(found.weights, found.targets, strict=True):
            for place, row in enumerate(found.sums):
                slope = sum(a * b for a, b in zip(row, weights, strict=True)) - targets[place]
                slope += 4 * (weights[place] - 0.25)
                assert abs(slope) < 1e-6 or (weights[place] == 0.0 and slope > 0.0)

    def test_three_keys(self) -> None:
        """A key that is through leaves, comes again and returns; one leaves, and is recalled.

        Key 1 comes to both streams, and promises nothing more: it leaves `a` for key 3. When it
        comes to `a` again, it returns, and promises more than keys 2 and 3, which came 87 and more
        ago and are in the same bucket: the older leaves. Its ghost knows it when it comes to `b`.
        Having lost `a` it promises a twentieth of what its arrivals do, and leaves for key 4.
        """
        workload = named(
            [[(1, 0, 0), (2, 2, 0), (3, 3, 0), (1, 90, 0)], [(1, 1, 0), (2, 95, 0), (4, 96, 0)]],
            [("time", 100)] * 2,
            clock="max",
            keep_rows=(2, 2),
            policy="density",
        )
        rule = simulate(_until(workload, 3)).rule
        assert rule.notes[1].lost == {0}
        assert not rule.notes[1].returns
        assert rule.density(1, 1) == 0.0
        assert rule.density(3, 0) == single(rule.outlook[frozenset({0}), 0]) > 0.0

        # 90: key 1 was in both streams from 1/100 on, and returns.
        rule = simulate(_until(workload, 90)).rule
        note = rule.notes[1]
        assert note.returns
        assert not note.lost
        both = frozenset({0, 1})
        assert rule.lives.moved == {
            (frozenset({0}), bucket(1, 100.0) // 16, 1): 1.0,
            (both, bucket(90, 100.0) // 16, RETURN): 1.0,
        }
        assert rule.lives.flow[both, bucket(1, 100.0)] == 1.0
        assert rule.lives.flow[both, bucket(90, 100.0)] == -1.0
        fast = [(math.exp(-0.9 / 0.3) + 1) / 0.3, math.exp(-0.89 / 0.3) / 0.3]
        slow = [(math.exp(-0.9 / 3) + 1) / 3, math.exp(-0.89 / 3) / 3]
        ripe = 3 / (3 * (1 - math.exp(-0.9 / 3)) + 0.5)
        assert note.fast == pytest.approx(fast)
        assert note.slow == pytest.approx(slow)
        assert note.fast_to_come == pytest.approx([sum(fast) / 4] * 2)
        assert note.slow_to_come == pytest.approx([ripe * sum(slow) / 4] * 2)
        assert rule.fresh_keys == 1.0
        assert rule.fresh_arrivals == pytest.approx((sum(fast) + ripe * sum(slow)) / 2)
        soon = MIDDLE[0]
        rate = sum(fast) / 4 * _average(soon, 0.3) + ripe * sum(slow) / 4 * _average(soon, 3)
        assert rule.density(1, 0) == pytest.approx(rate)
        # In `b` its row has 11/100 left, but there is a row in `a` for who comes there.
        assert rule.density(1, 1) == pytest.approx(math.sqrt(0.11) * rate)
        (tag, ghost), *others = rule.ghosts.values()
        assert (tag, others) == (hash_of(workload, 2) >> 32, [])
        assert (ghost.begin, ghost.lanes, ghost.lost) == (2, {0}, {0})

        # 95: key 2 is again what it was.
        rule = simulate(_until(workload, 95)).rule
        assert not rule.ghosts
        note = rule.notes[2]
        assert (note.begin, note.last, note.first) == (2, 95, 2)
        assert (note.lanes, note.lost, note.returns) == ({0, 1}, {0}, False)
        assert rule.lives.moved[frozenset({0}), bucket(93, 100.0) // 16, 1] == 1.0
        fast = (math.exp(-0.93 / 0.3) + 1) / 0.3 / 4
        slow = (math.exp(-0.93 / 3) + 1) / 3 / 4 * 3 / (3 * (1 - math.exp(-0.93 / 3)) + 0.5)
        rate = fast * _average(soon, 0.3) + slow * _average(soon, 3)
        assert rule.density(2, 1) == pytest.approx(0.05 * rate)

        # 96: key 4 is new; of keys 1 and 2 in `b` the second promises less.
        outcome = simulate(workload)
        assert outcome.fates == [(3, ("a", 0)), (4, ("a", 1)), (6, ("b", 1))]
        assert set(outcome.rule.notes) == {1, 3, 4}
        assert outcome.rule.present() == {
            (frozenset({0}), bucket(93, 100.0)): 1,
            (frozenset({1}), 0): 1,
            (both, bucket(94, 100.0)): 1,
        }

    def test_ghosts_are_dismissed(self) -> None:
        """After four windows the key is new; at its turn the place is looked at."""
        workload = named(
            [[(1, 0, 0), (2, 5, 0), (1, 41, 0)], []],
            [("time", 10)] * 2,
            clock="max",
            keep_rows=(1, 1),
            policy="density",
        )
        rule = simulate(workload).rule
        assert rule.notes[1].begin == 41
        assert not rule.notes[1].returns
        place = hash_of(workload, 2) % rule.places
        assert rule.ghosts[place][1].last == 5
        rule.newest = 45
        rule.look_at(place)
        assert place in rule.ghosts
        rule.newest = 46
        rule.look_at(place)
        assert place not in rule.ghosts

    def test_front(self) -> None:
        """Who has come to all streams is put in front, and leaves first."""
        first = [(key, key, 0) for key in range(70)]
        workload = named(
            [first, [(69, 80, 0)]], [("time", 99)] * 2, keep_rows=(70, 70), policy="density"
        )
        rule = simulate(workload).rule
        keys = [held.key for held in rule.lists["a"]]
        assert keys == [69, *range(1, 69), 0]
        assert len(rule.front("a")) == 16
        assert rule.turns == {"a": 1}
        newest = replace(rule.lists["a"][0], key=71, time=90, row=70, arrival=71)
        rule.advances(newest)
        window = list(rule.windows["a"])
        assert not rule.refuses(window, newest)
        assert rule.victim(window, newest).key == 69
        assert rule.turns == {"a": 2}
        assert rule.front("a")[0] == 0.0

    def test_small_windows_are_in_front_as_a_whole(self) -> None:
        """Nobody has to be put there, and the lowest of all leaves."""
        first = [(key, key, 0) for key in range(64)]
        workload = named(
            [first, [(40, 70, 0)]], [("time", 99)] * 2, keep_rows=(64, 64), policy="density"
        )
        rule = simulate(workload).rule
        assert [held.key for held in rule.lists["a"]] == [*range(64)]
        newest = replace(rule.lists["a"][0], key=71, time=80, row=64, arrival=65)
        rule.advances(newest)
        window = list(rule.windows["a"])
        assert not rule.refuses(window, newest)
        assert rule.victim(window, newest).key == 40
        assert rule.front("a")[40] == 0.0
        assert None not in rule.front("a")

    def test_told_apart_by_a_column(self) -> None:
        """Rows are counted; a key begins anew after a window, and is forgotten without a row."""
        table = [("x", 1, 0, 0), ("y", 1, 4, 0), ("x", 1, 11, 0), ("x", 2, 12, 0)]
        workload = by_column(
            table, ("time", 10), at_least=2, keep_total=10, policy="density", late=3
        )
        rule = simulate(workload).rule
        assert rule.lives.flow == {
            (1, bucket(0, 10.0)): 3.0,
            (1, bucket(4, 10.0)): -1.0,
            (2, bucket(4, 10.0)): 1.0,
        }
        assert rule.lives.moved == {(1, bucket(4, 10.0) // 16, "more"): 1.0}
        assert (rule.notes[1].first, rule.notes[1].rows, rule.notes[1].returns) == (11, 1, False)
        assert not rule.ghosts


def _average(begin: float, fades: float) -> float:
    """What is left of a count: the most, on average over one of the times ahead.

    As nothing was learned yet, what comes falls with a power of the end of the gap's bin, and with
    the arrivals that were to come until then, 2 in a window.
    """
    ends = [2.0**bits / 4096 for bits in range(15)]

    def mean(ahead: float) -> float:
        edges = [begin, *(end for end in ends if begin < end < begin + ahead), begin + ahead]
        parts = [
            (math.sqrt(0.1 / end) / (1 + 0.1 * 2 * end)) ** 0.7
            * fades
            * (math.exp(-low / fades) - math.exp(-high / fades))
            for low, high in pairwise(edges)
            for end in [min(end for end in ends if end >= high)]
        ]
        return sum(parts) / ahead

    return max(mean(ahead) for ahead in (0.03, 0.09, 0.27, 0.81))


def _until(workload: Workload, time: int) -> Workload:
    """What comes up to some time."""
    return replace(workload, rows=tuple(row for row in workload.rows if row.time <= time))
