"""How a kernel is launched is read off its PTX."""

from __future__ import annotations

from dataclasses import replace

from asmtune.ir.asm.nvptx import KernelEntry, entries

TEXT = """
// .visible .entry comment(.param .u64 a)
.visible .entry add( // .param .u64 no,
    .param .u64 .ptr .global .align 1 add_param_0,
    .param .b32 n, /* .param .f32 out, */
    .param .align 64 .b8 desc[128]
)
.reqntid 128, 2, 1
.reqnctapercluster 2
.maxnreg 64
{ ret; }
.entry none { ret; }
"""


def test_heads_are_read() -> None:
    """Names, bytes of parameters, threads and clusters; comments count for nothing."""
    assert entries(TEXT) == [
        KernelEntry("add", (8, 4, 128), 256, 2),
        KernelEntry("none", (), None, 1),
    ]
    assert entries("no PTX at all") == []


def test_what_does_not_fit_is_told() -> None:
    """Other parameters, threads or clusters than the kernel's; threads may be left open."""
    own = KernelEntry("add", (8, 8, 4), 128, 1)
    assert own.misfit(own) is None
    assert replace(own, threads=None).misfit(own) is None
    for other, said in [
        (replace(own, parameters=(8, 8)), "2 parameters of 8, 8 bytes, and the kernel 3"),
        (replace(own, parameters=()), "no parameters"),
        (replace(own, parameters=(8, 4, 8)), "8, 4, 8"),
        (replace(own, threads=256), "256 threads a program, and launched with 128"),
        (replace(own, programs=2), "clusters of 2"),
    ]:
        assert said in str(other.misfit(own))
