"""Compile the kernels of joins ahead of time, to ship them with an image, a wheel or a job.

Example:
    >>> sorted(KINDS)
    ['distance', 'equalities', 'key']
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from streamshed.conditions import near
from streamshed.engine.build import build_operator
from streamshed.errors import SpecError, StreamshedError
from streamshed.join import Join, join
from streamshed.kernels import kernel_files
from streamshed.kernels.cache import compiling_for
from streamshed.shards import counted_rows

COMMON = ("key", "key:density", "key:oldest", "key:output", "equalities", "equalities:sketch")
"""The joins whose kernels wheels bring along; "key" sheds nothing."""

KINDS: dict[str, Callable[[], Join]] = {
    "key": lambda: join("a", "b", "c").on("k"),
    "equalities": lambda: join("a", "b", "c").on("a.k = b.k", "b.m = c.m"),
    "distance": lambda: join("a", "b").on(near("x", 1.0)),
}
"""The kinds of join by name. Kernels depend neither on the number of streams nor on payloads."""

_KEYS = (pa.int64(), pa.string())
_TIME = pa.timestamp("us", "UTC")


class Warmable(Protocol):
    """An operator that can have its kernels compiled without any rows."""

    def warm(self) -> None:
        """Have everything compiled that the join will need."""


class Compiled(NamedTuple):
    """A join whose kernels are compiled."""

    name: str
    seconds: float


def compile_ahead(names: Iterable[str], done: Callable[[Compiled], None] = lambda _: None) -> None:
    """Compile the kernels of joins into the cache of kernels; what is there already is kept.

    Args:
        names: "common", or any of `KINDS`, alone or with a policy: "key:density". A policy alone
            stands for the key join.
        done: is told of each.
    """
    for name in targets(names):
        start = time.perf_counter()
        with compiling_for(f"the join {name!r}"):
            for operator in _operators(name):
                operator.warm()
        done(Compiled(name, time.perf_counter() - start))


def write(folder: Path | None = None, archive: Path | None = None) -> int:
    """Write the kernels that this process has used to a folder or an archive; returns how many."""
    try:
        if folder is not None:
            kernel_files.export_to(folder)
        if archive is not None:
            archive.write_bytes(kernel_files.export())
    except OSError as error:
        raise StreamshedError(f"the kernels cannot be written: {error}") from error
    return len(kernel_files.used())


def targets(names: Iterable[str]) -> list[str]:
    """Spell out names, each once.

    Example:
        >>> targets(["key", "density", "key:density"])
        ['key', 'key:density']
    """
    from streamshed.policies import NAMED

    spelled: list[str] = []
    for name in names:
        if name == "common":
            spelled += COMMON
            continue
        kind, _, policy = name.partition(":")
        if kind not in KINDS:
            kind, policy = "key", name
        if policy and policy not in NAMED:
            raise SpecError(
                f"there is no join {name!r} to compile; known are 'common', {', '.join(KINDS)},"
                f" each alone or with a policy, as in 'key:density': {', '.join(sorted(NAMED))}"
            )
        spelled.append(f"{kind}:{policy}" if policy else kind)
    return list(dict.fromkeys(spelled))


def _operators(name: str) -> Iterable[Warmable]:
    """Make operators that need all kernels of a join: for keys of any type, and results to give."""
    kind, _, policy = name.partition(":")
    said = KINDS[kind]().within("1 hour", time="t")
    if policy:
        said = said.keep(rows=8).shed(policy)
    for key in _KEYS if kind != "distance" else _KEYS[:1]:
        columns: dict[str, Any] = {"k": key, "m": key, "x": pa.float64(), "t": _TIME}
        rows = pa.table({name: pa.array([1]).cast(type_) for name, type_ in columns.items()})
        streams = "ab" if kind == "distance" else "abc"
        said.replay(dict.fromkeys(streams, rows))
        plan = said.plan(dict.fromkeys(streams, rows.schema))
        counted_rows(plan, 0, rows.to_batches()[0], shards=2)
        yield build_operator(plan)
