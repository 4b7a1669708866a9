"""Kernels that numba hears of only when something is compiled.

A new process that finds its drivers in the cache needs no kernel by itself, and there are some 400
of them.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from numba.core import types
from numba.core.registry import CPUDispatcher
from numba.core.types.misc import unliteral

PROFILE = "STREAMSHED_PROFILE"
"""Names, in the environment of a process whose kernels note their time, the module that has them
do so, by a function `noted`."""


def measured(
    function: Callable[..., Any],
    compiled: Callable[[Callable[..., Any]], Any],
    driver: bool = False,
) -> Callable[..., Any]:
    """A function whose time is noted in processes that are made for that; or the function itself.

    Args:
        function: as it was written.
        compiled: makes of it what compiled code can call.
        driver: whether Python calls it.
    """
    if PROFILE not in os.environ:
        return function
    module = importlib.import_module(os.environ[PROFILE])
    return module.noted(function, compiled, driver)  # type: ignore[no-any-return]


def widened(kind: Any) -> Any:
    """The type that a kernel takes for an argument: any number of 64 bits for a shorter one.

    Numba would compile a kernel once more for each constant that it is called with, for those that
    a variable begins with too, and for rows by their numbers of 32 bits and of 64.
    """
    plain: Any = unliteral(kind)
    return types.int64 if plain in types.signed_domain else plain


class _Settled(NamedTuple):
    """What a call gives whose arguments are known; numba would look through all that there are."""

    signature: Any

    def __call__(self, _: Any) -> _Settled:
        return self

    def apply(self, *_: Any) -> Any:
        return self.signature


class _Dispatcher(CPUDispatcher):  # type: ignore[misc]
    """What numba makes of a kernel: one function for all arguments that are alike."""

    @functools.cached_property
    def _settled(self) -> dict[tuple[int, ...], _Settled]:
        return {}

    def get_call_template(self, args: Any, kws: Mapping[str, Any]) -> Any:
        """What a call with arguments of the given types gives; it is compiled for them."""
        signature, kinds = self.fold_argument_types(args, kws)
        kinds = tuple(map(widened, kinds))
        # Types have numbers; to compare those of a state, field by field, takes much longer.
        numbers = tuple(kind._code for kind in kinds)
        if numbers not in self._settled:
            self.compile(kinds)
            self._settled[numbers] = _Settled(self.overloads[kinds].signature)
        return self._settled[numbers], signature, kinds, {}


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
        options = {**self._options, "nopython": True}
        pipeline = options.pop("pipeline_class")
        return _Dispatcher(self.py_func, targetoptions=options, pipeline_class=pipeline)

    @property
    def _numba_type_(self) -> Any:
        """The type by which numba knows the function where compiled code calls it."""
        return self.dispatcher._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        """Call the function by itself."""
        return self.dispatcher(*arguments)


class Hook:
    """A function of several forms: the class of its first argument picks one.

    Numba's own way for that, `overload`, compiles a form anew wherever an argument differs at all.

    Args:
        default: the form for classes that have none of their own.
        options: how numba compiles it.
    """

    is_compiling = False
    """Whether a call is a recursion, numba asks: a form may call that of another class."""

    def __init__(self, default: Callable[..., Any], options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, default)
        self.forms: dict[type, Callable[..., Any]] = {}
        self._default, self._options = default, options
        self._kernels: dict[Callable[..., Any], Kernel] = {}

    def get_call_template(self, args: Any, kws: Mapping[str, Any]) -> Any:
        """What a call with arguments of the given types gives; numba asks for it."""
        return self._kernel(args[0]).dispatcher.get_call_template(args, kws)

    def get_overload(self, args: Any) -> Any:
        """The compiled form for a call that was asked about before."""
        return self._kernel(args[0]).dispatcher.get_overload(args)

    @functools.cached_property
    def _numba_type_(self) -> Any:
        """The type by which numba knows the function where compiled code calls it."""
        return types.Dispatcher(self)

    def __call__(self, *_: Any) -> Any:
        """Refuse: what is called depends on types that only compiled code has."""
        raise RuntimeError("hooks are called by compiled code only")

    def _kernel(self, state: Any) -> Kernel:
        form = self.forms.get(state.instance_class, self._default)
        if isinstance(form, Kernel):
            return form
        if form not in self._kernels:
            inner = measured(form, lambda one: Kernel(one, self._options))
            self._kernels[form] = Kernel(inner, self._options)
        return self._kernels[form]
