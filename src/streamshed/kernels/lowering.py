"""From Python to LLVM: numba's own steps, without the work that kernels do not need.

Most of a cold start goes here, for some hundred small functions.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Mapping
from types import BuiltinFunctionType, CodeType, ModuleType
from typing import Any

from numba.core import analysis, compiler, ir, lowering, typed_passes, types, untyped_passes
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.cpu import CPUContext
from numba.core.types.misc import unliteral
from numba.core.typing import Context

_ARRAYS = frozenset({operator.getitem, operator.setitem})
_OPERATORS = _ARRAYS.union(
    (abs, bool, float, int, max, min, range),
    (value for name, value in vars(operator).items() if callable(value) and name[0] != "_"),
)
_NAMED = (BuiltinFunctionType, ModuleType)
_NUMBERS = (types.Number, types.Boolean, types.IntegerLiteral, types.BooleanLiteral)


class _Lower(lowering.Lower):  # type: ignore[misc]
    """Keeps variables in registers where numba keeps them on the stack.

    Numba has a place on the stack for each variable that more than one block of code refers to. A
    state has a few hundred fields; to take them from the stack again, for each kernel that it was
    handed to, was half of what there was to optimise.
    """

    @functools.cached_property
    def _counts_references(self) -> bool:
        return bool(self.context.enable_nrt)

    def _find_singly_assigned_variable(self) -> None:
        if self._counts_references or self.func_ir.func_id.is_generator:
            super()._find_singly_assigned_variable()
            return
        blocks = self.func_ir.blocks
        assigned: dict[str, list[int]] = {}
        for offset, block in blocks.items():
            for statement in block.find_insts(ir.Assign):
                assigned.setdefault(statement.target.name, []).append(offset)
        used: dict[str, list[int]] = {}
        for offset, names in analysis.compute_use_defs(blocks).usemap.items():
            for name in names:
                used.setdefault(name, []).append(offset)
        dominators = analysis.compute_cfg_from_blocks(blocks).dominators()
        self._blk_local_varmap: dict[str, Any] = {}
        self._singly_assigned_vars = {
            name
            for name, places in assigned.items()
            if len(places) == 1
            and all(
                places[0] < offset and places[0] in dominators[offset]
                for offset in used.get(name, ())
            )
        }

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """The value of an operator; numba tries it for each operand as a constant first."""
        kinds = self.fndesc.calltypes[expr].args
        if op is operator.pow or not _is_plain(op, kinds):
            return super().lower_binop(resty, expr, op)
        sides = [
            self.context.cast(self.builder, self.loadvar(side.name), self.typeof(side.name), kind)
            for side, kind in zip((expr.lhs, expr.rhs), kinds, strict=True)
        ]
        function, signature = self.context.typing_context.lowered(op, kinds)
        result = self.context.get_function(function, signature)(self.builder, sides)
        return self.context.cast(self.builder, result, signature.return_type, resty)

    def delvar(self, name: str) -> None:
        """Forget a variable, which means something only where references are counted."""
        if self._counts_references:
            super().delvar(name)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(typed_passes.NativeLowering):  # type: ignore[misc]
    """Numba's step, for the variables above."""

    _name = "kernel_lowering"

    @property
    def lowering_class(self) -> Any:
        return _Lower


_FOR_CLOSURES = (untyped_passes.InlineClosureLikes, untyped_passes.MakeFunctionToJitFunction)
_FOR_ARRAYS = (
    typed_passes.InlineOverloads,
    typed_passes.NopythonRewrites,
    typed_passes.IRLegalization,
)
"""Steps that fuse operations on whole arrays, or say where a reference is no longer needed: only
functions with reference counting have either."""


@functools.cache
def _steps(closures: bool, arrays: bool) -> PassManager:
    builder = compiler.DefaultPassBuilder
    manager = PassManager("kernel")
    state = compiler.StateDict(func_ir=None, flags=compiler.Flags())
    for part in (
        builder.define_untyped_pipeline(state),
        builder.define_typed_pipeline(state),
        builder.define_nopython_lowering_pipeline(state),
    ):
        manager.passes += part.passes
    left_out = (() if closures else _FOR_CLOSURES) + (() if arrays else _FOR_ARRAYS)
    manager.passes = [
        (_Lowering if step is typed_passes.NativeLowering else step, what)
        for step, what in manager.passes
        if step not in left_out
    ]
    manager.finalize()
    return manager


def steps_for(state: Any) -> PassManager:
    """The steps that a function needs."""
    constants = state.func_id.code.co_consts
    return _steps(any(isinstance(c, CodeType) for c in constants), bool(state.flags.nrt))


class _Typing(Context):  # type: ignore[misc]
    """Knows what an operator makes of numbers once it was asked.

    Numba tries a dozen ways for each `+` and each `a[i]` that there is, and notes why they fail.
    """

    _known: dict[tuple[int, ...], Any]
    _lowered: dict[tuple[Any, ...], Any]

    def load_additional_registries(self) -> None:
        """Do nothing: numba's own were loaded by the context that this one is a copy of."""

    def resolve_function_type(self, func: Any, args: Any, kws: Mapping[str, Any]) -> Any:
        """What a call gives, by the types of its arguments."""
        if isinstance(func, types.Dispatcher):
            return func.get_call_type(self, args, kws)
        if kws or not _is_plain(func, args):
            return super().resolve_function_type(func, args, kws)
        kinds = tuple(map(unliteral, args))
        key = tuple(kind._code for kind in (self._lookup_global(func) or func, *kinds))
        if key not in self._known:
            self._known[key] = super().resolve_function_type(func, kinds, kws)
        return self._known[key]

    def lowered(self, op: Any, kinds: Any) -> Any:
        """An operator as numba lowers it, and its signature, for numbers of some types."""
        key = (op, *(kind._code for kind in kinds))
        if key not in self._lowered:
            function = self.resolve_value_type(op)
            self._lowered[key] = function, function.get_call_type(self, kinds, {})
        return self._lowered[key]

    def resolve_value_type(self, value: Any) -> Any:
        """The type of a value; numba tries all other kinds before those that have a name."""
        named = self._get_global_type(value) if isinstance(value, _NAMED) else None
        return super().resolve_value_type(value) if named is None else named

    def resolve_value_type_prefer_literal(self, value: Any) -> Any:
        """The type of a value, which is that of a constant if it can be."""
        if type(value) not in types.Literal.ctor_map:
            return self.resolve_value_type(value)
        return super().resolve_value_type_prefer_literal(value)


def _is_plain(func: Any, args: Any) -> bool:
    """Whether a call is one of numba's own, of numbers or for an element of an array."""
    if isinstance(func, types.Function):
        func = func.typing_key
    if not isinstance(func, types.NumberClass) and func not in _OPERATORS:
        return False
    rest = args[1:] if func in _ARRAYS and isinstance(args[0], types.Array) else args
    return all(isinstance(kind, _NUMBERS) for kind in rest)


class _Target(CPUContext):  # type: ignore[misc]
    """A target whose registries are loaded once, not for each function."""

    def load_additional_registries(self) -> None:
        """Do nothing: numba's own were loaded by the context that this one is a copy of."""


@functools.cache
def typing_of(context: Any) -> Any:
    """A typing context that remembers, and shares all else with the given one."""
    context.refresh()
    typing = copy.copy(context)
    typing.__class__ = _Typing
    typing._known, typing._lowered = {}, {}
    return typing


def target_of(context: Any, **settings: Any) -> Any:
    """A target context with other settings, which shares all else with the given one."""
    context.refresh()
    target = context.subtarget(**settings)
    target.__class__ = _Target
    return target
