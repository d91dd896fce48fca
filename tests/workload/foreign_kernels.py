"""Kernels that write memory behind addresses, in all of Triton's ways; and some that do not."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(noinline=True)
def put(place, value):
    tl.store(place, value)


@triton.jit
def by_a_call(table_ptr, x_ptr, n, BLOCK: tl.constexpr):
    put(tl.load(table_ptr).to(tl.pointer_type(tl.float32)), tl.load(x_ptr))


@triton.jit
def in_a_loop(table_ptr, x_ptr, n, BLOCK: tl.constexpr):
    place = x_ptr
    for i in range(n):
        tl.store(place + tl.arange(0, BLOCK), 1.0)
        place = tl.load(table_ptr + i).to(tl.pointer_type(tl.float32))


@triton.jit
def by_arithmetic(table_ptr, x_ptr, n, BLOCK: tl.constexpr):
    address = tl.load(table_ptr) + tl.program_id(0).to(tl.int64) * 4
    tl.store((address + 16).to(tl.pointer_type(tl.float32), bitcast=True), tl.load(x_ptr))


@triton.jit
def by_a_number(address, x_ptr, n, BLOCK: tl.constexpr):
    tl.store((address + n).to(tl.pointer_type(tl.float32)), tl.load(x_ptr))


@triton.jit
def by_a_descriptor(table_ptr, x_ptr, n, BLOCK: tl.constexpr):
    place = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    made = tl.make_tensor_descriptor(place, [n, 64], [64, 1], [BLOCK, 64])
    made.store([0, 0], tl.zeros((BLOCK, 64), tl.float32))


@triton.jit
def chosen_by_data(table_ptr, x_ptr, n, BLOCK: tl.constexpr):
    place = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(tl.where(tl.load(table_ptr + 1) > 0, place, x_ptr), 1.0)


@triton.jit
def by_assembly(table_ptr, x_ptr, n, BLOCK: tl.constexpr):
    place = tl.load(table_ptr).to(tl.pointer_type(tl.int32))
    tl.inline_asm_elementwise(
        """
        st.global.release.sys.b32 [$1], $2;
        mov.b32 $0, $2;
        """,
        "=r,l,r",
        [place, n],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def reads_alone(table_ptr, x_ptr, n, BLOCK: tl.constexpr):
    place = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(x_ptr, tl.load(place))


@triton.jit
def by_an_index(table_ptr, x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.load(table_ptr + tl.arange(0, BLOCK)), 1.0)


@triton.jit
def assembly_that_reads(table_ptr, x_ptr, n, BLOCK: tl.constexpr):
    place = tl.load(table_ptr).to(tl.pointer_type(tl.int32))
    value = tl.inline_asm_elementwise(
        "ld.global.b32 $0, [$1];", "=r,l", [place], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.store(x_ptr, value.to(tl.float32))


@triton.jit
def assembly_on_an_argument(table_ptr, x_ptr, n, BLOCK: tl.constexpr):
    tl.inline_asm_elementwise(
        "st.global.b64 [$1], $2; mov.b32 $0, 0;",
        "=r,l,l",
        [x_ptr, tl.load(table_ptr)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


WRITING = (
    by_a_call,
    in_a_loop,
    by_arithmetic,
    by_a_number,
    by_a_descriptor,
    chosen_by_data,
    by_assembly,
)
OTHERS = (
    reads_alone,
    by_an_index,
    assembly_that_reads,
    assembly_on_an_argument,
)
