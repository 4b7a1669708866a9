"""Machine code for kernels: one processor for every machine, and nothing compiled twice.

Numba compiles every function that it meets down to machine code of its own, and optimises it with
all that it calls, although the caller takes it in and optimises it again. Here a kernel stays as it
was lowered until a driver needs it; the driver and its kernels are then optimised once, together.

Only what goes through `Pipeline` is compiled this way: numba functions of others stay as they are.
"""

from __future__ import annotations

import functools
import inspect
import platform
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm
from llvmlite.ir.types import Aggregate
from numba.core import codegen, compiler, config, types
from numba.core.datamodel import DataModelManager, default_manager, models
from numba.core.environment import lookup_environment
from numba.core.funcdesc import default_mangler
from numba.core.types.containers import BaseNamedTuple, NamedUniTuple

from streamshed.kernels.lowering import steps_for, target_of, typing_of
from streamshed.kernels.signatures import describe, digest

BASELINES = {"x86_64": "x86-64-v3", "AMD64": "x86-64-v3", "aarch64": "generic", "arm64": "generic"}
"""The processor that code is made for, by architecture: any machine of the last ten years."""
NEEDED = {"x86-64-v3": ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")}
"""What a machine must have to run the code of a baseline."""

_CALLED_FROM_PYTHON = ("_ZN7cpython", "cfunc.")
_ENVIRONMENT = "_ZN08NumbaEnv"


def baseline() -> str | None:
    """The processor that kernels are compiled for; None: this very machine, as numba sees it.

    `NUMBA_CPU_NAME`, `NUMBA_CPU_FEATURES` and `NUMBA_ENABLE_AVX` have the last word.
    """
    name = BASELINES.get(platform.machine())
    if name is None or config.CPU_NAME or config.CPU_FEATURES or not config.ENABLE_AVX:
        return None
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot tell
        return None
    return name if all(features.get(feature) for feature in NEEDED.get(name, ())) else None


class Library(codegen.JITCodeLibrary):  # type: ignore[misc]
    """A function, and those it calls.

    Attributes:
        deferred: whether only compiled code calls the function, so that it waits for its callers.
        defines: the functions that are in it, by name.
        hands_states: the functions that it calls with states, which only kernels can take.
        takes_states: whether it is called with states, which only kernels can hand over.
    """

    deferred = True
    takes_states = False
    _bitcode: bytes | None = None
    _linking_libraries: list[Any]
    _shared_module: Any

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self.defines: set[str] = set()
        self.hands_states: set[str] = set()
        self._environments: list[Any] = []

    def add_ir_module(self, ir_module: Any) -> None:
        """Add a function, or a way to call it from Python."""
        for function in ir_module.functions:
            state = any(isinstance(kind, Aggregate) for kind in function.ftype.args)
            if function.blocks:
                self.defines.add(function.name)
                self.takes_states |= state
                if function.name.startswith(_CALLED_FROM_PYTHON):
                    self.deferred = False
            elif state:
                self.hands_states.add(function.name)
        super().add_ir_module(ir_module)

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        """Make machine code, unless that is left to the callers."""
        if self.deferred:
            self._raise_if_finalized()
            self._finalize_dynamic_globals()
            for function in self._final_module.functions:
                if not function.is_declaration and function.linkage == llvm.Linkage.external:
                    function.linkage = "linkonce_odr"
            self._finalized = True
            return
        self._link()
        super().finalize()
        self._set_environments()

    def _link(self) -> None:
        """Take in all that is called from here, by whatever way, each once."""
        reached = [*self._reached()]
        known = self.defines.union(*(library.defines for library in reached if _is_ours(library)))
        for library in (self, *reached):
            if _is_ours(library) and not library.hands_states <= known:
                raise TypeError(
                    f"{library.name}: a function that is no kernel is called with a named tuple; "
                    "make it one by @kernel"
                )
        for library in reached:
            self._reload_init.update(library._reload_init)
            deferred = _is_ours(library) and library.deferred
            module = library._final_module if deferred else library._get_module_for_linking()
            self._final_module.link_in(module, preserve=True)
        for variable in self._final_module.global_variables:
            # So those that nothing refers to any more vanish, and need not be kept.
            if variable.name.startswith(_ENVIRONMENT) and variable.linkage == llvm.Linkage.common:
                variable.linkage = "linkonce_odr"
        self._linking_libraries = []

    def _reached(self) -> Iterator[Any]:
        seen: set[Any] = set()
        waiting = [*reversed(self._linking_libraries)]
        while waiting:
            library = waiting.pop()
            if library not in seen:
                seen.add(library)
                yield library
                if _is_ours(library) and library.deferred:
                    waiting += reversed(library._linking_libraries)

    def _optimize_final_module(self) -> None:
        # Numba's first round of passes serves to remove counts of references.
        manager, builder = self._codegen._module_pass_manager()
        with self._recorded_timings.record("Module passes", builder):
            manager.run(self._final_module, builder)

    def _get_module_for_linking(self) -> Any:
        """The code for a function that is compiled by numba itself, or for another driver."""
        if self._shared_module is None and self._bitcode is not None:
            self._shared_module = llvm.parse_bitcode(self._bitcode)
        if not self.deferred:
            return super()._get_module_for_linking()
        if self.takes_states:
            raise TypeError(
                f"{self.name}: kernels that take named tuples are called by kernels; compile the "
                "caller by @kernel, @loop or @driver instead of numba.njit"
            )
        if self._shared_module is None:
            self._ensure_finalized()
            self._link()
            self._shared_module = self._final_module
        return self._shared_module

    def get_pointer_to_function(self, name: str) -> int:
        """Where the machine code of a function is; 0 if there is none."""
        self._ensure_finalized()
        return 0 if self.deferred else int(super().get_pointer_to_function(name))

    def serialize(self) -> tuple[str, bytes, list[str], bytes]:
        """The machine code, what is defined there, and what other code is linked with."""
        self._ensure_finalized()
        module = self._get_module_for_linking()
        named = (module.functions, module.global_variables)
        symbols = [value.name for values in named for value in values if not value.is_declaration]
        return self.name, self._get_compiled_object(), symbols, module.as_bitcode()

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> Library:
        name, machine_code, symbols, bitcode = state
        library: Library = codegen.create_library(name)
        library.deferred = False
        library.defines.update(symbols)
        library.enable_object_caching()
        library._set_compiled_object(machine_code)
        library._bitcode = bitcode
        library._finalize_final_module()
        codegen._engine._defined_symbols.update(symbols)
        return library

    def _set_environments(self) -> None:
        """Tell the code where the Python objects are that its parts refer to."""
        for variable in self._final_module.global_variables:
            if variable.name.startswith(_ENVIRONMENT):
                environment = lookup_environment(variable.name)
                if environment is not None:
                    self._environments.append(environment)  # the code knows its address only
                    self._codegen.set_env(variable.name, environment)


def _is_ours(library: Any) -> bool:
    return isinstance(library, Library)


class Codegen(codegen.JITCPUCodegen):  # type: ignore[misc]
    """Compiles for the baseline."""

    _library_class = Library

    def __init__(self, module_name: str) -> None:
        self.baseline = baseline()
        super().__init__(module_name)

    def _get_host_cpu_name(self) -> str:
        return self.baseline or str(super()._get_host_cpu_name())

    def _get_host_cpu_features(self) -> str:
        return "" if self.baseline else str(super()._get_host_cpu_features())

    def set_env(self, env_name: str, env: Any) -> None:
        """Tell the code of a function where its Python objects are, if there is code."""
        if self._engine.is_symbol_defined(env_name):
            super().set_env(env_name, env)


class _Whole:
    """A state of many arrays goes from kernel to kernel as one value.

    Numba hands over each field of each array by itself: a few hundred arguments for each call,
    taken apart and put together again, were most of the code that there was to optimise.
    """

    def get_argument_type(self) -> Any:
        return self.get_value_type()  # type: ignore[attr-defined]

    def as_argument(self, builder: Any, value: Any) -> Any:
        return value

    def from_argument(self, builder: Any, value: Any) -> Any:
        return value


class _WholeTuple(_Whole, models.TupleModel):  # type: ignore[misc]
    pass


class _WholeUniTuple(_Whole, models.UniTupleModel):  # type: ignore[misc]
    pass


class _Models(DataModelManager):  # type: ignore[misc]
    """How values look in code: as numba says, but for named tuples."""

    def __init__(self) -> None:
        super().__init__()
        self._whole: dict[int, Any] = {}

    def lookup(self, fetype: Any) -> Any:
        """The model of a type."""
        if not isinstance(fetype, BaseNamedTuple) or not fetype.types:
            return default_manager.lookup(fetype)
        if fetype._code not in self._whole:
            uniform = isinstance(fetype, NamedUniTuple)
            self._whole[fetype._code] = (_WholeUniTuple if uniform else _WholeTuple)(self, fetype)
        return self._whole[fetype._code]


_MODELS = _Models()


def _mangled(name: str, kinds: Any, *, abi_tags: Any = (), uid: Any = None) -> str:
    """The name of a function in code: short, as it is said often, and the same in any process."""
    typed = digest(*map(describe, kinds))
    return str(default_mangler(name, (), abi_tags=(*abi_tags, typed), uid=uid))


@functools.cache
def kernel_codegen() -> Codegen:
    """What makes the code of all kernels of this process."""
    return Codegen("streamshed.exec")


class _Flags(compiler.Flags):  # type: ignore[misc]
    """The settings of a compilation, of which none changes once it was compared.

    Numba looks up what it knows by them, and compares all forty, a hundred thousand times.
    """

    __slots__ = ("_key",)
    _key: str

    def __hash__(self) -> int:
        return hash(self._settled())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Flags):
            return self._settled() == other._settled()
        return bool(super().__eq__(other))

    def _settled(self) -> str:
        try:
            return self._key
        except AttributeError:
            self._key = repr(sorted(self.values().items()))
            return self._key


_INDEXING = ("context", "builder", "idxty", "idx", "size")
"""What numba is told of an index, in the releases that are known."""


@functools.cache
def _take_indices_as_they_are() -> None:
    """Have kernels take indices as they are; none is negative.

    As in Python, numba counts negative indices from the end. To look for them costs three
    instructions for each access, a quarter of the time of a loop, and there is no setting for it.
    Functions with reference counting, those of users among them, stay as they are; so does all if
    numba is made otherwise one day. With NUMBA_BOUNDSCHECK=1 a negative index is an error.
    """
    from numba.np import arrayobj  # which takes its time, and is not needed for cached code

    usual = getattr(arrayobj, "fix_integer_index", None)
    if usual is None or [*inspect.signature(usual).parameters] != [*_INDEXING]:
        return

    def as_it_is(context: Any, builder: Any, idxty: Any, idx: Any, size: Any) -> Any:
        if context.enable_nrt or not idxty.signed:
            return usual(context, builder, idxty, idx, size)
        return context.cast(builder, idx, idxty, types.intp)

    arrayobj.fix_integer_index = as_it_is


@functools.cache
def _kernel_target(context: Any, typing: Any) -> Any:
    """What kernels are compiled for, where numba says the given contexts."""
    if isinstance(context.codegen(), Codegen):
        return context
    return target_of(
        context,
        typing_context=typing_of(typing),
        _internal_codegen=kernel_codegen(),
        data_model_manager=_MODELS,
        mangler=_mangled,
    )


class Pipeline(compiler.Compiler):  # type: ignore[misc]
    """Numba's steps as far as kernels need them, with our way to make code."""

    def __init__(self, typingctx: Any, targetctx: Any, *rest: Any) -> None:
        _take_indices_as_they_are()
        super().__init__(typing_of(typingctx), _kernel_target(targetctx, typingctx), *rest)
        self.state.flags = _Flags(self.state.flags)

    def define_pipelines(self) -> list[Any]:
        """The steps from Python to code."""
        return [steps_for(self.state)]
