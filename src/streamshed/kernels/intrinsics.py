"""The few machine instructions that numba does not offer by itself."""

from __future__ import annotations

from collections.abc import Callable
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
    item = array.dtype.size if isinstance(array.dtype, types.Record) else array.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, number = ir.IntType(64), ir.IntType(32)
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        offset = builder.mul(arguments[1], ir.Constant(word, item))
        address = builder.add(builder.ptrtoint(source.data, word), offset)
        pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
        declared = builder.module.declare_intrinsic(
            "llvm.prefetch",
            [pointer.type],
            ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number]),
        )
        for_writing, stay_close, data = (ir.Constant(number, value) for value in (1, 3, 1))
        builder.call(declared, [pointer, for_writing, stay_close, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def long_at(typing_context: Any, address: Any, index: Any) -> Any:
    """The 64-bit integer at an index of an array, which is known by its address only."""
    return types.int64(types.int64, types.int64), _loads(64)


@intrinsic
def int_at(typing_context: Any, address: Any, index: Any) -> Any:
    """The 32-bit integer at an index of an array, which is known by its address only."""
    return types.int32(types.int64, types.int64), _loads(32)


def _loads(bits: int) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        offset = builder.mul(arguments[1], ir.Constant(ir.IntType(64), bits // 8))
        pointer = ir.IntType(bits).as_pointer()
        return builder.load(builder.inttoptr(builder.add(arguments[0], offset), pointer))

    return generate


def _copies(bits: int) -> Any:
    @intrinsic
    def copy(typing_context: Any, source: Any, target: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = ir.IntType(bits).as_pointer()
            one, other = (builder.inttoptr(address, pointer) for address in arguments)
            builder.store(builder.load(one, align=1), other, align=1)
            return context.get_dummy_value()

        return types.void(types.uint64, types.uint64), generate

    return copy


copy_8, copy_16, copy_32, copy_64 = (_copies(bits) for bits in (8, 16, 32, 64))
"""Copy so many bits from one address to another."""
