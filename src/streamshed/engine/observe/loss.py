"""The loss estimator: what would a join make if nothing were shed?

It sees every row that comes, and follows those of the keys that promise most results, and some of
all others, by lot; docs/meaning.md (What shedding costs) has the rules. As it estimates what the
join would make, and not what is shed, no policy can bias it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamshed.engine.clock import is_visitor
from streamshed.engine.observe import hooks
from streamshed.engine.observe.distinct_keys import note_key
from streamshed.engine.observe.made import credit, spread_by, take_in_hand
from streamshed.engine.observe.sampled_results import (
    count_hidden,
    count_missable,
    count_results,
    gather,
    release_slots,
)
from streamshed.engine.observe.sampled_rows import (
    add_entry,
    add_key,
    alive_entries,
    chain_of,
    coarsen,
    drop_key,
    find_key,
    make_room,
    prune_key,
)
from streamshed.engine.observe.state import (
    CERTAIN,
    DEEPEST,
    ENTERED,
    EXPONENT,
    FAR,
    FLOOR,
    FULL_AT,
    GROUPS,
    HELD,
    HIDDEN,
    LEVELS,
    LOTS,
    MERGED,
    NEWEST,
    PIECES,
    PREDICTED,
    RESULTS_BEFORE,
    RISES,
    ROOM,
    SIGNS,
    SINCE,
    SPREADS,
    STEP_ENDS,
    STEP_PLACE,
    STEPS,
    STREAMS,
    TURN_AT,
    TURNS,
    UNSEEN,
    Loss,
    cells_of,
    count_in_sketch,
    depth_of,
    have_one_window,
    is_told,
    level_of,
    lot_of,
    promise_of,
)
from streamshed.estimates import ALL_SKETCHED, SKETCHED
from streamshed.kernels.compiling import cold_kernel, implements, kernel, loop
from streamshed.kernels.core import BOUNDLESS, NONE, RESULTS
from streamshed.kernels.core import NEWEST as NEWEST_SEEN
from streamshed.kernels.intrinsics import prefetch
from streamshed.kernels.table import lane_of

AHEAD = 4
"""What a row will read of the estimator is asked for so many rows before."""
HIGHEST_RANK = 40
"""Promises above the exponent by more than this are alike."""
_TWO, _THREE = np.uint32(2), np.uint32(3)
PRECISE = 0.03
"""The standard error, as a part of the estimate, below which the sample may be smaller."""
LEAST_ROOM = 768
"""The fewest entries that it has room for then: those of some heavy keys, and of others."""
FADED = 24
"""After so many pieces of a window nothing is left in the sketch."""


class MadeLater(NamedTuple):
    """The observer of rows that come back from disk: they were seen when they came."""

    loss: Loss


class Sight(NamedTuple):
    """What is seen of a newcomer's key."""

    hash: np.uint64
    lot: np.uint64
    first: int  # its cells of the sketch
    second: int
    promise: int
    likely: float  # the results that the newcomer makes, by the sketch


@implements(hooks.observe, Loss)
def _observe(loss, core, rows, at):  # type: ignore[no-untyped-def]
    loss.numbers[RESULTS_BEFORE] = core.numbers[RESULTS]
    position = _arrive(loss, core, np.int64(rows.stream[at]), rows.time[at])
    if at + AHEAD < rows.hash.size:
        _prefetch(loss, core, rows.hash[at + AHEAD], rows.hash[at + AHEAD // 2])
    _open_step(loss, core)
    stored = not is_visitor(rows, at)  # a guest counts what it meets, and is followed at home
    stream, time = np.int64(rows.stream[at]), rows.time[at]
    _enter(loss, core, rows.hash[at], stream, time, position, True, stored)


@kernel
def _prefetch(loss, core, hashed, sooner):  # type: ignore[no-untyped-def]
    """Ask for what two rows will read of the sketch, and of the keys that are followed."""
    first, second = cells_of(loss, lot_of(loss, hashed))
    prefetch(loss.cells, first * core.settings.lanes)
    prefetch(loss.cells, second * core.settings.lanes)
    prefetch(loss.heads, chain_of(loss, hashed))
    prefetch(loss.keys, max(0, np.int64(loss.heads[chain_of(loss, sooner)]) - 1))


@implements(hooks.on_made, Loss)
def _on_made(loss, core, rows, at):  # type: ignore[no-untyped-def]
    made = core.numbers[RESULTS] - loss.numbers[RESULTS_BEFORE]
    if made > 0:
        note_key(loss, rows.hash[at], lot_of(loss, rows.hash[at]), UNSEEN, True)
        credit(loss, np.float64(made))


@implements(hooks.observe, MadeLater)
def _observe_later(later, core, rows, at):  # type: ignore[no-untyped-def]
    later.loss.numbers[RESULTS_BEFORE] = core.numbers[RESULTS]


@implements(hooks.on_made, MadeLater)
def _on_made_later(later, core, rows, at):  # type: ignore[no-untyped-def]
    if core.numbers[RESULTS] > later.loss.numbers[RESULTS_BEFORE]:
        note_key(later.loss, rows.hash[at], lot_of(later.loss, rows.hash[at]), UNSEEN, True)


@loop
def enter_rows(loss, core, batch, positions):  # type: ignore[no-untyped-def]
    """Follow rows that are stored already, as a sample begins anew; they complete nothing now."""
    for i in range(batch.time.size):
        loss.numbers[NEWEST] = max(loss.numbers[NEWEST], _trusted(core, batch.time[i]))
        stream, time = np.int64(batch.stream[i]), batch.time[i]
        _enter(loss, core, batch.hash[i], stream, time, positions[i], False, True)


@kernel
def _enter(loss, core, hashed, stream, time, position, counted, stored):  # type: ignore[no-untyped-def]
    """Count a row in the sketch, and follow it if its key is followed, or is deep enough."""
    lanes, lane = core.settings.lanes, lane_of(core, stream)
    lot = lot_of(loss, hashed)
    first, second = cells_of(loss, lot)
    promise, likely = promise_of(loss, core, first, second, lane)
    if stored:
        count_in_sketch(loss, lanes, first, second, lane)
    if not counted:
        likely = 0.0
    take_in_hand(loss)
    key = find_key(loss, hashed)
    if key != NONE or (stored and depth_of(lot) >= _level(loss, promise)):
        sight = Sight(hashed, lot, first, second, promise, likely)
        _follow(loss, core, sight, key, stream, time, position, counted, stored)
    elif likely > 0:
        _add_unseen(loss, lot, likely)


@kernel
def _level(loss, promise):  # type: ignore[no-untyped-def]
    """The level of a newcomer whose key is not followed."""
    return min(loss.numbers[EXPONENT] - promise, loss.numbers[FLOOR])


# -- time -----------------------------------------------------------------------------------------


@kernel
def _arrive(loss, core, stream, time):  # type: ignore[no-untyped-def]
    """Let a row come; returns its position: its time, or its number in its stream's row window."""
    numbers = loss.numbers
    numbers[ENTERED] += 1
    loss.entered[stream] += 1
    numbers[STREAMS] += loss.entered[stream] == 1
    lane = lane_of(core, stream)
    in_rows = core.lanes[lane].last > 0
    turns = in_rows and _rows_of(loss, core, lane) >= loss.turn_at[lane]
    if _trusted(core, time) > numbers[NEWEST]:
        numbers[NEWEST] = _trusted(core, time)
        turns = turns or numbers[NEWEST] >= numbers[TURN_AT]
    if turns and (numbers[SINCE] >= (1 << loss.settings.bits) >> 5 or loss.piece[lane] == FAR):
        _turn(loss, core)
    return loss.entered[stream] if in_rows else time


@kernel
def _trusted(core, time):  # type: ignore[no-untyped-def]
    """The time of a row, or the newest one of the join if the row is ahead of it."""
    return time if core.settings.ahead == BOUNDLESS else min(time, core.numbers[NEWEST_SEEN])


@kernel
def _rows_of(loss, core, lane):  # type: ignore[no-untyped-def]
    """The rows that have come in a lane."""
    return loss.numbers[ENTERED] if core.settings.by else loss.entered[lane]


@cold_kernel
def _turn(loss, core):  # type: ignore[no-untyped-def]
    """Let the sketch fade lane by lane; raise the chances again where the sample has room."""
    numbers = loss.numbers
    numbers[SINCE] = 0
    numbers[TURN_AT] = BOUNDLESS
    longest = _longest(core)
    turned, together = False, have_one_window(core)
    for lane in range(core.settings.lanes):
        number = _present_piece(loss, core, lane)
        if number <= loss.piece[lane]:
            continue
        times = min(FADED, number - loss.piece[lane])
        if not together:
            _fade(loss, core.settings.lanes, lane, times)
        elif lane == 0:
            _fade_all(loss, times)
        for _ in range(times):
            loss.counted[lane] -= loss.counted[lane] >> 2
        if lane == longest:
            turned = True
            numbers[TURNS] += times
            for piece in range(max(loss.piece[lane] + 1, number - PIECES), number + 1):
                loss.floors[piece % (PIECES + 1)] = numbers[FLOOR]
        loss.piece[lane] = number
    if turned and numbers[EXPONENT] + numbers[FLOOR] > 0:
        _resize(loss)
        alive = alive_entries(loss, core)
        if alive > numbers[ROOM]:
            make_room(loss, core)
        elif 4 * alive < numbers[ROOM]:
            numbers[EXPONENT] = max(0, numbers[EXPONENT] - 1)
            numbers[FLOOR] = max(0, numbers[FLOOR] - 1)


@kernel
def _resize(loss):  # type: ignore[no-untyped-def]
    """Give the sample less room while the estimate is precise without it, and more otherwise."""
    capacity, room = loss.settings.capacity, loss.numbers[ROOM]
    if loss.settings.highest < DEEPEST:
        return  # the rate was said
    error = _error(loss) / max(1.0, loss.total[0].exact)
    if error < PRECISE and room >= 2 * LEAST_ROOM:
        loss.numbers[ROOM] = room // 2
    elif error > 2.0 * PRECISE and room < capacity:
        loss.numbers[ROOM] = min(capacity, 2 * room)


@kernel
def _error(loss):  # type: ignore[no-untyped-def]
    """The standard error of the estimate, with what nobody has seen."""
    variance = (ALL_SKETCHED * loss.total[0].unseen) ** 2
    for sign in range(SIGNS):
        variance += loss.spread[MERGED * GROUPS + sign] ** 2 / SIGNS
    for what in (LOTS, PREDICTED, HIDDEN):
        mean, square = 0.0, 0.0
        for group in range(GROUPS):
            mean += loss.spread[what * GROUPS + group] / GROUPS
            square += loss.spread[what * GROUPS + group] ** 2
        part = SKETCHED if what == PREDICTED else 1.0
        variance += part * part * (square - GROUPS * mean * mean)
    return np.sqrt(max(0.0, variance))


@kernel
def _longest(core):  # type: ignore[no-untyped-def]
    """The lane of the longest window: of time, if there is one."""
    longest = 0
    for lane in range(core.settings.lanes):
        last, most = core.lanes[lane].last, core.lanes[longest].last
        longer = core.lanes[lane].window > core.lanes[longest].window
        if last > most > 0 or (last == 0 and (most > 0 or longer)):
            longest = lane
    return longest


@kernel
def _present_piece(loss, core, lane):  # type: ignore[no-untyped-def]
    """The number of the present piece of a lane's window; notes where the next one begins.

    Where a lane has both windows the pieces of either are counted, which are twice as long.
    """
    last, window = core.lanes[lane].last, core.lanes[lane].window
    pieces = PIECES // 2 if last > 0 and window < BOUNDLESS else PIECES
    by_rows, by_time = np.int64(0), np.int64(0)
    if last > 0:
        rows = last * (loss.numbers[STREAMS] if core.settings.by else 1)
        length = max(1, -(-rows // pieces))
        by_rows = _rows_of(loss, core, lane) // length
        loss.turn_at[lane] = (by_rows + 1) * length
    if window < BOUNDLESS:
        length = max(1, -(-window // pieces))
        by_time = loss.numbers[NEWEST] // length
        loss.numbers[TURN_AT] = min(loss.numbers[TURN_AT], (by_time + 1) * length)
    return by_rows + by_time


@kernel
def _fade(loss, lanes, lane, times):  # type: ignore[no-untyped-def]
    """Let the counts of a lane lose a quarter, so many times."""
    for cell in range(2 << loss.settings.bits):
        count = np.int64(loss.cells[cell * lanes + lane])
        for _ in range(times):
            count -= (count + 3) >> 2
        loss.cells[cell * lanes + lane] = count


@kernel
def _fade_all(loss, times):  # type: ignore[no-untyped-def]
    """The same of all lanes: cell by cell in the order of memory, many at a time."""
    cells = loss.cells
    for _ in range(times):
        for i in range(cells.size):
            count = np.uint32(cells[i])
            cells[i] = count - ((count + _THREE) >> _TWO)


@kernel
def _open_step(loss, core):  # type: ignore[no-untyped-def]
    """Begin the next step of time, if it is time for it."""
    now = loss.numbers[NEWEST] if core.settings.timed else loss.numbers[ENTERED]
    if now >= loss.numbers[STEP_ENDS]:
        _begin_step(loss, core, now)


@cold_kernel
def _begin_step(loss, core, now):  # type: ignore[no-untyped-def]
    number = now // loss.settings.step
    place = number % STEPS
    loss.numbers[STEP_PLACE] = place
    loss.numbers[STEP_ENDS] = (number + 1) * loss.settings.step
    loss.steps[place].number = number
    loss.steps[place].results = core.numbers[RESULTS]
    loss.steps[place].exact = 0.0
    loss.steps[place].certain = 0.0
    loss.steps[place].seen = 0.0
    loss.steps[place].hidden = 0.0
    loss.steps[place].unseen = 0.0
    loss.steps[place].weight = 0.0
    loss.step_spread[place * SPREADS * GROUPS : (place + 1) * SPREADS * GROUPS] = 0.0


# -- following ------------------------------------------------------------------------------------


@kernel
def _follow(loss, core, sight, key, stream, time, position, counted, stored):  # type: ignore[no-untyped-def]
    """Count what a row completes whose key is followed, or enters, and follow it."""
    numbers, depth = loss.numbers, depth_of(sight.lot)
    if stored and numbers[HELD] + core.settings.lanes + 1 > numbers[FULL_AT]:
        make_room(loss, core)
        key = find_key(loss, sight.hash)
    if key == NONE and depth < _level(loss, sight.promise):
        if sight.likely > 0:
            _add_unseen(loss, sight.lot, sight.likely)
        return
    rank = min(sight.promise - numbers[EXPONENT], HIGHEST_RANK) + numbers[RISES]
    if key == NONE:
        key = add_key(loss, sight.hash)
        if depth < _highest_floor(loss):
            _suspect(loss, key, rank)
    partners = gather(loss, core, key, stream, time, position)
    if partners.over:
        prune_key(loss, core, key, depth)
    # Who was promising stays followed while a row of it is alive.
    rank = max(rank, partners.rank)
    if counted and (partners.slots + 1 >= core.settings.at_least or sight.likely > 0):
        # Nothing lies deeper than the highest floor; what is known there need not be predicted.
        ends = _highest_floor(loss) if sight.likely > 0 else 0
        found = count_results(loss, core, sight, key, stream, time, partners, ends)
        if found.exact != 0:
            _tally(loss, core, sight, key, stream, partners, found)
            if found.lowest != NONE:
                note_key(loss, sight.hash, sight.lot, found.lowest, False)
    release_slots(loss, partners.slots)
    _store(loss, core, key, depth, stream, time, position, rank, partners, stored)


@kernel
def _add_unseen(loss, lot, likely):  # type: ignore[no-untyped-def]
    """Add the results, by the sketch, of a newcomer whose key is not followed."""
    place, group = loss.numbers[STEP_PLACE], np.int64(lot & np.uint64(GROUPS - 1))
    loss.hand[0].group = group
    spread_by(loss, PREDICTED, group, likely)
    loss.known[0] = likely
    loss.total[0].exact += likely
    loss.total[0].unseen += likely
    loss.steps[place].exact += likely
    loss.steps[place].unseen += likely


@kernel
def _highest_floor(loss):  # type: ignore[no-untyped-def]
    """The highest floor of the last window: keys that are as deep have been followed since."""
    highest = np.int64(0)
    for at in range(PIECES + 1):
        highest = max(highest, loss.floors[at])
    return highest


@kernel
def _suspect(loss, key, rank):  # type: ignore[no-untyped-def]
    """Note that a key that enters may have rows that were not followed."""
    loss.keys[key].suspect = 1
    loss.keys[key].since = loss.numbers[TURNS]
    loss.keys[key].rank = rank
    loss.keys[key].floor = loss.numbers[FLOOR]


@kernel
def _is_suspect(loss, key):  # type: ignore[no-untyped-def]
    """Whether a key may have rows alive that came before it was followed."""
    return loss.keys[key].suspect != 0 and loss.numbers[TURNS] - loss.keys[key].since <= PIECES


@kernel
def _tally(loss, core, sight, key, stream, partners, found):  # type: ignore[no-untyped-def]
    """Add the results of a newcomer to the tallies, since the beginning and of the step."""
    hand = loss.hand[0]
    group = np.int64(sight.lot & np.uint64(GROUPS - 1))
    hand.group = group
    hand.first = found.certain
    hand.seen = found.seen
    hidden = 0.0
    if partners.merged or core.bounds.size > 0:
        # Where there are bounds it is results that may be wrong, and not partners.
        bounded = core.bounds.size > 0
        fewest = found.seen if bounded else _fewest(loss, partners, partners.top)
        for sign in range(SIGNS):
            wrong = max(-1.0, min(1.0, loss.cut[sign] / fewest))
            spread_by(loss, MERGED, sign, found.exact * wrong)
        if partners.cut_at_0 > 0 and found.certain > 0:
            fewest = _fewest(loss, partners, 0)
            hand.slack = found.certain * min(1.0, CERTAIN * np.sqrt(partners.cut_at_0) / fewest)
    if found.last > found.seen:
        spread_by(loss, PREDICTED, group, found.last - found.seen)
    told = is_told(core)
    if (sight.likely > 0 or not told) and _is_suspect(loss, key):
        level = level_of(loss, loss.keys[key])
        if told:
            hand.believed = count_missable(loss, core, sight, stream, partners, found.last)
        else:
            hand.believed = count_hidden(loss, core, stream, partners, found.last, sight)
        hand.weight = 2.0**level
        hidden = hand.weight * hand.believed
        # Of what other keys hid at the same time some was followed: this is half the way there.
        levels = np.float64(depth_of(sight.lot) + 1 + _highest_floor(loss))
        hand.doubt = hand.weight * 2.0 ** (0.25 * levels - 0.5 * level)
        spread_by(loss, HIDDEN, group, hand.believed * hand.doubt)
    _add(loss.total, 0, found, hidden)
    _add(loss.steps, loss.numbers[STEP_PLACE], found, hidden)
    spread_by(loss, LOTS, group, found.spread)


@kernel
def _fewest(loss, partners, level):  # type: ignore[no-untyped-def]
    """The partners up to a level in the stream that has fewest of them, but some."""
    fewest = np.inf
    for slot in range(partners.slots):
        rows = loss.partners[slot * LEVELS + level]
        if rows > 0:
            fewest = min(fewest, rows)
    return fewest


@kernel
def _add(tallies, place, found, hidden):  # type: ignore[no-untyped-def]
    tallies[place].exact += found.exact
    tallies[place].certain += found.certain
    tallies[place].seen += found.seen
    tallies[place].hidden += hidden
    tallies[place].unseen += found.last - found.seen
    tallies[place].weight = max(tallies[place].weight, found.weight)


@kernel
def _store(loss, core, key, depth, stream, time, position, rank, partners, stored):  # type: ignore[no-untyped-def]
    """Follow a newcomer, if its key is deep enough for its level, and it is no guest."""
    if not stored or depth < min(loss.numbers[RISES] - rank, loss.numbers[FLOOR]):
        if loss.keys[key].head == NONE:
            drop_key(loss, key)
        return
    if partners.same != NONE and loss.entries[partners.same].rank == rank:
        loss.entries[partners.same].count += 1
        if loss.latest.size > 0:
            loss.latest[partners.same] = max(loss.latest[partners.same], time)
        return
    e = add_entry(loss, key, position, position, 1.0, rank, stream)
    if loss.latest.size > 0:
        loss.latest[e] = time
    if loss.earliest.size > 0:
        loss.earliest[e] = time
    if partners.own + 1 > loss.settings.most:
        coarsen(loss, core, key, stream, partners.own_rows + 1.0)
