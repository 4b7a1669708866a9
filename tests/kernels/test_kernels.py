"""The small kernels, each beside the plain Python that says what it should do."""

from __future__ import annotations

import heapq
import json
import os
import secrets
import subprocess
import sys
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import rules
from streamshed import join
from streamshed.engine.build import build_operator
from streamshed.engine.encoding import key_hash
from streamshed.kernels import hooks
from streamshed.kernels.compiling import compiled_for, driver, implements, loop
from streamshed.kernels.core import KEYS_USED, NONE, ROW, Core
from streamshed.kernels.hashing import Secret, hash_words, secret_of
from streamshed.kernels.heap import heap_push, heap_remove, heap_restore, heap_top
from streamshed.kernels.intrinsics import ones, trailing_zeros
from streamshed.kernels.merge import Runs, merge_rows, race_of, running_maximum
from streamshed.kernels.random import draw, inverse_of, remainder
from streamshed.kernels.table import (
    add_key,
    add_occurrence,
    drop_key,
    find_key,
    home_shift,
    is_unused,
    key_head,
    key_lanes,
    remove_occurrence,
)

WORDS = st.integers(0, 2**64 - 1)


@driver
def bits_of(word):
    return trailing_zeros(word), ones(word)


@given(WORDS | st.sampled_from([0, 1, 2**63, 2**64 - 1]))
def test_bits(word):
    zeros, count = bits_of(np.uint64(word))
    assert count == word.bit_count()
    assert zeros == (64 if word == 0 else (word & -word).bit_length() - 1)


@driver
def drawn(seed, number):
    return draw(seed, number)


@given(WORDS, st.integers(0, 2**62))
def test_randomness_is_what_the_meaning_says(seed, number):
    assert int(drawn(np.uint64(seed), number)) == rules.draw(seed, number)


# -- the heap -------------------------------------------------------------------------------------

PUSH, REMOVE, CHANGE = range(3)


class Ranks(NamedTuple):
    """Some heaps of items, by rank."""

    items: npt.NDArray[Any]
    place: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    rank: npt.NDArray[Any]


@implements(hooks.precedes, Ranks)
def _(policy, core, item, other):
    if policy.rank[item] != policy.rank[other]:
        return policy.rank[item] < policy.rank[other]
    return item < other


@loop
def play_heap(heap, core, moves, tops):
    for i in range(len(moves)):
        kind, group, item, rank = moves[i]
        if kind == REMOVE:
            heap_remove(heap, core, group, item)
        else:
            heap.rank[item] = rank
            if kind == PUSH:
                heap_push(heap, core, group, item)
            else:
                heap_restore(heap, core, group, item)
        tops[i] = heap_top(heap, group)


@pytest.mark.parametrize("seed", range(5))
def test_a_heap_knows_its_first(seed):
    random = np.random.default_rng(seed)
    groups, items = 3, 60
    ranked: list[dict[int, int]] = [{} for _ in range(groups)]
    moves, expected = [], []
    for _ in range(2_000):
        item = int(random.integers(items))
        group = item % groups  # an item is in one heap at most
        rank = int(random.integers(10))
        kind = int(random.choice([REMOVE, CHANGE])) if item in ranked[group] else PUSH
        if kind == REMOVE:
            del ranked[group][item]
        else:
            ranked[group][item] = rank
        moves.append((kind, group, item, rank))
        first = heapq.nsmallest(1, [(rank, item) for item, rank in ranked[group].items()])
        expected.append(first[0][1] if first else NONE)
    heap = Ranks(
        np.zeros(items * groups, np.int32),
        np.full(items, NONE, np.int32),
        np.zeros(groups, np.int64),
        np.zeros(items, np.int64),
    )
    tops = np.zeros(len(moves), np.int64)
    play_heap(heap, heap, np.array(moves), tops)
    assert tops.tolist() == expected


# -- the key table --------------------------------------------------------------------------------

ADD, DROP, LOOK = range(3)


@loop
def play_table(core, kinds, hashes, found):
    shift = home_shift(core.table)
    for i in range(len(kinds)):
        key = find_key(core, hashes[i], shift)
        found[i] = key
        if kinds[i] == ADD and key == NONE:
            add_key(core, hashes[i], shift)
        elif kinds[i] == DROP and key != NONE:
            drop_key(core, key, shift)


def small_core(keys: int, directory: int) -> Core:
    """That of a join of two streams, before anything has come, with room for so many keys."""
    schema = pa.schema({"k": pa.int64()})
    core = build_operator(join("a", "b").on("k").last(5).plan({"a": schema, "b": schema})).core
    words = keys * core.settings.key_words
    return core._replace(keys=np.zeros(words, np.int64), table=np.zeros(directory, np.uint32))


@pytest.mark.parametrize("seed", range(5))
def test_the_key_table_is_a_dict(seed):
    """In a tiny directory, with homes that collide, run round its end, and share tags."""
    random = np.random.default_rng(seed)
    homes = random.choice([0, 1, 14, 15], 24).astype(np.uint64) << np.uint64(60)
    hashes = homes | random.integers(0, 3, 24).astype(np.uint64) << np.uint64(32)
    hashes = np.unique(hashes | np.arange(24, dtype=np.uint64) % np.uint64(5))
    core = small_core(keys=11, directory=16)
    known: dict[int, bool] = {}
    kinds, chosen, expected = [], [], []
    for _ in range(5_000):
        hashed = int(random.choice(hashes))
        kind = int(random.choice([ADD, DROP, LOOK]))
        if kind == ADD and len(known) == 11:
            kind = DROP
        kinds.append(kind)
        chosen.append(hashed)
        expected.append(hashed in known)
        if kind == ADD:
            known[hashed] = True
        elif kind == DROP:
            known.pop(hashed, None)
    found = np.zeros(len(kinds), np.int64)
    play_table(core, np.array(kinds), np.array(chosen, np.uint64), found)
    assert (found != NONE).tolist() == expected
    assert core.numbers[KEYS_USED] <= 11
    assert np.count_nonzero(core.table) == len(known)
    same = {(hashed, number) for hashed, number in zip(chosen, found, strict=True) if number >= 0}
    assert all(0 <= number < 11 for _, number in same)


@loop
def play_lanes(core, hashed, turns, lanes, unused, heads):
    """Hang a row of a lane below a key at a first turn of the lane, take it away at the next."""
    key = add_key(core, hashed, home_shift(core.table))
    for i in range(turns.size):
        lane = turns[i]
        if key_head(core, key, lane) == NONE:
            core.rows[lane].key = key
            core.rows[lane].time = 0
            add_occurrence(core, lane, lane)
        else:
            remove_occurrence(core, lane, lane)
        lanes[i] = key_lanes(core, key)
        unused[i] = is_unused(core, key)
        heads[i] = key_head(core, key, lane)


@pytest.mark.parametrize("streams", [2, 32, 33, 64])
def test_a_key_knows_the_lanes_that_hold_it(streams):
    """Whether one word says so, or two."""
    schema = pa.schema({"k": pa.int64()})
    names = [f"s{number}" for number in range(streams)]
    core = build_operator(join(*names).on("k").last(5).plan(dict.fromkeys(names, schema))).core
    core = core._replace(
        rows=np.zeros(streams, ROW),
        keys=np.zeros(2 * core.settings.key_words, np.int32),
        table=np.zeros(4, np.uint32),
    )
    random = np.random.default_rng(streams)
    turns = np.concatenate([random.integers(0, streams, 300), [streams - 1]])
    lanes, unused = np.zeros(turns.size, np.uint64), np.zeros(turns.size, np.bool_)
    heads = np.zeros(turns.size, np.int64)
    play_lanes(core, np.uint64(2**64 - 5), turns, lanes, unused, heads)
    held = 0
    for lane, *found in zip(turns.tolist(), lanes, unused, heads, strict=True):
        held ^= 1 << lane
        assert found == [held, held == 0, lane if held >> lane & 1 else NONE]


# -- random numbers -------------------------------------------------------------------------------


@loop
def take_remainders(words, size, found):
    """The remainders of words, without a division for each."""
    inverse = inverse_of(size)
    for i in range(words.size):
        found[i] = remainder(words[i], size, inverse)


@pytest.mark.parametrize("size", [1, 2, 3, 500, 2**31 - 1, 2**31, 2**63 + 1, 2**64 - 1])
def test_a_remainder_is_that_of_a_division(size):
    """Of the least and the largest words, of multiples and their neighbours, and of any."""
    multiples = [k * size + near for k in (1, 2, (2**64 - 1) // size) for near in (-1, 0, 1)]
    any_words = np.random.default_rng(1).integers(0, 2**64, 1000, np.uint64).tolist()
    words = [w for w in (0, 1, 2**64 - 1, *multiples, *any_words) if 0 <= w < 2**64]
    found = np.zeros(len(words), np.uint64)
    take_remainders(np.array(words, np.uint64), np.uint64(size), found)
    assert found.tolist() == [word % size for word in words]


# -- order, hashes --------------------------------------------------------------------------------

STREAMS = st.lists(st.lists(st.integers(-3, 12), max_size=12).map(sorted), max_size=9)


@given(STREAMS)
def test_streams_are_merged_as_a_stable_sort_would(streams):
    times = np.array([time for stream in streams for time in stream], np.int64)
    number = np.repeat(np.arange(len(streams), dtype=np.int32), [*map(len, streams)])
    places = np.arange(len(times))
    hashes = np.stack([3 * places, 5 * places], axis=1).astype(np.uint64)
    columns = [number, times, 7 * places, places, times, hashes]
    cuts = np.cumsum([0, *map(len, streams)]).astype(np.int64)
    begin = [column.__array_interface__["data"][0] for column in columns]
    runs = Runs(np.array([begin] * len(streams), np.int64).reshape(-1, 6), cuts[:-1], cuts[1:])
    order = np.empty(len(times), np.int64)
    columns = [*columns[:4], hashes]
    merged = [np.empty_like(column) for column in columns]
    merge_rows(runs, race_of(len(streams)), np.zeros(len(streams), np.int64), order, *merged)
    assert order.tolist() == sorted(range(len(times)), key=lambda place: times[place])
    for column, found in zip(columns, merged, strict=True):
        assert (column[order] == found).all()


@given(st.lists(st.none() | st.integers(-5, 5), max_size=20), st.integers(-7, 0))
def test_the_running_maximum(times, so_far):
    null = np.array([time is None for time in times], np.bool_)
    filled = np.array([99 if time is None else time for time in times], np.int64)
    maxima, behind = running_maximum(filled, null, so_far)
    expected, late = [], 0
    for time in times:
        late += time is not None and time < so_far
        so_far = so_far if time is None else max(so_far, time)
        expected.append(so_far)
    assert maxima.tolist() == expected
    assert behind == late


PUBLIC = secret_of(0)
SECRETS = st.integers(0, 2**64 - 1).map(secret_of)


def strings(values: pa.Array, secret: Secret = PUBLIC) -> list[int]:
    common = pa.large_string() if pa.types.is_large_string(values.type) else pa.string()
    common = pa.binary() if values.type == pa.binary() else common
    hashed, null = key_hash(pa.record_batch({"k": values}), ["k"], [common], secret)
    assert null.size == 0
    return hashed.tolist()


def test_strings_that_differ_have_different_hashes():
    values = ["", "\0", "\0\0", "a", "a\0", "aaaaaaaa", "aaaaaaaa\0", "ä", *map(str, range(30_000))]
    assert len(set(strings(pa.array(values)))) == len(values)


@given(st.lists(st.text(max_size=20), max_size=8))
def test_strings_have_one_hash_however_they_are_stored(values):
    plain = strings(pa.array(values, pa.string()))
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert strings(pa.array(values, kind)) == plain
    for kind in (pa.string(), pa.large_string()):
        assert strings(pa.array(["x", *values, "y"], kind).slice(1, len(values))) == plain


@given(SECRETS)
def test_words_that_differ_have_different_hashes(secret):
    words = np.concatenate([np.arange(500), 2 ** np.arange(63)]).astype(np.uint64)
    assert len(set(hash_words(words, secret).tolist())) == len(set(words.tolist()))


UNWRAPPED = 0x9E3779B97F4A7C15


def unseeded_hash(text: bytes) -> int:
    """The hash that keys once had, of strings of 16 bytes."""
    folded = len(text)
    for word in (*np.frombuffer(text, "<u8").tolist(), 0):
        folded = rules.mix((folded * UNWRAPPED + word) & rules.MASK)
    return folded


def test_keys_that_collided_without_a_seed_do_not_collide():
    colliding = []
    for first in range(1_000):
        folded = rules.mix((16 * UNWRAPPED + first) & rules.MASK)
        second = (1 - folded * UNWRAPPED) & rules.MASK
        colliding.append(np.array([first, second], "<u8").tobytes())
    assert len({unseeded_hash(text) for text in colliding}) == 1
    for _ in range(10):
        secret = secret_of(secrets.randbits(64))
        assert len(set(strings(pa.array(colliding, pa.binary()), secret))) == len(colliding)
        words = np.frombuffer(b"".join(colliding), "<u8").reshape(-1, 2)
        rows = pa.record_batch({"a": words[:, 0].copy(), "b": words[:, 1].copy()})
        hashed, _ = key_hash(rows, ["a", "b"], [pa.uint64(), pa.uint64()], secret)
        assert len(set(hashed.tolist())) == len(colliding)


@given(st.lists(st.text(max_size=20), max_size=8, unique=True), SECRETS, SECRETS)
def test_another_seed_makes_other_hashes(values, one, other):
    both = {*strings(pa.array(values, pa.string()), one)} & {
        *strings(pa.array(values, pa.string()), other)
    }
    assert not both or one == other


@pytest.mark.skipif(sys.hash_info.algorithm != "siphash13", reason="no other SipHash at hand")
def test_strings_are_hashed_by_siphash():
    values = [bytes(range(length)) for length in range(1, 70)]
    command = f"print([hash(value) % 2**64 for value in {values}])"
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # Python's secret is then 0
    said = subprocess.run(
        [sys.executable, "-S", "-c", command], env=environment, capture_output=True, check=True
    )
    no_secret = (np.uint64(0), np.uint64(0))
    assert strings(pa.array(values, pa.binary()), no_secret) == json.loads(said.stdout)


def test_what_is_compiled_is_known_without_compiling():
    class Never(NamedTuple):
        """A state that no loop was ever compiled for."""

        shape: int = 0

    assert not compiled_for(merge_rows, Never)


@loop
def _last_of(array):
    return array[-1]


@pytest.mark.skipif(bool(numba.config.BOUNDSCHECK), reason="such an index is an error then")
def test_indices_are_taken_as_they_are_in_loops_and_not_elsewhere():
    array = np.arange(10)
    assert _last_of(array[5:]) == 4
    assert numba.njit(_last_of.py_func)(array[5:]) == 9


def test_a_huge_budget_takes_memory_for_what_comes():
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64())])
    said = join("a", "b").on("k").within(5, time="ts").keep(total=10**12)
    operator = build_operator(said.plan({"a": schema, "b": schema}))
    assert operator.policy.name == "density"
    assert len(operator.state.ghosts) == 2**20
    assert operator.state_bytes() < 2**27
