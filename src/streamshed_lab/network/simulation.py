"""A field of sensors that joins what it reads: SNJoin* and a distributed MJoin, simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamshed.errors import StreamshedError
from streamshed.kernels.core import BOUNDLESS, NONE
from streamshed.relevance import Relevance
from streamshed_lab.network.clustering import Clusters
from streamshed_lab.network.loop import FULL, run_network
from streamshed_lab.network.states import (
    AMENDED,
    ARRIVED,
    BYTES,
    COUNTS,
    DELIVERED,
    DROPPED,
    FREE,
    KINDS,
    LOGGED,
    MESSAGES,
    PAIRS,
    PROBES,
    SKIPPED,
    STREAMS,
    Events,
    Flights,
    Heads,
    Progress,
    Setting,
)
from streamshed_lab.network.tables import Tables, Trace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SECOND = 1_000_000
_FLIGHTS = 256


@dataclass(frozen=True)
class Network:
    """How a field of sensors works; all times are in seconds.

    Attributes:
        window: of the join.
        late: how long heads keep readings beyond the window, for those that come late (ε).
        latency: of a message, in one hop.
        capacity: the visits that a head can do in a second; infinite, unless said.
        waiting: readings that may wait at a head: one more, and one of them is dropped at random.
        requests: requests that may wait at a head: one more passes on unserved.
        technique: `"snjoin"`, one table at each head; or `"mjoin"`, a table for each sensor, and
            clusters probed in descending order of their selectivity.
        table: what each further table that is probed adds to the work of a visit, for `"mjoin"`.
        relevance: chooses the clusters that are probed; all of them, unless said.
        carries: what messages carry of a result: `"readings"`, every one that matches; or
            `"sensors"`, one for each sensor that does, as in a single tuple of definition 2.
        warm_up: readings before this time are processed, but not measured.
        sampled: the width of results is found of one reading in so many (of all, if messages carry
            `"sensors"`).
        seed: of what is drawn: sequences, and who is dropped.
    """

    window: float = 60.0
    late: float = math.inf
    latency: float = 0.02
    capacity: float = math.inf
    waiting: int = 16
    requests: int = 4_096
    technique: Literal["snjoin", "mjoin"] = "snjoin"
    table: float = 0.0003
    relevance: Relevance | None = None
    carries: Literal["readings", "sensors"] = "readings"
    warm_up: float = 0.0
    sampled: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in ("window", "late", "latency", "table", "warm_up"):
            if not getattr(self, name) >= 0:
                raise StreamshedError(f"{name} is {getattr(self, name)!r}; give 0 or more")
        for name in ("waiting", "requests", "sampled"):
            if getattr(self, name) < 1:
                raise StreamshedError(f"{name} is {getattr(self, name)!r}; give 1 or more")
        if not self.capacity > 0:
            raise StreamshedError(f"capacity is {self.capacity!r}; give visits per second, above 0")
        if self.technique not in ("snjoin", "mjoin"):
            raise StreamshedError(
                f"technique is {self.technique!r}; there are 'snjoin' and 'mjoin'"
            )
        if self.carries not in ("readings", "sensors"):
            raise StreamshedError(
                f"carries is {self.carries!r}; there are 'readings' and 'sensors'"
            )
        if self.technique == "mjoin" and self.relevance is not None:
            raise StreamshedError(
                "relevance chooses among the clusters of 'snjoin'; leave it out for 'mjoin', which"
                " probes all of them"
            )


@dataclass(frozen=True)
class Outcome:
    """What became of the readings that were measured.

    Attributes:
        seconds: how long they came.
        arrived: readings, in all.
        dropped: readings for which a head had no room.
        skipped: requests that passed a head unserved.
        probes: visits to heads, a reading's own included.
        streams: sensors in the clusters visited.
        pairs: matches found: a reading, and an earlier one of another sensor.
        amended: those of them that were added to a result later.
        outputs: readings that matched.
        delivered: results that came to the DSMS (without amendments).
        delay: in seconds, from a reading to its result, in the mean.
        width: sensors in a result, its own included, in the mean over those sampled.
        messages: sent, by kind.
        bytes: of messages, by kind.
        log: all pairs (two columns of numbers in the order of the join), where asked for.
        relevance: the matrices, as they were at the end.
    """

    seconds: float
    arrived: int
    dropped: int
    skipped: int
    probes: int
    streams: int
    pairs: int
    amended: int
    outputs: int
    delivered: int
    delay: float
    width: float
    messages: dict[str, int]
    bytes: dict[str, int]
    log: Ints
    relevance: Floats

    @property
    def processed(self) -> int:
        """Readings that were not dropped."""
        return self.arrived - self.dropped

    @property
    def drop_rate(self) -> float:
        """The part of readings that was dropped."""
        return self.dropped / max(self.arrived, 1)


def simulate(
    network: Network,
    clusters: Clusters,
    sensor: Ints,
    key: Ints,
    time: Ints,
    delays: Floats | None = None,
    logging: bool = False,
) -> Outcome:
    """Let sensors read, and heads join what they read.

    Args:
        network: how the field works.
        clusters: of the sensors.
        sensor: of each reading, numbered from 0.
        key: what was read.
        time: when, in microseconds.
        delays: of messages, in seconds, one after the other and from the beginning again (those of
            readings by themselves), instead of the latency: messages may overtake each other.
        logging: whether to keep all pairs.
    """
    if len(sensor) and not 0 <= sensor.min() <= sensor.max() < len(clusters.cluster):
        raise StreamshedError(
            f"a reading is of sensor {sensor.max()}, but {len(clusters.cluster)} sensors are in"
            " clusters, numbered from 0"
        )
    waits = np.array([network.latency]) if delays is None else delays
    trace = _trace(clusters, sensor, key, time, waits * SECOND)
    tables = _tables(trace, len(clusters))
    setting = _setting(network, clusters, waits * SECOND, logging)
    heads = _heads(network, len(clusters), len(time))
    progress = _progress(len(time), len(clusters.cluster), logging)
    flights, events = _room(None, None, len(clusters), progress)
    said = network.relevance
    relevance = (said or Relevance(classes=1)).matrix(len(clusters), len(clusters))
    while run_network(setting, trace, tables, heads, flights, events, relevance, progress) == FULL:
        if progress.at[FREE] == NONE:
            flights, events = _room(flights, events, len(clusters), progress)
        else:
            progress = progress._replace(log=np.concatenate([progress.log, progress.log]))
    return _outcome(network, trace, progress, relevance if said else relevance[:, :0])


def _trace(clusters: Clusters, sensor: Ints, key: Ints, time: Ints, waits: Floats) -> Trace:
    order = np.lexsort((sensor, time))
    sensor, time = sensor[order], time[order]
    _, value = np.unique(key[order], return_inverse=True)
    arrives = time + waits[np.arange(len(time)) % len(waits)]
    alike = np.argsort(value, kind="stable")
    rank = np.empty(len(alike), np.int64)
    rank[alike] = np.arange(len(alike))
    return Trace(
        time.astype(np.int64),
        sensor.astype(np.int32),
        clusters.cluster[sensor].astype(np.int32),
        value.astype(np.int32),
        arrives,
        np.argsort(arrives, kind="stable"),
        alike,
        rank,
        np.cumsum(np.bincount(value)),
    )


def _tables(trace: Trace, clusters: int) -> Tables:
    together = trace.value.astype(np.int64) * clusters + trace.cluster
    found, sizes = np.unique(together, return_counts=True)
    lists = np.full((len(trace.ends), clusters), NONE, np.int32)
    lists.reshape(-1)[found] = np.arange(len(found))
    return Tables(
        lists,
        np.concatenate([[0], np.cumsum(sizes)]),
        np.zeros(len(found), np.int64),
        np.empty(len(trace.time), np.int64),
        np.zeros((len(trace.time), clusters), np.uint8),
    )


def _setting(network: Network, clusters: Clusters, waits: Floats, logging: bool) -> Setting:
    said = network.relevance or Relevance()
    further = np.maximum(clusters.sizes - 1, 0) * network.table
    visit = 1.0 + (further if network.technique == "mjoin" else np.zeros(len(clusters)))
    return Setting(
        window=round(network.window * SECOND),
        late=BOUNDLESS if math.isinf(network.late) else round(network.late * SECOND),
        delays=waits,
        work=visit * (SECOND / network.capacity),
        members=clusters.sizes,
        feedback=network.relevance is not None,
        by_selectivity=network.technique == "mjoin",
        by_sensor=network.carries == "sensors",
        reading=said.reading,
        by_share=said.weights == "share",
        least=said.floor,
        seed=np.uint64(network.seed),
        measured_from=round(network.warm_up * SECOND),
        sampled=1 if network.carries == "sensors" else network.sampled,
        logging=logging,
    )


def _heads(network: Network, heads: int, readings: int) -> Heads:
    def zeros() -> Ints:
        return np.zeros(heads, np.int64)

    return Heads(
        job=np.full(heads, NONE, np.int64),
        requests=np.empty((heads, network.requests), np.int64),
        request_first=zeros(),
        request_count=zeros(),
        readings=np.empty((heads, min(network.waiting, max(readings, 1))), np.int64),
        reading_count=zeros(),
        probed=zeros(),
        matched=zeros(),
        stored=zeros(),
    )


def _progress(readings: int, sensors: int, logging: bool) -> Progress:
    at = np.zeros(LOGGED + 2, np.int64)
    at[FREE] = NONE
    return Progress(
        at,
        np.zeros(COUNTS, np.int64),
        np.zeros(1),
        np.zeros(readings, np.int64),
        np.zeros(readings, np.int64),
        np.zeros(readings, np.uint8),
        np.zeros(sensors, np.int64),
        np.empty(4 * readings if logging else 0, np.int64),
    )


def _room(
    flights: Flights | None, events: Events | None, heads: int, progress: Progress
) -> tuple[Flights, Events]:
    """Twice the flights that there were, the new ones unused."""
    had = len(flights.number) if flights else 0
    count = 2 * had or _FLIGHTS

    def grown(old: npt.NDArray[np.generic] | None, new: npt.NDArray[np.generic]) -> Ints:
        if old is not None:
            new[: len(old)] = old
        return new  # type: ignore[return-value]

    old = flights or (None,) * 8
    shapes = [(count,)] * 6 + [(count, max(heads, 1))] * 2
    kinds = [np.int64] * 7 + [np.float64]
    more = Flights(
        *(  # type: ignore[arg-type]
            grown(one, np.zeros(shape, kind))
            for one, shape, kind in zip(old, shapes, kinds, strict=True)
        )
    )
    more.number[had:] = np.arange(had + 1, count + 1)
    more.number[-1] = progress.at[FREE]
    progress.at[FREE] = had
    was = events or (None,) * 5
    items = heads + count
    return more, Events(
        grown(was[0], np.zeros(items, np.int64)),
        grown(was[1], np.full(items, NONE, np.int64)),
        grown(was[2], np.zeros(1, np.int64)),
        grown(was[3], np.zeros(items, np.float64)),  # type: ignore[arg-type]
        grown(was[4], np.zeros(items, np.int64)),
    )


def _outcome(network: Network, trace: Trace, progress: Progress, relevance: Floats) -> Outcome:
    counts = progress.counts
    measured = trace.time >= round(network.warm_up * SECOND)
    matched = measured & (progress.pairs > 0)
    sampled = matched & (np.arange(len(matched)) % network.sampled == 0)
    span = (trace.time[-1] / SECOND - network.warm_up) if len(trace.time) else 0.0
    of_kind = {
        name: (int(counts[MESSAGES + i]), int(counts[BYTES + i])) for i, name in enumerate(KINDS)
    }
    return Outcome(
        seconds=float(max(span, 0.0)),
        arrived=int(counts[ARRIVED]),
        dropped=int(counts[DROPPED]),
        skipped=int(counts[SKIPPED]),
        probes=int(counts[PROBES]),
        streams=int(counts[STREAMS]),
        pairs=int(counts[PAIRS]),
        amended=int(counts[AMENDED]),
        outputs=int(matched.sum()),
        delivered=int(counts[DELIVERED]),
        delay=float(progress.delay[0] / SECOND / max(counts[DELIVERED], 1)),
        width=float(1 + progress.width[sampled].mean()) if sampled.any() else 0.0,
        messages={name: number for name, (number, _) in of_kind.items()},
        bytes={name: size for name, (_, size) in of_kind.items()},
        log=progress.log[: progress.at[LOGGED]].reshape(-1, 2).copy(),
        relevance=relevance,
    )
