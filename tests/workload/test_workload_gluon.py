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
from tests import gluon_kernels as kernels
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


def test_plain_loads_and_stores_are_counted_as_those_of_triton() -> None:
    """A loop over a row reads each of its elements, and one sum a row is stored."""
    found = work(
        kernels.row_sum, 100, x_ptr=half(100, 3000), y_ptr=half(100), columns=3000, BLOCK=1024
    )
    assert found.exact
    assert (moved(found, "read"), moved(found, "write")) == (100 * 3000 * 2, 100 * 2)
    assert [loop.trips for loop in found.loops] == [3.0]


def test_asynchronous_copies_and_atomics_are_memory_accesses() -> None:
    """What cp.async reads under a mask counts, and an atomic's argument is read and written."""
    vector = half(5000).float()
    found = work(kernels.copied_sum, 5, x_ptr=vector, y_ptr=vector, n=5000, BLOCK=1024)
    assert (moved(found, "read"), moved(found, "atomic")) == (20_000.0, 20_000.0)
    copy = next(access for access in found.accesses if access.kind == "read")
    assert copy.strides == (1,)
    uses = effects(found, "x_ptr", "y_ptr")
    assert (uses.reads, uses.writes, uses.atomics) == ({"x_ptr", "y_ptr"}, {"y_ptr"}, {"y_ptr"})
    assert not uses.unknown


def test_partitions_of_warps_run_beside_each_other() -> None:
    """The loops of the loading and of the storing warps are counted with their own arguments."""
    rows = kernels.descriptor(half(1024, 64), [64, 64])
    found = work(kernels.passed_on, 1, x_desc=rows, y_desc=rows, n=1024, BLOCK=64)
    assert found.exact
    assert [loop.trips for loop in found.loops] == [16.0, 16.0]
    assert (moved(found, "read"), moved(found, "write")) == (1024 * 64 * 2, 1024 * 64 * 2)
    uses = effects(found, "x_desc", "y_desc")
    assert (uses.reads, uses.writes, uses.unknown) == ({"x_desc"}, {"y_desc"}, frozenset())


def test_results_of_a_partition_are_followed() -> None:
    """An address that the default warps give back is that of their argument, not of the others'."""
    found = work(kernels.handed_back, 1, x_ptr=half(64), y_ptr=half(64), z_ptr=half(64), n=9)
    uses = effects(found, "x_ptr", "y_ptr", "z_ptr")
    assert (uses.reads, uses.writes, uses.unknown) == ({"x_ptr"}, {"y_ptr", "z_ptr"}, frozenset())


def test_products_of_tensor_memory_count() -> None:
    """A tcgen05 product counts its FLOPs in each trip, and its result is stored once."""
    found = work(
        kernels.one_tile,
        1,
        100,
        a_desc=kernels.descriptor(half(128, 512), [128, 64]),
        b_desc=kernels.descriptor(half(512, 128), [64, 128]),
        c_desc=kernels.descriptor(half(128, 128), [128, 128]),
        K=512,
        TILE=128,
    )
    assert flops(found) == {"f16": 2.0 * 128 * 128 * 512}
    assert (moved(found, "read"), moved(found, "write")) == (2 * 128 * 512 * 2, 128 * 128 * 2)
    assert found.loops[0].has_dot


def test_products_without_tensor_cores_are_exact() -> None:
    """Those of `dot_fma` round no operand, whatever precision its IR names."""
    tile = half(32, 32).float()
    found = work(kernels.exact_dot, 1, x_ptr=tile, y_ptr=tile, TILE=32)
    assert flops(found) == {"f32": 2.0 * 32**3}
    assert effects(found, "x_ptr", "y_ptr").products == {"f32"}


def test_descriptors_made_by_the_kernel_are_followed_to_their_arguments() -> None:
    """A copy by a descriptor of the kernel's own is one of the pointer that it was made of."""
    rows = half(1000, 64)
    found = work(kernels.described, 16, x_ptr=rows, y_ptr=rows, n=1000, BLOCK=64)
    uses = effects(found, "x_ptr", "y_ptr")
    assert (uses.reads, uses.writes, uses.unknown) == ({"x_ptr"}, {"y_ptr"}, frozenset())


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
