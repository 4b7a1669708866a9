"""Where the time of a loop goes, kernel by kernel: counters in a build that is made for it.

A loop is one function once it is compiled, of which a profiler sees one frame. Where
`STREAMSHED_PROFILE` in the environment names this module, every kernel that is not tiny notes when
it is entered and left, by the processor's time stamps, below the kernels that called it. Nothing of
such a build may be kept: the addresses of the counters are in it. Loops of one thread only.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from streamshed.kernels.intrinsics import long_at, set_long

TINY = 60
"""Kernels of fewer instructions (of Python) count with their callers: to note the time of a kernel
takes as long as they do."""
_NODES, _KERNELS = 1 << 12, 1 << 10
_NODE, _LAST, _USED = range(3)
_ROUNDS, _TRIALS = 20_000, 10

_names = ["all"]
_cursor = np.zeros(3, np.int64)
"""The node at hand, when it was entered or returned to, and the last node in use."""
_parent, _kernel, _calls, _ticks = (np.zeros(_NODES, np.int64) for _ in range(4))
_children = np.zeros(_NODES * _KERNELS, np.int64)
_CURSOR, _PARENT, _KERNEL, _CALLS, _TICKS, _CHILDREN = (
    int(array.__array_interface__["data"][0])
    for array in (_cursor, _parent, _kernel, _calls, _ticks, _children)
)


@dataclass
class Frame:
    """A kernel, as it was called by those above it.

    Attributes:
        name: of the kernel, with its module.
        calls: how often it was called.
        own: the part of all time that it took, without the kernels below it.
        below: those that it called.
    """

    name: str
    calls: int
    own: float
    below: list[Frame] = field(default_factory=list)

    @property
    def total(self) -> float:
        """The part of all time that it took, with the kernels below it."""
        return self.own + sum(frame.total for frame in self.below)


@intrinsic
def _now(typing_context: Any) -> Any:
    """The processor's time stamp."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        return builder.call(builder.module.declare_intrinsic("llvm.readcyclecounter", (), kind), [])

    return types.int64(), generate


_inner = functools.partial(njit, nogil=True, error_model="numpy", _nrt=False)


@_inner(forceinline=True)
def _enter(kernel):  # type: ignore[no-untyped-def]
    """A kernel begins: the time until now was its caller's."""
    now = _now()
    node = long_at(_CURSOR, _NODE)
    set_long(_TICKS, node, long_at(_TICKS, node) + now - long_at(_CURSOR, _LAST))
    child = long_at(_CHILDREN, node * _KERNELS + kernel)
    if child == 0:
        child = _new_node(node, kernel)
    set_long(_CALLS, child, long_at(_CALLS, child) + 1)
    set_long(_CURSOR, _NODE, child)
    set_long(_CURSOR, _LAST, _now())


@_inner()
def _new_node(node, kernel):  # type: ignore[no-untyped-def]
    child = min(long_at(_CURSOR, _USED) + 1, _NODES - 1)
    set_long(_CURSOR, _USED, child)
    set_long(_PARENT, child, node)
    set_long(_KERNEL, child, kernel)
    set_long(_CHILDREN, node * _KERNELS + kernel, child)
    return child


@_inner(forceinline=True)
def _leave():  # type: ignore[no-untyped-def]
    """A kernel ends: the time until now was its own."""
    now = _now()
    node = long_at(_CURSOR, _NODE)
    set_long(_TICKS, node, long_at(_TICKS, node) + now - long_at(_CURSOR, _LAST))
    set_long(_CURSOR, _NODE, long_at(_PARENT, node))
    set_long(_CURSOR, _LAST, _now())


def noted(
    function: Callable[..., Any], compiled: Callable[[Callable[..., Any]], Any], driver: bool
) -> Callable[..., Any]:
    """A function whose time is noted, unless it is tiny.

    Args:
        function: as it was written.
        compiled: makes of it what compiled code can call.
        driver: whether Python calls it: such are noted whatever their size.
    """
    tiny = sum(1 for _ in dis.get_instructions(function)) < TINY
    if (tiny and not driver) or len(_names) == _KERNELS:
        return function
    _names.append(f"{function.__module__}.{function.__name__}")
    arguments = ", ".join(inspect.signature(function).parameters)
    text = (
        f"def {function.__name__}({arguments}):\n"
        f"    enter({len(_names) - 1})\n"
        f"    found = inner({arguments})\n"
        f"    leave()\n"
        f"    return found\n"
    )
    names = {"enter": _enter, "leave": _leave, "inner": compiled(function)}
    exec(text, names)
    return functools.wraps(function)(names[function.__name__])


class _Cost(NamedTuple):
    """Time stamps that the counting itself takes for each call: of the kernel, of its caller."""

    own: float
    caller: float


def profile(prepare: Callable[[], Callable[[], None]], rounds: int = 5) -> Frame:
    """Where the time of some work goes, without what the counting itself takes, about.

    Of each kernel the least time of several rounds counts: in others it was interrupted.

    Args:
        prepare: makes the work anew; what it does itself is not counted.
        rounds: how often the work is done.
    """
    prepare()()  # compiles
    own = np.full(_NODES, np.inf)
    for _ in range(rounds):
        work = prepare()
        _reset()
        work()
        own = np.minimum(own, _ticks)
    used = int(_cursor[_USED]) + 1
    calls, own = _calls[:used].copy(), own[:used]
    cost = _cost()
    own -= calls * cost.own
    np.subtract.at(own, _parent[1:used], calls[1:used] * cost.caller)
    own = np.maximum(own, 0.0)
    own[0] = 0.0  # before, between and after the loops
    return _frames(own / max(1.0, own.sum()), calls)


def _frames(own: npt.NDArray[np.float64], calls: npt.NDArray[np.int64]) -> Frame:
    """The kernels below each other, given the time and the calls of each node."""
    frames = [
        Frame(_names[kernel], count, part)
        for kernel, count, part in zip(_kernel.tolist(), calls.tolist(), own.tolist(), strict=False)
    ]
    for node in range(1, len(frames)):
        if calls[node]:
            frames[_parent[node]].below.append(frames[node])
    return frames[0]


def _reset() -> None:
    """Count anew."""
    _cursor[_NODE] = 0
    _ticks[:], _calls[:] = 0, 0


def _cost() -> _Cost:
    """What counting takes, measured by a kernel that does nothing."""
    number = len(_names)
    _names.append("nothing")
    found = []
    for _ in range(_TRIALS):
        _reset()
        _call_nothing(number, _ROUNDS)
        found.append((_ticks[_children[number]] / _ROUNDS, _ticks[0] / _ROUNDS))
    own, caller = np.min(found, axis=0).tolist()
    return _Cost(own, caller)


@_inner()
def _call_nothing(number, rounds):  # type: ignore[no-untyped-def]
    set_long(_CURSOR, _LAST, _now())
    for _ in range(rounds):
        _enter(number)
        _leave()
