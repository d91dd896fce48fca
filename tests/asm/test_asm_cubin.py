"""Resources read from cubins, against NVIDIA's own tools; damaged files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import fixture_kernels as kernels
import pytest
import triton.backends.nvidia
from asm_dumps import compile_kernel, cubin_names, fixture_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from asmtune.base.errors import ParseError
from asmtune.ir.asm.cubin import read_cubin

CUOBJDUMP = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"

# As cuobjdump 13.1 prints them: REG, STACK.
USAGE = {
    "gemm-sm80-triton3.6.cubin": (228, 0),
    "gemm-sm90-triton3.9.cubin": (168, 0),
    "spill-sm80-triton3.6.cubin": (32, 1088),
    "spill-sm89-triton3.6.cubin": (32, 1088),
    "spill-sm90-triton3.6.cubin": (32, 1176),
    "spill-sm90-triton3.9.cubin": (32, 728),
    "spill-sm100-triton3.6.cubin": (32, 1160),
    "spill-sm120-triton3.9.cubin": (32, 688),
}


def test_resources_of_recorded_cubins() -> None:
    """Registers and stack equal what cuobjdump prints, in every recorded cubin."""
    assert sorted(USAGE) == cubin_names()
    for name, usage in USAGE.items():
        resources = read_cubin(fixture_bytes(name))
        assert (resources.regs_per_thread, resources.stack_bytes) == usage, name
        assert resources.spill_words * 4 == resources.frame_bytes == resources.stack_bytes
        assert resources.code_bytes > 0
        assert resources.code_bytes % 128 == 0


SOFTMAX = {"x_ptr": "*fp16", "y_ptr": "*fp16", "n": "i32", "stride": "i32:16"}


@pytest.mark.slow
@pytest.mark.skipif(not CUOBJDUMP.is_file(), reason="Triton without cuobjdump")
@pytest.mark.parametrize("capability", [80, 89, 90, 100, 120])
@pytest.mark.parametrize("maxnreg", [None, 32])
def test_fresh_cubins_match_cuobjdump(capability: int, maxnreg: int | None, tmp_path: Path) -> None:
    """What the installed Triton compiles reads as its own cuobjdump has it."""
    options = {"num_warps": 2, "maxnreg": maxnreg}
    cubin = compile_kernel(kernels.row_softmax, capability, SOFTMAX, {"BLOCK": 4096}, **options)[
        "cubin"
    ]
    path = tmp_path / "kernel.cubin"
    path.write_bytes(cubin)
    printed = subprocess.run(
        [CUOBJDUMP, "--dump-resource-usage", path], capture_output=True, text=True, check=True
    ).stdout
    numbers = re.search(r"REG:(\d+) STACK:(\d+)", printed)
    assert numbers is not None
    resources = read_cubin(cubin)
    found = resources.regs_per_thread, resources.stack_bytes
    assert found == tuple(map(int, numbers.groups()))
    assert (resources.spill_words > 0) == (maxnreg is not None)


def read_or_refuse(data: bytes) -> None:
    """Read; anything but resources or a ParseError fails the test."""
    try:
        resources = read_cubin(data)
    except ParseError:
        return
    assert resources.regs_per_thread >= 0


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(cubin_names()), st.data())
def test_damaged_cubins(name: str, data: st.DataObject) -> None:
    """Bytes overwritten in headers and tables raise ParseError or still read."""
    content = bytearray(fixture_bytes(name))
    tables = int.from_bytes(content[0x28:0x30], "little")
    for _ in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.sampled_from([0, 0, tables, tables, 64]))
        place = min(start + data.draw(st.integers(0, 1400)), len(content) - 1)
        content[place] = data.draw(st.integers(0, 255))
    read_or_refuse(bytes(content))
