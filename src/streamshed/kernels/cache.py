"""The cache of compiled drivers: what their names are made of, and what an entry holds.

An entry is one file. Its name tells all that its code depends on: the sources of the kernels, those
of a policy from elsewhere, the types of the arguments, the versions of the compiler, the processor.
So nothing is read to find an entry, nothing is locked to write one, and folders can be copied.
Where entries are is told in `kernel_files`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.metadata
import inspect
import json
import logging
import os
import pickle
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numba
from numba.core import compiler, config, event, sigutils
from numba.core.caching import _Cache
from numba.core.dispatcher import Dispatcher
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.typing.templates import Signature

from streamshed.kernels.codegen import kernel_codegen
from streamshed.kernels.kernel_files import PACKAGE, SUFFIX, find, keep, sources, writable_folder
from streamshed.kernels.lazy import Kernel
from streamshed.kernels.signatures import describe, digest, full_name, parts

FORMAT = b"streamshed kernel 1\n"

KERNEL_FOLDERS = ("engine", "kernels", "policies")
"""The folders of the package whose sources can end up inside any driver."""

_TOOLS = frozenset({"builtins", "llvmlite", "numba", "numpy", "pyarrow", *sys.stdlib_module_names})
"""Packages whose sources are not part of a policy; of the compiler the version is."""
_SETTINGS = ("BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "OPT", "SLP_VECTORIZE")
"""The settings of numba that the code depends on."""
QUIET = "STREAMSHED_QUIET"
"""The variable that keeps quiet about compiling."""
_LONG = 1.0
"""Seconds of compiling after which it is worth a word."""

_log = logging.getLogger("streamshed")


class Cache(_Cache):  # type: ignore[misc]
    """The compiled forms of one driver; what numba's dispatcher asks for them.

    Args:
        function: the driver.
        involved: names further functions that the code for a class depends on: hooks of a policy.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        involved: Callable[[type], Iterable[Callable[..., Any]]] = lambda _: (),
    ) -> None:
        self._function = function
        self._involved = involved
        self._enabled = True

    @property
    def cache_path(self) -> str | None:
        """Where new entries go."""
        folder = writable_folder()
        return None if folder is None else str(folder)

    def enable(self) -> None:
        """Look for entries, and keep them."""
        self._enabled = True

    def disable(self) -> None:
        """Compile whatever is called for."""
        self._enabled = False

    def flush(self) -> None:
        """Forget nothing: entries are found by what they depend on, and never out of date."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load the driver as compiled for a signature; None if there is no such entry."""
        name = self._name(sig)
        found = find(name) if name else None
        if found is not None:
            try:
                return _rebuild(sig, target_context, _payload(found))
            except _UnreadableError as reason:
                _log.debug("the kernel %s is compiled anew: %s", name, reason)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the driver as it was compiled for a signature."""
        name = self._name(sig)
        if name and not data.lifted and not data.library.has_dynamic_globals:
            keep(name, _packed(self._about(sig, _notice.seconds), _reduced(data)))

    def entries(self) -> Iterator[dict[str, Any]]:
        """What there is of this driver for this version and processor: what each is for."""
        beginning = f"{_short(self._function)}-"
        for source in sources():
            for name in source.names():
                if name.startswith(beginning) and name.endswith(f"-{_environment()}{SUFFIX}"):
                    data = source.read(name)
                    if data is not None:
                        with contextlib.suppress(_UnreadableError):
                            yield _header(data)

    def _name(self, sig: Any) -> str | None:
        """The name of the entry for a signature; None if what it depends on cannot be told."""
        if not self._enabled or self._function.__closure__:
            return None
        kinds, returned = sigutils.normalize_signature(sig)
        text = [describe(kind) for kind in kinds]
        if returned is not None:
            text.append(describe(returned))
        involved = [self._function, *parts(kinds)]
        for part in parts(kinds):
            if isinstance(part, type):
                involved += self._involved(part)
        try:
            outside = _outside(involved)
        except _UnknownSourceError:
            return None
        if any(" at 0x" in said for said in text):
            return None
        what = digest(full_name(self._function), *text, *outside)
        return f"{_short(self._function)}-{what}-{_environment()}{SUFFIX}"

    def _about(self, sig: Any, seconds: float) -> dict[str, Any]:
        kinds, _ = sigutils.normalize_signature(sig)
        codegen = kernel_codegen()
        return {
            "driver": full_name(self._function),
            "for": list(dict.fromkeys(full_name(part) for part in parts(kinds))),
            "processor": codegen.magic_tuple()[1],
            "numba": numba.__version__,
            "seconds": round(seconds, 2),
        }


def _short(function: Callable[..., Any]) -> str:
    name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
    return "".join(c if c.isalnum() or c in "._" else "_" for c in name)


# -- what code depends on ------------------------------------------------------------------------


class _UnknownSourceError(Exception):
    """Something is compiled in whose source cannot be read."""


@functools.cache
def _environment() -> str:
    """A digest of all that every driver depends on."""
    return digest(
        FORMAT,
        _source_stamp(),
        sys.implementation.cache_tag or "",
        numba.__version__,
        importlib.metadata.version("llvmlite"),
        *map(str, kernel_codegen().magic_tuple()),
        *(f"{name} {getattr(config, name, None)}" for name in _SETTINGS),
    )


@functools.cache
def _source_stamp() -> str:
    """A digest of every source of the package that can end up inside a driver."""
    texts: list[str | bytes] = []
    for folder in KERNEL_FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            texts += [str(path.relative_to(PACKAGE).as_posix()), path.read_bytes()]
    return digest(*texts)


_COMPILED = (Dispatcher, Kernel)


def _outside(involved: Iterable[Any]) -> list[str]:
    """What is compiled in from outside of the kernel folders, in the order of names."""
    seen: dict[str, list[str]] = {}
    for part in involved:
        _visit(part.__module__, seen)
    return [text for _, texts in sorted(seen.items()) for text in texts]


def _visit(name: str, seen: dict[str, list[str]]) -> None:
    """Take in a module, and those whose kernels and states it uses."""
    top, _, rest = name.partition(".")
    stamped = top == "streamshed" and rest.partition(".")[0] in KERNEL_FOLDERS
    if stamped or top in _TOOLS or name in seen:
        return
    module = sys.modules.get(name)
    if module is None:
        raise _UnknownSourceError(name)
    seen[name] = texts = [name, digest(_source(module))]
    for label, value in sorted(vars(module).items()):
        if isinstance(value, ModuleType):
            if any(isinstance(inner, _COMPILED) for inner in vars(value).values()):
                _visit(value.__name__, seen)
        elif isinstance(value, _COMPILED):
            _visit(value.py_func.__module__, seen)
        elif isinstance(value, type) and hasattr(value, "_fields"):
            _visit(value.__module__, seen)
        elif isinstance(value, (int, float, str)) and not label.startswith("__"):
            # Kernels take constants in, whichever module they come from.
            texts.append(f"{label}={value!r}")


def _source(module: ModuleType) -> bytes:
    try:
        return inspect.getsource(module).encode()
    except (OSError, TypeError) as error:
        raise _UnknownSourceError(module.__name__) from error


# -- what an entry holds -------------------------------------------------------------------------


class _UnreadableError(Exception):
    """A file that is no entry, or not a whole one."""


def _packed(about: Mapping[str, Any], payload: bytes) -> bytes:
    header = json.dumps({**about, "check": zlib.crc32(payload)}).encode()
    return FORMAT + header + b"\n" + payload


def _header(data: bytes) -> dict[str, Any]:
    if not data.startswith(FORMAT):
        raise _UnreadableError("it has another format")
    line, _, _ = data[len(FORMAT) :].partition(b"\n")
    header: dict[str, Any] = json.loads(line)
    return header


def _payload(data: bytes) -> bytes:
    header = _header(data)
    payload = data[data.index(b"\n", len(FORMAT)) + 1 :]
    if zlib.crc32(payload) != header["check"]:
        raise _UnreadableError("it is not whole")
    return payload


def _reduced(result: Any) -> bytes:
    """A compiled driver as bytes, without its argument types: whoever asks for it has them."""
    described = copy.copy(result.fndesc)
    described.typemap = described.calltypes = None
    described.argtypes = ()
    referred = [_environment_as_data(other) for other in result._find_referenced_environments()]
    return bytes(
        dumps(
            (
                result.library.serialize(),
                described,
                _environment_as_data(result.environment),
                result.signature.return_type,
                result.reload_init,
                referred,
            )
        )
    )


def _environment_as_data(environment: Any) -> tuple[str, str, list[Any]]:
    return environment.env_name, environment.globals["__name__"], environment.consts


def _environment_of(data: tuple[str, str, list[Any]]) -> Any:
    """The Python objects that code refers to: those that it raises.

    Its module is not needed, and numba's own take half a second to import.
    """
    name, module, constants = data
    known = lookup_environment(name)
    if known is None:
        known = Environment({"__name__": module})
        known.consts[:] = constants
        known.env_name = name
        Environment._memo[name] = known
    return known


def _rebuild(sig: Any, target_context: Any, payload: bytes) -> Any:
    library, described, own, returned, reload_init, others = pickle.loads(payload)
    environment, referred = _environment_of(own), [*map(_environment_of, others)]
    for function in reload_init:
        function()
    kinds, _ = sigutils.normalize_signature(sig)
    described.argtypes = tuple(kinds)
    # The rest of what numba loads before it compiles takes half a second, and is not needed.
    rtsys.initialize(target_context)
    code = kernel_codegen().unserialize_library(library)
    entry = target_context.get_executable(code, described, environment)
    for other in referred:
        code.codegen.set_env(other.env_name, other)
    return compiler.CompileResult(
        target_context=target_context,
        typing_context=target_context.typing_context,
        library=code,
        environment=environment,
        entry_point=entry,
        fndesc=described,
        type_annotation="",
        signature=Signature(returned, tuple(kinds), None),
        objectmode=False,
        lifted=(),
        typing_error=None,
        call_helper=None,
        metadata=None,
        reload_init=reload_init,
        referenced_envs=referred,
    )


# -- to say that it takes its time ---------------------------------------------------------------


class _Notice(event.Listener):  # type: ignore[misc]
    """Says once in a process that there is something to compile, if that takes longer."""

    def __init__(self) -> None:
        self.purpose: str | None = None
        self.said = False
        self.seconds = 0.0
        self._spent = 0.0
        self._began: list[float] = []
        self._timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        """A function is about to be compiled, ours or another."""
        if not isinstance(event.data["dispatcher"]._cache, Cache):
            return
        self._began.append(time.perf_counter())
        if len(self._began) == 1 and not self.said and not os.environ.get(QUIET):
            what = self.purpose or _purpose(event.data["dispatcher"].py_func, event.data["args"])
            self._timer = threading.Timer(max(0.0, _LONG - self._spent), self._say, (what,))
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Any) -> None:
        """A function was compiled, or could not be."""
        if not isinstance(event.data["dispatcher"]._cache, Cache):
            return
        self.seconds = time.perf_counter() - self._began.pop()
        if not self._began:
            self._spent += self.seconds
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _say(self, what: str) -> None:
        if not self.said:
            self.said = True
            folder = writable_folder()
            later = f"load them from {folder}" if folder else "compile them again"
            _log.warning(
                "compiling kernels (%s), which takes some seconds; later processes %s", what, later
            )


def _purpose(function: Callable[..., Any], kinds: Iterable[Any]) -> str:
    """What a driver is compiled for, as far as its types tell: "loop.run with density"."""
    modules = dict.fromkeys(part.__module__ for part in parts(kinds))
    policies = [name.rpartition(".")[2] for name in modules if ".policies." in name]
    policies = [policy for policy in policies if policy != "base"]  # of joins that shed nothing
    return f"{_short(function)}{' with ' if policies else ''}{', '.join(policies)}"


_notice = _Notice()
event.register("numba:compile", _notice)


@contextlib.contextmanager
def compiling_for(purpose: str) -> Iterator[None]:
    """Say what the kernels are for that are compiled meanwhile: "a join on a key with density"."""
    before, _notice.purpose = _notice.purpose, purpose
    try:
        yield
    finally:
        _notice.purpose = before
