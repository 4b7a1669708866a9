"""Kernels that numba hears of only when something is compiled.

A new process that finds its drivers in the cache needs no kernel by itself, and there are some 400
of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numba


class Kernel:
    """A function that is compiled into whatever calls it.

    Args:
        function: as it was written.
        options: how numba compiles it.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self._options = function, options

    @functools.cached_property
    def dispatcher(self) -> Any:
        """What numba makes of the function."""
        return numba.njit(**self._options)(self.py_func)

    @property
    def _numba_type_(self) -> Any:
        """The type by which numba knows the function where compiled code calls it."""
        return self.dispatcher._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        """Call the function by itself."""
        return self.dispatcher(*arguments)
