"""What a basic window is worth to a newcomer: scores from one histogram for each stream.

Section V-B of the GrubJoin paper. The histogram of stream l counts, over results, by how much its
member was newer than that of the first stream (L_l, of the random variable A_l1). For any two
streams the difference of their times is the difference of those two; they are taken as independent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import driver, kernel

FINE = 4
"""Buckets for each basic window of the shortest window."""
MOST_BUCKETS = 4096


class Histograms(NamedTuple):
    """A histogram for each stream, all from the same least difference on, in equal buckets."""

    counts: npt.NDArray[np.float64]  # by (stream, bucket)
    buckets: int
    least: float
    width: float


def new_histograms(windows: npt.NDArray[np.float64], part: float) -> Histograms:
    """Empty histograms for windows of some lengths.

    Args:
        windows: the length of each stream's window.
        part: the length of the shortest basic window.
    """
    least, most = -float(windows.max()), float(windows[0])
    buckets = int(min(MOST_BUCKETS, max(1, np.ceil((most - least) / part * FINE))))
    width = (most - least) / buckets or 1.0
    return Histograms(np.zeros(len(windows) * buckets), buckets, least, width)


@kernel
def note_difference(histograms, stream, difference):  # type: ignore[no-untyped-def]
    """Count a result in which a stream's member is so much newer than that of the first."""
    bucket = np.int64((difference - histograms.least) / histograms.width)
    inside = min(max(bucket, np.int64(0)), histograms.buckets - 1)
    histograms.counts[stream * histograms.buckets + inside] += 1.0


@kernel
def _between(histograms, stream, low, high):  # type: ignore[no-untyped-def]
    """The results with differences in between; of a bucket that is cut, the part."""
    counts, base = histograms.counts, stream * histograms.buckets
    start = (low - histograms.least) / histograms.width
    end = (high - histograms.least) / histograms.width
    start, end = max(start, 0.0), min(end, float(histograms.buckets))
    total = 0.0
    bucket = np.int64(start)
    while bucket < end:
        total += counts[base + bucket] * (min(end, bucket + 1.0) - max(start, float(bucket)))
        bucket += 1
    return total


@driver
def scores_of(histograms, direction, stream, part, parts):  # type: ignore[no-untyped-def]
    """The scores of the basic windows of a stream for newcomers of another.

    Args:
        histograms: of all streams.
        direction: the stream of the newcomers (i).
        stream: the stream of the window (l).
        part: the length of a basic window (b).
        parts: how many there are (n).
    """
    scores = np.zeros(parts)
    counts = histograms.counts
    for k in range(parts):
        if direction == 0:  # equation 2
            scores[k] = _between(histograms, stream, -part * (k + 1), -part * k)
        elif stream == 0:
            scores[k] = _between(histograms, direction, part * k, part * (k + 1))
        else:  # equation 4
            for v in range(histograms.buckets):
                count = counts[stream * histograms.buckets + v]
                if count > 0.0:
                    middle = histograms.least + (v + 0.5) * histograms.width
                    near = _between(
                        histograms, direction, part * k + middle, part * (k + 1) + middle
                    )
                    scores[k] += count * near
    return scores
