"""AMD's assembly of real compiles: dynamic counts against totals that are known."""

from __future__ import annotations

import io
import math
import struct

import pytest
from elftools.elf.elffile import ELFFile

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.occupancy import occupancy
from asmtune.ir.asm.amdgcn import read_resources
from asmtune.kernels import tiled_matmul as matmul
from asmtune.predict.features.catalog import LaunchReading
from asmtune.predict.features.execution import executions
from tests.compile.making import compiled
from tests.launch_kernels import Launch


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
@pytest.mark.parametrize(
    ("machine", "edge", "warps"),
    [
        *((machine, edge, 4) for machine in ("MI300X", "MI355X") for edge in (32, 64, 128)),
        *(("MI250X", edge, 8) for edge in (32, 64, 128)),
        ("MI300X", 256, 4),
    ],
)
def test_resources_are_llvms(machine: str, edge: int, warps: int, settings: Settings) -> None:
    """Registers, scratch and code size are the hsaco's own, and wavefronts a SIMD are LLVM's."""
    target = load_target(machine)
    problem = matmul.problem({"M": 256, "N": 256, "K": 512}, "fp16", "meta")
    values = {"BLOCK_M": edge, "BLOCK_N": edge, "BLOCK_K": 32, "GROUP_M": 8}
    config = Config(values, num_warps=warps)
    artifact = compiled(Lowering(problem, target, 60), config, settings)
    text = artifact.outputs["amdgcn"]
    assert artifact.arch == target.arch
    found = read_resources(text, artifact.entry)
    # LLVM knows no dynamic LDS: registers alone limit.
    own = int(text.partition("; Occupancy: ")[2].split()[0])
    fit = occupancy(target, warps, found.regs_per_thread, 0, found.sgprs)
    assert min(fit.limit_registers * warps // 4, 8) == own
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
