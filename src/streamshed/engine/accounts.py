"""The ledger of a running join: what became of its rows, what it made, and what it takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamshed.columns import shown_names
from streamshed.engine.batch import IDLE, STAGE
from streamshed.engine.match.relation_matcher import RelationMatcher
from streamshed.estimates import KeyTally, Tally
from streamshed.kernels.core import FATES, PEAK, PEAK_BYTES, TOTAL_IMPORTANCE
from streamshed.ledger import Keys, Ledger, StreamLedger

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator


def ledger_of(join: Operator) -> Ledger:
    """The accounts as they stand."""
    if join.spill is not None:
        join.spill.settle_accounts()
    ledger = Ledger(
        _streams(join),
        results=join.made,
        others=stream_ledger(join.others.tolist()),
        state_bytes=join.state_bytes(),
        payload_bytes=join.payload_bytes(),
        held_bytes=_counted(join, _held_bytes(join)),
        peak_bytes=_counted(join, int(join.core.numbers[PEAK_BYTES])),
        shed_by=_shed_by(join),
        **estimates(join.tally(), join.tally(lately=True), join.key_tally()),
        sample_rate=join.sample_rate,
        sample_bytes=0 if join.loss is None else join.loss.nbytes(join.shape),
    )
    if join.plan.weighed:
        total = float(join.core.totals[TOTAL_IMPORTANCE]) - join.rejected_importance
        ledger = replace(ledger, importance=total)
    if join.matcher.comparisons is not None:
        ledger = replace(ledger, comparisons=join.matcher.comparisons)
    if isinstance(join.matcher, RelationMatcher):
        ledger = replace(ledger, relation_bytes=join.matcher.relation.nbytes())
    if join.throttle is not None:
        ledger = join.throttle.account(ledger)
    if join.spill is not None:
        ledger = replace(ledger, spilled=join.spill.account())
    return ledger


def _held_bytes(join: Operator) -> int:
    """The bytes of the rows in memory, where the budget is in bytes."""
    noted = 0 if join.spill is None else join.spill.noted_bytes
    return int(join.core.pools["bytes"].sum()) + noted


def _counted(join: Operator, of_rows: int) -> int:
    """What counts against a budget in bytes, given what rows take."""
    return 0 if join.plan.memory is None else join.plan.memory.tables + of_rows


def _streams(join: Operator) -> dict[Any, StreamLedger]:
    """What became of the rows of each stream."""
    counts = join.core.counts.reshape(-1, FATES).tolist()
    numbers: dict[Any, int] = {s.name: i for i, s in enumerate(join.plan.streams)}
    if join.plan.by is not None:
        kind = join.plan.streams[0].schema.field(join.plan.by).type
        known = join.ingest.names.number
        shown = shown_names([*known], kind)
        numbers = dict(zip(shown, known.values(), strict=True))
    streams = {
        name: stream_ledger(counts[number])
        for name, number in numbers.items()
        if number < len(counts)  # who was read may not have arrived yet
    }
    if join.work.cursor[STAGE] != IDLE:  # whose results are still handed out is yet to come
        streams = {name: replace(s, arrived=s.settled) for name, s in streams.items()}
    if join.queue is not None:
        waiting = join.queue.counts()
        for name, stream in streams.items():
            waits, shed = waiting[numbers[name]]
            streams[name] = replace(
                stream,
                arrived=stream.arrived + waits + shed,
                shed=stream.shed + shed,
                queued=stream.queued + waits,
            )
    return streams


def _shed_by(join: Operator) -> dict[str, int]:
    """How many rows were shed by the policy, and how many for other reasons."""
    if join.spill is not None:
        return join.spill.shed_by(join.shed)
    dropped = 0 if join.throttle is None else join.throttle.dropped
    shed = {join.policy.name: join.shed - dropped} if join.plan.bounded else {}
    return shed | ({"throttle": dropped} if dropped else {})


def estimates(tally: Tally | None, lately: Tally | None, keys: KeyTally | None) -> dict[str, Any]:
    """What the sample says, as the fields of a ledger, if there is one or nothing is missed."""
    return {
        "missed": tally and tally.missed(),
        "missed_lately": lately and lately.missed(),
        "keys": keys and Keys(keys.made(), keys.exact()),
    }


def stream_ledger(counts: list[int]) -> StreamLedger:
    """The ledger of a stream of which none is queued, by the counts of the store."""
    return StreamLedger(*[*counts[:PEAK], 0, *counts[PEAK:]])
