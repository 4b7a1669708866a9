"""Exact joins by a shared key in bulk: in parts by the hash of the key.

Rows are split into parts whose tables fit the cache of a core (`parts`). A first pass counts the
results of each row (`probe`); a second writes them to the places that they have in the order of
arrival (`emit`), whatever the parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamshed.engine.blocks import Block
from streamshed.engine.bulk.bulk import BLOCK, FEW, Bulk
from streamshed.engine.bulk.emit import Emitted, emit_part
from streamshed.engine.bulk.parts import (
    PART_KEY,
    PART_ROW,
    Parts,
    count_parts,
    put_in_parts,
)
from streamshed.engine.bulk.probe import (
    Probed,
    Table,
    directory_size,
    key_words,
    probe_part,
)
from streamshed.engine.bulk.runs import Group, rows_of
from streamshed.engine.ingest import cut_in_time, runs_of
from streamshed.kernels.core import RESULTS
from streamshed.kernels.merge import race_of

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator

MOST_BITS = 5
"""There are at most so many parts, as a power of two: to write to more of them at a time takes five
times as long, since a core knows the addresses of so many pages at once."""

Span = tuple[Group, npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Runs, and where a span of time begins and ends in each."""


class KeyBulk(Bulk):
    """Joins rows by a shared key, many at once.

    Args:
        operator: the join, as for any join in bulk.
        threads: how many work; by default one for each core.
        shared: so many of the lowest bits of the hashes are alike in a part.
    """

    def __init__(self, operator: Operator, threads: int = 0, shared: int = 0) -> None:
        super().__init__(operator, threads)
        self.shared = shared

    def arrange(self, groups: list[Group]) -> Parts:
        """Put the rows into parts by the top bits of their hashes; in a part they keep order."""
        size = rows_of(groups)
        bits = min(MOST_BITS, max(1, (size // self.part).bit_length()))
        spans = [*self._spans(groups)]
        by_turns = np.zeros((len(spans), 2, 1 << bits), np.int64)

        def count(i: int) -> None:
            runs, starts, ends = spans[i]
            for run, start, end in zip(runs, starts, ends, strict=True):
                count_parts(run.hash[start:end], bits, by_turns[i])

        self.map(count, range(len(spans)))
        counts = by_turns.sum(axis=1)
        # The rows of a part stand by span, so that the spans can be put there side by side.
        places = np.concatenate([[0], np.cumsum(counts.T.ravel())])
        begins = places[:-1].reshape(1 << bits, -1).T.copy()
        ranks = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
        starts = places[:: len(spans)].tolist() if spans else [0] * (len(places) + 1)
        parts = Parts(
            self.workspace.empty("time", size, np.int64),
            self.workspace.empty("stream", size, np.uint8),
            self.workspace.empty("keys", size, PART_KEY),
            self.workspace.empty("rows", size, PART_ROW),
            starts,
        )

        def put(i: int) -> None:
            runs, starts, ends = spans[i]
            span = runs_of(runs, starts, ends, "time")
            put_in_parts(span, race_of(len(runs)), ranks[i], bits, begins[i], *parts[:4])

        self.map(put, range(len(spans)))
        return parts

    def _spans(self, groups: list[Group]) -> Iterator[Span]:
        """Each group in spans of time, so that there is work for all threads."""
        for group in groups:
            if group:
                spans = self.workers if rows_of([group]) > FEW else 1
                cuts = cut_in_time([run.time for run in group], spans)
                yield from ((group, *edges) for edges in pairwise(cuts))

    def results(self, rows: Parts, known: int) -> Iterator[Block]:
        """The results of rows that begin with those that are known."""
        probed, productive = self._probe(rows, known)
        ends = np.cumsum(probed.made, out=probed.made)
        self.operator.core.numbers[RESULTS] += int(ends[-1]) if ends.size else 0
        if not self.operator.counting:
            yield from self._blocks(rows, probed, productive, ends)

    def _probe(self, parts: Parts, known: int) -> tuple[Probed, list[int]]:
        """What each row meets; and for each part how many of its rows complete results."""
        size = parts.rows.size
        probed = Probed(
            self.workspace.empty("before", size, np.int32),
            self.workspace.empty("newcomer", size, np.int32),
            self.workspace.empty("heads", size * self.lanes, np.int32),
            self.workspace.empty("made", size, np.int64),
        )
        probed.made[:] = 0
        productive = [0] * (len(parts.starts) - 1)
        numbers = iter(range(len(productive)))

        def work(worker: int) -> int:
            return self._probe_some(parts, numbers, known, worker, probed, productive)

        tables = self.map(work, range(self.workers))
        self.bytes_used = sum(tables) + sum(array.nbytes for array in (*probed, *parts[:4]))
        return probed, productive

    def _probe_some(
        self,
        parts: Parts,
        numbers: Iterator[int],
        known: int,
        worker: int,
        probed: Probed,
        productive: list[int],
    ) -> int:
        """Probe one part after the other; returns the bytes of their table.

        Whoever is done takes the next: the sizes of parts differ.
        """
        most, size = int(max(np.diff(parts.starts), default=0)), key_words(self.lanes)
        places = directory_size(most)
        words = self.workspace.empty(f"words of {worker}", (most + 1) * size, np.int32)
        whole = directory = self.workspace.empty(f"directory of {worker}", places, np.uint64)
        first, used = np.empty(self.windows.lengths.size, np.int64), np.zeros(1, np.int64)
        shared = np.uint64(self.shared)
        for part in numbers:
            start, end = parts.starts[part], parts.starts[part + 1]
            for entries in (directory, whole):
                table = Table(entries, words.view(np.uint64), words, size, first, used, shared)
                found = probe_part(
                    parts.keys, parts.rows, start, end, known, self.windows, table, probed
                )
                if found >= 0:
                    break
            productive[part] = found
            # Parts are alike: the next has about as many keys, and a small directory is faster.
            directory = whole[: min(places, directory_size(2 * int(used[0])))]
        return words.nbytes + whole.nbytes

    def _blocks(
        self,
        parts: Parts,
        probed: Probed,
        productive: list[int],
        ends: npt.NDArray[np.int64],
    ) -> Iterator[Block]:
        """The results in the order of arrival, a block of them after the other."""
        lanes, numbers = self.lanes, range(len(productive))
        done = [0 for _ in numbers]
        choices = [np.zeros(lanes + 1, np.int64) for _ in numbers]
        total = int(ends[-1]) if ends.size else 0
        for made in range(0, total, BLOCK * self.threads):
            size = min(BLOCK * self.threads, total - made)
            out = Emitted(ends, made, np.empty(size, np.int64), np.empty(size * lanes, np.int64))

            def emit(part: int, out: Emitted = out) -> None:
                if done[part] < productive[part]:
                    done[part] = emit_part(
                        parts.keys,
                        parts.rows,
                        parts.starts[part],
                        done[part],
                        productive[part],
                        self.windows,
                        probed,
                        out,
                        choices[part],
                    )

            self.map(emit, numbers)
            for first in range(0, size, BLOCK):
                last = min(first + BLOCK, size)
                yield Block(
                    out.time[first:last],
                    out.members[first * lanes : last * lanes],
                    np.arange(1, last - first + 1) * lanes,
                    self.operator.payload,
                )
