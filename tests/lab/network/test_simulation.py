"""A simulated network joins as the operator does, however its messages overtake each other."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamshed as ss
from streamshed.errors import StreamshedError
from streamshed_lab.network import Clusters, Network, Relevance, heed, simulate

SECOND = 1_000_000
WINDOW = 5.0


def generated(seed, readings=120, sensors=9, keys=6, clusters=4):
    random = np.random.default_rng(seed)
    cluster = random.integers(0, clusters, sensors)
    cluster[:clusters] = np.arange(clusters)
    time = np.sort(random.integers(0, 25, readings)) * SECOND
    sensor, key = random.integers(0, sensors, readings), random.integers(0, keys, readings)
    return Clusters(np.arange(clusters), cluster), sensor, key, time


def brute_force(sensor, key, time):
    """Definition 2: of each reading, the earlier ones of other sensors with the same value."""
    order = np.lexsort((sensor, time))
    sensor, key, time = sensor[order], key[order], time[order]
    return {
        (a, b)
        for a in range(len(time))
        for b in range(a)
        if sensor[a] != sensor[b] and key[a] == key[b] and time[a] - time[b] <= WINDOW * SECOND
    }


def pairs_of(outcome):
    counted = Counter(map(tuple, outcome.log.tolist()))
    assert max(counted.values(), default=1) == 1, "a pair was found twice"
    return set(counted)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    delays=st.lists(st.floats(0, 40), min_size=1, max_size=30),
    clusters=st.integers(1, 6),
    capacity=st.sampled_from([np.inf, 50.0, 3.0]),
    technique=st.sampled_from(["snjoin", "mjoin"]),
)
def test_all_pairs_are_found_once_whatever_the_order_of_messages(
    seed, delays, clusters, capacity, technique
):
    parts = generated(seed, clusters=clusters)
    network = Network(window=WINDOW, capacity=capacity, waiting=1_000, technique=technique)
    outcome = simulate(network, *parts, delays=np.array(delays), logging=True)
    found = pairs_of(outcome)
    assert found == brute_force(*parts[1:])
    assert outcome.pairs == len(found)
    assert outcome.outputs == len({a for a, _ in found})
    assert outcome.probes == 120 * clusters


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    delays=st.lists(st.floats(0, 40), min_size=1, max_size=30),
    waiting=st.integers(1, 5),
    requests=st.integers(1, 5),
    chance=st.sampled_from(["share", "plain", "even"]),
)
def test_feedback_and_overload_lose_pairs_but_never_double_them(
    seed, delays, waiting, requests, chance
):
    parts = generated(seed)
    network = Network(
        window=WINDOW,
        capacity=2.0,
        waiting=waiting,
        requests=requests,
        relevance=Relevance(classes=2, chance=chance),
        seed=seed,
    )
    outcome = simulate(network, *parts, delays=np.array(delays), logging=True)
    assert pairs_of(outcome) <= brute_force(*parts[1:])
    assert outcome.arrived == outcome.processed + outcome.dropped == 120
    again = simulate(network, *parts, delays=np.array(delays), logging=True)
    assert (again.log == outcome.log).all()


def test_results_are_those_of_the_operator():
    clusters, sensor, key, time = generated(7, readings=60, keys=12)
    outcome = simulate(Network(window=WINDOW), clusters, sensor, key, time, logging=True)
    order = np.lexsort((sensor, time))
    sensor, key, time = sensor[order], key[order], time[order]
    partners = {}
    for a, b in outcome.log.tolist():
        partners.setdefault(a, {}).setdefault(sensor[b], []).append(b)
    made = Counter()
    for a, by_sensor in partners.items():
        choices = [(a,)]
        for members in by_sensor.values():
            choices = [(*one, member) for one in choices for member in members]
        made.update(frozenset(choice) for choice in choices)
    table = pa.table({"sensor": sensor, "k": key, "ts": time, "number": np.arange(len(time))})
    join = ss.join(by="sensor").on("k").within(int(WINDOW * SECOND), time="ts").partial(at_least=2)
    results = join.replay(table).table["members"].to_pylist()
    assert made == Counter(frozenset(m["number"] for m in members) for members in results)


def test_what_heads_expire_is_not_met_by_late_requests():
    clusters = Clusters(np.arange(2), np.array([0, 1]))
    sensor, key, time = np.array([0, 1]), np.array([7, 7]), np.array([0, 4 * SECOND])
    # The second reading comes to its head at 7, and its request to the other at 10.
    slow = np.array([0.0, 3.0])
    kept = simulate(Network(window=5.0, late=6.0), clusters, sensor, key, time, slow)
    gone = simulate(Network(window=5.0, late=4.0), clusters, sensor, key, time, slow)
    assert (kept.pairs, gone.pairs) == (1, 0)


def test_messages_and_bytes_are_accounted_for():
    clusters = Clusters(np.arange(3), np.arange(3))
    sensor, key = np.array([0, 1]), np.array([7, 7])
    time = np.array([0, SECOND])
    network = Network(latency=0.1, relevance=Relevance(chance="even"))
    done = simulate(network, clusters, sensor, key, time)
    assert done.messages == {
        "readings": 2,
        "requests": 4,
        "results": 1,
        "notes": 1,
        "amendments": 0,
    }
    # A request: header, position, reading, three clusters with their numbers; and members.
    plain = 8 + 4 + 20 + 3 * 6
    assert done.bytes["readings"] == 2 * 28
    # The second sensor's request goes to cluster 2, then to 0, where it finds a member.
    assert done.bytes["requests"] == 4 * plain
    assert done.bytes["results"] == 8 + 20 + 3 * 6 + 12
    assert done.bytes["notes"] == 8 + 8 + 2 * 6
    assert done.delay == pytest.approx(0.4)
    assert done.width == 2
    # Cluster 0 contributed, cluster 2 did not: one goes up by a half, the other down.
    moved = done.relevance[1][(done.relevance[1] != 0.5).any(axis=1)]
    assert moved.tolist() == [[1.0, 0.5, 0.02]]


def test_an_overloaded_head_drops_readings():
    clusters, sensor, key, time = generated(3, readings=400)
    done = simulate(Network(capacity=5.0, waiting=2), clusters, sensor, key, time)
    assert 0 < done.dropped < 400
    assert done.arrived == 400


def test_feedback_finds_the_clusters_that_matter():
    random = np.random.default_rng(1)
    clusters = Clusters(np.arange(10), np.repeat(np.arange(10), 4))
    sensor = random.integers(0, 40, 20_000)
    # Clusters 2i and 2i + 1 see the same values, and nobody else does.
    key = clusters.cluster[sensor] // 2 * 10 + random.integers(0, 4, len(sensor))
    time = np.sort(random.integers(0, 500 * SECOND, len(sensor)))
    network = Network(
        window=20.0, warm_up=100.0, relevance=Relevance(classes=64, chance="plain", base=1.0)
    )
    chosen = simulate(network, clusters, sensor, key, time)
    every = simulate(Network(window=20.0, warm_up=100.0), clusters, sensor, key, time)
    assert chosen.probes < 0.3 * every.probes
    assert chosen.pairs > 0.95 * every.pairs


def test_a_field_is_the_same_for_the_same_seed_and_covered_by_heads():
    positions = np.random.default_rng(1).uniform(0, 10, (300, 2))
    clusters = heed(positions, 2.0, seed=3)
    again = heed(positions, 2.0, seed=3)
    assert (again.cluster == clusters.cluster).all()
    far = np.linalg.norm(positions - positions[clusters.heads[clusters.cluster]], axis=1)
    assert far.max() <= 2.0
    assert (clusters.cluster[clusters.heads] == np.arange(len(clusters))).all()
    assert clusters.sizes.sum() == 300


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Network(window=-1), "window is -1; give 0 or more"),
        (lambda: Network(waiting=0), "waiting is 0; give 1 or more"),
        (lambda: Network(capacity=0), "capacity is 0; give visits per second, above 0"),
        (lambda: Network(technique="shj"), "technique is 'shj'; there are 'snjoin' and 'mjoin'"),
        (lambda: Network(carries="all"), "carries is 'all'; there are 'readings' and 'sensors'"),
        (
            lambda: Network(technique="mjoin", relevance=Relevance()),
            "relevance chooses among the clusters of 'snjoin'",
        ),
        (lambda: Relevance(classes=0), "classes is 0; give a whole number of at least 1"),
        (lambda: Relevance(floor=0.0), "floor is 0.0 and base 0.5; give 0 < floor <= base <= 1"),
        (lambda: Relevance(chance="sum"), "chance is 'sum'; there are"),
        (lambda: Relevance(weights="sum"), "weights is 'sum'; there are"),
        (lambda: heed(np.zeros((2, 2)), 0.0), "the range of clusters is 0.0"),
        (
            lambda: simulate(
                Network(), Clusters(np.arange(1), np.zeros(1, int)), *np.array([[1], [0], [0]])
            ),
            "a reading is of sensor 1, but 1 sensors are in clusters",
        ),
    ],
)
def test_what_cannot_be_is_refused(wrong, said):
    with pytest.raises(StreamshedError, match=said):
        wrong()
