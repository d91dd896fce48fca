"""AMD's assembly of real compiles: dynamic counts against totals that are known."""

from __future__ import annotations

import io
import math
import struct

import pytest
from elftools.elf.elffile import ELFFile

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.occupancy import occupancy
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.asm.amdgcn import parse_amdgcn, read_resources
from asmtune.kernels import tiled_matmul as matmul
from asmtune.predict.features.catalog import LaunchReading
from asmtune.predict.features.execution import executions
from tests.launch_kernels import (
    Launch,
)

MACHINES = ("MI250X", "MI300X", "MI355X")


def moved(reading: LaunchReading, direction: str) -> float:
    """Bytes of global memory that a launch's threads move."""
    threads = reading.profile.num_warps * reading.target.warp_size
    runs = executions(reading.profile, reading.work, reading.target.warp_size)
    a_thread = sum(
        traffic.bytes * count * run.times
        for segment, run in zip(reading.profile.segments, runs, strict=True)
        for traffic, count in segment.traffic.items()
        if (traffic.space, traffic.direction) == ("global", direction)
    )
    return reading.work.programs * threads * a_thread


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize(
    ("machine", "dtype", "stages"),
    [
        *(("MI300X", "fp16", stages) for stages in (1, 2, 4)),
        *(("MI355X", "fp16", stages) for stages in (1, 2, 4)),
        ("MI250X", "fp16", 2),
        ("MI300X", "bf16", 4),
        ("MI300X", "i8", 1),
        ("MI300X", "fp8e4b8", 2),
        ("MI300X", "fp32", 4),
        ("MI355X", "bf16", 1),
        ("MI355X", "i8", 2),
        ("MI355X", "fp8e4nv", 4),
    ],
)
def test_a_product(machine: str, dtype: str, stages: int, launch: Launch) -> None:
    """2 M N K by the matrix units, each operand's tile once a trip, each result once."""
    problem = matmul.problem({"M": 256, "N": 512, "K": 1024}, dtype, "meta")
    values = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8}
    reading = launch(problem, Config(values, num_warps=4, num_stages=stages), machine)
    programs = reading.work.programs
    assert programs == 8
    assert programs * reading.cycles.flops == 2 * 256 * 512 * 1024
    size = problem.arguments["a_ptr"].element_size()
    # The kernel's masks compile to loads without a branch, so that every tile is whole.
    assert moved(reading, "load") == programs * (128 + 128) * 1024 * size
    result = problem.arguments["c_ptr"]
    assert moved(reading, "store") == result.numel() * result.element_size()


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize(("machine", "warps"), [("MI300X", 4), ("MI355X", 4), ("MI250X", 8)])
def test_llvm_agrees_on_occupancy(machine: str, warps: int, settings: Settings) -> None:
    """Wavefronts a SIMD by registers are LLVM's own, which it leaves in the assembly's text."""
    target = load_target(machine)
    problem = matmul.problem({"M": 256, "N": 256, "K": 512}, "fp16", "meta")
    for edge in (32, 64, 128):
        values = {"BLOCK_M": edge, "BLOCK_N": edge, "BLOCK_K": 32, "GROUP_M": 8}
        request = Lowering(problem, target, 60).request(Config(values, num_warps=warps))
        assert isinstance(request, LowerRequest)
        artifact = compile_one(request, settings)
        assert isinstance(artifact, Artifact)
        text = artifact.outputs["amdgcn"]
        assert artifact.arch == target.arch
        resources = read_resources(text, parse_amdgcn(text).entry.name)
        # LLVM knows no dynamic LDS: registers alone limit.
        own = int(text.partition("; Occupancy: ")[2].split()[0])
        found = occupancy(target, warps, resources.regs_per_thread, 0, resources.sgprs)
        assert min(found.limit_registers * warps // 4, 8) == own


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize(
    ("machine", "edge"), [*((machine, 64) for machine in MACHINES), ("MI300X", 256)]
)
def test_resources_are_the_code_objects(machine: str, edge: int, settings: Settings) -> None:
    """Registers, scratch and code size in the text are those of the hsaco's own descriptor."""
    problem = matmul.problem({"M": 256, "N": 256, "K": 512}, "fp16", "meta")
    values = {"BLOCK_M": edge, "BLOCK_N": edge, "BLOCK_K": 32, "GROUP_M": 8}
    request = Lowering(problem, load_target(machine), 60).request(Config(values, num_warps=4))
    assert isinstance(request, LowerRequest)
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact)
    found = read_resources(artifact.outputs["amdgcn"], artifact.entry)
    elf = ELFFile(io.BytesIO(artifact.cubin))
    symbols = {s.name: s for s in elf.get_section_by_name(".symtab").iter_symbols()}
    assert symbols[artifact.entry]["st_size"] == found.code_bytes
    rodata, descriptor = elf.get_section_by_name(".rodata"), symbols[f"{artifact.entry}.kd"]
    place = descriptor["st_value"] - rodata["sh_addr"]
    # LLVM's user guide, "Kernel Descriptor": 64 bytes.
    _, scratch = struct.unpack_from("<II", rodata.data(), place)
    rsrc3, rsrc1 = struct.unpack_from("<II", rodata.data(), place + 44)
    assert scratch == found.scratch_bytes
    # Registers in eights less one; AGPRs begin at a multiple of four.
    assert rsrc1 & 63 == math.ceil(found.regs_per_thread / 8) - 1
    assert ((rsrc3 & 63) + 1) * 4 >= found.regs_per_thread - found.agprs
    assert (edge == 256) == (found.spill_words > 0)
