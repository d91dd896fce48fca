"""Commands on AMD targets: reports, explanations, rooflines and what is refused."""

from __future__ import annotations

import pytest

from tests.command_lines import Commands

SMALL = ("--shape", "M=512,N=512,K=512", "--axis", "BLOCK_M=64", "--axis", "BLOCK_N=64")
ONE = (*SMALL, "--axis", "BLOCK_K=64", "--axis", "num_warps=4", "--axis", "num_stages=2")
PRUNE = ("prune-report", "tiled_matmul")
NEVER_RUN = "predicted from its assembly and data sheet; never run on hardware"


@pytest.mark.slow(seconds=6)
def test_two_vendors_side_by_side(commands: Commands) -> None:
    """One report has both vendors' tables; of AMD's it says that nothing was run."""
    pair = ("--target", "MI300X", "--target", "H200")
    out = commands.run(*PRUNE, *pair, *SMALL, "--axis", "BLOCK_K=32,64", "--compile", "4")
    assert "Kept on MI300X, best first" in out.out
    assert "Kept on H200, best first" in out.out
    assert f"MI300X: {NEVER_RUN}" in out.out
    assert f"H200: {NEVER_RUN}" not in out.out
    assert "MI300X: all were compiled: no sketch reads the TTGIR of gfx942" in out.out
    assert "as the AMDGCN or PTX has it" in out.out


@pytest.mark.slow(seconds=1)
def test_an_explanation(commands: Commands) -> None:
    """A config's AMDGCN, registers and limits are shown, and that none of it was run."""
    out = commands.run(
        "explain", "tiled_matmul", "--target", "MI355X", *ONE, "--alone", "--code", "amdgcn"
    )
    assert "Hottest loop in AMDGCN" in out.out
    assert "v_mfma_f32_" in out.out
    assert "AGPRs among a thread's registers" in out.out
    assert NEVER_RUN in out.out
    assert "the layouts of gfx950's TTGIR are not read" in out.out


@pytest.mark.slow(seconds=1)
def test_learned_falls_back(commands: Commands) -> None:
    """`learned` ranks no AMD device: roofline does, and a line says why."""
    out = commands.run(*PRUNE, "--target", "MI300X", *ONE, "--scorer", "learned")
    assert "ranked by roofline: learned was trained on NVIDIA devices alone" in out.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (*PRUNE, "--target", "H200", *ONE, "--axis", "waves_per_eu=2"),
            "waves_per_eu is an option of AMD's compiler; leave the axis out",
        ),
        (
            (*PRUNE, "--target", "MI300X", *ONE, "--axis", "maxnreg=128"),
            "maxnreg is an option of NVIDIA's compiler; AMD's takes waves_per_eu",
        ),
        (
            (*PRUNE, "--target", "MI300X", "--axis", "kpack=4"),
            "axis 'kpack' has 4: expected one of 1, 2",
        ),
        (
            (*PRUNE, "--target", "MI300X", "--axis", "matrix_instr_nonkdim=8"),
            "axis 'matrix_instr_nonkdim' has 8: expected one of 0, 4, 16, 32",
        ),
        (
            ("explain", "tiled_matmul", "--target", "MI300X", "--code", "sass"),
            "--code sass: the code of MI300X (gfx942) is amdgcn",
        ),
        (
            ("explain", "tiled_matmul", "--target", "H200", "--code", "amdgcn"),
            "--code amdgcn: the code of H200 (sm_90) is ptx or sass",
        ),
        ((*PRUNE, "--target", "gfx942"), "its devices here: MI300A, MI300X, MI325X"),
    ],
)
def test_refusals(arguments: tuple[str, ...], message: str, commands: Commands) -> None:
    """What fits the other vendor alone is refused in one line that says so."""
    line = commands.refused(*arguments)
    assert message in line
