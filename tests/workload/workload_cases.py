"""Launches of the tests' kernels, by name: the kernel, its grid and its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tests import gluon_kernels as gluons
from tests.workload import workload_kernels as kernels
from tests.workload.workload_lowering import F16, F32, I32, pointer


@dataclass(frozen=True)
class Case:
    """A launch for an architecture, and the bytes behind its tensors where these are given."""

    kernel: Any
    grid: tuple[int, ...]
    values: dict[str, Any]
    sizes: dict[str, int]
    arch: int = 90


def of(
    kernel: Any, *grid: int, at: str = "", dtype: torch.dtype = F32, more: Any = (), **values: Any
) -> Case:
    """A launch with pointers of the names in `at`, others in `more`, and sizes in `bytes_`."""
    sizes = values.pop("bytes_", {})
    pointers = {f"{name}_ptr": pointer(dtype) for name in at.split()}
    others = {f"{name}_ptr": pointer(kind) for name, kind in dict(more).items()}
    return Case(kernel, grid, {**pointers, **others, **values}, sizes)


TILES = {"BM": 64, "BN": 64, "BK": 32}
CUBE = {"M": 512, "N": 256, "K": 320, **TILES}
SIX = {"N": 1000, "scale": 0.1, "D": 64, "BM": 64, "BN": 32}
TABLES = {"a": F16, "b": F16, "c": F16, "token": I32, "expert": I32, "count": I32}
FOURS = {"w": torch.int8, "s": F32, "z": I32, "y": F32}
BYTES = {"a_ptr": 2 * 512 * 320, "b_ptr": 2 * 320 * 256, "c_ptr": 2 * 512 * 256}

CASES = {
    "gemm": of(kernels.gemm, 32, at="a b c", dtype=F16, **CUBE, bytes_=BYTES),
    "gemm_odd": of(kernels.gemm, 8, 4, at="a b c", dtype=F16, M=300, N=200, K=100, **TILES),
    "persistent": of(
        kernels.persistent_gemm, 7, at="a b c", dtype=F16, M=512, N=256, K=1024, **TILES
    ),
    "scaled": of(
        kernels.scaled_dot, 3, at="a sa sb", dtype=torch.uint8,
        more={"b": torch.float8_e4m3fn, "c": F32}, M=128, N=64, K=256,
    ),
    "split_k": of(
        kernels.split_k, 8, 4, 4, at="a b", dtype=F16, more={"c": F32}, SPLIT=4, **CUBE,
        bytes_={"c_ptr": 512 * 256 * 4},
    ),
    "tma": of(kernels.tma_gemm, 8, 4, at="a b c", dtype=F16, WS=False, **CUBE),
    "tma_specialised": of(kernels.tma_gemm, 8, 4, at="a b c", dtype=F16, WS=True, **CUBE),
    "blocks": of(
        kernels.block_pointers, 8, at="a", dtype=F16, more={"c": F32}, M=512, K=500, BM=64, BK=32
    ),
    "experts": of(kernels.expert_gemm, 10, more=TABLES, K=512, **TILES),
    "packed": of(
        kernels.packed_weights, 8, more=FOURS, K=512, N=256, stride_s=640, BK=64, BN=32, GROUP=16
    ),
    "causal": of(kernels.attention, 16, 24, at="q k v o", dtype=F16, CAUSAL=True, **SIX),
    "attention": of(kernels.attention, 16, 24, at="q k v o", dtype=F16, CAUSAL=False, **SIX),
    "layernorm": of(
        kernels.layernorm, 10, at="x w y", cols=1000, eps=1e-5, BLOCK=256,
        bytes_={"x_ptr": 40000, "w_ptr": 4000, "y_ptr": 9},
    ),
    "softmax": of(
        kernels.softmax, 10, at="x y", cols=1000, BLOCK=1024, bytes_={"x_ptr": 10 * 1000 * 4}
    ),
    "in_place": of(
        kernels.add_in_place, 8, at="x y", n=999, BLOCK=128, bytes_={"x_ptr": 8, "y_ptr": 4000}
    ),
    "noinline": of(kernels.noinline_helper, 3, at="x y", n=5, BLOCK=64),
    "tuple": of(kernels.tuple_helper, 8, at="x y", n=10, SWAP=False, BLOCK=64),
    "chase": of(kernels.pointer_chase, 1, at="x y", n=4, BLOCK=64),
    "branchy": of(kernels.branchy, 8, at="x y", n=5, BLOCK=64),
    "early_none": of(kernels.early_return, 1, at="x y", n=0, BLOCK=64),
    "early": of(kernels.early_return, 8, at="x y", n=500, BLOCK=128),
    "narrow": of(
        kernels.narrow_types, 4, BLOCK=128,
        more={"x": torch.float8_e4m3fn, "m": torch.bool, "y": torch.float8_e5m2},
    ),
    "transposed": of(
        kernels.transposed, 20, 5, at="x y", M=640, N=320, BM=32, BN=64,
        bytes_={"x_ptr": 819200, "y_ptr": 819199},
    ),
    "invariant": of(kernels.invariant_load, 1, at="x w y", n=10, BLOCK=64),
    "scans": of(kernels.scans, 1, at="x y z", BLOCK=16),
    "assembly": of(kernels.inline_asm, 1, at="x y", dtype=I32, n=5, BLOCK=64),
    "triangular": of(
        kernels.triangular, 8, at="x y", n=20, BLOCK=64, bytes_={"x_ptr": 1, "y_ptr": 1}
    ),
    "large_grid": of(kernels.three_axes, 300, 30, 40, at="y", n=5, BLOCK=64),
    "halving": of(kernels.while_scalar, 1, at="y", n=1000, BLOCK=64),
    "jagged": of(kernels.jagged, 8, at="x y", more={"starts": I32}, BLOCK=128),
    "jagged_sized": of(
        kernels.jagged, 8, at="x y", more={"starts": I32}, BLOCK=64,
        bytes_={"x_ptr": 8 * 4096 * 4, "starts_ptr": 36, "y_ptr": 32},
    ),
    "jagged_stores": of(
        kernels.jagged_stores, 8, at="y", more={"n": I32}, BLOCK=32, bytes_={"y_ptr": 4096}
    ),
    "spin_lock": of(kernels.spin_lock, 1, at="x", more={"lock": I32}, BLOCK=64),
    "backwards": of(kernels.backwards, 1, at="y", n=9),
    "recurrence": of(
        kernels.recurrence, 64, at="x y h", steps=500, D=32,
        bytes_={"x_ptr": 1, "y_ptr": 1, "h_ptr": 1},
    ),
    "exchanged": of(
        kernels.exchanged_state, 16, at="x h", more={"lock": I32}, steps=50, BLOCK=64
    ),
}  # fmt: skip
"""Each proves something: a product, a pointer's way, a loop's bound."""


def half(*extents: int) -> torch.Tensor:
    """A tensor of 16-bit numbers without memory."""
    return torch.empty(extents, device="meta", dtype=F16)


def gluon(kernel: Any, grid: int, arch: int = 90, **values: Any) -> Case:
    """A launch of a Gluon kernel with four warps."""
    return Case(kernel, (grid,), {"num_warps": 4, **values}, {}, arch)


ROWS = gluons.descriptor(half(1024, 64), [64, 64])
TILED = {
    "a_desc": gluons.descriptor(half(128, 512), [128, 64]),
    "b_desc": gluons.descriptor(half(512, 128), [64, 128]),
    "c_desc": gluons.descriptor(half(128, 128), [128, 128]),
}
ONE = half(32, 32).float()
CASES |= {
    "gluon_rows": gluon(
        gluons.row_sum, 100, x_ptr=half(100, 3000), y_ptr=half(100), columns=3000, BLOCK=1024
    ),
    "gluon_parts": gluon(gluons.passed_on, 1, x_desc=ROWS, y_desc=ROWS, n=1024, BLOCK=64),
    "gluon_results": gluon(
        gluons.handed_back, 1, x_ptr=half(64), y_ptr=half(64), z_ptr=half(64), n=9
    ),
    "gluon_tcgen05": gluon(gluons.one_tile, 1, 100, **TILED, K=512, TILE=128),
    "gluon_fma": gluon(gluons.exact_dot, 1, x_ptr=ONE, y_ptr=ONE, TILE=32),
    "gluon_descriptors": gluon(
        gluons.described, 16, x_ptr=half(1000, 64), y_ptr=half(1000, 64), n=1000, BLOCK=64
    ),
}
"""Partitions, copies, products of tensor memory and descriptors of Gluon's front end."""
