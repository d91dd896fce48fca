"""Work of Gluon kernels, read off the TTGIR that their front end makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import import_module
from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.ir.ttir.work import Work
from asmtune.kernels import _hopper_attention_backward
from asmtune.measure.checks.effects import Effects
from asmtune.triton_api.compiler import Toolchain
from tests.workload.workload_lowering import flops, moved


def work(function: Any, grid: int, arch: int = 90, **values: Any) -> Work:
    """Give the work of a launch of a Gluon kernel with four warps."""
    chain = Toolchain("cuda", arch, 32)
    values = {"num_warps": 4, **values}
    text = chain.front_end(chain.specialise(function, values))[0]
    return analyse(text, LaunchArguments(values, (grid, 1, 1)))


def half(*extents: int) -> torch.Tensor:
    """A tensor of 16-bit numbers without memory."""
    return torch.empty(extents, device="meta", dtype=torch.float16)


def effects(found: Work, *names: str) -> Effects:
    """What the launch may do to its tensors of these names."""
    return Effects.of([found], dict.fromkeys(names, half(16)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tma", "%r = ttng.new_copy %x_desc, %smem : !tt.tensordesc<tensor<64x64xf16>>, i32"),
        ("pointer", "vendor.store %x_desc : !tt.tensordesc<tensor<64x64xf16>>"),
    ],
)
def test_what_is_not_known_may_do_anything(name: str, text: str) -> None:
    """An operation that nothing is known of makes its argument one that is read and written."""
    module = (
        'module attributes {"ttg.num-warps" = 4 : i32} {\n'
        "  tt.func public @k(%x_desc: !tt.tensordesc<tensor<64x64xf16>>) {\n"
        f"    %smem = arith.constant 0 : i32\n    {text}\n    tt.return\n  }}\n}}\n"
    )
    found = analyse(module, LaunchArguments({"x_desc": None}, (1, 1, 1)))
    assert effects(found, "x_desc").unknown == {"x_desc"}, name


def test_copies_under_a_predicate_count_where_it_holds() -> None:
    """The GEMM's ring begins copies of steps that may not exist: each tile is read once a step."""
    gemm = import_module(str(Path(__file__).parents[2] / "examples" / "gluon_matmul.py"))
    problem = gemm.problem({"M": 256, "N": 128, "K": 200}, "bf16", "meta")
    values = dict(problem.arguments)
    tiles = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "STAGES": 4}
    gemm.set_tiles({**values, **tiles})
    found = work(gemm.kernel, 2, **values, **tiles)
    assert found.exact
    assert moved(found, "read") == 2 * 4 * (128 + 128) * 64 * 2
    assert flops(found) == {"bf16": 2.0 * 256 * 128 * 256}


@pytest.mark.slow
def test_gradients_that_partitions_add_up_are_atomic() -> None:
    """What attention's backward for Hopper adds to is restored around runs; its results are not."""
    shape = {"B": 1, "H": 4, "KV": 2, "M": 500, "N": 512, "D": 64, "causal": 1}
    problem = _hopper_attention_backward.problem(shape, "fp16", "meta")
    config = _hopper_attention_backward.space().first(D=64)
    request = Lowering(problem, load_target("H200"), 60).request(config)
    assert isinstance(request, LowerRequest)
    launch = LaunchArguments(problem.bind(config), problem.programs(config))
    uses = Effects.of([analyse(request.ttir, launch)], problem.arguments)
    assert uses.atomics == {"dq_desc"}
    assert uses.writes == set(_hopper_attention_backward.OUTPUTS)
    assert not uses.unknown
