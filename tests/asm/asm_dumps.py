"""Dumps to test `asmtune.ir.asm` on: the recorded ones, and fresh ones of any architecture."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from asmtune.ir.asm.program import Listing
from asmtune.ir.asm.ptx import parse_ptx

FIXTURES = Path(__file__).parent / "fixtures"

POINTERS = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp16"}
SIZES = {"M": "i32:16", "N": "i32:16", "K": "i32:16"}
GEMM = {**POINTERS, **SIZES}


def fixture_bytes(name: str) -> bytes:
    """Return a recorded dump, such as `gemm-sm80-triton3.6.ptx`."""
    return gzip.decompress((FIXTURES / f"{name}.gz").read_bytes())


def fixture_text(name: str) -> str:
    """Return the text of a recorded PTX dump."""
    return fixture_bytes(f"{name}.ptx").decode()


def fixture_listing(name: str) -> Listing:
    """Parse a recorded PTX dump."""
    return parse_ptx(fixture_text(name))


def ptx_names() -> list[str]:
    """Return the names of all recorded PTX dumps."""
    return sorted(path.name.removesuffix(".ptx.gz") for path in FIXTURES.glob("*.ptx.gz"))


def cubin_names() -> list[str]:
    """Return the names of all recorded cubins, with their suffix."""
    return sorted(path.name.removesuffix(".gz") for path in FIXTURES.glob("*.cubin.gz"))


def compile_kernel(
    kernel: Any,
    capability: int,
    signature: dict[str, str],
    constexprs: dict[str, Any],
    **options: Any,
) -> dict[str, Any]:
    """Compile for a named architecture, without a GPU; return `ptx`, `cubin` and the IRs.

    Args:
        kernel: a `@triton.jit` function.
        capability: 10 x major + minor, such as 90.
        signature: Triton's type of each run-time argument; pointers, and integers whose
            type ends in ":16", are taken as divisible by 16.
        constexprs: value of each constexpr.
        options: num_warps, num_stages, maxnreg and the like.
    """
    names = kernel.arg_names
    attributes = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name, text in signature.items()
        if text.startswith("*") or text.endswith(":16")
    }
    types = {name: text.removesuffix(":16") for name, text in signature.items()}
    types |= dict.fromkeys(constexprs, "constexpr")
    source = ASTSource(kernel, {name: types[name] for name in names}, constexprs, attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return {stage: compiled.asm[stage] for stage in ("ttgir", "ptx", "cubin")}
