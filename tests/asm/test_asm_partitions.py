"""Threads of the parts of warp-specialised kernels."""

from __future__ import annotations

import pytest
from asm_dumps import fixture_listing

from asmtune.ir.asm.counts import block_threads
from asmtune.ir.asm.nvptx import OpClass, classify


def test_all_threads_run_an_ordinary_kernel() -> None:
    """Without warp specialisation each block is run by the CTA's threads."""
    program = fixture_listing("gemm-sm90-triton3.6").entry
    assert set(block_threads(program)) == {128}


def threads_of(name: str, kind: OpClass) -> set[int | None]:
    """Return how many threads run the blocks with instructions of a class in the main loops."""
    program = fixture_listing(name).entry
    threads = block_threads(program)
    return {
        threads[program.block_of(item.index)]
        for item in program.instructions
        if classify(item.opcode) is kind and program.depth_of(item.index) == 1
    }


@pytest.mark.parametrize(
    ("name", "multiply", "copy"),
    [
        ("ws_gemm-sm90-triton3.6", 128, 128),
        ("ws_gemm-sm100-triton3.6", 32, 64),
        ("ws_gemm-sm100-triton3.9", 32, 64),
    ],
)
def test_parts_have_their_own_threads(name: str, multiply: int, copy: int) -> None:
    """On sm_90 two warpgroups multiply and one loads; on sm_100 one warp and two."""
    assert threads_of(name, OpClass.TENSOR) == {multiply}
    assert threads_of(name, OpClass.BULK_COPY) == {copy}


def test_hopper_has_two_multiplying_parts() -> None:
    """Each of the two loops that multiply is in a part of its own, not in the CTA's."""
    program = fixture_listing("ws_gemm-sm90-triton3.6").entry
    loops = [
        loop
        for loop in program.loops
        if loop.role == "work"
        and any(
            classify(item.opcode) is OpClass.TENSOR
            for block in loop.blocks
            for item in program.body(block)
        )
    ]
    assert len(loops) == 2
    assert program.threads == 384
