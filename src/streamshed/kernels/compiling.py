"""How kernels are compiled, cached on disk, and specialised for a policy.

A *kernel* is compiled into whatever calls it. A *driver* is called from Python and cached on disk,
so that a new process starts in well under a second. A *hook* is a decision that a policy may make:
drivers call it, and the type of the policy's state picks the implementation, at compile time.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import caching, types
from numba.extending import overload
from numba.np import arrayobj

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = Path(__file__).resolve().parent.parent
_KERNEL_FOLDERS = ("kernels", "operators", "policies", "throttle")
_INDEXING = ("context", "builder", "idxty", "idx", "size")
"""What numba is told of an index, in the releases that are known."""


@functools.cache
def _source_stamp(own: Path) -> str:
    """Return a digest of every source that can end up inside a driver.

    Numba's own stamp covers the file of the driver alone: a changed policy or kernel would go on
    running as it was.

    Args:
        own: the folder of the driver, which may be one of another package.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    folders = [_PACKAGE / name for name in _KERNEL_FOLDERS]
    sources = {path for folder in folders for path in folder.rglob("*.py")}
    for path in sorted(sources.union(own.glob("*.py"))):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _StampedCacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        own = Path(inspect.getfile(function)).resolve().parent
        self._locator.get_source_stamp = lambda: _source_stamp(own)


class _StampedCache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _StampedCacheImpl

    def save_overload(self, signature: Any, data: Any) -> None:
        # Numba numbers its files without a lock: two processes that compile a driver for different
        # policies at once could each write file 1, and the index would name the wrong code.
        with _locked(Path(self.cache_path)):
            super().save_overload(signature, data)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # a system without such locks keeps numba's own behaviour
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "streamshed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _take_indices_as_they_are() -> None:
    """Have kernels take indices as they are; none is negative.

    As in Python, numba counts negative indices from the end. To look for them costs three
    instructions for each access, a quarter of the time of a loop, and there is no setting for it.
    Functions with reference counting, those of users among them, stay as they are; so does all if
    numba is made otherwise one day. With NUMBA_BOUNDSCHECK=1 a negative index is an error.
    """
    usual = getattr(arrayobj, "fix_integer_index", None)
    if usual is None or [*inspect.signature(usual).parameters] != [*_INDEXING]:
        return

    def as_it_is(context: Any, builder: Any, idxty: Any, idx: Any, size: Any) -> Any:
        if context.enable_nrt or not idxty.signed:
            return usual(context, builder, idxty, idx, size)
        return context.cast(builder, idx, idxty, types.intp)

    arrayobj.fix_integer_index = as_it_is


_take_indices_as_they_are()


def kernel(function: Function) -> Function:
    """Compile a function that other compiled functions call."""
    return numba.njit(**_INNER)(function)  # type: ignore[no-any-return]


def aside(function: Function) -> Function:
    """Compile a function that is called seldom: apart from its caller, whose code stays short."""
    return numba.njit(**(_INNER | {"forceinline": False}))(function)  # type: ignore[no-any-return]


def driver(function: Function) -> Function:
    """Compile a function that Python calls, cached on disk across processes."""
    return _cached(numba.njit(nogil=True, error_model="numpy")(function), function)


def loop(function: Function) -> Function:
    """Compile a driver that makes no arrays of its own.

    Without numba's reference counting: a state of many arrays, handed from kernel to kernel, would
    cost a hundred atomic operations for each tuple.
    """
    return _cached(numba.njit(nogil=True, error_model="numpy", _nrt=False)(function), function)


def _cached(compiled: Any, function: Function) -> Function:
    compiled._cache = _StampedCache(function)
    return compiled  # type: ignore[no-any-return]


_INNER = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "forceinline": True,
}

_IMPLEMENTATIONS: dict[Callable[..., Any], dict[type, Callable[..., Any]]] = {}


def hook(stub: Function) -> Function:
    """Declare a decision that policies may implement; the stub's own body is the default.

    The first argument of a hook is the policy's state, a `NamedTuple` class of its own.
    """
    implementations: dict[type, Callable[..., Any]] = {}

    def choose(policy: Any, *_: Any) -> Callable[..., Any]:
        return implementations.get(policy.instance_class, stub)

    # Numba matches the parameters of an overload with those of the stub by name.
    choose.__signature__ = inspect.signature(stub)  # type: ignore[attr-defined]

    @functools.wraps(stub)
    def placeholder(*_: Any) -> Any:
        raise RuntimeError("hooks are called by compiled code only")

    _IMPLEMENTATIONS[placeholder] = implementations
    overload(placeholder, strict=False, jit_options=_INNER)(choose)
    return placeholder  # type: ignore[return-value]


def implements(hooked: Callable[..., Any], state: type) -> Callable[[Function], Function]:
    """Let a function decide a hook wherever the policy's state is of the given class."""

    def register(function: Function) -> Function:
        _IMPLEMENTATIONS[hooked][state] = function
        return function

    return register


def compiled_for(function: Callable[..., Any], state: type) -> bool:
    """Whether a driver is on disk, compiled for a policy's state by this version of the sources."""
    index = function._cache._cache_file._load_index()  # type: ignore[attr-defined]
    return any(str(kind).startswith(f"{state.__name__}(") for key in index for kind in key[0])
