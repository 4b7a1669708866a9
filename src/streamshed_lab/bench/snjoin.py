"""Joins of many streams: SNJoin, ours and bare, beside MJoin and trees of XJoins.

All take turns on the same rows, once the window of a minute is full, without shedding; how, and
on which workloads, is said in `streamshed_lab.experiments.snjoin`. Complete joins of 2 to 20
streams with 100 rows a second each: *readings* have no results with many streams, *events*
have them with any number. *Bare SNJoin* is figure 2 of its paper on the baselines' own
tables; SNJoin is our engine, which does more, row by row; *in bulk* it takes the rows many at
once, with those that fill the window, as replay does where nothing is shed (the time is that of all
cores together, and the timed rows' part of the whole). MJoin chooses
the order of its probes every 1,024 rows; in another run with the paper's costs, an order for each
row and partial results that are formed.

Joins of variable arity of 200 to 2,000 streams with a row a second each, whose values move on.
*Equal work* is the processor time that SNJoin takes for all rows: the others get so many, drawn
at random, as they can process in it. Spilling is measured in `streamshed_lab.bench.spilling`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from streamshed_lab.bench import Measurement, Progress, spilling
from streamshed_lab.experiments.snjoin.running import (
    AT_ONCE,
    BARE,
    CHOOSING,
    EVENTS,
    FULL_AFTER,
    MJ,
    READINGS,
    SN,
    XJ,
    Arrivals,
    at_equal_work,
    baselines,
    complete_query,
    complete_tuples,
    sensor_join,
    sensor_query,
    sensors,
    timed,
    times,
)
from streamshed_lab.workloads import SensorWorkload

TIME_BARS = {CHOOSING: 0.62, XJ: 0.82}
"""How much of each one's time bare SNJoin may take with the most streams, complete."""
ENGINE_BARS = {EVENTS: 0.8, READINGS: 1.0}
"""How much of MJoin's time our engine may take with the most streams, complete."""
OUTPUT_BARS = {MJ: 1.6, XJ: 2.5}
"""How many times each one's output SNJoin is to make with the most streams, at equal work."""
CHANGES, FEWER_BAR = 100, 4.0
SPEED_BAR = 1_000_000


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    few: tuple[int, ...] = (2, 5, 10, 20)
    many: tuple[int, ...] = (200, 500, 1_000, 2_000)
    crowd: int = 100_000
    minutes: int = 10
    tuples: int = 400_000
    readings: int = 60_000
    rounds: int = 3


QUICK = Scale(few=(2, 20), many=(200, 2_000), minutes=3, tuples=100_000, readings=10_000, rounds=2)
FULL = Scale()


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    scale = QUICK if quick else FULL
    yield from _complete(scale, progress)
    yield from _variable(scale, progress)
    yield from _changing(scale, progress)
    yield from _crowd(scale, progress)
    yield from spilling.run(quick, progress)


def _complete(scale: Scale, progress: Progress) -> Iterator[Measurement]:
    for workload in (READINGS, EVENTS):
        for streams in scale.few:
            where = f"complete, {workload}, {streams} streams"
            progress(where)
            tuples = complete_tuples(workload, streams, scale.tuples)
            names = (SN, AT_ONCE, BARE, MJ, XJ, CHOOSING)
            spent, results = times(tuples, complete_query(streams), scale.rounds, names)
            yield from _costs(tuples, spent, results, where)
            for ours, name in product((BARE, SN, AT_ONCE), names[3:]):
                bar = None
                if streams == max(scale.few):
                    bars = TIME_BARS if ours == BARE else {MJ: ENGINE_BARS[workload]}
                    bar = bars.get(name)
                said = f"time of {ours} against that of {name}, {where}"
                yield Measurement(said, spent[ours] / spent[name], "times", bar, at_most=True)
        yield from _factorised(scale, workload, progress)


def _factorised(scale: Scale, workload: str, progress: Progress) -> Iterator[Measurement]:
    """One output for each arrival that has any: itself, and all rows that it meets."""
    streams = max(scale.few)
    where = f"one output per arrival, {workload}, {streams} streams"
    progress(where)
    tuples = complete_tuples(workload, streams, scale.tuples)
    query = replace(complete_query(streams), factorised=True)
    spent = {}
    for name in (BARE, CHOOSING):
        runs = [timed(tuples, baselines(query)[name]()) for _ in range(scale.rounds)]
        seconds, outputs = min(runs)
        spent[name] = seconds
        yield Measurement(f"outputs, {name}, {where}", outputs / tuples.count, "per row")
    said = f"time of {BARE} against that of {CHOOSING}, {where}"
    yield Measurement(said, spent[BARE] / spent[CHOOSING], "times")


def _costs(
    tuples: Arrivals, spent: dict[str, float], results: int, where: str
) -> Iterator[Measurement]:
    for name, seconds in spent.items():
        yield Measurement(f"time per row, {name}, {where}", seconds / tuples.count * 1e9, "ns")
    yield Measurement(f"results, {where}", results / tuples.count, "per row")


def _variable(scale: Scale, progress: Progress) -> Iterator[Measurement]:
    for streams in scale.many:
        where = f"variable arity, {streams:,} streams"
        progress(where)
        table = sensors(streams, scale.readings).table()
        tuples = Arrivals.of(sensor_join(), {"readings": table})
        query = sensor_query(streams)
        spent, results = times(tuples, query, 1 if streams > 1_000 else scale.rounds)
        yield from _costs(tuples, spent, results, where)
        for name, least in OUTPUT_BARS.items():
            make = baselines(query)[name]
            share, made = at_equal_work(tuples, make, spent[SN], spent[name])
            bar = least if streams == max(scale.many) else None
            yield Measurement(f"rows taken at equal work, {name}, {where}", 100 * share, "%")
            said = f"SNJoin's output against that of {name} at equal work, {where}"
            yield Measurement(said, results / max(1, made), "times", bar)


def _changing(scale: Scale, progress: Progress) -> Iterator[Measurement]:
    """A set of streams that changes all the time, beside one that does not."""
    streams = max(scale.many)
    rates: dict[int, float] = {}
    costs: dict[int, float] = {}
    for changes in (0, CHANGES):
        progress(f"{streams:,} streams, up to {changes} joining or leaving in a minute")
        field = sensors(streams, scale.minutes * 60 * streams, changes=changes)
        tuples = Arrivals.of(sensor_join(), {"readings": field.table()})
        seconds, results = _best(tuples, scale.rounds)
        rates[changes], costs[changes] = results / tuples.count, seconds / tuples.count
    where = f"{streams:,} streams, up to {CHANGES} joining or leaving in a minute"
    yield Measurement(
        f"fewer results for a row than the static set makes, {where}",
        100 * (1 - rates[CHANGES] / rates[0]),
        "%",
        FEWER_BAR,
        at_most=True,
    )
    said = f"time per row against the static set, {where}"
    yield Measurement(said, costs[CHANGES] / costs[0], "times")


def _best(tuples: Arrivals, rounds: int) -> tuple[float, int]:
    """The least time of SNJoin over some rounds, and its results."""
    return min(timed(tuples, tuples.operator()) for _ in range(rounds))


def _crowd(scale: Scale, progress: Progress) -> Iterator[Measurement]:
    """A crowd of streams, each with a row every ten seconds."""
    seconds, crowd = FULL_AFTER + 30.0, scale.crowd
    fields = {
        "values move on": SensorWorkload(
            crowd, seconds, 10.0, values=1_000, popular="same", lasts=400 / crowd, seed=1
        ),
        "own popular values": SensorWorkload(crowd, seconds, 10.0, values=100 * crowd, seed=1),
    }
    for values, field in fields.items():
        where = f"{crowd:,} streams, {values}"
        progress(where)
        tuples = Arrivals.of(sensor_join(), {"readings": field.table()})
        spent, results = _best(tuples, scale.rounds)
        yield Measurement(f"loop, {where}", tuples.count / spent, "rows/s", SPEED_BAR)
        yield Measurement(f"results, {where}", results / tuples.count, "per row")
