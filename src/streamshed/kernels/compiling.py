"""How kernels are compiled, cached on disk, and specialised for a policy.

A *kernel* is compiled into whatever calls it. A *driver* is called from Python and cached on disk,
so that a new process starts in well under a second. A *hook* is a decision that a policy may make:
drivers call it, and the type of the policy's state picks the implementation, at compile time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.extending import overload

from streamshed.kernels.cache import Cache
from streamshed.kernels.codegen import Pipeline
from streamshed.kernels.lazy import Hook, Kernel, measured
from streamshed.kernels.signatures import full_name

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function that other compiled functions call."""
    return Kernel(_measured(function, _INNER), _INNER)  # type: ignore[return-value]


def cold_kernel(function: Function) -> Function:
    """Compile a function that is called seldom: apart from its caller, whose code stays short."""
    apart = _INNER | {"forceinline": False}
    return Kernel(_measured(function, apart), apart)  # type: ignore[return-value]


def driver(function: Function) -> Function:
    """Compile a function that Python calls, cached on disk across processes."""
    return _cached(function, _COMMON)


def loop(function: Function) -> Function:
    """Compile a driver that makes no arrays of its own.

    Without numba's reference counting: a state of many arrays, handed from kernel to kernel, would
    cost a hundred atomic operations for each row.
    """
    return _cached(function, _COMMON | {"_nrt": False}, _measured(function, _INNER, True))


def _cached(function: Function, options: dict[str, Any], noted: Function | None = None) -> Function:
    compiled = numba.njit(**options)(noted or function)
    compiled._cache = Cache(function, _implementations_for)
    return compiled  # type: ignore[no-any-return]


def _measured(function: Function, options: dict[str, Any], driver: bool = False) -> Function:
    """The function, whose time is noted in builds for profiling."""
    return measured(function, lambda one: Kernel(one, options), driver)  # type: ignore[return-value]


_COMMON: dict[str, Any] = {"pipeline_class": Pipeline, "nogil": True, "error_model": "numpy"}
_INNER: dict[str, Any] = _COMMON | {
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "forceinline": True,
}


def copy_element(target: Any, place: int, source: Any, i: int) -> None:
    """Copy an element of an array, or a row of one with two dimensions; in compiled code only."""
    raise RuntimeError("copy_element is called by compiled code only")


@overload(copy_element, strict=False, jit_options=_INNER)
def _copy_element(target: Any, place: Any, source: Any, i: Any) -> Callable[..., None]:
    def one(target: Any, place: int, source: Any, i: int) -> None:
        target[place] = source[i]

    def several(target: Any, place: int, source: Any, i: int) -> None:
        for k in range(source.shape[1]):
            target[place, k] = source[i, k]

    return several if source.ndim == 2 else one


_HOOKS: list[Hook] = []


def hook(stub: Function) -> Function:
    """Declare a decision that policies may implement; the stub's own body is the default.

    The first argument of a hook is the policy's state, a `NamedTuple` class of its own.
    """
    hooked = Hook(stub, _INNER)
    _HOOKS.append(hooked)
    return hooked  # type: ignore[return-value]


def implements(hooked: Callable[..., Any], state: type) -> Callable[[Function], Function]:
    """Let a function, or a kernel, decide a hook wherever the state is of the given class."""

    def register(function: Function) -> Function:
        hooked.forms[state] = function  # type: ignore[attr-defined]
        return function

    return register


def is_implemented(hooked: Callable[..., Any], state: type) -> bool:
    """Whether a hook is decided for a class of state, or left to its default."""
    return state in hooked.forms  # type: ignore[attr-defined]


def _implementations_for(state: type) -> list[Callable[..., Any]]:
    """The functions that decide for a policy's state."""
    return [hooked.forms[state] for hooked in _HOOKS if state in hooked.forms]


def compiled_for(function: Callable[..., Any], state: type) -> bool:
    """Whether a driver is on disk, compiled for a policy's state by this version of the sources."""
    entries = function._cache.entries()  # type: ignore[attr-defined]
    return any(full_name(state) in entry["for"] for entry in entries)
