"""What a kernel is compiled for: its argument types in words that mean the same in any process.

Numba writes a named tuple by the bare name of its class: two policies from different modules, both
with a class `State`, would be one. Here every class and function has the name of its module.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from numba.core import types
from numba.core.types.containers import BaseNamedTuple, BaseTuple


@functools.cache
def describe(kind: Any) -> str:
    """Describe a type, with the full names of the classes and functions in it."""
    if isinstance(kind, BaseNamedTuple):
        fields = ", ".join(map(describe, kind.types))
        return f"{full_name(kind.instance_class)}({fields})"
    if isinstance(kind, BaseTuple):
        return f"({', '.join(map(describe, kind.types))})"
    if isinstance(kind, types.Dispatcher):
        return _describe_function(kind.dispatcher.py_func)
    return str(kind)


def _describe_function(function: Callable[..., Any]) -> str:
    """Name a function; lambdas of one module share a name, and differ by line and code."""
    code = function.__code__
    text = digest(code.co_code, repr(code.co_consts), repr(code.co_names))
    return f"{full_name(function)}:{code.co_firstlineno}:{text}"


def parts(kinds: Iterable[Any]) -> Iterator[type | Callable[..., Any]]:
    """Find the classes and functions that types refer to, each as often as it occurs."""
    for kind in kinds:
        if isinstance(kind, BaseNamedTuple):
            yield kind.instance_class
        if isinstance(kind, BaseTuple):
            yield from parts(kind.types)
        elif isinstance(kind, types.Dispatcher):
            yield kind.dispatcher.py_func


def full_name(of: Any) -> str:
    """Name a class or function by its module and its place there."""
    return f"{of.__module__}.{of.__qualname__}"


def digest(*texts: str | bytes) -> str:
    """Digest texts into 32 characters; where one ends and the next begins makes a difference."""
    total = hashlib.sha256()
    for text in texts:
        data = text.encode() if isinstance(text, str) else text
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()[:32]
