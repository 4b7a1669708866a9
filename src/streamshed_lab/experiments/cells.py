"""The settings in which all shedding policies are compared, by family.

A setting is a workload and a window, tried with several budgets: a cell is a setting with one of
them. Streams have 10 rows a second, so that the window of 100 seconds holds 1,000 rows of each.
Where keys repeat so often that a full window would make too many results to count one by one, the
window is shorter and the budget with it: "a tenth of it" has 10 to 50 rows for 100 to 500.

* `existence`: the workload of the existence-pattern paper. With α > 0 both rankings of the orders
  are tried, and with α = 0 also a repertoire of 10 orders: the paper leaves both open.
* `normal`, `zipf`: keys that repeat. "Own popular keys": each stream has others.
* `drift`: in mid-stream the spread changes, or the orders, or which keys are popular. Each half is
  as long as the paper's whole trace.
* `mixture`: half of the rows from one process, half from another, all the time.
* `changing`: a mixture of two processes that take turns to have nine rows of ten. Each turn is as
  long as the paper's trace, and what is best in one turn is not in the next.
* `adversarial`: what breaks policies: clumps, bursts, flashes, one heavy key, swapped keys. So does
  the funnel of the demonstration, under a budget of all streams together: most of its rows are of
  sessions that never buy.
* `real`: sources that contact four honeypots, words in the headlines of four news sites, and hosts
  that visit two or four pages of a web server. The seed is then only that of the policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

import pyarrow as pa

from streamshed.demo.workload import FunnelWorkload
from streamshed_lab.experiments.existence.values import HONEYPOTS, SDSC_PAGES
from streamshed_lab.workloads import (
    Auctions,
    Bursts,
    ClumpedKeys,
    DailyCycle,
    DailySessions,
    ExistenceWorkload,
    FlashCrowd,
    FlashKeys,
    HeavySessions,
    MixedWorkload,
    NormalWorkload,
    OneHeavyKey,
    RepeatingSessions,
    StoppingStream,
    SwappedKeys,
    Workload,
    ZipfWorkload,
    first_visits,
    page_streams,
    traces,
)

RATE = 10.0
"""Rows per second of each stream."""
WINDOW = 100.0
"""Seconds."""
NEWS_SITES = ["abc", "cnn", "nyt", "wapo"]

Streams = Mapping[str, pa.Table]
Process = Callable[[int, float, int], Workload]
"""Makes a workload of a seed, a rate and a number of rows per stream."""


class Generated(Protocol):
    """Whatever makes streams."""

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""


@dataclass(frozen=True)
class Setting:
    """A workload and a window, under several budgets.

    Attributes:
        family: one of `FAMILIES`.
        workload: what it is, in words.
        streams: makes the streams from a seed.
        window: in seconds.
        budgets: rows of each stream, or of all together.
        total: whether a budget is for all streams together.
        spread: seconds over which the appearances of a key are spread, in an existence-pattern
            workload.
    """

    family: str
    workload: str
    streams: Callable[[int], Streams]
    window: float
    budgets: tuple[int, ...]
    spread: float | None = None
    total: bool = False

    def __str__(self) -> str:
        return f"{self.family}: {self.workload}"


@dataclass(frozen=True)
class Scale:
    """How much of everything to run.

    Attributes:
        seeds: of the workloads and the policies.
        spreads: of the existence-pattern workload, in seconds.
        alphas: the skews of its orders.
        budgets: rows of each stream, where the window holds 1,000.
        tuples: rows of each stream in a trace, or in a phase of one that changes.
        every: take all settings of the other families, or every second, and so on.
    """

    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    spreads: tuple[float, ...] = (5.0, 20.0, 50.0, 100.0, 150.0)
    alphas: tuple[float, ...] = (0.0, 1.0, 2.0)
    budgets: tuple[int, ...] = (100, 200, 300, 400, 500)
    tuples: int = 10_000
    every: int = 1


FULL = Scale()
QUICK = Scale(
    seeds=(1,), spreads=(5.0, 50.0, 100.0), alphas=(0.0, 2.0), budgets=(100, 500), every=2
)


def existence(scale: Scale) -> list[Setting]:
    """Unique keys that pass through the streams in orders of their own."""
    readings: dict[str, Callable[[float], Process]] = {}
    for alpha in scale.alphas:
        readings[f"α {alpha:g}"] = partial(_unique, alpha=alpha)
        if alpha:
            readings[f"α {alpha:g} by length"] = partial(_unique, alpha=alpha, ranking="by_length")
    readings["10 orders"] = partial(_unique, repertoire=10)
    return [
        replace(
            _setting(
                scale,
                "existence",
                f"spread {spread:g} s, {words}",
                _one(reading(spread), scale.tuples),
            ),
            spread=spread,
        )
        for words, reading in readings.items()
        for spread in scale.spreads
    ]


def normal(scale: Scale) -> list[Setting]:
    """Keys of a normal distribution; variances as in the paper, and 35 as a deviation."""
    tenth = scale.tuples // 5
    settings = [
        _setting(scale, "normal", f"variance {v:g}", _one(_normal(v), tenth), WINDOW / 10)
        for v in (15.0, 25.0, 35.0)
    ]
    half = _one(_normal(35.0**2), tenth)
    return [*settings, _setting(scale, "normal", "deviation 35", half, WINDOW / 2)]


def zipf(scale: Scale) -> list[Setting]:
    """Keys of a Zipf distribution, the same ones popular in all streams, or in each its own."""
    processes: dict[str, tuple[Process, int, float]] = {
        "skew 0.5": (_zipf(0.5, 20_000), scale.tuples, WINDOW),
        "skew 0.8": (_zipf(0.8, 20_000), scale.tuples // 3, WINDOW * 0.3),
        "skew 1": (_zipf(1.0, 10_000), scale.tuples // 3, WINDOW / 10),
        "skew 1, 3 streams": (_zipf(1.0, 10_000, streams=3), scale.tuples // 2, WINDOW / 2),
        "skews 1.2, 0.8, 0.4": (_zipf((1.2, 0.8, 0.4), 2_000, streams=3), scale.tuples, WINDOW),
        "skew 0.8, own popular keys": (
            _zipf(0.8, 500, streams=3, popular="own"),
            scale.tuples,
            WINDOW,
        ),
        "skew 1, own popular keys": (
            _zipf(1.0, 1_000, streams=3, popular="own"),
            scale.tuples,
            WINDOW,
        ),
    }
    return [
        _setting(scale, "zipf", words, _one(process, tuples), window)
        for words, (process, tuples, window) in processes.items()
    ]


def drift(scale: Scale) -> list[Setting]:
    """Workloads that change in mid-stream: spread, orders, popular keys."""
    changes: dict[str, tuple[Process, Process]] = {
        "spread 5 s, then 100 s": (_unique(5.0), _unique(100.0)),
        "spread 100 s, then 5 s": (_unique(100.0), _unique(5.0)),
        "spread 20 s, then 150 s": (_unique(20.0), _unique(150.0)),
        "10 orders over 50 s, then 10 others": _twice(_unique(50.0, repertoire=10)),
        "orders of α 2 over 100 s, then others": _twice(_unique(100.0, 2.0, "by_length")),
        "skew 0.5, then other popular keys": _twice(_zipf(0.5, 20_000)),
        "skew 1, own popular keys, then others": _twice(
            _zipf(1.0, 1_000, streams=3, popular="own")
        ),
    }
    return [
        _setting(scale, "drift", words, partial(_in_turn, scale.tuples, parts))
        for words, parts in changes.items()
    ]


def mixture(scale: Scale) -> list[Setting]:
    """Two processes side by side, each with half of the rows."""
    pairs: dict[str, tuple[Process, Process]] = {
        "spread 5 s with 100 s": (_unique(5.0), _unique(100.0)),
        "spread 20 s with 150 s": (_unique(20.0), _unique(150.0)),
        "spread 50 s with Zipf 0.5": (_unique(50.0), _zipf(0.5, 10_000)),
        "10 orders over 100 s with Zipf 0.5": (
            _unique(100.0, repertoire=10),
            _zipf(0.5, 10_000),
        ),
    }
    return [
        _setting(scale, "mixture", words, partial(_by_rates, scale.tuples, pair, (5.0,)))
        for words, pair in pairs.items()
    ]


def changing(scale: Scale) -> list[Setting]:
    """Two processes of which now one, now the other has nine rows of ten.

    With budgets that have the same policy best at all times nothing is tried.
    """
    near, valued = _unique(5.0), _zipf(0.5, 30_000)
    there, back_and_forth = (9.0, 1.0), (9.0, 1.0, 9.0, 1.0)
    pairs: dict[str, tuple[tuple[Process, Process], tuple[float, ...], int]] = {
        "spread 100 s, then 5 s": ((_unique(100.0), near), there, 0),
        "spread 5 s, then Zipf 0.5": ((near, valued), there, 0),
        "10 orders over 50 s, then Zipf 0.5": ((_unique(50.0, repertoire=10), valued), there, 300),
        "spread 20 s and Zipf 0.5, back and forth": ((_unique(20.0), valued), back_and_forth, 0),
    }
    return [
        replace(
            _setting(scale, "changing", words, partial(_by_rates, scale.tuples, pair, rates)),
            budgets=tuple(rows for rows in scale.budgets if rows >= least),
        )
        for words, (pair, rates, least) in pairs.items()
    ]


def adversarial(scale: Scale) -> list[Setting]:
    """Workloads in which what was learned of one time, or of most keys, does not hold of others."""
    generated: dict[str, tuple[Callable[[int], Generated], float, tuple[int, ...]]] = {
        "flashes, clumped": (lambda s: ClumpedKeys(seed=s), 1_000.0, (50, 200)),
        "flashes": (lambda s: FlashKeys(seed=s), 1_000.0, (50, 200)),
        "flashes, clumped, 3 streams": (
            lambda s: ClumpedKeys(streams=3, clumps=8.0, size=4.0, seed=s),
            1_000.0,
            (50, 200),
        ),
        "flashes, 3 streams": (lambda s: FlashKeys(streams=3, each=0.02, seed=s), 1_000.0, (50,)),
        "bursts, rate × 10": (lambda s: Bursts(seed=s), 100.0, (50, 200)),
        "bursts, rate × 100, 2 streams": (
            lambda s: Bursts(streams=2, factor=100.0, lasting=2.0, seed=s),
            100.0,
            (50, 200),
        ),
        "one heavy key": (lambda s: OneHeavyKey(seed=s), 200.0, (20, 100)),
        "one heavy key, 4 streams": (lambda s: OneHeavyKey(streams=4, seed=s), 200.0, (20,)),
        "flash crowd": (lambda s: FlashCrowd(seed=s), 100.0, (50, 150)),
        "heavy sessions": (lambda s: HeavySessions(seed=s), 200.0, (50, 150)),
        "sessions that repeat": (lambda s: RepeatingSessions(seed=s), 600.0, (60, 130)),
        "auctions": (lambda s: Auctions(seed=s), 900.0, (80, 300)),
        "daily sessions": (lambda s: DailySessions(seed=s), 1_500.0, (15, 60)),
        "daily cycle": (lambda s: DailyCycle(seed=s), 100.0, (50, 150)),
        "a stream that stops": (lambda s: StoppingStream(seed=s), 200.0, (100, 400)),
        "swapped keys": (lambda s: SwappedKeys(seed=s), 100.0, (50, 200)),
    }
    funnels = {
        "funnel, rows in all": FunnelWorkload(sessions=200),
        "funnel with a burst, rows in all": FunnelWorkload(sessions=100, burst=5),
    }
    return [
        Setting("adversarial", words, _tables_of(make), window, budgets)
        for words, (make, window, budgets) in generated.items()
    ] + [
        Setting("adversarial", words, partial(_funnel, workload), 600.0, (400, 4_000), total=True)
        for words, workload in funnels.items()
    ]


def _tables_of(make: Callable[[int], Generated]) -> Callable[[int], Streams]:
    return lambda seed: make(seed).tables()


def _funnel(workload: FunnelWorkload, seed: int) -> Streams:
    tables = replace(workload, seed=seed).tables()
    names = {"session": "key", "ts": "time"}
    return {
        stream: table.rename_columns([names.get(name, name) for name in table.column_names])
        for stream, table in tables.items()
    }


def real(scale: Scale) -> list[Setting]:
    """Traces of honeypots, news sites and a web server."""
    hour, day = 3_600.0, 86_400.0
    found: dict[str, tuple[Callable[[], Streams], float, tuple[int, ...]]] = {
        "honeypots, all contacts, 1 hour": (_contacts, hour, (10, 20, 40)),
        "honeypots, first contacts, 14 days": (_first_contacts, 14 * day, (50, 150, 350)),
        "news headlines, 6 hours": (_headlines, 6 * hour, (50, 100, 200)),
        "news headlines, 1 day": (_headlines, day, (200, 400, 800)),
        "SDSC pages, all visits, 1 day": (_visits, day, (100, 200, 350)),
        "SDSC, two pages, all visits, 12 hours": (_visits_of_two, 12 * hour, (20, 80)),
    }
    return [
        Setting("real", words, _whatever_the_seed(read), window, budgets)
        for words, (read, window, budgets) in found.items()
    ]


FAMILIES: Mapping[str, Callable[[Scale], list[Setting]]] = {
    "existence": existence,
    "normal": normal,
    "zipf": zipf,
    "drift": drift,
    "mixture": mixture,
    "changing": changing,
    "adversarial": adversarial,
    "real": real,
}


def settings(scale: Scale, families: Iterable[str] = tuple(FAMILIES)) -> list[Setting]:
    """All settings of some families, as far as the scale goes."""
    chosen = []
    for family in families:
        found = FAMILIES[family](scale)
        chosen += found if family == "existence" else found[scale.every - 1 :: scale.every]
    return chosen


def _setting(
    scale: Scale,
    family: str,
    words: str,
    streams: Callable[[int], Streams],
    window: float = WINDOW,
) -> Setting:
    """A setting whose budget is to its window as in the existence-pattern paper."""
    budgets = tuple(round(rows * window / WINDOW) for rows in scale.budgets)
    return Setting(family, words, streams, window, budgets)


# -- processes, alone and together ----------------------------------------------------------------


def _unique(
    spread: float,
    alpha: float = 0.0,
    ranking: Literal["all", "by_length"] = "all",
    repertoire: int | None = None,
) -> Process:
    def process(seed: int, rate: float, tuples: int) -> Workload:
        return ExistenceWorkload(
            tuples=tuples,
            rate=rate,
            spread=spread,
            alpha=alpha,
            ranking=ranking,
            repertoire=repertoire,
            seed=seed,
        )

    return process


def _zipf(
    skew: float | tuple[float, ...],
    keys: int,
    streams: int = 5,
    popular: Literal["same", "own"] = "same",
) -> Process:
    def process(seed: int, rate: float, tuples: int) -> Workload:
        return ZipfWorkload(streams, tuples, rate, keys, skew, popular, seed)

    return process


def _normal(variance: float) -> Process:
    def process(seed: int, rate: float, tuples: int) -> Workload:
        return NormalWorkload(tuples=tuples, rate=rate, variance=variance, seed=seed)

    return process


def _one(process: Process, tuples: int) -> Callable[[int], Streams]:
    return lambda seed: process(seed, RATE, tuples).tables()


def _twice(process: Process) -> tuple[Process, Process]:
    """A process, and the same with other orders, or other popular keys."""
    return process, lambda seed, rate, tuples: process(seed + 1_000, rate, tuples)


def _in_turn(tuples: int, parts: tuple[Process, ...], seed: int) -> Streams:
    return MixedWorkload(tuple((part(seed, RATE, tuples),) for part in parts)).tables()


def _by_rates(
    tuples: int, pair: tuple[Process, Process], rates: tuple[float, ...], seed: int
) -> Streams:
    """Two processes, of which the first has the given rate in each phase, the second the rest."""
    phases = []
    for first in rates:
        parts = enumerate(zip(pair, (first, RATE - first), strict=True))
        phases.append(
            tuple(
                process(seed + 1_000 * place, rate, round(tuples * rate / RATE))
                for place, (process, rate) in parts
            )
        )
    return MixedWorkload(tuple(phases)).tables()


# -- real traces ----------------------------------------------------------------------------------


def _contacts() -> Streams:
    return traces.honeypot(HONEYPOTS)


def _first_contacts() -> Streams:
    return first_visits(_contacts())


def _headlines() -> Streams:
    return traces.news(NEWS_SITES)


def _visits() -> Streams:
    return page_streams(traces.weblog("sdsc"), SDSC_PAGES)


def _visits_of_two() -> Streams:
    """A short trace, in which half of the partners come within a twentieth of the window."""
    visits = _visits()
    return {page: visits[page] for page in list(visits)[:2]}


def _whatever_the_seed(read: Callable[[], Streams]) -> Callable[[int], Streams]:
    return lambda seed: read()
