"""Write the dumps in `fixtures/` that the installed Triton makes.

Run it once with each Triton version that `CASES` names:

    python tests/asm/make_fixtures.py

It needs no GPU. What tells of the machine it ran on is taken out: directories of source
files in the PTX. Cubins are compiled without line information, which has directories too.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import fixture_kernels as kernels
import triton
import triton.language as tl
from asm_dumps import FIXTURES, GEMM, compile_kernel


class Case(NamedTuple):
    """A kernel to compile, and the stages of it to keep."""

    name: str
    capability: int
    version: str
    kernel: Any
    signature: dict[str, str]
    constexprs: dict[str, Any]
    options: dict[str, Any]
    suffixes: tuple[str, ...] = ("ptx",)


TILE = {"BM": 128, "BN": 128, "BK": 32, "ACC": tl.float32}
SMALL = {"BM": 64, "BN": 64, "BK": 64}
WS = {"BM": 128, "BN": 128, "BK": 64, "WS": True}
INT8 = {**GEMM, "a_ptr": "*i8", "b_ptr": "*i8", "c_ptr": "*i32"}
FP8 = {**GEMM, "a_ptr": "*fp8e5", "b_ptr": "*fp8e5", "c_ptr": "*fp32"}
ROWS = {"x_ptr": "*fp16", "y_ptr": "*fp16", "n": "i32", "stride": "i32:16"}
LOCK = {"x_ptr": "*fp32", "y_ptr": "*fp32", "lock_ptr": "*i32"}
NESTED = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "m": "i32"}
CALLS = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}
SCALED = {
    "a_ptr": "*fp8e4nv",
    "sa_ptr": "*u8",
    "b_ptr": "*fp8e4nv",
    "sb_ptr": "*u8",
    "c_ptr": "*fp32",
    "K": "i32:16",
}
FOUR = {"num_warps": 4, "num_stages": 3}
TWO = {"num_warps": 2}
ONE_CALL = {"num_warps": 1, "debug": True}
SQUEEZED = {"num_warps": 4, "maxnreg": 32}

CASES = [
    Case("gemm", 80, "3.6", kernels.gemm, GEMM, TILE, FOUR, ("ptx", "cubin")),
    Case("gemm", 90, "3.6", kernels.gemm, GEMM, TILE, FOUR),
    Case("gemm", 90, "3.9", kernels.gemm, GEMM, TILE, FOUR, ("ptx", "cubin")),
    Case("gemm", 100, "3.6", kernels.gemm, GEMM, TILE, FOUR),
    Case("gemm_i8", 80, "3.6", kernels.gemm, INT8, {**SMALL, "ACC": tl.int32}, FOUR),
    Case("gemm_f8", 89, "3.6", kernels.gemm, FP8, {**SMALL, "ACC": tl.float32}, FOUR),
    Case("tma_gemm", 90, "3.6", kernels.tma_gemm, GEMM, {**WS, "WS": False}, FOUR),
    Case("ws_gemm", 90, "3.6", kernels.tma_gemm, GEMM, WS, FOUR),
    Case("ws_gemm", 100, "3.6", kernels.tma_gemm, GEMM, WS, FOUR),
    Case("ws_gemm", 100, "3.9", kernels.tma_gemm, GEMM, WS, FOUR),
    Case(
        "scaled_gemm",
        100,
        "3.6",
        kernels.scaled_gemm,
        SCALED,
        {"BM": 128, "BN": 128, "BK": 128},
        {"num_warps": 4, "num_stages": 2},
    ),
    Case("nested", 80, "3.6", kernels.nested, NESTED, {"BLOCK": 256}, TWO),
    Case("lock_add", 80, "3.6", kernels.lock_add, LOCK, {"BLOCK": 256}, TWO),
    Case("calls", 80, "3.6", kernels.calls, CALLS, {}, ONE_CALL),
    *(
        Case("spill", arch, version, kernels.row_softmax, ROWS, {"BLOCK": 8192}, SQUEEZED, kept)
        for arch, version, kept in (
            (80, "3.6", ("cubin",)),
            (89, "3.6", ("cubin",)),
            (90, "3.6", ("cubin",)),
            (90, "3.9", ("cubin",)),
            (100, "3.6", ("cubin",)),
            (120, "3.9", ("cubin",)),
        )
    ),
]

_FILE_LINE = re.compile(r'(\.file\s+\d+\s+)"[^"]*/([^"/]+)"')
_DIRECTORY = re.compile(r"(?:\.b8 (?!0\b)\d+[^\n]*DW_AT_comp_dir\n)(?:\.b8 (?!0\b)\d+[^\n]*\n)*")
_ASSERT_FILE = re.compile(r"(assertFile_\d+)\[\d+\] = \{[^}]*\}")


def scrub(ptx: str) -> str:
    """Take the directories of source files out of PTX text.

    The length that stands at the head of `.debug_info` is left as it was.
    """
    ptx = _FILE_LINE.sub(r'\1"\2"', ptx)
    ptx = _DIRECTORY.sub(".b8 46                                  // DW_AT_comp_dir\n", ptx)
    return _ASSERT_FILE.sub(r"\1[2] = {46, 0}", ptx)


def write(case: Case, suffix: str, data: bytes) -> None:
    """Write one dump, with no time in the gzip header so that equal dumps are equal files."""
    directory = str(Path(__file__).parent).encode()
    if directory in data:
        raise SystemExit(f"{case.name}: {suffix} holds the directory of this script")
    name = f"{case.name}-sm{case.capability}-triton{case.version}.{suffix}.gz"
    (FIXTURES / name).write_bytes(gzip.compress(data, mtime=0))
    print(f"{name}: {len(data)} bytes")  # noqa: T201


def main() -> None:
    """Compile the cases of the installed Triton."""
    version = ".".join(triton.__version__.split(".")[:2])
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        for case in CASES:
            if case.version != version:
                continue
            for suffix in case.suffixes:
                os.environ["TRITON_DISABLE_LINE_INFO"] = str(int(suffix == "cubin"))
                stages = compile_kernel(
                    case.kernel, case.capability, case.signature, case.constexprs, **case.options
                )
                data = stages[suffix]
                write(case, suffix, scrub(data).encode() if suffix == "ptx" else data)


if __name__ == "__main__":
    sys.exit(main())
