"""The few machine instructions that numba does not offer by itself."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """The number of zero bits below the lowest one bit of a 64-bit word (64 for zero)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def ones(typing_context: Any, word: Any) -> Any:
    """The number of one bits of a 64-bit word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def bit_length(typing_context: Any, word: Any) -> Any:
    """The number of bits that a 64-bit word needs, 0 for none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        zeros = builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))
        return builder.sub(ir.Constant(number, 64), zeros)

    return types.int64(types.uint64), generate


@intrinsic
def float_bits(typing_context: Any, number: Any) -> Any:
    """The bits of a 32-bit float as an integer, which orders floats from 0 on as they are."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], ir.IntType(32))
        return builder.sext(bits, ir.IntType(64))

    return types.int64(types.float32), generate


@intrinsic
def high_half(typing_context: Any, one: Any, other: Any) -> Any:
    """The upper 64 bits of the product of two 64-bit words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        factors = [builder.zext(argument, wide) for argument in arguments]
        high = builder.lshr(builder.mul(*factors), ir.Constant(wide, 64))
        return builder.trunc(high, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for an array's element to be brought into the cache, and go on."""
    return _prefetched(array, False)


@intrinsic
def prefetch_whole(typing_context: Any, array: Any, index: Any) -> Any:
    """The same of a record that may begin in one line of the cache and end in the next."""
    return _prefetched(array, True)


def _prefetched(array: Any, whole: bool) -> Any:
    """What asks for the beginning of an element, or also for its end."""
    item = array.dtype.size if isinstance(array.dtype, types.Record) else array.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, number = ir.IntType(64), ir.IntType(32)
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        offset = builder.mul(arguments[1], ir.Constant(word, item))
        address = builder.add(builder.ptrtoint(source.data, word), offset)
        kind = ir.IntType(8).as_pointer()
        declared = builder.module.declare_intrinsic(
            "llvm.prefetch",
            [kind],
            ir.FunctionType(ir.VoidType(), [kind, number, number, number]),
        )
        for_writing, stay_close, data = (ir.Constant(number, value) for value in (1, 3, 1))
        for end in (0, item - 1) if whole else (0,):
            pointer = builder.inttoptr(builder.add(address, ir.Constant(word, end)), kind)
            builder.call(declared, [pointer, for_writing, stay_close, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _accessors(kind: types.Integer) -> tuple[Any, Any]:
    """What reads, and what writes, elements of an array that is known by its address only.

    The array may begin anywhere in memory, as slices of Arrow buffers do.
    """

    def pointer_to(builder: Any, address: Any, index: Any) -> Any:
        offset = builder.mul(index, ir.Constant(ir.IntType(64), kind.bitwidth // 8))
        pointer = ir.IntType(kind.bitwidth).as_pointer()
        return builder.inttoptr(builder.add(address, offset), pointer)

    @intrinsic
    def read(typing_context: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(pointer_to(builder, *arguments), align=1)

        return kind(types.int64, types.int64), generate

    @intrinsic
    def write(typing_context: Any, address: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address, index, value = arguments
            builder.store(value, pointer_to(builder, address, index), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, kind), generate

    return read, write


byte_at, set_byte = _accessors(types.int8)
short_at, set_short = _accessors(types.int16)
int_at, set_int = _accessors(types.int32)
long_at, set_long = _accessors(types.int64)
